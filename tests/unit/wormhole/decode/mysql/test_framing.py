"""Payloads in several packets, and packets that hold no event."""

from __future__ import annotations

import pytest

from tests.support.mysql_events import packet
from wormhole.decode.mysql.framing import WHOLE_PAYLOAD, join, tells_the_end
from wormhole.errors import DecodeError


@pytest.mark.parametrize("size", [WHOLE_PAYLOAD - 1, WHOLE_PAYLOAD + 5, 2 * WHOLE_PAYLOAD - 1])
def test_a_payload_of_several_packets(size: int) -> None:
    event = bytes(range(256)) * (size // 256) + bytes(size % 256)
    data = b"##" + packet(event) + b"next"
    assert join(data, 2, len(data)) == (b"\0" + event, len(data) - 4, 0)


def test_what_is_missing_is_told_packet_by_packet() -> None:
    data = packet(bytes(WHOLE_PAYLOAD + 9))
    second = 4 + WHOLE_PAYLOAD
    assert join(data, 0, second) == (b"", 0, second + 4)
    assert join(data, 0, second + 3) == (b"", 0, second + 4)
    assert join(data, 0, second + 4) == (b"", 0, len(data))
    assert join(data, 0, len(data) - 1) == (b"", 0, len(data))
    assert join(data, 0, 100) == (b"", 0, second)


def test_ends_and_errors() -> None:
    assert tells_the_end(b"\xfe\0\0\2\0")
    assert not tells_the_end(b"\xff\x15\x04denied")
    for payload in (b"\xfe" + bytes(8), b"\x03"):
        with pytest.raises(DecodeError, match="no event, end or error"):
            tells_the_end(payload)
