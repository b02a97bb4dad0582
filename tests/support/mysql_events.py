"""Builds binlog events from Python values, by the formats' public descriptions; shares no code with the decoder.

A column is made by a function of its name (``integer("a", 4)``), which says how the server would log it and its values.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

UTF8MB4, LATIN1, BINARY, GBK, UTF16 = 45, 8, 63, 28, 54
ABSENT = object()
"""Stands for a value that the row image does not have."""


@dataclass(frozen=True)
class Col:
    """One column: the type byte and metadata of a table map, and how a value is stored."""

    name: str
    type: int
    store: Callable[[Any], bytes]
    meta: bytes = b""
    unsigned: bool = False
    collation: int = 0
    members: tuple[str, ...] = ()
    nullable: bool = True

    @property
    def real(self) -> int:
        return self.meta[0] if self.type == 254 and self.meta[0] in {247, 248} else self.type


def packed(n: int) -> bytes:
    """A length-encoded integer."""
    if n < 251:
        return bytes([n])
    return b"\xfc" + n.to_bytes(2, "little") if n < 1 << 16 else b"\xfd" + n.to_bytes(3, "little")


def prefixed(data: bytes, size: int) -> bytes:
    return len(data).to_bytes(size, "little") + data


_INTEGER = {1: 1, 2: 2, 3: 9, 4: 3, 8: 8}


def integer(name: str, size: int, unsigned: bool = False) -> Col:
    return Col(name, _INTEGER[size], lambda n: n.to_bytes(size, "little", signed=not unsigned), unsigned=unsigned)


def varchar(name: str, most: int = 100, collation: int = UTF8MB4, codec: str = "utf-8") -> Col:
    size = 2 if most > 255 else 1

    def store(value: str | bytes) -> bytes:
        return prefixed(value.encode(codec) if isinstance(value, str) else value, size)

    return Col(name, 15, store, struct.pack("<H", most), collation=collation)


def char(name: str, most: int = 10, collation: int = UTF8MB4) -> Col:
    """CHAR, and BINARY with the collation `BINARY`: what pads at the end is not stored."""
    size = 2 if most > 255 else 1

    def store(value: str | bytes) -> bytes:
        raw = value.encode() if isinstance(value, str) else value
        return prefixed(raw.rstrip(b"\0" if collation == BINARY else b" "), size)

    meta = bytes([254 ^ (most >> 8 << 4), most & 0xFF])
    return Col(name, 254, store, meta, collation=collation)


def blob(name: str, size: int = 2, collation: int = BINARY, type_: int = 252) -> Col:
    def store(value: str | bytes) -> bytes:
        return prefixed(value.encode() if isinstance(value, str) else value, size)

    return Col(name, type_, store, bytes([size]), collation=collation)


def json_column(name: str) -> Col:
    """Values are the binary form of documents."""
    return blob(name, 4, 0, type_=245)


def double(name: str) -> Col:
    return Col(name, 5, lambda x: struct.pack("<d", x), b"\x08")


def single(name: str) -> Col:
    return Col(name, 4, lambda x: struct.pack("<f", x), b"\x04")


def decimal(name: str, precision: int, scale: int) -> Col:
    """Values are text."""

    def group(digits: str) -> bytes:
        return int(digits).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(digits)], "big") if digits else b""

    def store(value: str) -> bytes:
        sign = value.startswith("-")
        whole, _, part = value.lstrip("-").partition(".")
        whole, part = whole.lstrip("0").zfill(precision - scale), part.ljust(scale, "0")
        assert (len(whole), len(part)) == (precision - scale, scale), value
        head = len(whole) % 9
        parts = [whole[:head], *(whole[i : i + 9] for i in range(head, len(whole), 9))]
        parts += [part[i : i + 9] for i in range(0, len(part), 9)]
        raw = bytearray(b"".join(map(group, parts)))
        raw[0] ^= 0x80
        return bytes(byte ^ 0xFF for byte in raw) if sign else bytes(raw)

    return Col(name, 246, store, bytes([precision, scale]))


def bit(name: str, bits: int) -> Col:
    size = (bits + 7) // 8
    return Col(name, 16, lambda n: n.to_bytes(size, "big"), bytes([bits % 8, bits // 8]))


def year(name: str) -> Col:
    return Col(name, 13, lambda y: bytes([y - 1900 if y else 0]), unsigned=True)


def date(name: str) -> Col:
    def store(value: str) -> bytes:
        y, m, d = map(int, value.split("-"))
        return (y << 9 | m << 5 | d).to_bytes(3, "little")

    return Col(name, 10, store)


def _fraction(text: str, digits: int) -> bytes:
    kept = digits + digits % 2
    return int(text.ljust(kept, "0")).to_bytes(kept // 2, "big") if digits else b""


def _moment(value: str) -> tuple[int, int, int, int, int, int]:
    y, mo, d = map(int, value[:10].split("-"))
    h, mi, s = map(int, value[11:19].split(":"))
    return y, mo, d, h, mi, s


def datetime2(name: str, digits: int = 0) -> Col:
    def store(value: str) -> bytes:
        y, mo, d, h, mi, s = _moment(value)
        n = 1 << 39 | (y * 13 + mo) << 22 | d << 17 | h << 12 | mi << 6 | s
        return n.to_bytes(5, "big") + _fraction(value[20:], digits)

    return Col(name, 18, store, bytes([digits]))


def timestamp2(name: str, digits: int = 0) -> Col:
    """Values are (seconds, fraction's digits as text)."""
    return Col(name, 17, lambda v: v[0].to_bytes(4, "big") + _fraction(v[1], digits), bytes([digits]))


def time2(name: str, digits: int = 0) -> Col:
    size = (digits + 1) // 2

    def store(value: str) -> bytes:
        sign, rest = (-1, value[1:]) if value[0] == "-" else (1, value)
        clock, _, part = rest.partition(".")
        h, m, s = map(int, clock.split(":"))
        n = (h << 12 | m << 6 | s) << 8 * size | int.from_bytes(_fraction(part, digits), "big")
        return ((0x800000 << 8 * size) + sign * n).to_bytes(3 + size, "big")

    return Col(name, 19, store, bytes([digits]))


def old_time(name: str) -> Col:
    def store(value: str) -> bytes:
        sign, rest = (-1, value[1:]) if value[0] == "-" else (1, value)
        return (sign * int(rest.replace(":", ""))).to_bytes(3, "little", signed=True)

    return Col(name, 11, store)


def old_datetime(name: str) -> Col:
    return Col(name, 12, lambda v: int("".join(c for c in v if c.isdigit())).to_bytes(8, "little"))


def old_timestamp(name: str) -> Col:
    return Col(name, 7, lambda n: n.to_bytes(4, "little"))


def enum(name: str, *members: str) -> Col:
    """Values are the number of the member, from 1 on."""
    size = 1 if len(members) < 256 else 2
    meta = bytes([247, size])
    return Col(name, 254, lambda n: n.to_bytes(size, "little"), meta, collation=UTF8MB4, members=members)


def set_of(name: str, *members: str, collation: int = UTF8MB4) -> Col:
    """Values are the bits of the members."""
    size = {1: 1, 2: 2, 3: 3, 4: 4}.get((len(members) + 7) // 8, 8)
    meta = bytes([248, size])
    return Col(name, 254, lambda n: n.to_bytes(size, "little"), meta, collation=collation, members=members)


def _msb(flags: Sequence[bool]) -> bytes:
    data = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        data[i // 8] |= flag << (7 - i % 8)
    return bytes(data)


def bitmap(flags: Sequence[bool]) -> bytes:
    """Bits from the lowest on."""
    data = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        data[i // 8] |= flag << i % 8
    return bytes(data)


_SIGNED = {0, 1, 2, 3, 4, 5, 8, 9, 13, 246}
_CHARACTER = {15, 252, 253, 254, 242, 140, 141}


def optional(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + packed(len(value)) + value


def table_map(
    table_id: int,
    name: str,
    columns: Sequence[Col],
    key: Sequence[int] = (),
    *,
    names: bool = True,
    extra: bytes = b"",
) -> bytes:
    """The body of a table map with full metadata, or without the names and all that comes with them."""
    database, table = name.encode().split(b".")
    meta = b"".join(c.meta for c in columns)
    body = table_id.to_bytes(6, "little") + b"\1\0" + bytes([len(database)]) + database + b"\0"
    body += bytes([len(table)]) + table + b"\0" + packed(len(columns)) + bytes(c.type for c in columns)
    body += packed(len(meta)) + meta + bitmap([c.nullable for c in columns])
    signed = [c.unsigned for c in columns if c.real in _SIGNED]
    if signed:
        body += optional(1, _msb(signed))
    charsets = [c.collation for c in columns if c.real in _CHARACTER]
    if charsets:
        body += optional(3, b"".join(map(packed, charsets)))
    if names:
        body += optional(4, b"".join(prefixed(c.name.encode(), 1) for c in columns))
        for kind, real in ((5, 248), (6, 247)):
            lists = [
                packed(len(c.members)) + b"".join(packed(len(m.encode())) + m.encode() for m in c.members)
                for c in columns
                if c.real == real
            ]
            if lists:
                body += optional(kind, b"".join(lists))
        if key:
            body += optional(8, b"".join(map(packed, key)))
        members = [c.collation for c in columns if c.real in {247, 248}]
        if members:
            body += optional(11, b"".join(map(packed, members)))
        body += optional(12, _msb([True] * len(columns)))
    return body + extra


def image(columns: Sequence[Col], values: Sequence[Any]) -> bytes:
    """One row image; the caller has put which columns are present before the rows."""
    present = [(c, v) for c, v in zip(columns, values, strict=True) if v is not ABSENT]
    return bitmap([v is None for _, v in present]) + b"".join(c.store(v) for c, v in present if v is not None)


def rows(
    table_id: int,
    columns: Sequence[Col],
    images: Iterable[Sequence[Any]],
    *,
    update: bool = False,
    version: int = 2,
    extra: bytes = b"",
) -> bytes:
    """The body of a rows event. For an update the images come in pairs, before and after."""
    images = list(images)
    body = table_id.to_bytes(6, "little") + b"\1\0"
    if version == 2:
        body += struct.pack("<H", 2 + len(extra)) + extra
    body += packed(len(columns))
    for values in images[: 2 if update else 1]:
        body += bitmap([v is not ABSENT for v in values])
    return body + b"".join(image(columns, values) for values in images)


def query(sql: str, database: str = "shop", status: bytes = b"\0\0\0\0\0") -> bytes:
    name = database.encode()
    return struct.pack("<IIBHH", 7, 0, len(name), 0, len(status)) + status + name + b"\0" + sql.encode()


def gtid(uuid: bytes, number: int, committed_at_us: int | None = None, original: int | None = None) -> bytes:
    """``original``: when it was first committed, on a replica."""
    body = b"\1" + uuid + struct.pack("<q", number) + b"\2" + struct.pack("<qq", 1, 2)
    if committed_at_us is not None:
        body += (committed_at_us | (original is not None) << 55).to_bytes(7, "little")
        body += b"" if original is None else original.to_bytes(7, "little")
        body += packed(100) + struct.pack("<I", 80400)
    return body


def mariadb_gtid(domain: int, number: int, flags: int = 0) -> bytes:
    body = struct.pack("<QIB", number, domain, flags)
    return body + (b"c" * 8 if flags & 2 else bytes(6))


GTID, ANONYMOUS, MARIADB_GTID, QUERY, TABLE_MAP, XID = 33, 34, 162, 2, 19, 16
WRITE, UPDATE, DELETE, PARTIAL_UPDATE = 30, 31, 32, 39
UUID = bytes(range(16))
UUID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


class Stream:
    """Events one after the other as they stand in a file, and as packets."""

    def __init__(self, checksums: bool = True, offset: int = 4, server_id: int = 1) -> None:
        self.checksums = checksums
        self.offset = offset
        self.server_id = server_id
        self.events: list[bytes] = []

    def add(
        self, kind: int, body: bytes, *, flags: int = 0, timestamp: int = 1_700_000_000, place: int | None = None
    ) -> bytes:
        """Returns the whole event. ``place``: end_log_pos other than the true one."""
        size = 19 + len(body) + 4 * self.checksums
        if place is None:
            self.offset += size
            place = self.offset
        data = struct.pack("<IBIIIH", timestamp, kind, self.server_id, size, place & 0xFFFFFFFF, flags) + body
        if self.checksums:
            data += struct.pack("<I", zlib.crc32(data))
        self.events.append(data)
        return data

    def add_all(self, *parts: tuple[int, bytes]) -> None:
        """Events of these kinds and bodies."""
        for kind, body in parts:
            self.add(kind, body)

    def statement(self, number: int, sql: str) -> None:
        """A GTID and a statement."""
        self.add_all((GTID, gtid(UUID, number)), (QUERY, query(sql)))

    def open(self, number: int, *parts: tuple[int, bytes]) -> None:
        """GTID, BEGIN, the parts: a transaction that goes on."""
        self.statement(number, "BEGIN")
        self.add_all(*parts)

    def transaction(self, number: int, *parts: tuple[int, bytes], committed_at_us: int | None = 5_000_000) -> None:
        """GTID, BEGIN, the parts, XID."""
        self.add_all((GTID, gtid(UUID, number, committed_at_us)), (QUERY, query("BEGIN")), *parts, (XID, bytes(8)))

    def packets(self) -> bytes:
        return b"".join(map(packet, self.events))


def packet(event: bytes) -> bytes:
    """The packet or packets that hold an event."""
    payload, data = b"\0" + event, b""
    while True:
        part, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
        data += len(part).to_bytes(3, "little") + b"\1" + part
        if len(part) < 0xFFFFFF:
            return data


def renamed(column: Col, name: str) -> Col:
    """The same column under another name."""
    return replace(column, name=name)
