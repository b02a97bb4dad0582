"""The stream of packets: transactions of both servers, what is handed back, pieces, places and checksums, in both
forms."""

from __future__ import annotations

import struct
import zlib
from types import ModuleType
from typing import Any

import pytest

from datastores.mysql.decode import stops
from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.support import mysql_events as build
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row, entry

encoder = hot_module("datastores.mysql.decode.encoder")

COLUMNS = [build.integer("id", 4), build.varchar("name")]
MAP = build.table_map(77, "shop.orders", COLUMNS, [0])
LAYOUT = Layout(parse_table_map(MAP))


def make(module: ModuleType, **options: Any) -> Any:
    result = module.Encoder(options.pop("most", 1 << 20), options.pop("shards", 0), 64, options.pop("held", 0))
    result.checksums = options.pop("checksums", True)
    if options.pop("known", True):
        result.add_table(77, MAP, LAYOUT, 0, 0)
    assert not options
    return result


def insert(*ids: int) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
    return (build.TABLE_MAP, MAP), (build.WRITE, build.rows(77, COLUMNS, [[i, f"n{i}"] for i in ids]))


def expected(*ids: int) -> bytes:
    return b"".join(entry(encode_row(Op.INSERT, (i,), after=(i, f"n{i}"))) for i in ids)


def feed(e: Any, data: bytes, at: int = 0, most: int = 1 << 30) -> int:
    place: int = e.packets(data, at, len(data), most)
    return place


def anchor(events: list[bytes], checksums: bool = True) -> int:
    return zlib.crc32(b"".join(e[:19] + (e[-4:] if checksums else b"") for e in events))


@pytest.mark.parametrize("checksums", [True, False])
def test_transactions_with_gtid(encoder: ModuleType, checksums: bool) -> None:
    e, stream = make(encoder, checksums=checksums), build.Stream(checksums)
    stream.transaction(5, *insert(1, 2))
    first_end = stream.offset
    stream.transaction(6)
    stream.transaction(7, *insert(3), committed_at_us=None)
    data = stream.packets()
    assert feed(e, data) == len(data)
    assert (e.status, e.in_transaction, e.file_offset) == (stops.OK, False, stream.offset)
    assert e.sources.names == [build.UUID_TEXT]
    last = stream.events[-5:]
    assert (e.last_source, e.last_number, e.last_begin, e.last_end) == (
        0,
        7,
        stream.offset - sum(map(len, last)),
        stream.offset,
    )
    assert e.last_checksum == anchor(last, checksums)
    piece = e.take()
    assert piece.blob == expected(1, 2, 3)
    assert (piece.tx_number.tolist(), piece.tx_source.tolist(), piece.tx_end.tolist()) == ([5, 7], [0, 0], [2, 3])
    assert piece.tx_offset.tolist() == [first_end, stream.offset]
    assert piece.tx_committed_at_us.tolist() == [5_000_000, 1_700_000_000_000_000]
    assert (piece.schema_of.tolist(), piece.shard_of.tolist()) == ([0], [0])
    sources, numbers = e.transactions.take_passed()
    assert (sources.tolist(), numbers.tolist()) == ([0, 0, 0], [5, 6, 7])
    assert e.transactions.take_passed()[1].tolist() == []


def test_a_replica_tells_its_own_time_of_commit(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.add(build.GTID, build.gtid(build.UUID, 1, 1_700_000_000_123_456, original=1_600_000_000_000_000))
    stream.add(build.XID, bytes(8))
    feed(e, stream.packets())
    assert e.last_committed_at_us == 1_700_000_000_123_456


def test_mariadbs_transactions(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream(server_id=3)
    for domain, number, flags in ((0, 17, 0), (4, 18, 2 | 4)):
        stream.add(build.MARIADB_GTID, build.mariadb_gtid(domain, number, flags))
        stream.add(160, b"INSERT ...")
        stream.add_all(*insert(number))
        stream.add(build.QUERY, build.query("COMMIT")) if domain else stream.add(build.XID, bytes(8))
    feed(e, stream.packets())
    assert e.sources.names == ["0-3", "4-3"]
    piece = e.take()
    assert piece.blob == expected(17, 18)
    assert (piece.tx_source.tolist(), piece.tx_number.tolist()) == ([0, 1], [17, 18])
    assert e.gtid_flags == 6


def test_transactions_without_gtid_are_named_by_their_place(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream(offset=157)
    e.file_offset = 157
    stream.add(build.ANONYMOUS, build.gtid(bytes(16), 0, 9))
    stream.add_all(*insert(1))
    stream.add(build.XID, bytes(8))
    with pytest.raises(DecodeError, match="without GTID"):
        feed(e, stream.packets())
    e = make(encoder)
    e.file_offset = 157
    e.anonymous = e.sources.add("uuid/12")
    feed(e, stream.packets())
    piece = e.take()
    assert (piece.tx_number.tolist(), piece.tx_offset.tolist()) == ([157], [stream.offset])
    assert e.last_begin == 157


def test_unknown_table_maps_are_handed_back_once(encoder: ModuleType) -> None:
    e, stream = make(encoder, known=False), build.Stream()
    stream.transaction(1, *insert(1))
    stream.transaction(2, *insert(2))
    changed = build.table_map(77, "shop.orders", [*COLUMNS, build.integer("more", 1)], [0])
    stream.transaction(3, (build.TABLE_MAP, changed))
    data = stream.packets()
    at = feed(e, data)
    assert (e.status, e.raw[19:], e.event_type) == (stops.TABLE, MAP, build.TABLE_MAP)
    e.add_table(77, e.raw[19:], LAYOUT, 4, 2)
    at = feed(e, data, at)
    assert (e.status, e.raw[19:]) == (stops.TABLE, changed)
    piece = e.take()
    assert piece.blob == expected(1, 2)
    assert (piece.schema_of.tolist(), piece.shard_of.tolist()) == ([4], [2])
    e.forget()
    assert feed(e, stream.packets()[at:]) > 0
    assert e.status == stops.OK


def test_rows_of_a_table_that_is_set_aside_are_handed_back(encoder: ModuleType) -> None:
    e, stream = make(encoder, known=False), build.Stream()
    e.add_table(77, MAP, None, 4, 2)
    stream.transaction(1, *insert(1))
    data = stream.packets()
    at = feed(e, data)
    assert (e.status, e.event_type, e.table_id) == (stops.EVENT, build.WRITE, 77)
    assert (e.table_schema, e.table_shard) == (4, 2)
    assert feed(e, data, at) == len(data)
    assert e.transactions.take_passed()[1].tolist() == [1]


def test_everything_else_is_handed_back_and_counted(encoder: ModuleType) -> None:
    others = {4: b"\4" + bytes(7) + b"binlog.000002", 35: bytes(8), 163: bytes(4), 164: bytes(9), 26: b"\1\0"}
    others |= {38: bytes(13), 42: bytes(30), 40: bytes(9), 165: bytes(20), 171: bytes(20), 5: bytes(9), 99: b"new"}
    for kind, body in others.items():
        e, stream = make(encoder), build.Stream()
        event = stream.add(kind, body, timestamp=7)
        feed(e, stream.packets())
        assert (e.status, e.event_type, e.raw) == (stops.EVENT, kind, event[:-4])
        assert (e.event_timestamp, e.event_server_id, e.event_begin, e.file_offset) == (7, 1, 4, stream.offset)
    e, stream = make(encoder), build.Stream()
    event = stream.add(15, bytes(90))  # the format description says whether there are checksums: it is left as it is
    feed(e, stream.packets())
    assert (e.status, e.raw) == (stops.EVENT, event)
    for flags in (64, 128):
        e, stream = make(encoder), build.Stream()
        stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, 1, flags))
        feed(e, stream.packets())
        assert (e.status, e.in_transaction) == (stops.EVENT, False)
    for sql in ("XA START 'a'", "BEGIN", "COMMIT", "CREATE TABLE t (a int)"):  # outside of a transaction
        e, stream = make(encoder), build.Stream()
        stream.add(build.QUERY, build.query(sql))
        feed(e, stream.packets())
        assert e.status == stops.EVENT
        assert e.raw.endswith(sql.encode())


def test_ignored_events_move_the_place(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    for kind in (3, 28, 29, 36, 37, 160, 161):
        stream.add(kind, b"whatever")
    stream.add(99, b"later", flags=0x80)
    assert feed(e, stream.packets()) == len(stream.packets())
    assert (e.status, e.file_offset) == (stops.OK, stream.offset)


def test_what_is_in_no_file_moves_no_place_and_is_not_in_the_checksum(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.add(build.GTID, build.gtid(build.UUID, 5, 1))
    stream.add(27, b"binlog.000001", place=99_999)
    stream.add(41, b"\1\5binlog", place=99_999)
    stream.add(4, bytes(8) + b"binlog.000001", flags=0x20, place=99_999)
    stream.add(build.XID, bytes(8))
    data = stream.packets()
    at = feed(e, data)
    assert (e.status, e.event_begin) == (stops.EVENT, e.file_offset)
    feed(e, data, at)
    assert (e.file_offset, e.last_end) == (stream.offset, stream.offset)
    assert e.last_checksum == anchor([stream.events[0], stream.events[-1]])


def test_places_go_on_beyond_32_bits(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream(offset=(1 << 32) - 100)
    e.file_offset = stream.offset
    stream.transaction(1, *insert(1))
    stream.transaction(2, *insert(2))
    feed(e, stream.packets())
    assert stream.offset > 1 << 32
    assert e.file_offset == stream.offset
    assert e.take().tx_offset[-1] == stream.offset


def test_the_format_description_of_a_dump_that_begins_later_moves_nothing(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream(offset=4)
    e.file_offset = 9000
    stream.add(15, bytes(90))
    feed(e, stream.packets())
    assert e.file_offset == 9000


def test_a_damaged_event_is_recognised_by_its_checksum(encoder: ModuleType) -> None:
    stream = build.Stream()
    stream.transaction(1, *insert(1))
    for i, event in enumerate(stream.events):
        for byte in range(len(event)):
            broken = bytearray(event)
            broken[byte] ^= 1 << byte % 8
            e = make(encoder)
            data = b"".join(map(build.packet, [*stream.events[:i], bytes(broken)]))
            with pytest.raises(DecodeError, match=r"checksum|bytes and|type") as raised:
                if feed(e, data) == len(data) and e.event_type == 15:
                    raise DecodeError("type")  # its own reader checks a format description
            assert raised.value
            assert e.rows.updates.used == 0 or i == 4
    e = make(encoder)
    short = struct.pack("<IBIIIH", 0, 3, 1, 21, 25, 0) + b"ab"
    with pytest.raises(DecodeError, match="its checksum is cut"):
        feed(e, build.packet(short))


def test_order_that_cannot_be_is_refused_and_names_the_place(encoder: ModuleType) -> None:
    gtid = (build.GTID, build.gtid(build.UUID, 5, 1))
    cases: dict[str, list[tuple[int, bytes]]] = {
        f"begins inside of {build.UUID_TEXT}:5": [gtid, gtid],
        "ends that did not begin": [(build.XID, bytes(8))],
        "outside a transaction": list(insert(1)),
        "no table map said what table 78": [gtid, (build.WRITE, build.rows(78, COLUMNS, [[1, "a"]]))],
        "GTID event .* it is cut": [(build.GTID, bytes(41))],
        r"GTID \(MariaDB\) event .* it is cut": [(build.MARIADB_GTID, bytes(12))],
        "QUERY event .* it is cut": [gtid, (build.QUERY, bytes(12))],
        "status variables": [gtid, (build.QUERY, build.query("BEGIN")[:-6])],
        "WRITE_ROWS .* table id is cut": [gtid, (build.WRITE, bytes(7))],
        "TABLE_MAP .* table id is cut": [gtid, (build.TABLE_MAP, bytes(7))],
        "offset 4: its header says": [],
    }
    for text, events in cases.items():
        e, stream = make(encoder), build.Stream()
        stream.add_all(*events)
        data = stream.packets() or build.packet(bytes(19))
        with pytest.raises(DecodeError, match=text):
            feed(e, data)
        assert e.at == len(data)


def test_rows_that_cannot_be_decoded_do_not_stop_who_goes_on(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    broken = build.rows(77, COLUMNS, [[1, "a"], [2, "b"]])[:-1]
    stream.transaction(1, *insert(1), (build.WRITE, broken), *insert(2))
    data = stream.packets()
    with pytest.raises(
        DecodeError, match=r"WRITE_ROWS event \(type 30\) that begins at offset \d+: shop.orders, column name"
    ):
        feed(e, data)
    assert (e.table_id, e.table_shard, e.table_schema) == (77, 0, 0)
    assert feed(e, data, e.at) == len(data)
    assert e.take().blob == expected(1, 2)


def test_the_end_of_a_statement_without_rows_is_passed_over(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.transaction(1, (build.WRITE, (0xFFFFFF).to_bytes(6, "little") + b"\1\0\2\0\0\0"))
    feed(e, stream.packets())
    assert e.transactions.take_passed()[1].tolist() == [1]


def test_packets_that_are_cut_say_what_they_need(encoder: ModuleType) -> None:
    stream = build.Stream()
    stream.transaction(1, *insert(1))
    data = stream.packets()
    for cut in range(len(data)):
        e = make(encoder)
        at = feed(e, data[:cut])
        if at == cut:
            assert e.status == stops.OK
            continue
        assert e.status == stops.MORE
        assert cut < at + e.need <= len(data)
        if cut - at >= 4:
            assert at + e.need == at + 4 + int.from_bytes(data[at : at + 3], "little")
        feed(e, data, at)
        assert e.take().blob == expected(1)


def test_a_packet_that_is_not_held_whole(encoder: ModuleType) -> None:
    for length, held in ((1 << 20, 0), (0xFFFFFF, 0), (100, 99)):
        e = make(encoder, held=held)
        assert e.packets(length.to_bytes(3, "little") + b"\0\0", 0, 5, 1 << 20) == 0
        assert e.status == (stops.MORE if length == 1 << 20 else stops.LARGE)


def test_the_outline_of_a_large_event(encoder: ModuleType) -> None:
    stream = build.Stream()
    stream.add(build.GTID, build.gtid(build.UUID, 1))
    stream.add(build.XID, bytes(8))
    e = make(encoder)
    feed(e, stream.packets()[: 4 + 1 + len(stream.events[0])])
    event = stream.events[1]
    e.large(event[:19] + event[-4:], len(event), zlib.crc32(event[:-4]))
    assert (e.file_offset, e.event_type) == (stream.offset, build.XID)
    with pytest.raises(DecodeError, match="its checksum does not match"):
        e.large(event[:19] + event[-4:], len(event), 0)
    with pytest.raises(DecodeError, match="its header says"):
        e.large(event[:19] + event[-4:], len(event) + 1, 0)
    with pytest.raises(ValueError, match="outline"):
        e.large(event[:19], len(event), 0)
    e.end_transaction()
    assert e.last_checksum == anchor(stream.events)


def test_table_maps_are_kept_within_a_bound(encoder: ModuleType) -> None:
    e = make(encoder)
    body = build.table_map(1, "shop.files", [build.integer("id", 4)], [0])
    with pytest.raises(DecodeError, match="more than 2097152"):
        e.add_table(1, body + bytes(2 << 20), None, 0, 0)
    for table_id in range(40):
        e.add_table(table_id, body + bytes(1 << 20), None, 0, 0)
    stream = build.Stream()
    stream.add(build.GTID, build.gtid(build.UUID, 1))
    stream.add(build.WRITE, build.rows(3, [build.integer("id", 4)], [[1]]))
    with pytest.raises(DecodeError, match="no table map said what table 3 is"):
        feed(e, stream.packets())


def test_the_servers_last_words(encoder: ModuleType) -> None:
    e = make(encoder)
    assert e.packets(b"\5\0\0\1\xfe\0\0\2\0", 0, 9, 1) == 9
    assert e.status == stops.END
    error = b"\xff\xd4\x04#HY000Could not find first log file"
    feed(e, len(error).to_bytes(3, "little") + b"\1" + error)
    assert (e.status, e.raw) == (stops.ERROR, error)
    for payload, text in ((b"", "is empty"), (b"\3abc", "begins with 0x03"), (b"\xfe" + bytes(8), "begins with 0xfe")):
        with pytest.raises(DecodeError, match=text):
            feed(make(encoder), len(payload).to_bytes(3, "little") + b"\1" + payload)
    with pytest.raises(DecodeError, match="header has 19 bytes and 3"):
        feed(make(encoder), b"\4\0\0\1\0abc")


@pytest.mark.parametrize("packet", [b"\0\0\0\1", b"\4\0\0\1\4abc"])
def test_a_damaged_frame_is_no_fault_of_the_table_before_it(encoder: ModuleType, packet: bytes) -> None:
    stream = build.Stream()
    stream.transaction(1, *insert(1))
    e = make(encoder)
    feed(e, stream.packets())
    with pytest.raises(DecodeError):
        feed(e, packet)
    assert e.table_id == -1


def test_it_stops_when_enough_is_encoded(encoder: ModuleType) -> None:
    stream = build.Stream()
    for i in range(100):
        stream.transaction(i + 1, *insert(*range(i * 10, i * 10 + 10)))
    data, e, blob, at, rounds = stream.packets(), make(encoder), b"", 0, 0
    numbers: list[int] = []
    while at < len(data):
        at = feed(e, data, at, 1000)
        assert e.status == stops.OK
        piece = e.take()
        assert e.first_index == 0 or not piece.ends or piece.tx_number[0] == (numbers[-1] if numbers else 0)
        numbers += [n for n in piece.tx_number if n not in numbers]
        blob += piece.blob
        rounds += 1
    assert rounds > 10
    assert blob == expected(*range(1000))
    assert numbers == list(range(1, 101))


def test_a_transaction_that_goes_on_in_the_next_piece(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.transaction(1, *insert(1))
    begin = stream.offset
    stream.transaction(2, *insert(2, 3), *insert(4), *insert(5, 6))
    events = list(map(build.packet, stream.events))
    feed(e, b"".join(events[:9]))
    assert (e.in_transaction, e.tx_begin, e.tx_updates, e.number) == (True, begin, 2, 2)
    whole = e.take(True)
    assert (whole.blob, whole.tx_number.tolist(), whole.tx_end.tolist(), e.first_index) == (expected(1), [1], [1], 0)
    assert e.take(True).blob == b""
    first = e.take()
    assert (first.blob, first.tx_number.tolist(), first.tx_end.tolist(), e.first_index) == (expected(2, 3), [2], [], 0)
    assert (first.tx_offset.tolist(), first.tx_committed_at_us.tolist()) == ([begin], [5_000_000])
    feed(e, b"".join(events[9:11]))
    second = e.take()
    assert (second.blob, second.tx_end.tolist(), e.first_index, e.tx_updates) == (expected(4), [], 2, 3)
    feed(e, b"".join(events[11:]))
    last = e.take()
    assert (last.blob, last.tx_end.tolist(), e.first_index) == (expected(5, 6), [2], 3)
    assert last.tx_offset.tolist() == [stream.offset]
    assert e.transactions.take_passed()[1].tolist() == [1, 2]
    assert e.last_checksum == anchor(stream.events[5:])


def test_an_end_without_updates_of_its_own_is_reported(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.transaction(1, *insert(1))
    events = list(map(build.packet, stream.events))
    feed(e, b"".join(events[:-1]))
    assert e.take().blob == expected(1)
    feed(e, events[-1])
    piece = e.take()
    assert (piece.blob, piece.tx_number.tolist(), piece.tx_end.tolist(), e.first_index) == (b"", [1], [0], 1)


def test_stopping_after_each_transaction_and_walking_without_decoding(encoder: ModuleType) -> None:
    e, stream = make(encoder, known=False), build.Stream()
    for i in (1, 2):
        stream.transaction(i, *insert(i))
    e.single = e.suppress = True
    data = stream.packets()
    at = feed(e, data)
    assert (e.status, e.last_number, e.last_checksum) == (stops.TRANSACTION, 1, anchor(stream.events[:5]))
    assert feed(e, data, at) == len(data)
    assert (e.status, e.last_number, e.last_checksum) == (stops.TRANSACTION, 2, anchor(stream.events[5:]))
    assert (e.take().blob, e.transactions.take_passed()[1].tolist()) == (b"", [])


def test_a_long_transactions_checksum(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.transaction(1, *(part for i in range(300) for part in insert(i)))
    feed(e, stream.packets())
    assert e.last_checksum == anchor(stream.events)


def test_collected_events_are_encoded_when_they_come_again(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.transaction(1, *insert(1))
    stream.add(build.GTID, build.gtid(build.UUID, 2, 8))
    data = stream.packets()
    e.collect = True
    at, kept = 0, []
    while at < len(data):
        at = feed(e, data, at)
        if e.status == stops.EVENT:
            kept.append(e.raw)
    assert [raw[4] for raw in kept] == [build.TABLE_MAP, build.WRITE]
    e.collect = False
    place, checksum = e.file_offset, anchor(stream.events[-1:])
    for raw in kept:
        data = b"##" + raw
        size = struct.pack("<I", len(raw))
        data = data[:11] + size + data[15:]
        assert e.event(data, 2, len(data)) == stops.OK
    e.end_transaction()
    assert (e.file_offset, e.last_checksum, e.last_committed_at_us) == (place, checksum, 8)
    piece = e.take()
    assert (piece.blob, piece.tx_number.tolist(), piece.tx_offset.tolist()) == (expected(1), [2], [place])
    with pytest.raises(ValueError, match="out of range"):
        e.event(b"", 0, 1)


def test_the_callers_own_transactions(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.add(42, b"tagged")
    tagged = e.sources.add("uuid:tag")
    assert e.sources.add("uuid:tag") == tagged
    feed(e, stream.packets())
    e.begin(tagged, 9, 0)
    e.truncate(5, 6)
    e.end_transaction(77)
    piece = e.take()
    assert piece.blob == entry(encode_row(Op.TRUNCATE, ()))
    assert (piece.tx_number.tolist(), piece.tx_committed_at_us.tolist()) == ([9], [77])
    assert (piece.schema_of.tolist(), piece.shard_of.tolist()) == ([5], [6])
    assert (e.last_begin, e.last_checksum) == (4, anchor(stream.events))
    for call in (e.end_transaction, lambda: e.truncate(0, 0)):
        with pytest.raises(DecodeError, match=r"no transaction has begun|none has begun"):
            call()


def test_what_did_not_happen_is_dropped(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.transaction(1, *insert(1))
    stream.transaction(2, *insert(2), *insert(3))
    events = list(map(build.packet, stream.events))
    feed(e, b"".join(events[:9]))
    assert e.discard() is False
    assert e.in_transaction
    e.end_transaction()
    assert e.take().blob == expected(1)
    e = make(encoder)
    feed(e, b"".join(events[:9]))
    e.take()
    assert e.discard(True) is True
    assert not e.in_transaction
    assert e.discard() is False
    feed(e, b"".join(events[:5]))
    assert e.last_checksum == anchor(stream.events[:5])
    assert e.take().blob == expected(1)


def test_what_was_done_since_a_savepoint_is_dropped(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    stream.transaction(1, *insert(1))
    stream.transaction(2, *insert(2), *insert(3), *insert(4))
    events = list(map(build.packet, stream.events))
    feed(e, b"".join(events[:11]))
    assert e.tx_updates == 2
    assert e.back_to(1) is False
    assert e.take().blob == expected(1, 2)
    feed(e, b"".join(events[11:13]))
    assert e.tx_updates == 2
    assert e.back_to(1) is False
    assert e.back_to(0) is True
    feed(e, events[13])
    assert e.take().blob == b""


def test_table_maps_do_not_pile_up(encoder: ModuleType) -> None:
    e = make(encoder)
    for i in range(5000):
        e.add_table(100 + i, MAP, None, 0, 0)
    stream = build.Stream()
    stream.transaction(1, (build.TABLE_MAP, MAP))
    feed(e, stream.packets())
    assert e.status == stops.TABLE


def test_table_maps_stay_known_while_their_transaction_lasts(encoder: ModuleType) -> None:
    e, stream = make(encoder), build.Stream()
    other = build.table_map(78, "shop.other", COLUMNS, [0])
    first, rows = insert(1)
    stream.transaction(1, first, (build.TABLE_MAP, other), rows)
    for i in range(4094):
        e.add_table(100 + i, MAP, None, 0, 0)
    data = stream.packets()
    at = feed(e, data)
    assert e.status == stops.TABLE
    e.add_table(78, other, Layout(parse_table_map(other)), 0, 0)
    assert feed(e, data, at) == len(data)
    assert e.take().blob == expected(1)


def test_ranges_out_of_the_data_are_the_callers_mistake(encoder: ModuleType) -> None:
    for at, end in ((-1, 2), (3, 2), (0, 9)):
        with pytest.raises(ValueError, match="out of range"):
            make(encoder).packets(b"12345678", at, end, 1)
