"""Removes old updates from an archive, and deletes data files and checkpoints that no manifest names.

This takes two steps, because jobs read the files of a manifest for hours after they read the manifest. First the
manifest no longer names a file. (A checkpoint: none of the existing manifests names it.) A later run deletes the file,
if an earlier run saw it unnamed at least a day ago and the file itself is at least a day old. So ``expire`` has to run
about daily, and never frees space at once.

Updates that the next snapshot needs are kept (:mod:`spark_replay.archive.newest_snapshot`). Without them no snapshot of
all rows could be made.
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
"""Seconds that a file is kept after it was first seen unnamed. No job should take longer."""

_LIST: Final = "checkpoints/"
"""The prefix of checkpoints in the list of garbage; data files have none."""


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of a run for a shard, or of a dry run. ``dropped``: files that the manifest no longer names.
    ``deleted``: deleted files. ``waiting``: unnamed files that are kept for now. ``needed``: files that are too old,
    but still named because the next snapshot needs them.
    """

    shard: str
    dropped: tuple[FileEntry, ...]
    deleted: tuple[Stored, ...]
    waiting: tuple[Stored, ...]
    needed: tuple[FileEntry, ...] = ()


def outdated(manifest: Manifest, before_us: int, modified_us: Mapping[str, int]) -> int:
    """The number of the oldest files without updates that were committed at ``before_us`` or later.

    Counting stops at the first younger file, so that no hole appears after it. If the log has no commit times, the
    times at which the files were written are used (``modified_us``, by name).
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
    """The unnamed files to delete now, and when each of the others was first seen. ``seen``: the latter at the last
    run.

    The age of the file itself has to be sufficient too, because a file that is being written or not yet committed is
    young. A time in ``seen`` after ``now_s``, from a clock that was ahead, is taken as ``now_s``. Otherwise the file
    would be kept until the clock reaches that time again.
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
    """Run retention over ``shards`` (empty: all). Several processes may do this at the same time.

    ``keep_s``: seconds that updates are kept; ``None``: for ever. ``needed_from``: by shard, the place from which on
    the next snapshot needs the archive, however old it is (:func:`~spark_replay.archive.newest_snapshot.continued_at`).
    Raises as :meth:`~spark_replay.archive.store.ArchiveStore.chosen` and
    :meth:`~spark_replay.archive.store.ArchiveStore.change`.
    """
    needed = needed_from or {}
    return [_expire_shard(store, shard, keep_s, now_s, dry_run, needed.get(shard)) for shard in store.chosen(shards)]


def _expire_shard(
    store: ArchiveStore, shard: str, keep_s: float | None, now_s: int, dry_run: bool, needed_from: LogPosition | None
) -> Expired:
    # Listed before the manifest is read, so that the manifest names files that are committed in between.
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
    """The number of the oldest files that end before ``needed_from``.

    Rows that a backfill read at this place are needed too, because they may have come after the snapshot.
    """
    if needed_from is None:
        return len(manifest.files)

    def needed(entry: FileEntry) -> bool:
        reads = bool(entry.ops.get(Op.READ.value))
        return entry.end.order > needed_from or (reads and entry.end.order == needed_from)

    return next((i for i, one in enumerate(manifest.files) if needed(one)), len(manifest.files))


def _seen(store: ArchiveStore, shard: str) -> dict[str, int]:
    """Unnamed files, and when they were first seen. If the list cannot be read it is empty, and all files wait anew."""
    data = store.storage.read(garbage_path(shard))
    try:
        return {str(name): int(at) for name, at in read_json(data or b"{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}
