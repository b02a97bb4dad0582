"""Merging small files while the archiver runs, without Spark and without anybody asking: ``compact = "auto"``.

One group at a time, of a shard that this archiver has. A tenth of the time at most is spent on it. It begins nothing
while a mass replay holds a flow of the dataset by its lease, nor where nobody can say whether one does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from spark_replay.archive.compact import TARGET_BYTES, Group, groups, merge
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.store import ArchiveStore
from wormhole.model.errors import WormholeError

__all__ = ["IDLE_S", "LEAST_FILES", "SHARE", "SOON_S", "Compactor", "worthwhile"]

_log = logging.getLogger(__name__)

SHARE: Final = 0.1
"""At most this part of the time goes into merging."""
IDLE_S: Final = 600.0
"""So long until it looks again where nothing was to be merged, or might be."""
SOON_S: Final = 5.0
"""The same while no shard is assigned yet."""
LEAST_FILES: Final = 16
"""Fewer files are not worth a commit."""


def worthwhile(files: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """The files of a group that are merged now; none: it waits. A file that is larger than all behind it together is
    left out, so that what was merged before is written again only when it doubles at least.
    """
    rest = sum(entry.bytes for entry in files)
    for number, entry in enumerate(files):
        rest -= entry.bytes
        if entry.bytes <= rest:
            return tuple(files[number:]) if len(files) - number >= LEAST_FILES else ()
    return ()


class Compactor:
    """``shards``: those that may be merged now. ``held``: whether a replay has a lease; what it raises counts as yes.
    ``now``: seconds of a clock that only goes forward.
    """

    def __init__(
        self,
        store: ArchiveStore,
        shards: Callable[[], Collection[str]],
        held: Callable[[], bool],
        *,
        now: Callable[[], float] = time.monotonic,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._store = store
        self._shards = shards
        self._held = held
        self._now = now
        self._target = target_bytes
        self._last = ""

    def step(self) -> float:
        """Merge one group, if there is one. Returns after how many seconds the next step may come. Blocks, and raises
        nothing: an archive that is not merged is as good.
        """
        if not self._shards():
            return SOON_S
        begin = self._now()
        merged = False
        try:
            if not self._held():
                merged = self._merge_next()
        except WormholeError as error:
            _log.warning("small files are not merged just now: %s", error)
        except Exception:  # noqa: BLE001 - the archive goes on without
            _log.exception("small files are not merged: internal error")
        waits = (self._now() - begin) * (1 / SHARE - 1)
        return waits if merged else max(waits, IDLE_S)

    def _merge_next(self) -> bool:
        """One group, of the shard after the last one that had any; each has its turn."""
        names = sorted(self._shards())
        for shard in (*(name for name in names if name > self._last), *(name for name in names if name <= self._last)):
            manifest = self._store.read(shard)
            found = [] if manifest is None else [worthwhile(group) for group in groups(manifest, self._target)]
            chosen = next((files for files in found if files), ())
            if chosen:
                self._last = shard
                done = merge(self._store, Group(shard, chosen))
                _log.info("%s: %d files of %d bytes: %s", shard, done.files, done.before, done.state)
                return True
        return False
