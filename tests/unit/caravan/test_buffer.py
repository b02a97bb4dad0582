"""The change buffer: finding a flow's segment, counting memory, sharing bodies."""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from dataclasses import replace

import pytest

from caravan.buffer import Begun, BufferEntry, ChangeBuffer, first_wanted, undone
from datastores.memory.source import MemorySource
from tests.support.present import present
from wormhole.filters import Filter, Projection
from wormhole.formats import FormatSpec, open_formats
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run, Segment
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.wire.body import ParsedBody, parse_body
from wormhole.wire.rows import Row, decode_row, encode_row
from wormhole.wire.runs import RunsBuilder

ALL = Filter.parse(None)
SHARD = "log"
STORE = Schema("users", (Column("key", "bytes"),), (Column("value", "bytes"),))


def put(*keys: str) -> list[tuple[Op, str, bytes, dict[str, bytes]]]:
    return [(Op.UPSERT, "t", key.encode(), {"value": key.encode()}) for key in keys]


class Log:
    """A memory log of one shard, its buffer, and a reader whose segments are as small as the test wants."""

    def __init__(self) -> None:
        self.source = MemorySource(log=SHARD, sharding=Sharding("log"), now_us=lambda: 0)
        self.start = self.source.latest()
        self.buffer = ChangeBuffer(self.start.order)
        self._reader = self.source.open(self.start)

    def commit(self, *keys: str) -> Datamarker:
        return self.source.commit(put(*keys))

    def read(self, size: int = 1 << 20) -> Segment:
        segment = present(self._reader.read(size, 0))
        self.buffer.append(segment)
        return segment

    def entry(self, number: int) -> BufferEntry:
        return present(self.buffer.entry(number))


@pytest.fixture
def log() -> Log:
    return Log()


def parsed(entry: BufferEntry, wanted: Filter = ALL) -> ParsedBody:
    return parse_body(present(entry.body(SHARD, wanted)).data)


def test_an_empty_buffer_serves_exactly_its_own_place(log: Log) -> None:
    assert log.buffer.find(log.start.order) == 0
    assert log.buffer.start == log.buffer.place == log.start.order
    later = log.commit("a").order
    assert log.buffer.find(later) is None
    assert log.buffer.join(later) == 0  # ahead of what was read: rides along and skips


def test_each_place_is_found_at_the_segment_after_it(log: Log) -> None:
    places = [log.start.order]
    for key in "abc":
        places.append(log.commit(key).order)
        log.read()
    assert [log.buffer.find(place) for place in places] == [0, 1, 2, 3]
    assert log.buffer.end == 3


def test_another_incarnation_is_never_joined(log: Log) -> None:
    log.commit("a")
    log.read()
    order = log.buffer.place
    for place in (
        LogPosition(order.incarnation + 1, order.file, order.offset),
        LogPosition(order.incarnation + 1, 0, 0),
        LogPosition(order.incarnation - 1, order.file, order.offset),
    ):
        assert log.buffer.find(place) is None
        assert log.buffer.join(place) is None


def test_what_was_dropped_is_not_joined(log: Log) -> None:
    for key in "abc":
        log.commit(key)
        log.read()
    second = log.entry(1).segment.begin
    log.buffer.drop_oldest()
    assert log.buffer.find(log.start.order) is None
    assert log.buffer.join(log.start.order) is None
    assert log.buffer.find(second) == 1
    with pytest.raises(IndexError, match="segment 0 is no longer buffered; the oldest is 1"):
        log.buffer.entry(0)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_transaction_whose_first_piece_is_gone_is_not_joined(log: Log, kept: int) -> None:
    """Its beginning is also the place behind everything read: a flow put there would miss what was dropped."""
    log.commit("a", "b", "c", "d")
    for _ in range(1 + kept):
        assert log.read(1).marker is None
    log.buffer.drop_oldest()
    assert log.buffer.place == log.start.order
    assert log.buffer.find(log.start.order) is None
    assert log.buffer.join(log.start.order) is None


def test_the_place_before_a_segment_that_ends_inside_a_transaction(log: Log) -> None:
    """One segment ends transaction 1 and begins 2: a flow between them needs that same segment."""
    between = log.commit("a").order
    log.commit("b", "c", "d")
    segment = log.read(40)
    assert segment.end == between
    assert segment.marker is None
    assert log.buffer.find(between) == 0


def test_memory_is_counted_with_the_bodies_and_given_back(log: Log) -> None:
    log.commit("a", "b")
    segment = log.read()
    assert log.buffer.size == segment.memory > segment.size
    entry = log.entry(0)
    body = present(entry.body(SHARD, ALL))
    blob, columns = body.pieces
    assert blob is segment.runs[SHARD].blob  # a whole run is not copied, so it is counted once
    assert log.buffer.size == entry.size
    assert segment.memory + len(columns) < entry.size < segment.memory + len(columns) + 1000
    some = present(entry.body(SHARD, Filter.parse('key == b"a"')))
    assert entry.size > segment.memory + len(columns) + some.size
    log.buffer.drop_oldest()
    assert log.buffer.size == 0
    assert entry.body(SHARD, Filter.parse('key == b"a"')) is not None  # a flow still looks at it
    assert log.buffer.size == 0


@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_counted_is_what_it_takes(log: Log, size: int) -> None:
    # A log that is read transaction by transaction is mostly objects: counting bytes alone, the buffer took eight times
    # its bound.
    count = 100
    for number in range(count):
        log.commit(f"{number:0{size}}")
    segments = iter(lambda: log.read(1), None)
    tracemalloc.start()
    try:
        for number, _ in zip(range(count), segments, strict=False):
            log.entry(number).body(SHARD, ALL)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * taken < log.buffer.size < 1.5 * taken


@pytest.mark.parametrize("text", ['key == b"1"', 'value == b"1"', 'changed("value")'])
def test_of_updates_that_filters_read_no_object_of_the_parser_is_kept(log: Log, text: str) -> None:
    # One takes about 3 KB outside of Python's own memory: of small updates ten times what was counted.
    count, before = 100, _parsed_rows()
    for number in range(count):
        log.source.commit([(Op.UPDATE, "t", str(number).encode(), {"value": b"1"})])
    segments, wanted = iter(lambda: log.read(1), None), Filter.parse(text)
    tracemalloc.start()
    try:
        for number, _ in zip(range(count), segments, strict=False):
            log.entry(number).moved_in_part(SHARD)
            log.entry(number).body(SHARD, wanted)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert _parsed_rows() <= before
    assert 0.8 * taken < log.buffer.size < 1.5 * taken


def _parsed_rows() -> int:
    return sum(type(one) is Row for one in gc.get_objects())  # others' objects answer `isinstance` with code of theirs


def test_a_body_is_built_once_for_all_filters_that_mean_the_same(log: Log) -> None:
    log.commit("a", "b")
    log.read()
    entry = log.entry(0)
    one, same = Filter.parse('key == b"a"'), Filter.parse('(key == b"a")')
    assert entry.body(SHARD, one) is entry.body(SHARD, same)
    assert entry.body(SHARD, ALL) is not entry.body(SHARD, one)
    assert list(parsed(entry, one).update_index) == [0]
    assert entry.body("log.elsewhere", ALL) is None


def test_what_is_hidden_is_in_no_body_and_equal_masks_share_one(log: Log) -> None:
    log.commit("secret-a", "secret-b")
    log.read()
    entry = log.entry(0)
    one, same = (Filter.parse(None, projection=Projection.parse([], {name: "null"})) for name in ("value", "VALUE"))
    body = entry.body(SHARD, one)
    assert body is entry.body(SHARD, same)
    assert body is not None
    plain, rest = entry.body(SHARD, ALL), entry.body_from(SHARD, one, log.start.order, 1)
    assert plain is not None
    assert rest is not None
    # Each key is its own value in this log: it is sent once, and not twice.
    assert [found.data.count(b"secret") for found in (plain, body, rest)] == [4, 2, 1]
    assert [column.type for column in body.schemas[0].columns] == ["bytes"]
    assert (body.tallies, body.updates) == (plain.tallies, plain.updates), "the audit counts updates, not their columns"


def test_nothing_wanted_is_remembered_too(log: Log) -> None:
    log.commit("a")
    log.read()
    entry = log.entry(0)
    size = log.buffer.size
    assert entry.body(SHARD, Filter.parse('key == b"x"')) is None
    decoded = log.buffer.size
    assert decoded > size  # the keys that filters look at count too
    assert entry.body(SHARD, Filter.parse('key == b"x"')) is None
    assert log.buffer.size == decoded
    log.buffer.drop_oldest()
    assert log.buffer.size == 0


def test_a_flow_that_travelled_all_along_shares_the_body_of_a_continued_transaction(log: Log) -> None:
    """A transaction of a gigabyte for twenty flows: each piece's body must be built once, not twenty times."""
    log.commit("a", "b", "c")
    log.read(1)
    log.read(1)
    entry = log.entry(1)
    assert entry.body_from(SHARD, ALL, log.start.order, 1) is entry.body(SHARD, ALL)


def test_first_wanted_skips_whole_transactions_and_what_was_sent_of_the_next(log: Log) -> None:
    first = log.commit("a", "b").order
    second = log.commit("c", "d", "e").order
    run = log.read().runs[SHARD]
    assert first_wanted(run, log.start.order, 0) == (0, 0)
    assert first_wanted(run, log.start.order, 1) == (0, 1)
    assert first_wanted(run, first, 0) == (1, 2)
    assert first_wanted(run, first, 2) == (1, 4)
    assert first_wanted(run, first, 99) == (1, 5)
    assert first_wanted(run, second, 0) == (2, 5)


def test_the_end_of_a_transaction_that_a_flow_has_is_not_sent_again(log: Log) -> None:
    first = log.commit("a", "b").order
    log.read(1)
    second = log.commit("c").order
    log.read()
    body = present(log.entry(1).body_from(SHARD, ALL, first, 0))
    got = parse_body(body.data)
    assert [got.position_of(tx) for tx in range(len(got.tx_number))] == [second]


def test_the_end_travels_to_a_flow_that_stopped_inside_and_wants_nothing_of_the_rest(log: Log) -> None:
    end = log.commit("a", "b", "c").order
    log.read()
    only_a = Filter.parse('key == b"a"')
    body = present(log.entry(0).body_from(SHARD, only_a, log.start.order, 2))
    got = parse_body(body.data)
    assert body.updates == 0
    assert list(got.tx_end) == [0]
    assert got.position_of(0) == end


def test_a_flow_that_joins_in_the_middle_gets_marks_and_bad_values_from_there_on() -> None:
    wanted = Filter.parse('status == "paid"', formats=open_formats(FormatSpec("json"), {}))
    builder = RunsBuilder()
    builder.begin("db", 1, 0, LogPosition(1, 1, 0))
    for n, value in enumerate((b"{", b'{"status": "open"}', b'{"status": "paid"}', b"x", b"{}")):
        builder.add([SHARD], STORE, encode_row(Op.UPSERT, [b"%d" % n], after=[value]))
    builder.end(LogPosition(1, 1, 100))
    end = LogPosition(1, 1, 100)
    segment = Segment(LogPosition(1, 1, 0), end, builder.take(), Datamarker(end, "1", end), 100)
    entry = BufferEntry(segment, lambda size: None)
    whole, rest = entry.body(SHARD, wanted), entry.body_from(SHARD, wanted, segment.begin, 1)
    assert whole is not None
    assert rest is not None
    assert [bad.id for bad in whole.bad] == ["db:1:0", "db:1:3"]
    assert [(bad.id, bad.table, bad.position) for bad in rest.bad] == [("db:1:3", "users", end)]
    assert rest.bad[0].why.startswith("no valid JSON")
    for body, marks in ((whole, [0, 2, 0, 0, 0]), (rest, [2, 0, 0, 0])):
        found = parse_body(body.data)
        assert [found.mark_of(i) for i in range(len(found.updates))] == marks
    assert decode_row(parse_body(rest.data).updates[0]) == decode_row(encode_row(Op.UPSERT, [b"1"]))
    assert entry.size > segment.size + len(whole.data)


TORN_AT = LogPosition(1, 3, 100)


def after_a_torn_piece(number: int, file: int, *, shard: str = "s") -> Segment:
    """A whole segment with one transaction, at the place where a flow has a part of one."""
    run = Run(
        b"", array("I", [0]), (), ("0-1",), array("Q", [number]), array("Q", [file]), array("Q", [900]), array("q", [1]),  # noqa: E501
        array("I", [1]),
    )  # fmt: skip
    end = LogPosition(1, file, 900)
    return Segment(TORN_AT, end, {shard: run}, Datamarker(end, "", end), 1)


@pytest.mark.parametrize(
    ("number", "file", "shard", "rolled_back"),
    [(4, 3, "s", False), (5, 3, "s", True), (5, 3, "other", True), (4, 4, "s", True)],
)
def test_only_the_end_of_the_transaction_in_its_file_is_no_rollback(
    number: int, file: int, shard: str, rolled_back: bool
) -> None:
    assert undone(after_a_torn_piece(number, file, shard=shard), "s", TORN_AT, Begun("0-1:4", 3)) is rolled_back


def shards_log(*shards: tuple[str, ...] | None) -> ChangeBuffer:
    """A segment for each: what it holds something of; ``None``: each flow has to look at it."""
    buffer = ChangeBuffer(LogPosition(1, 1, 0))
    for number, names in enumerate(shards):
        runs = RunsBuilder()
        runs.begin("mem", number, 0, LogPosition(1, 1, number))
        for name in names or ():
            runs.add((name,), STORE, encode_row(Op.UPSERT, [b"k"], after=[b"v"]))
        end = LogPosition(1, 1, number + 1)
        runs.end(end)
        segment = Segment(LogPosition(1, 1, number), end, runs.take(), Datamarker(end, str(number), end), 1)
        buffer.append(segment if names is not None else replace(segment, replaced={"t": end}))
    return buffer


def test_the_next_segment_of_a_shard_is_found_without_looking_at_the_others() -> None:
    buffer = shards_log(("a",), ("b",), ("b", "c"), None, ("a",), ("b",))
    assert [buffer.next_of("a", number) for number in range(7)] == [0, 3, 3, 3, 4, 6, 6]
    assert [buffer.next_of("b", number) for number in range(7)] == [1, 1, 2, 3, 5, 5, 6]
    assert [buffer.next_of("x", number) for number in range(7)] == [3, 3, 3, 3, 6, 6, 6]


def test_the_numbers_of_dropped_segments_are_forgotten() -> None:
    buffer = shards_log(*[("a",), None] * 300, ("b",))
    for _ in range(512):
        buffer.drop_oldest()
    assert (buffer.first, buffer.end) == (512, 601)
    assert [buffer.next_of("a", number) for number in (512, 513, 599, 600)] == [512, 513, 599, 601]
    assert buffer.next_of("b", 600) == 600
    for _ in range(88):
        buffer.drop_oldest()
    buffer._forget()
    assert (buffer._of_shard, buffer._of_all) == ({"b": [600]}, [])
