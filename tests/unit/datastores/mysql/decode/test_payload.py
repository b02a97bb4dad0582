from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator

import pytest
import zstandard

from datastores.mysql.decode import payload as module
from datastores.mysql.decode.large_event import Body, LargeEvent
from wormhole.model.errors import DecodeError

LIMIT = 1 << 20


def body_of(data: bytes) -> Body:
    return Body(io.BytesIO(data).read, len(data))


def inflate(data: bytes, limit: int, held: int = LIMIT) -> Iterator[bytes | LargeEvent]:
    return module.inflate(body_of(data), limit, held)


def whole(event: bytes | LargeEvent) -> bytes:
    return event if isinstance(event, bytes) else event.header + event.body.take(event.body.left)


def plain_event(data: bytes, limit: int) -> bytes:
    return whole(module.plain_event(data[:19], body_of(data[19:]), limit))


def event(kind: int, body: bytes, length: int | None = None) -> bytes:
    return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body) if length is None else length, 0, 0) + body


def payload(data: bytes, compression: bytes, size: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return (
        b"\2"
        + bytes([len(compression)])
        + compression
        + b"\3\4\xfd\xff\xff\xff"
        + b"\1\x09\xfe"
        + size.to_bytes(8, "little")
        + b"\0"
        + data
    )


NONE = b"\xfc\xff\0"
EVENTS = [event(19, b"map"), event(30, b"rows" * 50_000), event(16, b"12345678")]


def test_events_come_whole() -> None:
    joined = b"".join(EVENTS)
    for body in (
        payload(joined, NONE),
        payload(zstandard.compress(joined), b"\0"),
        payload(zstandard.compress(joined[:7]) + zstandard.compress(joined[7:]), b"\0"),
        payload(zstandard.compress(joined), b"\0", len(zstandard.compress(joined))) + b"after it",
        b"\x07\2xx" + payload(joined, NONE),
    ):
        assert list(inflate(body, LIMIT)) == EVENTS
        assert [whole(event) for event in inflate(body, LIMIT, 27)] == EVENTS
        kinds = [type(event) for event in inflate(body, LIMIT, 27)]  # a large one that nobody reads is passed over
        assert kinds == [bytes, LargeEvent, bytes]
    assert list(inflate(payload(b"", NONE), LIMIT)) == []


def test_events_are_inflated_one_at_a_time() -> None:
    """A payload of 640 MB in 60 KB: what is not asked for is never made."""
    many = zstandard.ZstdCompressor().compressobj()
    data = b"".join(many.compress(event(30, bytes(1 << 20))) for _ in range(640)) + many.flush()
    events = inflate(payload(data, b"\0"), 2 << 20)
    assert len(whole(next(events))) == (1 << 20) + 19
    with pytest.raises(DecodeError, match="the limit is 1048576"):
        next(inflate(payload(data, b"\0"), 1 << 20))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "kind of field takes"),
        (b"\2\1\0\1\1\5", "kind of field takes"),
        (b"\7\xfa", "length|takes"),
        (b"\2\1\0\0", "-1 bytes of data"),
        (payload(b"abc", NONE, 4), "4 bytes of data, 3 are left"),
        (payload(b"abc", b"\1"), "compression 1 is unknown"),
        (b"\1\1\0\0", "compression -1 is unknown"),
        (payload(b"abc", NONE), "3 bytes after the last event"),
        (payload(EVENTS[0] + EVENTS[2][:-1], NONE), "26 of an event's 27 bytes"),
        (payload(event(1, b"", 18), NONE), "an event of 18 bytes"),
        (payload(event(1, b"", LIMIT + 1), NONE), "the limit is"),
        (payload(b"no zstd frame at all", b"\0"), "cannot be inflated"),
        (payload(event(40, b"\0"), NONE), "inside of a payload"),
    ],
)
def test_a_broken_payload_says_what_is_wrong(body: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        list(inflate(body, LIMIT))


def packed(data: bytes, size: int | None = None, width: int = 3, first: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return bytes([0x80 | width if first is None else first]) + size.to_bytes(width, "big") + zlib.compress(data)


QUERY = struct.pack("<IIBHH", 9, 0, 4, 0, 3) + b"var" + b"shop\0"
TABLE = bytes(6) + b"\1\0"
ROWS = b"the rows" * 1000


@pytest.mark.parametrize(
    ("kind", "plain", "head"),
    [
        (165, 2, QUERY),
        (166, 23, TABLE + b"\x09\xff\x01"),
        (167, 24, TABLE + b"\x09\xff\x01\xff\x01"),
        (168, 25, TABLE + b"\x08\xff"),
        (169, 30, TABLE + b"\2\0" + b"\x09\xff\x01"),
        (170, 31, TABLE + b"\5\0abc" + b"\x09\xff\x01\xff\x01"),
        (171, 32, TABLE + b"\2\0" + b"\xfc\x2c\x01" + bytes(38)),
    ],
)
def test_mariadbs_compressed_events_become_plain_ones(kind: int, plain: int, head: bytes) -> None:
    for width in (2, 3, 4):
        assert plain_event(event(kind, head + packed(ROWS, width=width)), LIMIT) == event(plain, head + ROWS)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (event(2, QUERY), "type 2"),
        (event(165, QUERY[:5]), "thread and time takes"),
        (event(165, QUERY[:12]), "thread and time takes"),
        (event(165, QUERY[:-1]), "status variables and database takes"),
        (event(165, QUERY), "compression takes"),
        (event(169, TABLE + b"\2\0\xfb"), "compression takes"),
        (event(166, TABLE + b"\x09\xff"), "compression takes"),
        (event(165, QUERY + packed(ROWS, first=0x93)), "compression 0x93"),
        (event(165, QUERY + packed(ROWS, len(ROWS) - 1)), "are not the 7999 bytes"),
        (event(165, QUERY + packed(ROWS, len(ROWS) + 1)), "are not the 8001 bytes"),
        (event(165, QUERY + packed(ROWS)[:-1]), "are not the 8000 bytes"),
        (event(165, QUERY + packed(ROWS, LIMIT + 1)), "the limit is"),
        (event(165, QUERY + b"\x81\x05zzzzzzz"), "cannot be inflated"),
    ],
)
def test_a_broken_compressed_event_says_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        plain_event(data, LIMIT)
