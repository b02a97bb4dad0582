"""Packets that hold no event."""

from __future__ import annotations

import pytest

from datastores.mysql.decode.framing import tells_the_end
from wormhole.model.errors import DecodeError


def test_ends_and_errors() -> None:
    assert tells_the_end(b"\xfe\0\0\2\0")
    assert not tells_the_end(b"\xff\x15\x04denied")
    for payload in (b"\xfe" + bytes(8), b"\x03"):
        with pytest.raises(DecodeError, match="no event, end or error"):
            tells_the_end(payload)
