"""A peer's message is taken apart within bounds, and nothing but a value or the documented error comes of it."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from wormhole.model.errors import ProtocolError
from wormhole.wire import bounds
from wormhole.wire.bounds import MOST_FRAMES, check_count, check_name, check_seconds, fields, frames_of, shortened
from wormhole.wire.v1 import push_pb2


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
