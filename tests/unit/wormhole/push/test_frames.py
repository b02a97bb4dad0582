"""Frames, epochs and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.push.epochs import FIRST_NO_EPOCH, may_be_exceeded
from wormhole.push.frames import batch_frame, frame_bytes, part_frames, varint
from wormhole.push.refusal import why_unreachable
from wormhole.wire.v1 import push_pb2

# --- Frames written by hand are the bytes that protobuf would write


numbers = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
flows = st.one_of(st.integers(0, 300), st.integers(0, (1 << 32) - 1))


def message(**kind: object) -> bytes:
    frame = push_pb2.PublisherFrame(**kind)  # type: ignore[arg-type]
    return push_pb2.PublisherMessage(frames=[frame]).SerializeToString()


@given(numbers)
def test_varint_is_protobufs(value: int) -> None:
    assert push_pb2.Heartbeat(number=value).SerializeToString() == (b"\x08" + varint(value) if value else b"")


@pytest.mark.parametrize("bits", range(1, 65))
def test_varint_at_its_limits(bits: int) -> None:
    for value in ((1 << bits) - 1, 1 << (bits - 1)):
        assert push_pb2.Heartbeat(number=value).SerializeToString() == b"\x08" + varint(value)


@given(flows, numbers, numbers, st.booleans(), st.binary(min_size=1, max_size=200))
def test_a_batch_is_what_protobuf_writes(flow: int, epoch: int, number: int, replayed: bool, body: bytes) -> None:
    expected = push_pb2.Batch(flow=flow, epoch=epoch, number=number, replayed=replayed, body=body)
    assert b"".join(batch_frame(flow, epoch, number, replayed, (body[:50], body[50:]))) == message(batch=expected)


@pytest.mark.parametrize("size", [1, 127, 128, 16383, 16384, 300_000])
def test_a_batch_is_what_protobuf_writes_at_lengths_where_a_varint_grows(size: int) -> None:
    body = bytes(size)
    expected = push_pb2.Batch(flow=1, epoch=2, number=3, body=body)
    pieces = batch_frame(1, 2, 3, False, (body[:-1], body[-1:]))
    assert b"".join(pieces) == message(batch=expected)
    pieces = batch_frame(1, 2, 3, False, (body,))
    assert any(piece is body for piece in pieces), "the body was copied"


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4).filter(any), st.integers(1, 100), st.booleans())
def test_parts_joined_are_the_body(own: list[bytes], part_bytes: int, replayed: bool) -> None:
    parts = []
    body = b"".join(own)
    for index, pieces in enumerate(part_frames(1, 2, 3, replayed, own, part_bytes)):
        data = b"".join(pieces)
        [frame] = push_pb2.PublisherMessage.FromString(data).frames
        part = frame.part
        assert data == message(part=part)
        assert (part.flow, part.epoch, part.number, part.replayed) == (1, 2, 3, replayed)
        assert (part.index, part.total_bytes) == (index, len(body))
        assert 0 < len(part.data) <= part_bytes
        parts.append(part)
    assert b"".join(part.data for part in parts) == body
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]


def test_frames_joined_are_a_message() -> None:
    frames = [push_pb2.PublisherFrame(heartbeat=push_pb2.Heartbeat(number=n)) for n in (1, 2)]
    joined = b"".join(map(frame_bytes, frames))
    assert push_pb2.PublisherMessage.FromString(joined) == push_pb2.PublisherMessage(frames=frames)


# --- Epochs end where stores of signed numbers do


def test_the_last_epoch_has_no_successor() -> None:
    assert may_be_exceeded(0)
    assert may_be_exceeded(FIRST_NO_EPOCH - 2)
    assert not may_be_exceeded(FIRST_NO_EPOCH - 1)
    assert not may_be_exceeded(2**64 - 1)


# --- refusal


WRAPPED = "failed to connect to all addresses; last error: UNKNOWN: "


@pytest.mark.parametrize(
    ("details", "told"),
    [
        (f"{WRAPPED}ipv4:127.0.0.1:7400: Failed to connect to remote host: Connection refused", "Connection refused"),
        (f"{WRAPPED}ipv6:%5B::1%5D:7400: Failed to connect to remote host: Connection refused", "Connection refused"),
        (f"{WRAPPED}ipv4:10.0.0.1:1: Ssl handshake failed: CERTIFICATE_VERIFY_FAILED", "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED"),  # noqa: E501
        (" Stream removed (recvmsg:Connection reset by peer (104)) ", "Stream removed (recvmsg:Connection reset by peer (104))"),  # noqa: E501
        ("", ""),
    ],
)  # fmt: skip
def test_what_matters_is_kept(details: str, told: str) -> None:
    assert why_unreachable(details) == told


def test_a_refusal_of_this_grpc_is_of_the_known_form() -> None:
    import grpc

    from wormhole.admin.admin_service import describe
    from wormhole.model.errors import StreamBroken

    with pytest.raises(StreamBroken) as raised:
        describe("127.0.0.1:1")
    assert isinstance(raised.value.__cause__, grpc.RpcError)
    assert raised.value.message == "the publisher at 127.0.0.1:1 does not answer: unavailable (Connection refused)"
