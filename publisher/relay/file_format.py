"""The format of a relay file.

A header contains the format's version, the identity, and the datamarker where the file begins. Blocks follow, each with
one record and checksums. A completed file ends with an index of its blocks and a trailer with the index's offset. A
file without an index is read block by block. A length is used only if its checksum is right and the file has that many
bytes.
"""

from __future__ import annotations

import contextlib
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import google_crc32c
import zstandard

from publisher.relay.disk import DiskFile
from publisher.relay.record import Record, decode, encode
from publisher.relay.settings import RelayIdentity
from wormhole.config import skips_no_less
from wormhole.model.errors import DecodeError, ProtocolError
from wormhole.model.json_input import read_json
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = [
    "BLOCK_SIZE",
    "PACKING_LEVEL",
    "VERSION",
    "Block",
    "FileIndex",
    "Header",
    "OtherFileError",
    "block_at",
    "blocks",
    "find_block",
    "footer_bytes",
    "header_bytes",
    "read_footer",
    "read_header",
    "record_bytes",
    "record_of",
]

VERSION: Final = 1

PACKING_LEVEL: Final = 1
"""The level of zstd."""

_MAGIC: Final = b"WHRELAY\n"
_HEADER: Final = struct.Struct("<8sIII")  # magic, version, bytes of the content, CRC32C of it
_BLOCK: Final = struct.Struct(
    "<4sIIIB20s20sqQ"
)  # magic, stored bytes, unpacked bytes, CRC32C, flags, begin, end, time, log bytes
_BLOCK_MAGIC: Final = b"WHrB"
_CRC: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<QIIIB20s20sqQ")  # the block's offset and its fields
_TRAILER: Final = struct.Struct("<8sQII")  # magic, offset of the index, its CRC32C, its bytes
_TRAILER_MAGIC: Final = b"WHINDEX\n"
_COUNTS: Final = struct.Struct("<IQI")  # entries, bytes of log, bytes of the marker

_MOST_HEADER: Final = 4 << 20
_MOST_RECORD: Final = 2 << 30

_SEARCHED: Final = 1 << 20

_PACKED: Final = 1
_MARKED: Final = 2
_GAP: Final = 4

BLOCK_SIZE: Final = _BLOCK.size + _CRC.size
"""Bytes of a block before its record."""


class OtherFileError(Exception):
    """The file is sound, but has another version or identity. ``what``: the difference."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


# --- the header -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """Where a file begins, the identity of its log, and the size of the header."""

    begin: Datamarker
    identity: dict[str, object]
    size: int

    def differs_from(self, identity: RelayIdentity) -> str:
        """The differences of the file's identity from ``identity``; empty if none matters. A newly skipped table does
        not matter, because the relay must not prevent the skipping of an unreadable update.
        """
        wanted = _identity(identity)
        if skips_no_less(str(self.identity.get("tables")), identity.tables):
            wanted["tables"] = self.identity.get("tables")
        names = sorted(name for name in {*wanted, *self.identity} if self.identity.get(name) != wanted.get(name))
        return ", ".join(f"{name} {self.identity.get(name)!r} instead of {wanted.get(name)!r}" for name in names)


def _identity(identity: RelayIdentity) -> dict[str, object]:
    return {
        "log": identity.log,
        "kind": identity.kind,
        "sharding": identity.sharding,
        "max_update_bytes": identity.max_update_bytes,
        "tables": identity.tables,
        "decoder": identity.decoder,
        "byte_order": sys.byteorder,
    }


def header_bytes(identity: RelayIdentity, begin: Datamarker) -> bytes:
    """The header of a new file as bytes."""
    content = json.dumps({**_identity(identity), "begin": marker_to_bytes(begin).hex()}, sort_keys=True).encode()
    return _HEADER.pack(_MAGIC, VERSION, len(content), google_crc32c.value(content)) + content


def read_header(file: DiskFile) -> Header:
    """A file's header. Raises :class:`~wormhole.model.errors.DecodeError` if there is no complete header, and
    :class:`OtherFileError` for another version.
    """
    start = file.read(0, _HEADER.size)
    if len(start) < _HEADER.size or not start.startswith(_MAGIC):
        raise DecodeError("the file does not begin as a relay file", code="relay-damaged")
    _, version, size, checksum = _HEADER.unpack(start)
    if version != VERSION:
        raise OtherFileError(f"format version {version} instead of {VERSION}")
    content = file.read(_HEADER.size, size) if size <= _MOST_HEADER else b""
    if len(content) != size or google_crc32c.value(content) != checksum:
        raise DecodeError("the header is torn or damaged", code="relay-damaged")
    try:
        identity = read_json(content)
        begin = marker_from_bytes(bytes.fromhex(identity.pop("begin")))
    except (ValueError, KeyError, TypeError, AttributeError, ProtocolError) as error:
        raise DecodeError(f"the header is damaged: {error}", code="relay-damaged") from error
    return Header(begin, identity, _HEADER.size + size)


# --- blocks -----------------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """The head of a block. The ``stored`` bytes of its record begin at ``offset`` + :data:`BLOCK_SIZE`."""

    offset: int
    stored: int
    size: int
    checksum: int
    flags: int
    begin: LogPosition
    end: LogPosition
    newest_us: int
    log_bytes: int

    @property
    def after(self) -> int:
        """The offset of the first byte after the block."""
        return self.offset + BLOCK_SIZE + self.stored

    @property
    def whole(self) -> bool:
        """Whether the block ends between transactions."""
        return bool(self.flags & _MARKED)

    @property
    def gap(self) -> bool:
        """Whether log is missing before the block."""
        return bool(self.flags & _GAP)


def record_bytes(record: Record, offset: int, packer: zstandard.ZstdCompressor | None) -> tuple[Block, bytes]:
    """The block, with its bytes, for a record at ``offset``. ``packer`` compresses it if that makes it smaller."""
    segment = record.segment
    data = encode(record)
    size, flags = len(data), 0
    if size > _MOST_RECORD:
        raise ValueError(f"a segment of {size} bytes is not recorded; at most {_MOST_RECORD} are")
    if packer is not None:
        packed = packer.compress(data)
        if len(packed) < size:
            data, flags = packed, _PACKED
    flags |= (_MARKED if segment.marker is not None else 0) | (_GAP if segment.gap is not None else 0)
    checksum = google_crc32c.value(data)
    begin, end = segment.begin, segment.end
    block = Block(offset, len(data), size, checksum, flags, begin, end, segment.newest_us, segment.log_bytes)
    head = _BLOCK.pack(_BLOCK_MAGIC, *_fields(block))
    return block, b"".join((head, _CRC.pack(google_crc32c.value(head)), data))


def _fields(block: Block) -> tuple[int, int, int, int, bytes, bytes, int, int]:
    _, stored, size, checksum, flags, begin, end, newest_us, log_bytes = block
    return stored, size, checksum, flags, begin.to_bytes(), end.to_bytes(), newest_us, log_bytes


def _block(offset: int, fields: tuple[int, int, int, int, bytes, bytes, int, int]) -> Block:
    stored, size, checksum, flags, begin, end, newest_us, log_bytes = fields
    places = LogPosition.from_bytes(begin), LogPosition.from_bytes(end)
    return Block(offset, stored, size, checksum, flags, *places, newest_us, log_bytes)


def block_at(offset: int, head: bytes, limit: int) -> Block:
    """The block whose head is at ``offset``, in a file of ``limit`` bytes. Raises
    :class:`~wormhole.model.errors.DecodeError`.
    """
    if len(head) < BLOCK_SIZE or not head.startswith(_BLOCK_MAGIC):
        raise DecodeError("no record begins there", code="relay-damaged")
    if google_crc32c.value(head[: _BLOCK.size]) != _CRC.unpack_from(head, _BLOCK.size)[0]:
        raise DecodeError("the head of the record there is damaged", code="relay-damaged")
    block = _block(offset, _BLOCK.unpack_from(head)[1:])
    if block.after > limit or block.size > _MOST_RECORD:
        raise DecodeError(f"the record there has {block.stored} bytes, more than the file", code="relay-damaged")
    return block


def record_of(block: Block, data: bytes) -> Record:
    """The record of a block, from its stored bytes. Raises :class:`~wormhole.model.errors.DecodeError`."""
    if len(data) != block.stored or google_crc32c.value(data) != block.checksum:
        raise DecodeError("the checksum of the record there is wrong", code="relay-damaged")
    if block.flags & _PACKED:
        try:
            if zstandard.frame_content_size(data) != block.size:
                raise DecodeError("the record there does not have the size that it records", code="relay-damaged")
            data = zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise DecodeError(f"the record there cannot be decompressed: {error}", code="relay-damaged") from error
    return decode(data)


def blocks(file: DiskFile, offset: int, limit: int) -> Iterator[Block]:
    """The blocks from ``offset`` on, with compared checksums, up to the index if there is one. Raises
    :class:`~wormhole.model.errors.DecodeError` at the first block that is torn or damaged.
    """
    while offset < limit:
        head = file.read(offset, BLOCK_SIZE)
        if head.startswith(_TRAILER_MAGIC):
            return
        block = block_at(offset, head, limit)
        data = file.read(offset + BLOCK_SIZE, block.stored)
        if len(data) != block.stored or google_crc32c.value(data) != block.checksum:
            raise DecodeError("the checksum of the record there is wrong", code="relay-damaged")
        yield block
        offset = block.after


def find_block(file: DiskFile, offset: int, limit: int) -> bool:
    """Whether a sound block begins anywhere from ``offset`` on. Called after a damaged block."""
    kept = b""
    while offset < limit:
        data = kept + file.read(offset, _SEARCHED)
        at = data.find(_BLOCK_MAGIC)
        while at >= 0:
            with contextlib.suppress(DecodeError):
                block_at(offset - len(kept) + at, data[at : at + BLOCK_SIZE], limit)
                return True
            at = data.find(_BLOCK_MAGIC, at + 1)
        offset += _SEARCHED
        kept = data[-BLOCK_SIZE:]
    return False


# --- the index of a completed file ------------------------------------------------------------------------------------


class FileIndex(NamedTuple):
    """The index of a completed file. ``at``: the offset at which its records end."""

    end: Datamarker
    log_bytes: int
    blocks: list[Block]
    at: int


def footer_bytes(entries: Sequence[Block], end: Datamarker, log_bytes: int, at: int) -> bytes:
    """The bytes of the index and the trailer, which follow the records."""
    marker = marker_to_bytes(end)
    content = b"".join(
        (
            _TRAILER_MAGIC,
            _COUNTS.pack(len(entries), log_bytes, len(marker)),
            marker,
            *(_ENTRY.pack(entry.offset, *_fields(entry)) for entry in entries),
        )
    )
    return content + _TRAILER.pack(_TRAILER_MAGIC, at, google_crc32c.value(content), len(content))


def read_footer(file: DiskFile, size: int) -> FileIndex | None:
    """The index of a file of ``size`` bytes; ``None`` if it has no complete index."""
    trailer = file.read(max(size - _TRAILER.size, 0), _TRAILER.size)
    if len(trailer) < _TRAILER.size or not trailer.startswith(_TRAILER_MAGIC):
        return None
    _, at, checksum, length = _TRAILER.unpack(trailer)
    if at + length + _TRAILER.size != size:
        return None
    content = file.read(at, length)
    if len(content) != length or google_crc32c.value(content) != checksum:
        return None
    begin = len(_TRAILER_MAGIC) + _COUNTS.size
    count, log_bytes, marker = _COUNTS.unpack_from(content, len(_TRAILER_MAGIC))
    entries = [_block(fields[0], fields[1:]) for fields in _ENTRY.iter_unpack(content[begin + marker :])]
    if len(entries) != count:
        return None
    return FileIndex(marker_from_bytes(content[begin : begin + marker]), log_bytes, entries, at)
