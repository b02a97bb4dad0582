"""The frames that a backfill sends in addition to its rows: the end of a chunk and the end of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wormhole.model.schema import Schema
from wormhole.model.segment import ChunkRange
from wormhole.push.frames import frame_bytes
from wormhole.wire.bounds import MOST_FRAME_BYTES, MOST_KEYS
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["chunk_end_frames", "key_schema"]

_FRAME_BYTES = 256  # limit for the own fields of a message and its frame
_KEY_BYTES = 8  # tag and length of a key in a list, at most


def key_schema(chunk: ChunkRange) -> Schema:
    """The schema in a chunk's end: the table and its key, without other columns, which the application might not be
    allowed to see.
    """
    return Schema(chunk.table, chunk.schema.key, ())


def chunk_end_frames(
    flow: int, epoch: int, chunk: ChunkRange, *, narrowed: bool, rows: int, max_frame_bytes: int
) -> Iterator[bytes]:
    """The ``ChunkEnd`` frames of a chunk from which the flow was sent ``rows`` READ updates; see push.proto.

    Keys that were read alone may need several frames; ``rows`` is in the last one. A key that was read alone and fits
    no frame is not sent. If the left-out keys exceed the bounds, or a key of the range does not fit a frame, the frame
    is sent as not portable and without keys, so that the subscriber concludes nothing from the range. Rows of such keys
    that do not exist any more are recognized at the end of the table.
    """
    room = min(max_frame_bytes, MOST_FRAME_BYTES) - _FRAME_BYTES
    schema = key_schema(chunk).id
    if chunk.alone:
        left_out = set(chunk.left_out)
        groups = list(_groups([key for key in chunk.alone if key not in left_out], room))
        for number, keys in enumerate(groups or [[]], 1):
            frame = push_pb2.ChunkEnd(flow=flow, epoch=epoch, schema=schema, narrowed=narrowed, alone=keys)
            frame.rows = rows if number >= len(groups) else 0
            yield frame_bytes(push_pb2.PublisherFrame(chunk_end=frame))
        return
    frame = push_pb2.ChunkEnd(flow=flow, epoch=epoch, schema=schema, narrowed=narrowed, rows=rows)
    size = sum(map(len, chunk.left_out)) + len(chunk.after or b"") + len(chunk.until or b"")
    count = len(chunk.left_out)
    if chunk.portable and count <= MOST_KEYS and size + _KEY_BYTES * (count + 2) <= room:
        frame.portable = True
        for name, key in (("after", chunk.after), ("until", chunk.until)):
            if key is not None:
                getattr(frame, name).CopyFrom(_key(key))
        getattr(frame, "except").extend(map(_key, chunk.left_out))
    yield frame_bytes(push_pb2.PublisherFrame(chunk_end=frame))


def _groups(keys: Sequence[bytes], room: int) -> Iterator[list[update_pb2.RowKey]]:
    """The keys in lists that each fit a frame. A key that fits no frame is left out."""
    group: list[update_pb2.RowKey] = []
    size = 0
    for key in keys:
        cost = len(key) + _KEY_BYTES
        if cost > room:
            continue
        if group and (size + cost > room or len(group) >= MOST_KEYS):
            yield group
            group, size = [], 0
        group.append(_key(key))
        size += cost
    if group:
        yield group


def _key(data: bytes) -> update_pb2.RowKey:
    return update_pb2.RowKey.FromString(data)
