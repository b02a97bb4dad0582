"""Receives an event that is too large for memory into a file, and reads it after its checksum was verified.

    event := (packet of 0xFFFFFF bytes)* packet of fewer bytes, possibly none       a 0x00 precedes the event

The checksum is the last four bytes of an event, and no part of the event may be used before the checksum was verified.
An ignored event is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from zlib_ng.zlib_ng import crc32

from datastores.mysql.decode.events import CHECKSUM, HEADER
from datastores.mysql.decode.framing import WHOLE_PAYLOAD
from datastores.mysql.decode.large_event import Body
from datastores.mysql.log.scratch_file import ScratchFile
from wormhole.model.errors import DecodeError

__all__ = ["LARGEST_EVENT", "Spool"]

LARGEST_EVENT: Final = (1 << 30) + (1 << 16)
"""The most bytes of an event: max_allowed_packet is at most 1 GiB."""

_PACKET: Final = 4
_TYPE_AT: Final = 4
_LENGTH_AT: Final = 9
_FLAGS_AT: Final = 17


class Spool:
    """``open``: an event is being received. ``received``: its bytes that arrived after the header. ``ended``: the event
    is complete.

    ``header``, ``size``: of the event, once its header arrived. ``tail``: its last four bytes. ``crc``: CRC-32 of all
    bytes before the tail. ``ignores``: returns for an event's type and flags whether its body is not needed.
    ``folder``: for the file, which has no name and serves one event.
    """

    def __init__(self, folder: Path, ignores: Callable[[int, int], bool]) -> None:
        self._folder = folder
        self._ignores = ignores
        self._file: ScratchFile | None = None
        self._reset()

    def _reset(self) -> None:
        self.open = self.ended = False
        self.received = 0
        self.header = b""
        self.size = 0
        self.tail = b""
        self.crc = 0
        self._first = b""  # the bytes received while the header is incomplete
        self._head = b""  # the bytes received of the present packet's header
        self._left = 0  # bytes of the present packet not received yet
        self._last = False

    def begin(self) -> None:
        """Begin an event with the next packet."""
        self.close()
        self.open = True

    def take(self, data: bytes, at: int) -> int:
        """Receive the event's bytes in ``data`` from ``at`` on. Returns the offset after them.

        Raises :class:`DecodeError` for bytes that are no event, and :class:`SourceUnavailable` if the disk fails.
        """
        end = len(data)
        while at < end and not self.ended:
            if self._left:
                stop = min(end, at + self._left)
                self._left -= stop - at
                self._receive(memoryview(data)[at:stop])
            else:
                stop = min(end, at + _PACKET - len(self._head))
                self._head += data[at:stop]
                if len(self._head) == _PACKET:
                    self._left = int.from_bytes(self._head[:3], "little")
                    self._last = self._left < WHOLE_PAYLOAD
                    self._head = b""
            at = stop
            if self._last and not self._left:
                self._end()
        return at

    def body(self, checksum: bool) -> Body:
        """A reader of the event between its header and its ``checksum``, usable once. Empty for an ignored event."""
        if self._file is None:
            return Body(_nothing, 0)
        return self._file.body(0, self.received - (CHECKSUM if checksum else 0))

    def close(self) -> None:
        """Drop the event."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._reset()

    # --- inside ------------------------------------------------------------------------------------------------

    def _receive(self, piece: memoryview) -> None:
        if not self.header:
            missing = 1 + HEADER - len(self._first)
            self._first += piece[:missing]
            piece = piece[missing:]
            if self._first[0]:
                raise DecodeError(f"a packet of more than 1 MiB begins with 0x{self._first[0]:02x}, which is no event")
            if len(self._first) <= HEADER:
                return
            self._begin(self._first[1:])
        checked = min(len(piece), max(0, self.size - HEADER - CHECKSUM - self.received))
        self.received += len(piece)
        if HEADER + self.received > self.size:
            raise DecodeError(f"an event whose header gives {self.size} bytes has more")
        self.crc = crc32(piece[:checked], self.crc)
        self.tail += piece[checked:]
        if self._file is not None:
            self._file.append((piece,), f"an event of {self.size} bytes cannot be received into a file")

    def _begin(self, header: bytes) -> None:
        self.header = header
        self.size = int.from_bytes(header[_LENGTH_AT : _LENGTH_AT + 4], "little")
        if not HEADER + CHECKSUM <= self.size <= LARGEST_EVENT:
            raise DecodeError(
                f"the server announces an event of {self.size} bytes", hint="the stream is damaged; it is opened again"
            )
        self.crc = crc32(header)
        if not self._ignores(header[_TYPE_AT], int.from_bytes(header[_FLAGS_AT:HEADER], "little")):
            self._file = ScratchFile(self._folder)

    def _end(self) -> None:
        self.ended = True
        if HEADER + self.received != self.size or not self.header:
            raise DecodeError(
                f"an event whose header gives {self.size} bytes has {HEADER + self.received}",
                hint="the stream is damaged; it is opened again",
            )


def _nothing(_: int) -> bytes:
    return b""
