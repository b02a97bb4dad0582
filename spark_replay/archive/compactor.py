"""Merges small files while the archiver runs, without Spark and without a command: ``compact = "auto"``.

It merges one group at a time, of a shard that is assigned to this archiver, and spends at most a tenth of the time on
it. It begins no merge while a mass replay holds a flow of the dataset by its lease, or while this is not known.
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
"""The largest part of the time that is spent on merging."""
IDLE_S: Final = 600.0
"""Seconds until the next step if nothing had to be merged, or merging was not permitted."""
SOON_S: Final = 5.0
"""Seconds until the next step while no shard is assigned."""
LEAST_FILES: Final = 16
"""Fewer files are not worth a commit."""


def worthwhile(files: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """The files of a group that are merged now; none: the group waits.

    A file that is larger than all later ones together is left out. So a merged file is merged again only into one of at
    least twice its size.
    """
    rest = sum(entry.bytes for entry in files)
    for number, entry in enumerate(files):
        rest -= entry.bytes
        if entry.bytes <= rest:
            return tuple(files[number:]) if len(files) - number >= LEAST_FILES else ()
    return ()


class Compactor:
    """``shards``: the shards that may be merged now. ``held``: whether a replay has a lease; an error of it means yes.
    ``now``: seconds of a monotonic clock.

    ``merged``: whether the last step merged a group. The wait after it keeps :data:`SHARE`.
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
        self.merged = False

    def step(self) -> float:
        """Merge one group, if there is one. Returns the seconds until the next step. Blocks.

        Raises nothing, because an archive is complete without merging.
        """
        self.merged = False
        if not self._shards():
            return SOON_S
        begin = self._now()
        try:
            if not self._held():
                self.merged = self._merge_next()
        except WormholeError as error:
            _log.warning("small files are not merged just now: %s", error)
        except Exception:  # noqa: BLE001 - archiving continues without merging
            _log.exception("small files are not merged: internal error")
        waits = (self._now() - begin) * (1 / SHARE - 1)
        return waits if self.merged else max(waits, IDLE_S)

    def _merge_next(self) -> bool:
        """Merge one group. The shards take turns. Returns whether there was a group."""
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
