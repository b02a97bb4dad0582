"""What the publisher sends of a backfill beside its rows: the ends of chunks and tables, and the generation."""

from __future__ import annotations

import pytest

from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange
from wormhole.push.session import PushFlow, PushSession
from wormhole.wire.bounds import MOST_FRAME_BYTES, MOST_KEYS
from wormhole.wire.v1 import push_pb2, update_pb2

PLACE = LogPosition(1, 1, 5)
SCHEMA = Schema("shop.users", (Column("id", "int"),), (Column("name", "text"), Column("password", "text")))
KEY_ONLY = Schema("shop.users", SCHEMA.key, ())


def key(number: int | bytes) -> bytes:
    value = update_pb2.Value(bytes=number) if isinstance(number, bytes) else update_pb2.Value(int=number)
    return update_pb2.RowKey(values=[value]).SerializeToString()


def chunk(**fields: object) -> ChunkRange:
    given = {"after": key(1), "until": key(9), "portable": True, **fields}
    return ChunkRange("shop.users", SCHEMA, begin=0, end=1, not_before=PLACE, **given)  # type: ignore[arg-type]


def opened(*, max_frame: int = 1 << 20, generation: int = 4) -> tuple[PushSession, PushFlow, bytes]:
    hello = push_pb2.Hello(
        min_version=3, max_version=3, application="app", subscriber="sub", max_frame_bytes=1 << 20, heartbeat_ms=3000
    )
    session = PushSession(hello)
    welcome = push_pb2.Welcome(version=3, application="app", subscriber="sub", max_frame_bytes=max_frame)
    frame = push_pb2.SubscriberFrame(welcome=welcome)
    list(session.receive(push_pb2.SubscriberMessage(frames=[frame]).SerializeToString()))
    flow, data = session.assign("app", "log", 7, Datamarker(PLACE, "5", PLACE), None, 0.0, generation=generation)
    return session, flow, data


def frames(data: list[bytes]) -> list[push_pb2.PublisherFrame]:
    return list(push_pb2.PublisherMessage.FromString(b"".join(data)).frames)


def ends(data: list[bytes]) -> list[push_pb2.ChunkEnd]:
    return [frame.chunk_end for frame in frames(data) if frame.WhichOneof("kind") == "chunk_end"]


def left_out(end: push_pb2.ChunkEnd) -> list[bytes]:
    return [row.SerializeToString() for row in getattr(end, "except")]


def test_the_end_of_a_chunk_follows_a_schema_that_has_the_key_only() -> None:
    """What columns a table has is not told to an application that does not receive them."""
    session, flow, _ = opened()
    schema, end = frames(session.chunk_end(flow, chunk(left_out=(key(3), key(5))), narrowed=True, rows=6))
    assert (schema.schema.id, schema.schema.canonical) == (KEY_ONLY.id, KEY_ONLY.canonical)
    expected = push_pb2.ChunkEnd(flow=1, epoch=7, schema=KEY_ONLY.id, portable=True, narrowed=True, rows=6)
    expected.after.values.add(int=1)
    expected.until.values.add(int=9)
    for number in (3, 5):
        getattr(expected, "except").add().values.add(int=number)
    assert end.chunk_end == expected
    [again] = frames(session.chunk_end(flow, chunk(after=None, until=None), narrowed=False, rows=0))
    assert not again.chunk_end.HasField("after")
    assert not again.chunk_end.HasField("until")


def test_the_end_of_a_scan() -> None:
    session, flow, _ = opened()
    [frame] = frames([session.scan_end(flow, "shop.users", 4, 99)])
    assert frame.scan_end == push_pb2.ScanEnd(flow=1, epoch=7, table="shop.users", generation=4, rows=99)


@pytest.mark.parametrize("kind", ["chunk_end", "scan_end"])
def test_a_datamarker_is_due_behind_either(kind: str) -> None:
    """Progress that no row carries is acknowledged as soon as progress with rows."""
    session, flow, _ = opened()
    if kind == "chunk_end":
        session.chunk_end(flow, chunk(), narrowed=False, rows=0)
    else:
        session.scan_end(flow, "shop.users", 4, 0)
    assert session.marker_due(flow, 0.1, soon=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"portable": False},
        {"left_out": tuple(map(key, range(MOST_KEYS + 1)))},
        {"left_out": tuple(key(b"%d" % number + bytes(3000)) for number in range(200))},
        {"until": key(bytes(MOST_FRAME_BYTES))},
    ],
)
def test_a_range_from_which_nothing_can_be_concluded_has_no_keys(fields: dict[str, object]) -> None:
    session, flow, _ = opened()
    [end] = ends(session.chunk_end(flow, chunk(**fields), narrowed=False, rows=6))
    assert end == push_pb2.ChunkEnd(flow=1, epoch=7, schema=KEY_ONLY.id, rows=6)


def test_keys_that_were_read_alone_take_as_many_frames_as_they_need() -> None:
    session, flow, _ = opened(max_frame=4096)
    alone = tuple(key(b"%d" % number + bytes(1000)) for number in range(10))
    data = session.chunk_end(flow, chunk(alone=alone, left_out=(alone[4],)), narrowed=False, rows=6)
    assert max(map(len, data)) <= 4096
    sent = ends(data)
    keys = [row.SerializeToString() for end in sent for row in end.alone]
    assert keys == [*alone[:4], *alone[5:]], "a key that follows by itself is not reported as gone"
    assert [end.rows for end in sent] == [*[0] * (len(sent) - 1), 6]
    assert not any(end.HasField("after") or end.HasField("until") or end.portable for end in sent)


def test_a_key_alone_that_fits_no_frame_is_left_to_the_end_of_the_scan() -> None:
    session, flow, _ = opened(max_frame=4096)
    data = session.chunk_end(flow, chunk(alone=(key(bytes(5000)),)), narrowed=False, rows=0)
    assert ends(data) == [push_pb2.ChunkEnd(flow=1, epoch=7, schema=KEY_ONLY.id)]
