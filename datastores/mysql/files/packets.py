"""Reads a binlog file's events as the packets that a server's dump would contain, so that a walk can read both.

::

    file    := magic format-description (list-of-GTIDs | others)* event*
    stream  := rotate(made here) format-description event*, from the requested place on

The file is always read from its beginning, to check that its events adjoin and to collect its transactions' GTIDs.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from zlib_ng.zlib_ng import crc32

from datastores.common.next_steps import REPAIR
from datastores.mysql.decode import events
from datastores.mysql.decode.framing import WHOLE_PAYLOAD
from datastores.mysql.decode.rare_events import parse_format_description, parse_query, parse_rotate
from datastores.mysql.files.gtids import BEGINNINGS, FileGtids, Gtid, gtid_of, listed, parse_listed
from datastores.mysql.files.names import file_number
from wormhole.model.errors import DecodeError, Diverged, SourceUnavailable

__all__ = ["FilePackets", "FolderFile", "read_head", "rotate_packet"]

_MAGIC: Final = b"\xfebin"
_ENCRYPTED: Final = b"\xfdbin"
_PIECE: Final = 128 << 10
_LARGEST_LIST: Final = 16 << 20
_HEADER: Final = struct.Struct("<IBIIIH")  # timestamp, type, server, length, end, flags
_PLACE: Final = (1 << 32) - 1
_LISTS: Final = frozenset({events.PREVIOUS_GTIDS, events.GTID_LIST})
_ENDS: Final = frozenset({events.XID, events.XA_PREPARE, events.TRANSACTION_PAYLOAD, events.QUERY})
_NO_END: Final = ("BEGIN", "SAVEPOINT", "XA ")
# Events that a server sends only on request. Dumps of the publisher do not request them, so an anchor's checksum does
# not include them.
_NOT_SENT: Final = frozenset({events.ANNOTATE_ROWS})
_NO_TRANSACTION: Final = frozenset({events.ROTATE, events.STOP, events.FORMAT_DESCRIPTION, *_LISTS})


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of the log in a folder. ``began_s``: when it was begun. ``server_id``: the server that began it.

    ``fingerprint``: see `datastores.mysql.history.incarnations`. ``gtids``: its list of the GTIDs logged before it;
    ``None``: it has no list. ``first``: the GTID of its first transaction; ``None``: it has none. ``stamp``: changes
    when the file is written to.
    """

    number: int
    path: Path
    size: int
    stamp: tuple[int, ...]
    began_s: int
    server_id: int
    fingerprint: str
    gtids: str | None
    first: Gtid | None


def read_head(path: Path) -> FolderFile:
    """Read the beginning of a file. Raises :class:`DecodeError` if it is no binlog file, and ``OSError``."""
    with path.open("rb") as file:
        state = _stat(file)
        if (magic := file.read(len(_MAGIC))) != _MAGIC:
            raise DecodeError("it is encrypted" if magic == _ENCRYPTED else "it is no binlog file")
        at, fingerprint, gtids, first, checksums, encrypted = len(_MAGIC), "", None, None, False, False
        began_s = server_id = 0
        while header := file.read(events.HEADER):
            kind, length = _check(header, at, encrypted=encrypted)
            if length > _LARGEST_LIST:
                break
            event = header + file.read(length - events.HEADER)
            if len(event) < length:
                break
            if not fingerprint:
                if kind != events.FORMAT_DESCRIPTION:
                    raise DecodeError(f"it begins with {events.name_of(kind)}")
                checksums = parse_format_description(event).checksum
                began_s, server_id = int.from_bytes(event[:4], "little"), int.from_bytes(event[5:9], "little")
                fingerprint = f"{began_s}-{server_id}"
            elif kind in _LISTS:
                body = _bare(event, checksums)
                gtids, fingerprint = listed(body), f"{fingerprint}-{crc32(body[events.HEADER :]):08x}"
            elif kind in BEGINNINGS:
                first = gtid_of(_bare(event, checksums))
                break
            encrypted = encrypted or kind == events.START_ENCRYPTION
            at += length
        if not fingerprint:
            raise DecodeError("it ends before its format description")
    return FolderFile(file_number(path.name), path, state[0], state, began_s, server_id, fingerprint, gtids, first)


class FilePackets:
    """The packets of ``file`` from ``offset`` on. ``checksums``: whether earlier packets of the stream had a checksum.

    ``skip``: returns whether a transaction is left out. ``logged``: the GTIDs logged up to the file's end, without its
    last transaction. ``closed``: the file ends with the name of the next file, as a server ends it. ``anonymous``: the
    file has transactions without GTID.
    """

    def __init__(
        self,
        file: FolderFile,
        offset: int,
        *,
        mariadb: bool,
        checksums: bool = False,
        skip: Callable[[Gtid], bool] | None = None,
    ) -> None:
        self.file = file
        self.mariadb = mariadb
        self.checksums = checksums
        self.closed = self.anonymous = False
        self.logged: FileGtids = parse_listed(file.gtids or "", mariadb=mariadb)
        self.last: Gtid | None = None
        self._offset = offset
        self._ends_with: bytes | bool = True  # whether the last transaction ended, or its last statement
        self._skip = skip
        self._pieces: Generator[bytes] = self._packets()

    def read(self) -> bytes:
        """Read the next packets, or parts of a large one. Empty after the last complete packet.

        Raises :class:`DecodeError`, :class:`Diverged` if no event begins at the offset, and :class:`SourceUnavailable`.
        """
        try:
            return next(self._pieces, b"")
        except OSError as error:
            raise SourceUnavailable(
                f"{self.file.path} cannot be read: {error.strerror}", hint="let the publisher's user read it"
            ) from error
        except DecodeError as error:
            raise DecodeError(
                f"{self.file.path}: {error.message}",
                hint="copy it from the server or a backup again; without it the log begins behind it",
            ) from error

    @property
    def ended(self) -> bool:
        """Whether the last transaction read seems complete. A walk determines this exactly."""
        last = self._ends_with
        return last if isinstance(last, bool) else _ends(_bare(last, self.checksums))

    def close(self) -> None:
        """Close the file."""
        self._pieces.close()

    # --- inside ------------------------------------------------------------------------------------------------

    def _packets(self) -> Generator[bytes]:
        yield rotate_packet(self.file.path.name, self._offset, checksum=self.checksums)
        with self.file.path.open("rb") as file:
            if _stat(file) != self.file.stamp:
                raise SourceUnavailable(f"{self.file.path} is written to", hint="it is opened again")
            file.seek(len(_MAGIC))
            yield from self._events(file)

    def _events(self, file: BinaryIO) -> Iterator[bytes]:
        at, left = len(_MAGIC), self.file.size - len(_MAGIC)
        parts: list[bytes] = []
        have, skipping = 0, False
        while left >= events.HEADER:
            header = file.read(events.HEADER)
            kind, length = _check(header, at)
            if length > left:
                break  # the server crashed while writing it, or the copy is incomplete: see `closed`
            held = length <= _PIECE or kind in _LISTS or kind in BEGINNINGS
            event = header + file.read(length - events.HEADER) if held else header
            if kind in BEGINNINGS:
                self._ends_with = False
                skipping = self._begins(_bare(event, self.checksums))
            elif kind in _ENDS:
                self._ends_with = event if kind == events.QUERY and held else True
            elif kind in _NO_TRANSACTION:
                skipping = False
            self.closed = kind == events.STOP or (kind == events.ROTATE and self._names_next(event))
            if kind == events.FORMAT_DESCRIPTION:
                self.checksums = parse_format_description(event).checksum
            if at < self._offset < at + length:
                raise Diverged(
                    f"no event of {self.file.path} begins at {self._offset}",
                    hint=f"find out what happened to the file. If the log is another one: {REPAIR}",
                )
            wanted = at >= self._offset and not skipping and kind not in _NOT_SENT
            wanted = wanted or kind == events.FORMAT_DESCRIPTION
            if wanted and held:
                parts += (struct.pack("<I", length + 1), b"\0", event)
                have += length
            elif wanted:
                yield b"".join(parts)
                parts, have = [], 0
                yield from _large(header, file, length)
            elif not held:
                file.seek(length - events.HEADER, 1)
            if have >= _PIECE:
                yield b"".join(parts)
                parts, have = [], 0
            at, left = at + length, left - length
        if parts:
            yield b"".join(parts)

    def _begins(self, event: bytes) -> bool:
        """Record the beginning of a transaction. Returns whether it is left out."""
        if self.last is not None:
            self.logged.add(self.last)
        self.last = gtid_of(event)
        self.anonymous = self.anonymous or self.last is None
        return self.last is not None and self._skip is not None and self._skip(self.last)

    def _names_next(self, event: bytes) -> bool:
        name = parse_rotate(_bare(event, self.checksums)[events.HEADER :]).name
        return file_number(name) == self.file.number + 1


def rotate_packet(name: str, position: int, *, checksum: bool) -> bytes:
    """The packet that a server sends before a file, which has the place where the stream continues."""
    body = struct.pack("<Q", position) + name.encode()
    length = events.HEADER + len(body) + (events.CHECKSUM if checksum else 0)
    event = _HEADER.pack(0, events.ROTATE, 0, length, 0, events.ARTIFICIAL) + body
    if checksum:
        event += struct.pack("<I", crc32(event))
    return struct.pack("<I", len(event) + 1) + b"\0" + event


def _large(header: bytes, file: BinaryIO, length: int) -> Iterator[bytes]:
    """A large event as packets, in parts. Every packet but the last has the largest size."""
    left, first = length + 1, b"\0" + header
    while True:
        size = min(left, WHOLE_PAYLOAD)
        yield struct.pack("<I", size) + first
        rest, first = size - len(first), b""
        while rest:
            piece = file.read(min(rest, _PIECE))
            if not piece:
                raise DecodeError("it became shorter")
            yield piece
            rest -= len(piece)
        left -= size
        if size < WHOLE_PAYLOAD:
            return


def _check(header: bytes, at: int, *, encrypted: bool = False) -> tuple[int, int]:
    """Type and length of the event at ``at``. ``encrypted``: the following events are encrypted."""
    if len(header) < events.HEADER:
        raise DecodeError("it is cut in its beginning")
    _, kind, _, length, end, _ = _HEADER.unpack(header)
    if length < events.HEADER or end != (at + length) & _PLACE:
        raise DecodeError("it is encrypted" if encrypted else f"what is at {at} is no event")
    return kind, length


def _ends(query: bytes) -> bool:
    """Whether a statement may be the end of its transaction."""
    return not parse_query(query[events.HEADER :]).sql.startswith(_NO_END)


def _bare(event: bytes, checksum: bool) -> bytes:
    return event[: -events.CHECKSUM] if checksum else event


def _stat(file: BinaryIO) -> tuple[int, ...]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns, found.st_ino
