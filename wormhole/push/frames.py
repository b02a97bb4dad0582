"""Serializes the frames that the publisher sends.

Small frames are made by protobuf. Batches and parts are written by hand around the shared body, because building a
message would copy the body once more for each flow.
"""

from __future__ import annotations

from collections.abc import Sequence

from wormhole.wire.v1 import push_pb2

__all__ = ["batch_frame", "frame_bytes", "part_frames", "varint"]

# Field tags: number << 3 | wire type (2 = length-delimited, 0 = varint); proto/wormhole/wire/v1/push.proto.
_FRAMES = b"\x0a"  # PublisherMessage.frames
_BATCH = b"\x22"  # PublisherFrame.batch = 4
_PART = b"\x2a"  # PublisherFrame.part = 5
_BODY = b"\x2a"  # Batch.body = 5
_DATA = b"\x42"  # Part.data = 8


def varint(value: int) -> bytes:
    """``value`` (not negative) as a protobuf varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame_bytes(frame: push_pb2.PublisherFrame) -> bytes:
    """One entry of ``PublisherMessage.frames``; entries joined are a message."""
    data = frame.SerializeToString()
    return _FRAMES + varint(len(data)) + data


def _wrap(kind: bytes, head: bytes, tag: bytes, pieces: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    size = sum(map(len, pieces))
    head += tag + varint(size)
    inner = kind + varint(len(head) + size)
    return [_FRAMES + varint(len(inner) + len(head) + size) + inner + head, *pieces]


def batch_frame(
    flow: int, epoch: int, number: int, replayed: bool, body: Sequence[bytes], unfinished: bool = False
) -> list[bytes | memoryview]:
    """A batch as pieces to join. The body, itself in pieces, is not copied.

    ``unfinished``: its last transaction continues in the next batch.
    """
    head = push_pb2.Batch(
        flow=flow, epoch=epoch, number=number, replayed=replayed, unfinished=unfinished
    ).SerializeToString()
    return _wrap(_BATCH, head, _BODY, body)


def part_frames(
    flow: int,
    epoch: int,
    number: int,
    replayed: bool,
    body: Sequence[bytes],
    part_bytes: int,
    unfinished: bool = False,
) -> list[list[bytes | memoryview]]:
    """A body that is larger than a frame, as parts of ``part_bytes``. Each part is a list of pieces to join."""
    size = sum(map(len, body))
    out = []
    for index, start in enumerate(range(0, size, part_bytes)):
        head = push_pb2.Part(
            flow=flow,
            epoch=epoch,
            number=number,
            replayed=replayed,
            index=index,
            last=start + part_bytes >= size,
            total_bytes=size,
            unfinished=unfinished,
        ).SerializeToString()
        out.append(_wrap(_PART, head, _DATA, _between(body, start, start + part_bytes)))
    return out


def _between(pieces: Sequence[bytes], begin: int, end: int) -> list[memoryview]:
    """The bytes from ``begin`` to ``end`` of the joined pieces, not copied."""
    found = []
    for piece in pieces:
        if begin < len(piece) and end > 0:
            found.append(memoryview(piece)[max(0, begin) : end])
        begin -= len(piece)
        end -= len(piece)
    return found
