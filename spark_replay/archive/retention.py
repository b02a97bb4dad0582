"""Removes updates older than they are kept from an archive, and data files and checkpoints that no manifest names.

Both in two steps, for jobs that planned on a manifest read its files for hours. First a file is no longer named (a
checkpoint: by none of the manifests that are still there); when a run has seen it unnamed a day ago, and it is a day
old itself, a later run deletes it. So ``expire`` is to be run about daily, and never frees room at once.

What the next snapshot needs stays (:mod:`spark_replay.archive.newest_snapshot`): without it no snapshot can be made of
all rows any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_replay.archive.coverage import time_of
from spark_replay.archive.layout import garbage_path
from spark_replay.archive.manifest import FileEntry, Manifest
from spark_replay.archive.storage import Stored
from spark_replay.archive.store import ArchiveStore
from wormhole.model.json_input import read_json
from wormhole.model.position import LogPosition
from wormhole.model.values import Op

__all__ = ["GRACE_S", "Expired", "expire", "outdated", "to_delete"]

GRACE_S: Final = 86_400
"""So many seconds a file stays after it was first seen unnamed; longer than any job should take."""

_LIST: Final = "checkpoints/"
"""How the list of garbage tells a checkpoint from a data file."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What one run did for a shard, or would do. ``dropped``: files that the manifest names no more; ``deleted``: those
    that are gone; ``waiting``: unnamed ones that stay for now; ``needed``: too old as well, and named still because the
    next snapshot needs them.
    """

    shard: str
    dropped: tuple[FileEntry, ...]
    deleted: tuple[Stored, ...]
    waiting: tuple[Stored, ...]
    needed: tuple[FileEntry, ...] = ()


def outdated(manifest: Manifest, before_us: int, modified_us: Mapping[str, int]) -> int:
    """How many of the oldest files hold nothing that was committed at ``before_us`` or later. The first younger one
    keeps all behind it, so that no hole comes into being. Where a log has no times, those at which the files were
    written count (``modified_us``, by name).
    """
    count = 0
    for entry in manifest.files:
        if (time_of(entry) or modified_us.get(entry.name, before_us)) >= before_us:
            break
        count += 1
    return count


def to_delete(
    unnamed: Sequence[Stored], seen: Mapping[str, int], now_s: int, grace_s: int = GRACE_S
) -> tuple[tuple[Stored, ...], dict[str, int]]:
    """Which unnamed files go now, and since when the others have been seen. ``seen``: as it was at the last run.

    A file's own age counts besides: one that is being written, or that its writer has yet to commit, is young. What was
    seen by a clock that was ahead was seen now, or it stayed until the clock is there again.
    """
    seen = {name: min(at, now_s) for name, at in seen.items()}
    gone = tuple(
        one for one in unnamed if now_s - seen.get(one.name, now_s) >= grace_s and now_s - one.modified_s >= grace_s
    )
    names = {one.name for one in gone}
    return gone, {one.name: seen.get(one.name, now_s) for one in unnamed if one.name not in names}


def expire(
    store: ArchiveStore,
    keep_s: float | None,
    now_s: int,
    shards: Sequence[str] = (),
    dry_run: bool = False,
    needed_from: Mapping[str, LogPosition] | None = None,
) -> list[Expired]:
    """Run retention over ``shards`` (all when empty). ``keep_s``: seconds that updates stay; ``None``: for ever.
    ``needed_from``: by shard, from where on the next snapshot needs the archive, however old it is
    (:func:`~spark_replay.archive.newest_snapshot.continued_at`). May be run by several at once.

    Raises as :meth:`~spark_replay.archive.store.ArchiveStore.chosen` and
    :meth:`~spark_replay.archive.store.ArchiveStore.change`.
    """
    needed = needed_from or {}
    return [_expire_shard(store, shard, keep_s, now_s, dry_run, needed.get(shard)) for shard in store.chosen(shards)]


def _expire_shard(
    store: ArchiveStore, shard: str, keep_s: float | None, now_s: int, dry_run: bool, needed_from: LogPosition | None
) -> Expired:
    # Listed before the manifest is read: what is committed in between is named in it.
    lying = store.data_files(shard)
    lists = [replace(one, name=f"{_LIST}{one.name}") for one in store.checkpoints(shard)]
    modified_us = {one.name: one.modified_s * 1_000_000 for one in lying}
    before_us = 0 if keep_s is None else int((now_s - keep_s) * 1_000_000)
    dropped: tuple[FileEntry, ...] = ()
    needed: tuple[FileEntry, ...] = ()

    def shortened(manifest: Manifest | None) -> Manifest:
        nonlocal dropped, needed
        assert manifest is not None
        old = outdated(manifest, before_us, modified_us)
        count = min(old, _before(manifest, needed_from))
        dropped, needed = manifest.files[:count], manifest.files[count:old]
        return manifest.without_first(count) if count else manifest

    present = store.read(shard)
    if dry_run:
        shortened(present)
    else:
        present = store.change(shard, shortened)
    assert present is not None
    named = {entry.name for entry in present.files}
    seen = _seen(store, shard)
    gone, still = to_delete([one for one in lying if one.name not in named], seen, now_s)
    waiting = tuple(one for one in lying if one.name in still)
    named = {f"{_LIST}{name}" for name in store.named_checkpoints(shard)}
    lists_gone, lists_still = to_delete([one for one in lists if one.name not in named], seen, now_s)
    still |= lists_still
    if not dry_run:
        for one in gone:
            store.delete_data(shard, one.name)
        for one in lists_gone:
            store.delete_checkpoint(shard, one.name.removeprefix(_LIST))
        if still != seen:
            store.storage.replace(garbage_path(shard), json.dumps(still).encode())
    return Expired(shard, dropped, gone, waiting, needed)


def _before(manifest: Manifest, needed_from: LogPosition | None) -> int:
    """How many of the oldest files end before anything is needed. Rows that a backfill read at the place itself are
    needed: they may have come after the snapshot.
    """
    if needed_from is None:
        return len(manifest.files)

    def needed(entry: FileEntry) -> bool:
        reads = bool(entry.ops.get(Op.READ.value))
        return entry.end.order > needed_from or (reads and entry.end.order == needed_from)

    return next((i for i, one in enumerate(manifest.files) if needed(one)), len(manifest.files))


def _seen(store: ArchiveStore, shard: str) -> dict[str, int]:
    """Unnamed files and when they were first seen; what cannot be read is as if it never was, so all wait again."""
    data = store.storage.read(garbage_path(shard))
    try:
        return {str(name): int(at) for name, at in read_json(data or b"{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}
