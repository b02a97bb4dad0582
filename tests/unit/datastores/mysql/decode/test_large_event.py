from __future__ import annotations

import io

import pytest

from datastores.mysql.decode.large_event import Body, with_length
from wormhole.model.errors import DecodeError


def test_a_body_is_read_once_in_any_parts() -> None:
    source = io.BytesIO(b"0123456789 and what follows")
    body = Body(lambda size: source.read(min(size, 3)), 10)
    assert body.read(5) == b"012"
    assert body.take(4) == b"3456"
    body.back(b"56")
    assert (body.left, body.take(1)) == (5, b"5")
    body.skip(2)
    assert body.take(100) == b"89"
    assert (body.left, body.read(1), body.take(1)) == (0, b"", b"")


def test_a_source_that_ends_early() -> None:
    body = Body(io.BytesIO(b"012").read, 10)
    with pytest.raises(DecodeError, match="the data end 7 bytes before the event does"):
        body.take(10)


def test_the_header_of_an_event_of_another_length() -> None:
    header = bytes(range(19))
    assert with_length(header, 256) == header[:9] + (275).to_bytes(4, "little") + header[13:]
