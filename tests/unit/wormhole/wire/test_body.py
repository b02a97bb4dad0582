"""Bodies of batches and their bounds."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.errors import ProtocolError
from wormhole.model.position import LogPosition
from wormhole.model.values import Op
from wormhole.wire import bounds
from wormhole.wire.body import parse_body
from wormhole.wire.bounds import MOST_FRAMES, check_count, check_name, check_seconds, fields, frames_of, shortened
from wormhole.wire.rows import encode_row
from wormhole.wire.v1 import push_pb2, update_pb2

# --- The checks of a body that came over the wire, field by field. ``tests/property/test_body.py`` has what is built


ROW = encode_row(Op.DELETE, (b"k",))
GOOD: dict[str, Any] = {
    "updates": [ROW, ROW, ROW],
    "schema_ids": [11, 12],
    "schema_index": [0, 1, 1],
    "update_index": [0, 1, 5],
    "sources": ["s", "r"],
    "tx_source": [0, 1],
    "tx_number": [7, 8],
    "incarnation": 2,
    "tx_file": [3, 4],
    "tx_offset": [100, 200],
    "tx_committed_at_us": [1, 2],
    "tx_end": [2, 3],
}


def body(**change: Any) -> bytes:
    return update_pb2.BatchBody(**{**GOOD, **change}).SerializeToString()


def test_a_good_one_is_read() -> None:
    parsed = parse_body(body())
    assert [parsed.transaction_of(i) for i in range(3)] == [0, 0, 1]
    assert [parsed.index_of(i) for i in range(3)] == [0, 1, 5]
    assert [parsed.schema_id_of(i) for i in range(3)] == [11, 12, 12]
    assert [parsed.transaction_id(tx) for tx in range(2)] == ["s:7", "r:8"]
    assert [parsed.position_of(tx) for tx in range(2)] == [LogPosition(2, 3, 100), LogPosition(2, 4, 200)]
    assert [parsed.committed_at_us(tx) for tx in range(2)] == [1, 2]


def test_one_entry_is_used_for_all() -> None:
    parsed = parse_body(body(schema_index=[1], tx_source=[1], tx_file=[9], tx_committed_at_us=[5]))
    assert [parsed.schema_id_of(i) for i in range(3)] == [12] * 3
    assert [parsed.transaction_id(tx) for tx in range(2)] == ["r:7", "r:8"]
    assert [parsed.position_of(tx).file for tx in range(2)] == [9, 9]
    assert [parsed.committed_at_us(tx) for tx in range(2)] == [5, 5]


def test_what_is_left_out_counts_up_or_is_the_first() -> None:
    parsed = parse_body(body(schema_index=[], update_index=[], first_index=4, tx_source=[]))
    assert [parsed.index_of(i) for i in range(3)] == [4, 5, 0]
    assert [parsed.schema_id_of(i) for i in range(3)] == [11] * 3
    assert [parsed.transaction_id(tx) for tx in range(2)] == ["s:7", "s:8"]


def test_marks_are_per_update_or_none_at_all() -> None:
    marked = parse_body(body(marks=["MARK_NONE", "LEFT", "ENTERED"]))
    assert [marked.mark_of(i) for i in range(3)] == [0, update_pb2.LEFT, update_pb2.ENTERED]
    assert [parse_body(body()).mark_of(i) for i in range(3)] == [0, 0, 0]


def test_the_last_transaction_may_go_on() -> None:
    parsed = parse_body(body(tx_end=[2]))
    assert [parsed.transaction_of(i) for i in range(3)] == [0, 0, 1]


def test_a_transaction_may_end_without_an_update() -> None:
    parsed = parse_body(body(tx_end=[0, 3]))
    assert [parsed.transaction_of(i) for i in range(3)] == [1, 1, 1]


def test_the_last_transaction_may_have_ended_elsewhere() -> None:
    parsed = parse_body(body(tx_end=[2], ended=True))
    assert [parsed.transaction_of(i) for i in range(3)] == [0, 0, 1]
    assert parsed.tx_end == [2, 4]
    assert parse_body(parsed.to_bytes()).tx_end == parsed.tx_end


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ended": True}, "tx_end has 2 entries"),
        ({"schema_index": [0, 0]}, "schema_index has 2 entries for 3 updates in 2 transactions"),
        ({"update_index": [0, 1]}, "update_index has 2 entries"),
        ({"update_index": [0]}, "update_index has 1 entries"),
        ({"tx_source": [0, 0, 0]}, "tx_source has 3 entries"),
        ({"tx_file": []}, "tx_file has 0 entries"),
        ({"tx_file": [1, 2, 3]}, "tx_file has 3 entries"),
        ({"tx_offset": [1]}, "tx_offset has 1 entries"),
        ({"tx_committed_at_us": []}, "tx_committed_at_us has 0 entries"),
        ({"tx_end": []}, "tx_end has 0 entries"),
        ({"tx_end": [1, 2, 3]}, "tx_end has 3 entries"),
        ({"marks": [1]}, "marks has 1 entries"),
        ({"marks": [1, 2, 0, 0]}, "marks has 4 entries"),
        ({"tx_end": [2, 1]}, "tx_end must ascend"),
        ({"tx_end": [4]}, "tx_end must ascend and not pass"),
        ({"tx_end": [1, 2]}, "updates after the end of the last transaction"),
        ({"schema_index": [0, 1, 2]}, "schema_index points past its table of 2"),
        ({"schema_ids": [], "schema_index": []}, "schema_index points past its table of 0"),
        ({"tx_source": [0, 2]}, "tx_source points past its table of 2"),
        ({"sources": [], "tx_source": []}, "tx_source points past its table of 0"),
        (
            {"tx_number": [], "tx_file": [], "tx_offset": [], "tx_committed_at_us": [], "tx_end": [], "tx_source": []},
            "3 updates in no transaction",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ProtocolError, match=f"batch body: {says}"):
        parse_body(body(**change))


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(ProtocolError, match="no valid message"):
        parse_body(b"\xff\xff")


def test_an_empty_body_is_a_body() -> None:
    assert len(parse_body(b"").updates) == 0


def test_updates_are_cut_when_they_are_asked_for() -> None:
    rows = [encode_row(Op.DELETE, (key,)) for key in (b"a", b"b" * 200, b"")]
    updates = parse_body(body(updates=rows)).updates
    assert (len(updates), updates[0], updates[-1], updates[1:]) == (3, rows[0], rows[2], rows[1:])
    assert list(updates) == rows
    assert rows[1] in updates
    with pytest.raises(IndexError):
        updates[3]


def test_a_body_that_only_protobuf_can_take_apart_is_read_all_the_same() -> None:
    group = b"\x83\x7d" + b"\x0a\x01a" + b"\x84\x7d"  # unknown, and what looks like an update in it is none
    assert list(parse_body(group + body()).updates) == [ROW, ROW, ROW]
    with pytest.raises(ProtocolError, match="no valid message"):
        parse_body(group[:-2] + body())


# --- A peer's message is taken apart within bounds, and nothing but a value or the documented error comes of it


def test_frames_are_those_that_protobuf_finds() -> None:
    message = push_pb2.SubscriberMessage(
        frames=[push_pb2.SubscriberFrame(heartbeat=push_pb2.Heartbeat(number=number)) for number in (1, 1 << 40, 0)]
    )
    data = message.SerializeToString() + b"\x10\x07"  # a field that nobody knows
    assert [push_pb2.SubscriberFrame.FromString(bytes(one)) for one in frames_of(data, "it")] == list(message.frames)


def test_no_more_frames_than_the_bound_are_looked_at() -> None:
    seen = 0
    with pytest.raises(ProtocolError, match=f"it has more than {MOST_FRAMES} fields"):
        for _ in frames_of(b"\x0a\x00" * (1 << 21), "it"):
            seen += 1
    assert seen == MOST_FRAMES


@given(st.binary(max_size=60))
def test_what_protobuf_reads_is_walked_and_everything_else_is_refused(data: bytes) -> None:
    found: list[int] = []
    said = ""
    try:
        push_pb2.SubscriberMessage.FromString(data)
        valid = True
    except DecodeError:
        valid = False
    try:
        found += [end - begin for _, begin, end in fields(data, 100, "it")]
    except ProtocolError as error:
        said = error.message
    assert sum(found) <= len(data)
    assert not (valid and said) or "wire type" in said  # groups: nobody sends them


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05abc", b"\x09abc", b"\x0b\x0c", b"\x80" * 11, b"\x08" + b"\xff" * 10]
)
def test_what_is_no_message_is_named(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="it is no valid message"):
        list(fields(data, 10, "it"))


def test_lists_names_and_durations_have_bounds() -> None:
    check_count([1, 2], 2, "x")
    with pytest.raises(ProtocolError, match="x: 3 entries; at most 2 are taken"):
        check_count([1, 2, 3], 2, "x")
    assert check_name("a" * bounds.MOST_NAME, "x")
    with pytest.raises(ProtocolError, match="x: 1025 characters"):
        check_name("a" * (bounds.MOST_NAME + 1), "x")
    assert check_seconds(0.5, "x") == 0.5
    for value in (float("nan"), float("inf"), -0.1):
        with pytest.raises(ProtocolError, match="is no duration"):
            check_seconds(value, "x")


def test_a_long_text_is_shown_shortened() -> None:
    assert shortened("a" * 5, 5) == "aaaaa"
    assert shortened("a" * 6, 5) == "aaaaa... (6 characters)"
