"""Keeps prepared XA transactions until their commit: first in memory, then on disk.

MySQL and MariaDB log the rows of an XA transaction when it is prepared, under an earlier GTID than its commit. The rows
are delivered only with the commit, because the transaction may still be rolled back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from datastores.mysql.decode.events import HEADER
from datastores.mysql.decode.large_event import LargeEvent, with_length
from datastores.mysql.decode.rare_events import Xid
from datastores.mysql.log.scratch_file import ScratchFile
from wormhole.model.errors import UnsupportedLog
from wormhole.model.position import LogPosition

__all__ = ["MEMORY", "Prepared"]

MEMORY: Final = 8 << 20
"""The most bytes of events in memory, for all prepared transactions of a reader together."""

_MOST: Final = 100_000  # the most transactions; the smallest takes a kilobyte of memory

_SIZE: Final = struct.Struct("<I")
_PIECE: Final = 256 << 10


@dataclass(slots=True)
class _Group:
    """``kept``: events in memory, or (offset, bytes) of a range of the file with several events."""

    begin: LogPosition
    kept: list[bytes | tuple[int, int]] = field(default_factory=list)
    in_memory: int = 0


class Prepared:
    """The unresolved groups of one reader. A group is the events of one prepared transaction. ``folder``: of
    the groups' file, which has no name. ``budget``: the file's largest size. ``memory``: bytes kept in memory.
    ``held``: the most bytes of an event that is returned whole."""

    def __init__(self, folder: Path, budget: int, memory: int = MEMORY, held: int = MEMORY) -> None:
        self._folder = folder
        self._budget = budget
        self._memory = memory
        self._held = held
        self._groups: dict[Xid, _Group] = {}
        self._open: _Group | None = None
        self._released: _Group | None = None  # the group whose events are being returned
        self._used = 0
        self._file = ScratchFile(folder)

    @property
    def oldest(self) -> LogPosition | None:
        """The beginning of the oldest group that is unresolved or not fully returned."""
        groups = (*self._groups.values(), self._released)
        return min((group.begin for group in groups if group is not None), default=None)

    @property
    def collecting(self) -> bool:
        """Whether a group is being collected."""
        return self._open is not None

    def begin(self, place: LogPosition) -> None:
        """Begin a group. Its events follow."""
        self._open = _Group(place)

    def add(self, event: bytes) -> None:
        """Add an event to the group.

        Raises :class:`UnsupportedLog` over the budget, and :class:`SourceUnavailable` if the disk fails."""
        group = self._open
        assert group is not None
        if self._used + len(event) <= self._memory:
            group.kept.append(event)
            group.in_memory += len(event)
            self._used += len(event)
            return
        self._store(group, len(event), (event,))

    def add_large(self, event: LargeEvent) -> None:
        """Add an event that is too large for memory to the group. Reads its body.

        Raises as :meth:`add`, and :class:`DecodeError`."""
        group = self._open
        assert group is not None
        body = event.body
        header = with_length(event.header, body.left)

        def pieces() -> Iterator[bytes]:
            yield header
            while body.left:
                yield body.read(_PIECE)

        self._store(group, len(header) + body.left, pieces())

    def _store(self, group: _Group, length: int, pieces: Iterable[bytes]) -> None:
        at, size = self._file.end, _SIZE.size + length
        if at + size > self._budget:
            raise UnsupportedLog(
                f"prepared XA transactions hold more than the budget of {self._budget} bytes in {self._folder}",
                hint="XA RECOVER shows them: commit them or roll them back, or raise pin_budget",
            )
        self._file.append(chain((_SIZE.pack(length),), pieces), "prepared XA transactions cannot be kept")
        last = group.kept[-1] if group.kept else None
        if isinstance(last, tuple) and last[0] + last[1] == at:
            group.kept[-1] = (last[0], last[1] + size)
        else:
            group.kept.append((at, size))

    def keep(self, xid: Xid) -> None:
        """Keep the group, which is prepared under the name ``xid``.

        Raises :class:`UnsupportedLog` over the limit of groups."""
        assert self._open is not None
        if len(self._groups) >= _MOST:
            raise UnsupportedLog(
                f"the log has {len(self._groups)} XA transactions that are prepared and not resolved",
                hint="XA RECOVER shows them: commit them or roll them back",
            )
        self._groups[xid] = self._open
        self._open = None

    def drop_open(self) -> None:
        """Drop the group that is being collected, which has no end in the log."""
        if self._open is not None:
            self._forget(self._open)
            self._open = None

    def release_open(self) -> Iterator[bytes | LargeEvent]:
        """The events of the group being collected, which was committed in one phase. See :meth:`release`."""
        assert self._open is not None
        group, self._open = self._open, None
        return self._events(group)

    def release(self, xid: Xid) -> Iterator[bytes | LargeEvent] | None:
        """The events of the committed group; ``None``: no such group is known.

        A large event must be read before the next event is taken.
        """
        group = self._groups.pop(xid, None)
        if group is None:
            return None
        self._released = group
        return self._events(group)

    def drop(self, xid: Xid) -> None:
        """Drop the group, which is rolled back or was delivered before."""
        group = self._groups.pop(xid, None)
        if group is not None:
            self._forget(group)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _events(self, group: _Group) -> Iterator[bytes | LargeEvent]:
        for part in group.kept:
            if isinstance(part, bytes):
                yield part
            else:
                yield from self._stretch(*part)
        self._forget(group)
        if self._released is group:
            self._released = None

    def _stretch(self, at: int, size: int) -> Iterator[bytes | LargeEvent]:
        end = at + size
        while at < end:
            (length,) = _SIZE.unpack(self._file.read(_SIZE.size, at))
            at += _SIZE.size
            if length > self._held:
                yield LargeEvent(self._file.read(HEADER, at), self._file.body(at + HEADER, length - HEADER))
            else:
                yield self._file.read(length, at)
            at += length

    def _forget(self, group: _Group) -> None:
        self._used -= group.in_memory
        group.in_memory = 0
        if not any(
            isinstance(part, tuple) for other in (*self._groups.values(), self._open) if other for part in other.kept
        ):
            self._file.clear()
