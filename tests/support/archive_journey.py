"""What an archive goes through in a storage that is a server: written and committed to while the server fails in every
way, merged, expired, verified, replayed and read by Spark. Everything else is real too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow.parquet as pq

from spark_replay.archive.compact import merge, planned
from spark_replay.archive.manifest import Manifest
from spark_replay.archive.retention import GRACE_S, expire
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from tests.support import spark_java
from tests.support.archives import manifest_of, put, tx, write_archive
from tests.support.mass_workload import FAMILIES
from tests.support.replay_scene import Scene

Trouble = Callable[[], AbstractContextManager[None]]

FEW = 240
_RIGHT = "the right to read, write and delete there"


def several_commit_at_once(to: str) -> None:
    """Writers that share nothing commit to one shard: each commit is made once, and none is lost."""
    store = open_store(to, "orders", copy="main", create=True)
    write_archive(to, {"a": [[tx(put(b"k", b"v"))]]})
    before = manifest_of(store)
    begin = threading.Barrier(4)

    def changed(present: Manifest | None, number: int) -> Manifest:
        assert present is not None
        return replace(present, version=present.version + 1, epoch=number)

    def commit(number: int) -> None:
        own = open_store(to, "orders")
        begin.wait()
        for _ in range(5):
            own.change("a", lambda present: changed(present, number))

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = manifest_of(store)
    assert (after.version, after.files) == (before.version + 20, before.files)
    assert verify(store, deep=True).problems == []


def written_through(scene: Scene, troubles: Mapping[str, tuple[Trouble, str]], say: Callable[[str], None]) -> None:
    """The archiver waits out each trouble, says what it is, and has lost nothing."""
    scene.publisher.start()
    scene.archiver.start()
    scene.until_archived(scene.write(FEW))
    for name, (trouble, said) in troubles.items():
        began = time.monotonic()
        before = len(scene.archiver.output.read_text())
        with trouble():
            scene.write(FEW)
            scene.wait(f"{name}: {said!r} is said", lambda: said in scene.archiver.output.read_text()[before:])  # noqa: B023
        scene.until_archived(scene.write(FEW))
        say(f"  {name}: waited out in {time.monotonic() - began:.1f} s")
    assert verify(stored(scene), deep=True).problems == []


def stored(scene: Scene) -> ArchiveStore:
    """The archive, which there is."""
    found = scene.store()
    assert found is not None
    return found


def looked_after(scene: Scene) -> None:
    """Merged, expired, deleted, and whole."""
    store = stored(scene)
    for group in planned(store):
        assert merge(store, group).state == "merged"
    now = int(time.time())
    waiting = [one.name for shard in expire(store, None, now) for one in shard.waiting]
    deleted = [one.name for shard in expire(store, None, now + GRACE_S + 600) for one in shard.deleted]
    assert waiting
    assert set(deleted) >= set(waiting)
    assert verify(store, deep=True).problems == []


def replayed(scene: Scene, forbidden: Trouble) -> None:
    """An application that is behind comes back. Forbidden before, nothing is held; forbidden half way, every flow is
    released or visibly to be replayed, and `--resume` goes on when it is permitted again.
    """
    cache = scene.received["cache"]
    scene.cut_log()
    scene.subscribers["c1"].start()
    scene.wait("the application is told of its losses", lambda: scene.lost("cache") == len(FAMILIES))
    with forbidden():
        refused = scene.replay("--app", "cache", "--mode", "log")
        assert refused.wait() == 1
    assert sum(line.startswith("error [") for line in refused.output.read_text().splitlines()) == 1, refused.tail()
    assert _RIGHT in refused.output.read_text()
    assert {flow.state for flow in scene.flows("cache")} == {"held"}, "nothing was begun"
    driver = scene.replay("--app", "cache", "--mode", "log", "--patience", "5s")
    scene.wait("a part is pushed", lambda: cache.look() and cache.replayed >= scene.keys)
    with forbidden():
        scene.let_go()
        assert driver.wait() == 1
    told = driver.output.read_text()
    ended = scene.flows("cache")
    assert {flow.state for flow in ended} <= {"needs_replay", "live"}, told
    assert any(flow.state == "needs_replay" for flow in ended)
    assert _RIGHT in told
    (number,) = {flow.replay.replay for flow in ended if flow.state == "needs_replay"}
    again = scene.replay("--resume", number)
    assert again.wait() == 0, again.tail()
    last = scene.write(FEW)
    scene.wait("the live flow goes on", lambda: cache.look() and cache.has(last))
    assert cache.missing(1, last) == []
    assert cache.problems == []


def tables_are_the_stores(scene: Scene) -> None:
    """A snapshot and a history, which Spark reads from there through our reader."""
    for command in ("snapshot", "history"):
        to = str(scene.folder / command)
        process = scene.wormholectl(
            command, command, "--to", to, "-c", str(scene.config), environment=spark_java.environment()
        )
        process.start()
        assert process.wait() == 0, process.tail()
    rows = pq.read_table(scene.folder / "snapshot" / "updates")
    assert rows.num_rows == len(scene.stored())
    assert pq.read_table(scene.folder / "history" / "tables").num_rows >= rows.num_rows
