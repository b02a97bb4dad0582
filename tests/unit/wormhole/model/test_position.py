"""Places, segments, shards and losses of a log."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.errors import PositionError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.model.schema import Schema
from wormhole.model.segment import Segment
from wormhole.model.sharding import shard_of_hash, shard_of_table
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.v1 import push_pb2

# --- Places: order, text and bytes


places = st.builds(
    LogPosition, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1) | st.integers(0, 3)
)


@given(places)
def test_text_and_bytes_come_back(place: LogPosition) -> None:
    assert LogPosition.parse(str(place)) == place
    assert LogPosition.from_bytes(place.to_bytes()) == place
    assert len(place.to_bytes()) == LogPosition.SIZE == 20


@given(places, places)
def test_bytes_sort_as_places_do(one: LogPosition, other: LogPosition) -> None:
    assert (one.to_bytes() < other.to_bytes()) == (one < other)
    assert (one == other) == (hash(one) == hash(other) and one.to_bytes() == other.to_bytes())


@pytest.mark.parametrize("size", [0, 19, 21])
def test_other_bytes_are_no_place(size: int) -> None:
    with pytest.raises(PositionError, match=f"a position has 20 bytes, not {size}"):
        LogPosition.from_bytes(bytes(size))


@pytest.mark.parametrize("text", ["", "1/2", "1/2/3/4", "a/2/3", "1/-2/3", "1/2/ 3", "1//3", "1/2/٣", "latest"])
def test_other_text_is_no_place(text: str) -> None:
    with pytest.raises(PositionError, match="no place in a log"):
        LogPosition.parse(text)


@pytest.mark.parametrize("text", [f"{2**32}/0/0", f"0/{2**64}/0", f"0/0/{2**64}", f"0/0/{'9' * 5000}"])
def test_a_place_out_of_range_is_refused_before_it_is_stored(text: str) -> None:
    with pytest.raises(PositionError, match="out of range"):
        LogPosition.parse(text)


def test_names_and_texts() -> None:
    order = LogPosition(1, 42, 7)
    assert flow_name("app", "log.a") == "app/log.a"
    assert str(Datamarker(order, "99", order)) == "1/42/7 (99)"
    assert str(Datamarker(order, "", order)) == "1/42/7"


# --- What a segment says of its size


PLACE = LogPosition(1, 1, 0)


def test_size_and_updates_count_every_run() -> None:
    builder = RunsBuilder()
    builder.begin("s", 1, 0, PLACE)
    row = encode_row(Op.DELETE, (b"k",))
    builder.add(("a", "b"), Schema("t", (), ()), row)
    builder.add(("a",), Schema("t", (), ()), row)
    builder.end(LogPosition(1, 1, 9))
    segment = Segment(PLACE, LogPosition(1, 1, 9), builder.take(), None, 9)
    assert segment.updates == 3
    assert segment.runs["a"].updates == 2
    assert segment.size == 3 * (len(row) + 2 + 8) + 2 * 40


def test_a_segment_without_updates_takes_no_room() -> None:
    segment = Segment(PLACE, PLACE, {}, None, 100)
    assert (segment.size, segment.updates) == (0, 0)


# --- Names of shards, which other tools must be able to compute


@pytest.mark.parametrize(
    ("table", "shard"),
    [
        ("users", "log.users"),
        ("shop.users", "log.shop%2Eusers"),
        ("a/b", "log.a%2Fb"),
        ("50%", "log.50%25"),
        ("é", "log.%C3%A9"),
        ("A-z_0", "log.A-z_0"),
        ("..", "log.%2E%2E"),
    ],
)
def test_a_table_gives_a_name_that_fits_a_path(table: str, shard: str) -> None:
    assert shard_of_table("log", table) == shard


def test_different_tables_give_different_shards() -> None:
    tables = ["a.b", "a%2Eb", "a/b", "a b", "a_b"]
    assert len({shard_of_table("log", table) for table in tables}) == len(tables)


def test_the_hash_is_the_documented_one() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926  # the check value of RFC 1952's CRC-32
    assert shard_of_hash("log", b"123456789", 16) == f"log.{0xCBF43926 % 16}of16"
    assert shard_of_hash("log", b"", 3) == "log.0of3"


# --- Why log can be missing, and the names under which that is told


def test_every_kind_has_a_name_on_the_wire() -> None:
    assert {kind.value.upper() for kind in LossKind} == set(push_pb2.DataLoss.Kind.keys()) - {"KIND_UNSPECIFIED"}


def test_equal_gaps_are_equal() -> None:
    """A flow remembers the gap that it passed by comparing it."""
    assert LogGap(LossKind.PURGED, "1", "2", "m") == LogGap(LossKind.PURGED, "1", "2", "m")
    assert LogGap(LossKind.PURGED, "1", "2", "m") != LogGap(LossKind.PURGED, "1", "3", "m")


@pytest.mark.parametrize(
    ("delivered", "first", "is_behind"),
    [
        ("", "5", False),
        ("3", "5", False),
        ("4", "5", False),
        ("5", "6", False),
        ("8", "9", False),
        ("9", "5", True),
        ("12", "5", True),
        ("0-1-7", "5", False),
    ],
)
def test_the_range_of_a_loss_begins_behind_what_was_delivered(delivered: str, first: str, is_behind: bool) -> None:
    gap = LogGap(LossKind.PURGED, "5", "9", "WAL 3 is gone")
    assert gap.reached(delivered) is is_behind
    told = gap.without(delivered)
    assert (told.first_missing, told.last_missing) == (first, "9")
    assert (told == gap) is (first == "5")
    assert first == "5" or f"of these 5 to {delivered} were delivered before" in told.message


def test_a_range_that_is_no_number_is_reported_as_it_is() -> None:
    gap = LogGap(LossKind.PURGED, "a:2", "a:2", "m", "a:1-2")
    assert gap.without("a:1") == gap
    assert gap.delivered == "a:1-2"
    assert gap.reached("a:1-2")
    assert not gap.reached("a:1")
    assert not LogGap(LossKind.PURGED, "a:2", "", "m").reached("")
