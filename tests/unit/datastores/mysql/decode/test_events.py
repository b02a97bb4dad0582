"""Events by type, whatever carries them, and the checksum of a transaction."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import zstandard

from datastores.mysql.decode import events, rare_events
from datastores.mysql.decode import payload as module
from datastores.mysql.decode.actions import ACTIONS, HAND_BACK, PASS_OVER
from datastores.mysql.decode.large_event import Body, LargeEvent, with_length
from datastores.mysql.decode.rare_events import Incident, MariaGtid, Query, Rotate, TaggedGtid, XaPrepare, Xid
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError

# --- events: type numbers and names, and which format descriptions are refused ---


def lengths(**changed: int) -> bytes:
    data = bytearray(171)
    for kind, length in {2: 13, 15: 98, 19: 8, 23: 8, 24: 8, 25: 8, 30: 10, 31: 10, 32: 10, 33: 42, 162: 19}.items():
        data[kind - 1] = length
    for name, length in changed.items():
        data[int(name[1:]) - 1] = length
    return bytes(data)


def test_the_format_of_today_is_accepted() -> None:
    events.check_post_headers(lengths())
    events.check_post_headers(lengths()[:40])  # MySQL: its list ends before MariaDB's numbers
    events.check_post_headers(lengths(t162=0))  # not written by this server


@pytest.mark.parametrize(("kind", "name"), [("t19", "TABLE_MAP"), ("t30", "WRITE_ROWS"), ("t162", "GTID (MariaDB)")])
def test_another_layout_is_refused_by_name(kind: str, name: str) -> None:
    with pytest.raises(DecodeError, match="post-header") as refused:
        events.check_post_headers(lengths(**{kind: 6}))
    assert name in str(refused.value)
    assert refused.value.hint


def test_an_event_is_named_with_its_number() -> None:
    assert events.name_of(events.XID) == "XID event (type 16)"
    assert events.name_of(99) == "unknown event (type 99)"


def test_every_exported_number_of_a_type_has_a_name() -> None:
    others = {"HEADER", "CHECKSUM", "NAMES", "ARTIFICIAL", "IGNORABLE"}
    for name in events.__all__:
        value = getattr(events, name)
        if isinstance(value, int) and name not in others and not name.startswith("FL_"):
            assert value in events.NAMES, name


# --- actions: which events the encoder takes by itself: what it does not know is never passed over ---


def test_only_what_is_named_here_is_passed_over() -> None:
    ignored = {kind for kind in range(256) if ACTIONS[kind] == PASS_OVER}
    assert ignored == {
        *(events.STOP, events.HEARTBEAT, events.HEARTBEAT_V2, events.IGNORABLE_EVENT, events.ROWS_QUERY),
        *(events.TRANSACTION_CONTEXT, events.VIEW_CHANGE, events.ANNOTATE_ROWS, events.BINLOG_CHECKPOINT),
    }
    assert all(ACTIONS[kind] == HAND_BACK for kind in range(256) if kind not in events.NAMES)


# --- large event ---


def test_a_body_is_read_once_in_any_parts() -> None:
    source = io.BytesIO(b"0123456789 and what follows")
    body = Body(lambda size: source.read(min(size, 3)), 10)
    assert body.read(5) == b"012"
    assert body.take(4) == b"3456"
    body.back(b"56")
    assert (body.left, body.take(1)) == (5, b"5")
    body.skip(2)
    assert body.take(100) == b"89"
    assert (body.left, body.read(1), body.take(1)) == (0, b"", b"")


def test_a_source_that_ends_early() -> None:
    body = Body(io.BytesIO(b"012").read, 10)
    with pytest.raises(DecodeError, match="the data end 7 bytes before the event does"):
        body.take(10)


def test_the_header_of_an_event_of_another_length() -> None:
    header = bytes(range(19))
    assert with_length(header, 256) == header[:9] + (275).to_bytes(4, "little") + header[13:]


# --- rare events ---


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
    assert rare_events.parse_gtid_tagged(body) == TaggedGtid("02020202-0202-0202-0202-020202020202:t", 7, 0x1ED)


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


# --- transaction checksum ---


anchor = hot_module("datastores.mysql.decode.transaction_checksum")


def numbered(n: int) -> bytes:
    return n.to_bytes(19, "big") + b"body" * n + n.to_bytes(4, "little")


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("count", [1, 2, 177, 178, 179, 1000])
def test_headers_and_checksums_of_all_events(anchor: ModuleType, checked: bool, count: int) -> None:
    a = anchor.TransactionChecksum()
    for _ in range(2):
        seen = b""
        for n in range(count):
            data = b"#" + numbered(n)
            a.note(data, 1, len(data), checked, n > 0)
            if n == 0:
                a.note(data, 1, len(data), checked, False)  # the last one before the beginning counts
                a.begin()
            seen += data[1:20] + (data[-4:] if checked else b"")
        assert a.end() == zlib.crc32(seen)


def test_a_transaction_that_is_given_up_leaves_nothing(anchor: ModuleType) -> None:
    a = anchor.TransactionChecksum()
    for n in (1, 2):
        a.note(numbered(n), 0, len(numbered(n)), True, n > 1)
        if n == 1:
            a.begin()
    a.end()
    a.note(numbered(3), 0, len(numbered(3)), True, False)
    a.begin()
    assert a.end() == zlib.crc32(numbered(3)[:19] + numbered(3)[-4:])


# --- payload ---


LIMIT = 1 << 20


def body_of(data: bytes) -> Body:
    return Body(io.BytesIO(data).read, len(data))


def inflate(data: bytes, limit: int, held: int = LIMIT) -> Iterator[bytes | LargeEvent]:
    return module.inflate(body_of(data), limit, held)


def whole(event: bytes | LargeEvent) -> bytes:
    return event if isinstance(event, bytes) else event.header + event.body.take(event.body.left)


def plain_event(data: bytes, limit: int) -> bytes:
    return whole(module.plain_event(data[:19], body_of(data[19:]), limit))


def event(kind: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body) if length is None else length, 0, 0) + body


def payload(data: bytes, compression: bytes, size: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return (
        b"\2"
        + bytes([len(compression)])
        + compression
        + b"\3\4\xfd\xff\xff\xff"
        + b"\1\x09\xfe"
        + size.to_bytes(8, "little")
        + b"\0"
        + data
    )


NONE = b"\xfc\xff\0"
EVENTS = [event(19, b"map"), event(30, b"rows" * 50_000), event(16, b"12345678")]


def test_events_come_whole() -> None:
    joined = b"".join(EVENTS)
    for body in (
        payload(joined, NONE),
        payload(zstandard.compress(joined), b"\0"),
        payload(zstandard.compress(joined[:7]) + zstandard.compress(joined[7:]), b"\0"),
        payload(zstandard.compress(joined), b"\0", len(zstandard.compress(joined))) + b"after it",
        b"\x07\2xx" + payload(joined, NONE),
    ):
        assert list(inflate(body, LIMIT)) == EVENTS
        assert [whole(event) for event in inflate(body, LIMIT, 27)] == EVENTS
        kinds = [type(event) for event in inflate(body, LIMIT, 27)]  # a large one that nobody reads is passed over
        assert kinds == [bytes, LargeEvent, bytes]
    assert list(inflate(payload(b"", NONE), LIMIT)) == []


def test_events_are_inflated_one_at_a_time() -> None:
    """A payload of 640 MB in 60 KB: what is not asked for is never made."""
    many = zstandard.ZstdCompressor().compressobj()
    data = b"".join(many.compress(event(30, bytes(1 << 20))) for _ in range(640)) + many.flush()
    assert len(whole(next(inflate(payload(data, b"\0"), 2 << 20)))) == (1 << 20) + 19
    with pytest.raises(DecodeError, match="the limit is 1048576"):
        next(inflate(payload(data, b"\0"), 1 << 20))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "kind of field takes"),
        (b"\2\1\0\1\1\5", "kind of field takes"),
        (b"\7\xfa", "length|takes"),
        (b"\2\1\0\0", "-1 bytes of data"),
        (payload(b"abc", NONE, 4), "4 bytes of data, 3 are left"),
        (payload(b"abc", b"\1"), "compression 1 is unknown"),
        (b"\1\1\0\0", "compression -1 is unknown"),
        (payload(b"abc", NONE), "3 bytes after the last event"),
        (payload(EVENTS[0] + EVENTS[2][:-1], NONE), "26 of an event's 27 bytes"),
        (payload(event(1, b"", 18), NONE), "an event of 18 bytes"),
        (payload(event(1, b"", LIMIT + 1), NONE), "the limit is"),
        (payload(b"no zstd frame at all", b"\0"), "cannot be inflated"),
        (payload(event(40, b"\0"), NONE), "inside of a payload"),
    ],
)
def test_a_broken_payload_says_what_is_wrong(body: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        list(inflate(body, LIMIT))


def packed(data: bytes, size: int | None = None, width: int = 3, first: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return bytes([0x80 | width if first is None else first]) + size.to_bytes(width, "big") + zlib.compress(data)


QUERY = struct.pack("<IIBHH", 9, 0, 4, 0, 3) + b"var" + b"shop\0"
TABLE = bytes(6) + b"\1\0"
ROWS = b"the rows" * 1000


@pytest.mark.parametrize(
    ("kind", "plain", "head"),
    [
        (165, 2, QUERY),
        (166, 23, TABLE + b"\x09\xff\x01"),
        (167, 24, TABLE + b"\x09\xff\x01\xff\x01"),
        (168, 25, TABLE + b"\x08\xff"),
        (169, 30, TABLE + b"\2\0" + b"\x09\xff\x01"),
        (170, 31, TABLE + b"\5\0abc" + b"\x09\xff\x01\xff\x01"),
        (171, 32, TABLE + b"\2\0" + b"\xfc\x2c\x01" + bytes(38)),
    ],
)
def test_mariadbs_compressed_events_become_plain_ones(kind: int, plain: int, head: bytes) -> None:
    for width in (2, 3, 4):
        assert plain_event(event(kind, head + packed(ROWS, width=width)), LIMIT) == event(plain, head + ROWS)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (event(2, QUERY), "type 2"),
        (event(165, QUERY[:5]), "thread and time takes"),
        (event(165, QUERY[:12]), "thread and time takes"),
        (event(165, QUERY[:-1]), "status variables and database takes"),
        (event(165, QUERY), "compression takes"),
        (event(169, TABLE + b"\2\0\xfb"), "compression takes"),
        (event(166, TABLE + b"\x09\xff"), "compression takes"),
        (event(165, QUERY + packed(ROWS, first=0x93)), "compression 0x93"),
        (event(165, QUERY + packed(ROWS, len(ROWS) - 1)), "are not the 7999 bytes"),
        (event(165, QUERY + packed(ROWS, len(ROWS) + 1)), "are not the 8001 bytes"),
        (event(165, QUERY + packed(ROWS)[:-1]), "are not the 8000 bytes"),
        (event(165, QUERY + packed(ROWS, LIMIT + 1)), "the limit is"),
        (event(165, QUERY + b"\x81\x05zzzzzzz"), "cannot be inflated"),
    ],
)
def test_a_broken_compressed_event_says_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        plain_event(data, LIMIT)
