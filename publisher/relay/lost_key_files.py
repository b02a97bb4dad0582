"""Files with the keys of changed rows. Such a file replaces a relay file that is removed although a flow needs it.

Each file is in the relay's folder, is written once, and is read as a whole. If a file cannot be written or read, a
repair reads whole tables instead of these rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from caravan.backfill.encoding import DamagedError
from publisher.relay.disk import DISK, Disk
from publisher.relay.lost_keys import LostFile, LostKeysBuilder, lost_file, lost_file_to_bytes
from publisher.relay.settings import RelayIdentity
from wormhole.model.errors import WormholeError
from wormhole.model.lost_keys import LostKeys
from wormhole.model.position import LogPosition
from wormhole.model.segment import Segment

__all__ = ["SUFFIX", "LostKeyFiles"]

_log = logging.getLogger(__name__)

SUFFIX: Final = ".lost"
_MOST_BYTES: Final = 256 << 20  # the most bytes of all files together; then the oldest are deleted


@dataclass(frozen=True, slots=True)
class _Known:
    """A file with keys. ``begin`` and ``end``: the range of the log whose changes it lists."""

    begin: LogPosition
    end: LogPosition
    name: str
    size: int


class LostKeyFiles:
    """See the module. Thread-safe. No method raises an error of the disk."""

    def __init__(self, folder: Path, identity: RelayIdentity, *, disk: Disk = DISK) -> None:
        self._folder = folder
        self._identity = blake2b(_text(identity).encode(), digest_size=16).digest()
        self._disk = disk
        self._lock = threading.Lock()
        self._files: list[_Known] | None = None

    def note(self, segments: Iterable[Segment], begin: LogPosition, end: LogPosition) -> None:
        """Store the keys of a relay file that is about to be removed. ``segments``: its content, from ``begin`` to
        ``end``."""
        builder = LostKeysBuilder()
        try:
            for segment in segments:
                builder.add(segment)
            lost = builder.built(begin, end)
            if lost is None:
                _log.warning("which rows the log changes from %s to %s is not noted: %s", begin, end, builder.unknown)
                return
            with self._lock:
                self._write(lost)
        except (OSError, WormholeError) as error:
            _log.warning(
                "which rows the log changes from %s to %s is not noted, so that a repair reads whole tables: %s",
                begin,
                end,
                error,
            )

    def keys(self, shard: str, begin: LogPosition, end: LogPosition) -> LostKeys | None:
        """The rows of ``shard`` that change from ``begin`` to ``end``; ``None`` if a part of the range is missing."""
        if begin >= end:
            return None
        with self._lock:
            found, place = [], begin
            for known in self._known():
                if known.begin <= place < known.end:
                    found.append(known)
                    place = known.end
                if place >= end:
                    break
            if place < end:
                return None
            parts = []
            for known in found:
                lost = self._read(known.name, shard)
                if lost is None:
                    self._remove([known])
                    return None
                parts.append(lost[0].of(shard))
        return LostKeys.joined(parts)

    def release(self, oldest: LogPosition) -> None:
        """Delete the files before ``oldest``, which no later request needs."""
        with self._lock:
            self._remove([known for known in self._known() if known.end <= oldest])

    def clear(self) -> None:
        """Remove all files with keys."""
        with self._lock:
            self._remove(self._known())

    # -- with the lock

    def _known(self) -> list[_Known]:
        """The files, ordered by the begin of their range. Files of another relay, damaged files and incomplete files
        are removed."""
        if self._files is None:
            found, useless = [], []
            for name in self._names():
                read = self._read(name, "")
                if read is None:
                    useless.append(name)
                else:
                    lost, size = read
                    found.append(_Known(lost.begin, lost.end, name, size))
            self._files = sorted(found, key=lambda known: known.begin)
            for name in useless:
                self._unlink(name)
        return self._files

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in self._disk.names(self._folder) if name.endswith(SUFFIX))
        except OSError:
            return []

    def _write(self, lost: LostFile) -> None:
        data = lost_file_to_bytes(lost, self._identity)
        begin = lost.begin
        name = f"{begin.incarnation:010}-{begin.file:020}-{begin.offset:020}{SUFFIX}"
        files = self._known()
        self._remove([known for known in files if known.name == name])
        file = self._disk.create(self._folder / name)
        try:
            file.write(0, data)
            file.sync()
        except BaseException:
            self._unlink(name)
            raise
        finally:
            file.close()
        self._disk.sync_folder(self._folder)
        files.append(_Known(begin, lost.end, name, len(data)))
        files.sort(key=lambda known: known.begin)
        while sum(known.size for known in files) > _MOST_BYTES:
            self._remove(files[:1])

    def _read(self, name: str, shard: str) -> tuple[LostFile, int] | None:
        """The stored keys of ``shard``, and the size of the file; ``None`` if the file is damaged."""
        try:
            file = self._disk.open(self._folder / name)
            try:
                data = file.read(0, file.size())
            finally:
                file.close()
            lost = lost_file(data, self._identity, shards=(shard,))
        except (OSError, DamagedError) as error:
            _log.warning("%s is damaged, so that a repair reads whole tables: %r", self._folder / name, error)
            return None
        return None if lost is None else (lost, len(data))

    def _remove(self, gone: Iterable[_Known]) -> None:
        for known in list(gone):
            if self._files is not None and known in self._files:
                self._files.remove(known)
            self._unlink(known.name)

    def _unlink(self, name: str) -> None:
        try:
            self._disk.unlink(self._folder / name)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", self._folder / name, error)


def _text(identity: RelayIdentity) -> str:
    """The text of the identity, whose digest is in the files. A change of this text makes the files of earlier releases
    unreadable."""
    return (
        f"RelayIdentity(log={identity.log!r}, kind={identity.kind!r}, sharding={identity.sharding!r}, "
        f"max_update_bytes={identity.max_update_bytes!r}, tables={identity.tables!r}, decoder={identity.decoder!r})"
    )
