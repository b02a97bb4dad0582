"""``kill -9`` of the archiver at any moment: nothing is missing in the archive, and nothing is in it twice.

Each round waits until the archive grew, kills the archiver at a moment that the seed chooses, looks at every file and
compares every row with what the writer committed. The archiver merges small files too, when it starts and there are
enough. ``WORMHOLE_ROUNDS`` and ``WORMHOLE_SEED`` as in ``test_kill_nine.py``.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from spark_replay.archive.compactor import LEAST_FILES
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from tests.support.archives import manifest_of
from tests.support.seed import SEED
from tests.system.harness.archive_rows import rows
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.programs import Command
from tests.system.harness.truth import Content, digest
from wormhole.wire.update import Update

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "1"))

Known = dict[str, list[tuple[int, int, Content]]]
"""What was read from files so far, by name: a file never changes."""


def test_kill_nine_of_the_archiver(
    running: Callable[[Plan], AbstractContextManager[Ensemble]], say: Callable[[str], None]
) -> None:
    say(f"\narchiver, kill -9: seed {SEED}")
    chance = random.Random(SEED)
    plan = Plan({"archive": Application({"arch": None})}, zookeeper=False, rate=40.0)
    plan.dataset = 'archive = { to = "archive", flush_every = "200ms", flush_size = "64KiB", compact = "auto" }'
    with running(plan) as ensemble:
        known: Known = {}
        store = open_store(str(ensemble.folder / "archive"), "shop", copy="main", create=True)
        ensemble.tell("go")
        archiver = Command("arch", ensemble.folder, "archive", "run", "-c", str(ensemble.config))
        try:
            for _ in range(ROUNDS):
                before = ends(store)
                archiver.start()
                wait_until(lambda before=before: ends(store) != before, ensemble, archiver)  # type: ignore[misc]
                time.sleep(chance.uniform(0.0, 0.5))
                archiver.kill()
                check(store, ensemble, known)
            archiver.start()
            target = int(ensemble.tell("sequence"))
            wait_until(lambda: min(ends(store).values()) >= target, ensemble, archiver)
            wait_until(lambda: len(files(store)) > LEAST_FILES, ensemble, archiver)
            assert archiver.stop() == 0, archiver.tail()
            before = ends(store)
            archiver.start()
            # An earlier run may have merged files too: this one has begun when the archive grows.
            wait_until(lambda: ends(store) != before, ensemble, archiver)
            wait_until(lambda: any(name.startswith("merged-") for name in files(store)), ensemble, archiver)
            assert archiver.stop() == 0, archiver.tail()
            count = check(store, ensemble, known, deep=True)
        finally:
            archiver.kill()
    say(f"archiver, kill -9: {ROUNDS} rounds, {count} updates archived")


def wait_until(condition: Callable[[], bool], ensemble: Ensemble, archiver: Command) -> None:
    def so() -> bool:
        assert not archiver.ended, archiver.tail()
        return condition()

    ensemble.await_true(so, archiver.tail)


def ends(store: ArchiveStore) -> dict[str, int]:
    """The store's number up to which each shard is archived."""
    manifests = {shard: store.read(shard) for shard in store.shards()}
    return {shard: int(manifest.end.delivered) for shard, manifest in manifests.items() if manifest is not None}


def files(store: ArchiveStore) -> list[str]:
    """The files of the shard that has most."""
    manifests = store.manifests().values()
    return max(([one.name for one in manifest.files] for manifest in manifests), key=len)


def check(store: ArchiveStore, ensemble: Ensemble, known: Known, *, deep: bool = False) -> int:
    """The archive is whole (``deep``: byte by byte; else what is new is read), and each shard holds exactly what was
    committed up to where its manifest ends. How many updates that is."""
    assert not (problems := verify(store, deep=deep).problems), problems
    ensemble.gather()
    sharder = ensemble.plan.sharder()
    total = 0
    for shard in store.shards():
        manifest = manifest_of(store, shard)
        end = int(manifest.end.delivered)
        wanted = [
            (commit.sequence, index, change)
            for commit in ensemble.journal.commits
            for index, change in enumerate(commit.changes)
            if sharder(change) == shard and commit.last <= end
        ]
        found = [one for entry in manifest.files for one in archived(store, shard, entry.name, known)]
        assert found == wanted, f"{shard} up to {end}: {len(found)} archived, {len(wanted)} committed"
        total += len(found)
    return total


def archived(store: ArchiveStore, shard: str, name: str, known: Known) -> list[tuple[int, int, Content]]:
    """Every update of a file: the store's number of its transaction, its index in it, and what it says."""
    if name not in known:
        known[name] = [(number(update), update.index, content(update)) for update in rows(store, shard, name)]
    return known[name]


def number(update: Update) -> int:
    return int(update.transaction.id.rpartition(":")[2])


def content(update: Update) -> Content:
    (key,) = update.key
    value = update.after["value"] if update.after else None
    assert isinstance(key, bytes)
    return Content(update.op.value, update.table, key.hex(), digest(value) if isinstance(value, bytes) else "")
