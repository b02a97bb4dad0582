from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from datastores.mysql.decode import rare_events
from datastores.mysql.decode.rare_events import Incident, MariaGtid, Query, Rotate, TaggedGtid, XaPrepare, Xid
from wormhole.model.errors import DecodeError

UUID = bytes.fromhex("896e788218fe11efab8822222d34d411")


def format_description(
    version: int = 4, server: bytes = b"10.11.14-MariaDB-log", header: int = 19, algorithm: int = 1, flip: int = 0
) -> bytes:
    event = (
        bytes(19)
        + struct.pack("<H50sIB", version, server, 1_700_000_000, header)
        + b"\x38\x0d\x00"
        + bytes([algorithm])
    )
    return event + struct.pack("<I", zlib.crc32(event) ^ flip)


def varint(n: int) -> bytes:
    size = min(9, max(1, -(-n.bit_length() // 7)))
    if size == 9:
        return b"\xff" + n.to_bytes(8, "little")
    return (n << size | ((1 << (size - 1)) - 1)).to_bytes(size, "little")


def signed(n: int) -> bytes:
    return varint(n << 1 if n >= 0 else ~n << 1 | 1)


FIELDS = {
    0: varint(1),
    1: b"".join(map(varint, UUID)),
    2: signed(7),
    3: varint(6) + b"foobaz",
    4: signed(-1),
    5: signed(12),
    6: varint(1_739_823_289_369_365),
    7: varint(1_739_823_289_369_000),
    8: varint(210),
    9: varint(90200),
    10: varint(80400),
    11: varint((1 << 64) - 1),
}


def tagged(fields: dict[int, bytes], version: int = 1, needed: int = 0, grow: int = 0) -> bytes:
    rest = varint(needed) + b"".join(varint(number) + data for number, data in fields.items())
    # The size counts itself; one byte is enough below 128.
    for width in (1, 2):
        size = 1 + width + len(rest) + grow
        if len(varint(size)) == width:
            return varint(version) + varint(size) + rest
    raise AssertionError("the message is too long for this test")


def test_format_description() -> None:
    found = rare_events.parse_format_description(format_description())
    assert found == rare_events.FormatDescription(b"\x38\x0d\x00", True)
    in_use = bytearray(format_description())
    in_use[17] = 1
    assert rare_events.parse_format_description(bytes(in_use)) == found
    found = rare_events.parse_format_description(format_description(server=b"8.4.3", algorithm=0, flip=1))
    assert not found.checksum


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (format_description(version=3), "binlog version 3"),
        (format_description(header=20), "headers of 20 bytes"),
        (format_description(algorithm=2), "checksum algorithm 2"),
        (format_description(flip=1), "checksum does not match"),
        (format_description()[:76], "checksum algorithm takes"),
        (b"", "binlog version takes"),
    ],
)
def test_a_broken_format_description_names_the_field(event: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        rare_events.parse_format_description(event)


def test_rotate() -> None:
    assert rare_events.parse_rotate(struct.pack("<Q", 4) + b"binlog.000012") == Rotate("binlog.000012", 4)


def query(sql: bytes, status: bytes = b"", database: bytes = b"shop", error: int = 0) -> bytes:
    return struct.pack("<IIBHH", 9, 0, len(database), error, len(status)) + status + database + b"\0" + sql


CHARSET = b"\x04\x1c\x00\x1c\x00\x2d\x00"


@pytest.mark.parametrize(
    ("status", "sql", "text"),
    [
        (b"", "größe".encode(), "größe"),
        (b"", b"\xff`", "\udcff`"),
        (b"\x00" + bytes(4) + b"\x01" + bytes(8) + b"\x06\x03std" + CHARSET, b"\xd6\xd0", "中"),
        (b"\x03" + bytes(4) + CHARSET + b"\x80junk", b"\xd6\xd0", "中"),
        (b"\x09" + bytes(8) + b"\x81junk" + CHARSET, b"\xc3\x9f", "ß"),
    ],
)
def test_a_query_is_decoded_from_its_clients_charset(status: bytes, sql: bytes, text: str) -> None:
    assert rare_events.parse_query(query(sql, status, error=1062)) == Query("shop", text, 1062)


# Whatever a server writes before the databases, in its order.
BEFORE = (b"\x00" + bytes(4) + b"\x01" + bytes(8) + b"\x06\x03std\x03" + bytes(4) + CHARSET + b"\x05\x03UTC") + (
    b"\x07\1\0\x08\x2d\0\x09" + bytes(8) + b"\x0a" + bytes(4) + b"\x0b\x04root\x09localhost"
)


@pytest.mark.parametrize(
    ("databases", "expected"),
    [
        (b"", None),
        (b"\x0c\1shop\0", ("shop",)),
        (b"\x0c\2b\0gr\xc3\xb6\xc3\x9fe\0\x0d\1\2\3", ("b", "größe")),
        (b"\x0c\x10" + b"a\0" * 16, ("a",) * 16),
        (b"\x0c\x11" + b"a\0" * 17, None),  # no server writes that many
        (b"\x0c\xfe", None),  # more than a server lists, or a table that a foreign key refers to
        (b"\x0c\0", None),
        (b"\x0c\2\0a\0", None),  # any, and then one more
        (b"\x0c\2a\0b", None),
        (b"\x0c\1\xff\0", None),
        (b"\x81junk\x0c\1shop\0", None),  # after something that is not known
    ],
)
def test_the_databases_that_a_query_reaches(databases: bytes, expected: tuple[str, ...] | None) -> None:
    found = rare_events.parse_query(query(b"SELECT f()", BEFORE + databases))
    assert found == Query("shop", "SELECT f()", 0, databases=expected)
    loaded = query(b"LOAD DATA", BEFORE + databases)
    body = rare_events.parse_load_query(loaded[:13] + bytes(13) + loaded[13:])
    assert rare_events.parse_query(body).databases == expected


def test_xa_prepare() -> None:
    body = struct.pack("<BIII", 1, 7, 2, 1) + b"x1b"
    assert rare_events.parse_xa_prepare(body) == XaPrepare(Xid(b"x1", b"b", 7), True)
    with pytest.raises(DecodeError, match="65 bytes"):
        rare_events.parse_xa_prepare(struct.pack("<BIII", 1, 7, 65, 1) + bytes(66))


def test_incident() -> None:
    assert rare_events.parse_incident(b"\1\0\4lost") == Incident(1, "lost")


def test_a_tagged_gtid() -> None:
    source = "896e7882-18fe-11ef-ab88-22222d34d411"
    expected = TaggedGtid(f"{source}:foobaz", 7, 1_739_823_289_369_365)
    assert rare_events.parse_gtid_tagged(tagged(FIELDS)) == expected
    left_out = {number: data for number, data in FIELDS.items() if number not in {7, 10, 11}}
    assert rare_events.parse_gtid_tagged(tagged(left_out)) == expected
    of_a_later_server = {**FIELDS, 12: b"whatever"}
    assert rare_events.parse_gtid_tagged(tagged(of_a_later_server)) == expected
    assert rare_events.parse_gtid_tagged(tagged(FIELDS, needed=12) + b"after it") == expected
    assert rare_events.parse_gtid_tagged(tagged({1: FIELDS[1], 2: signed(1)})) == TaggedGtid(source, 1, 0)


def test_a_tagged_gtid_byte_by_byte() -> None:
    fields = "00 02" + "02" + 16 * "04" + "04 1c" + "06 02 74" + "0c 6b 0f 00"
    body = bytes.fromhex("02 3e 00" + fields)
    found = rare_events.parse_gtid_tagged(body)
    assert found == TaggedGtid("02020202-0202-0202-0202-020202020202:t", 7, 0x1ED)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "version takes"),
        (tagged(FIELDS, version=2), "version 2"),
        (tagged(FIELDS, grow=1), "a size of"),
        (tagged(FIELDS, needed=13), "field 12 is unknown"),
        (tagged({2: FIELDS[2], 1: FIELDS[1]}), "field 1 after field 2"),
        (tagged({1: FIELDS[1]}), "missing or out of range"),
        (tagged({2: FIELDS[2]}), "missing or out of range"),
        (tagged({**FIELDS, 2: signed(-5)}), "missing or out of range"),
        (tagged({1: varint(256) + b"".join(map(varint, UUID[1:]))}), "uuid is none"),
        (tagged({1: FIELDS[1][:-1]}), "uuid takes"),
    ],
)
def test_a_broken_tagged_gtid_names_the_field(body: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        rare_events.parse_gtid_tagged(body)


def test_a_mariadb_gtid() -> None:
    head = struct.pack("<QI", 17, 3)
    assert rare_events.parse_mariadb_gtid(head + b"\x0c" + bytes(6)) == MariaGtid(3, 17, 0x0C, None)
    xid = struct.pack("<IBB", 1, 2, 1) + b"x1b"
    assert rare_events.parse_mariadb_gtid(head + b"\x40" + xid + b"\0") == MariaGtid(3, 17, 0x40, Xid(b"x1", b"b"))
    assert rare_events.parse_mariadb_gtid(head + b"\x82" + bytes(8) + xid) == MariaGtid(3, 17, 0x82, Xid(b"x1", b"b"))


@pytest.mark.parametrize(
    ("parse", "body", "words"),
    [
        (rare_events.parse_rotate, b"\4" + bytes(7), "file name is missing"),
        (rare_events.parse_rotate, b"\4", "rotate event: position takes"),
        (rare_events.parse_query, query(b"")[:-5], "query event: database takes"),
        (rare_events.parse_query, query(b"", b"\x06\xff"), "variable 6 takes 255"),
        (rare_events.parse_query, query(b"", b"\x04\x01"), "variable 4 takes"),
        (rare_events.parse_load_query, bytes(25), "LOAD DATA: it is cut"),
        (rare_events.parse_incident, b"\1\0\4los", "incident event: message takes"),
        (rare_events.parse_mariadb_gtid, bytes(12), "flags takes"),
        (rare_events.parse_mariadb_gtid, bytes(12) + b"\x40", "xid's format takes"),
    ],
)
def test_a_cut_event_names_itself_and_the_field(parse: Callable[[bytes], object], body: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        parse(body)
