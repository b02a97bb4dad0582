"""Frames in messages that the subscriber takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from publisher.push.messages import Messages


@given(st.lists(st.lists(st.binary(max_size=12), min_size=1, max_size=2), max_size=30), st.integers(24, 60))
def test_every_frame_once_in_order_and_no_message_too_large(frames: list[list[bytes]], most: int) -> None:
    messages = Messages(most)
    for frame in frames:
        messages.add(*frame)
    out = list(messages.take())
    assert b"".join(out) == b"".join(b"".join(frame) for frame in frames)
    assert all(len(message) <= most for message in out)


def test_a_frame_is_never_cut() -> None:
    messages = Messages(10)
    for frame in (b"aaaaaa", b"bbbbbb", b"cc", b"cccccccccccccccc"):
        messages.add(frame[:2], memoryview(frame)[2:])
    assert list(messages.take()) == [b"aaaaaa", b"bbbbbbcc", b"cccccccccccccccc"]


def test_nothing_gives_no_message() -> None:
    assert list(Messages(10).take()) == []
