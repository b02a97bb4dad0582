"""Reads a relay's records in order from a place on."""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from publisher.relay.disk import Disk, DiskFile
from publisher.relay.file_format import BLOCK_SIZE, Block, block_at, read_footer, record_of
from publisher.relay.one_file import OneFile
from publisher.relay.record import Record, cut, proves
from wormhole.model.errors import DecodeError, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.segment import Segment

__all__ = ["Gone", "RelayCursor"]

_WINDOW: Final = 256 << 10


class Gone(SourceUnavailable):
    """The file of a cursor was removed. The reader has to look up the present files."""


class RelayCursor:
    """A cursor that begins with the first record of ``file``. One thread uses it. ``marker``: the last datamarker that
    the cursor has passed. ``lose``: called with a damaged file and the reason, to remove the file.
    """

    def __init__(self, disk: Disk, file: OneFile, marker: Datamarker, lose: Callable[[OneFile, str], None]) -> None:
        self._disk = disk
        self._file = file
        self._lose = lose
        self._offset = file.first
        self._from: LogPosition | None = None
        self._handle: DiskFile | None = None
        self._window = b""
        self._window_at = 0
        self.marker = marker
        self.inside = False
        """Whether the last segment ends inside a transaction."""

    def close(self) -> None:
        """Close the open file; idempotent."""
        handle, self._handle, self._window = self._handle, None, b""
        if handle is not None:
            handle.close()

    def next(self) -> Segment | None:
        """The next segment; ``None`` at the present end. More segments may follow later, if the stretch grows.

        Raises :class:`Gone` if the file was removed. A damaged file is removed now. A transaction that was begun is
        read to its end even from a removed file, because it is in one file, which is still open.
        """
        while True:
            file = self._file
            if file.gone and not (self.inside and self._handle is not None):
                raise _gone(file.path)
            following = file.next  # looked up before the read: once another file follows, this one no longer grows
            if self._offset < file.readable:
                break
            if following is None:
                return None
            self.close()
            self._file, self._offset = following, following.first
        block, record = self._read(self._offset)
        self._offset = block.after
        segment = record.segment
        if self._from is not None:
            segment, self._from = cut(segment, self._from), None
        self.inside = segment.marker is None
        if segment.marker is not None:
            self.marker = segment.marker
        return segment

    # --- finding --------------------------------------------------------------------------------------------------

    def find(self) -> bool:
        """Move to the marker's place. Returns false if the place is not in the file, or is not proven there."""
        known, place = self._blocks(), self.marker.order
        # A piece inside a transaction has the place where the transaction begins as its end. So has the record before.
        at = bisect_right(known, (place, 0), key=lambda block: (block.end, 0 if block.whole else 1))
        ends = [self._file.begin.order, *(block.end for block in known[:at])]
        if place == ends[at]:
            first = at
            while first and ends[first - 1] == place:
                first -= 1  # it has a gap or unlogged changes, which may not have been reported yet
            self._offset = known[first - 1].after if first else self._file.first
            return any(self._is_proven_behind(known, n) for n in range(at, first - 1, -1))
        if at == len(known) or known[at].begin >= place or known[at].end.incarnation != place.incarnation:
            return False
        self._offset, self._from = known[at].offset, place
        return self._is_proven_in(known, at)

    def _blocks(self) -> list[Block]:
        """The blocks of the file, up to the end of its last whole transaction."""
        file = self._file
        known = file.blocks
        if known is not None:
            return known[:]
        with self._reading(file.readable):
            handle = self._open()
            footer = read_footer(handle, handle.size())
            if footer is None:
                raise DecodeError("the index is damaged", code="relay-damaged")
            return footer.blocks

    def _is_proven_behind(self, known: list[Block], at: int) -> bool:
        """Whether the marker is proven at the end of the block before ``at``, or at the beginning of the file."""
        if not at:
            return self.marker.anchor in (None, self._file.begin.anchor)
        return self._is_proven_in(known, at - 1)

    def _is_proven_in(self, known: list[Block], at: int) -> bool:
        """Whether the marker is proven in the block."""
        _, record = self._read(known[at].offset)
        return proves(record, None, self.marker) or proves(record, self._anchor_before(known, at), self.marker)

    def _anchor_before(self, known: list[Block], at: int) -> Anchor | None:
        before = next((block for block in reversed(known[:at]) if block.whole), None)
        if before is None:
            return self._file.begin.anchor
        marker = self._read(before.offset)[1].segment.marker
        return None if marker is None else marker.anchor

    # --- bytes ----------------------------------------------------------------------------------------------------

    def _read(self, offset: int) -> tuple[Block, Record]:
        with self._reading(offset):
            block = block_at(offset, self._bytes(offset, BLOCK_SIZE), self._file.readable)
            return block, record_of(block, self._bytes(offset + BLOCK_SIZE, block.stored))

    def _bytes(self, offset: int, size: int) -> bytes:
        begin = offset - self._window_at
        if begin < 0 or begin + size > len(self._window):
            wanted = min(max(size, _WINDOW), self._file.readable - offset)
            self._window, self._window_at, begin = self._open().read(offset, wanted), offset, 0
        return self._window[begin : begin + size]

    def _open(self) -> DiskFile:
        if self._handle is None:
            self._handle = self._disk.open(self._file.path)
        return self._handle

    @contextlib.contextmanager
    def _reading(self, offset: int) -> Iterator[None]:
        path = self._file.path
        try:
            yield
        except FileNotFoundError:
            if self._file.gone:
                raise _gone(path) from None
            why = "it was removed"
        except DecodeError as error:
            why = f"offset {offset}: {error.message}"
        except OSError as error:
            if error.errno != errno.EIO:
                raise SourceUnavailable(
                    f"{path} cannot be read: {error.strerror}",
                    hint="the publisher must be able to read its own files",
                    code="relay-unwritable",
                ) from error
            why = f"offset {offset}: {error.strerror}"
        else:
            return
        self.close()
        self._lose(self._file, why)
        raise Gone(f"the relay file {path} was removed: {why}", hint="check the disk: its content has changed")


def _gone(path: Path) -> Gone:
    return Gone(f"the relay file {path} was removed while it was read", hint="it is opened again by itself")
