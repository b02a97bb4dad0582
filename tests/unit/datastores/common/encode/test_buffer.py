from __future__ import annotations

from datastores.common.encode.buffer import copy_into, grow


def test_room_grows_in_place() -> None:
    out = bytearray(b"abc")
    assert grow(out, 2) == 3
    assert grow(out, 100) == len(out) >= 100
    assert out[:3] == b"abc"


def test_a_copy_is_where_it_is_wanted() -> None:
    out = bytearray(8)
    copy_into(out, 2, b"0123456789", 4, 7)
    assert out == b"\0\0" + b"456" + bytes(3)
