from __future__ import annotations

import pytest

from datastores.mysql.decode.cursor import Cursor
from wormhole.model.errors import DecodeError


def test_fields_follow_one_another_and_stop_at_the_end() -> None:
    cursor = Cursor(b"..\x01\x02\x03name\xffrest..", "event", 2, 14)
    assert cursor.number(1, "a") == 1
    assert cursor.number(2, "b") == 0x0302
    assert cursor.text(5, "c") == "name\\xff"
    assert cursor.left == 4
    assert cursor.rest() == b"rest"
    assert cursor.take(0, "nothing") == b""
    with pytest.raises(DecodeError, match="event: d takes 1 bytes, 0 are left"):
        cursor.number(1, "d")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0),
        (b"\xfa", 250),
        (b"\xfc\x01\x02", 0x0201),
        (b"\xfd\x01\x02\x03", 0x030201),
        (b"\xfe\x01\x02\x03\x04\x05\x06\x07\x08", 0x0807060504030201),
    ],
)
def test_length_encoded_integers(data: bytes, value: int) -> None:
    cursor = Cursor(data, "event")
    assert cursor.length("n") == value
    assert cursor.left == 0


@pytest.mark.parametrize("data", [b"\xfb", b"\xff", b"\xfc\x01", b""])
def test_what_begins_no_integer_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="event: n "):
        Cursor(data, "event").length("n")


# The examples of the serialization library's description, first byte last there.
@pytest.mark.parametrize(
    ("data", "unsigned", "signed"),
    [
        (b"\x00", 0, 0),
        (b"\xfe", 127, -64),
        (b"\xfb\xff\x07", 65535, -32768),
        (b"\xf3\xff\x0f", 131070, 65535),
        (b"\xfb\xff\x0f", 131071, -65536),
        (b"\x7f" + b"\xff" * 7, 2**56 - 1, -(2**55)),
        (b"\xff" + b"\xff" * 8, 2**64 - 1, -(2**63)),
        (b"\xff" + b"\xfe" + b"\xff" * 7, 2**64 - 2, 2**63 - 1),
    ],
)
def test_variable_length_integers(data: bytes, unsigned: int, signed: int) -> None:
    assert Cursor(data, "event").varint("n") == unsigned
    assert Cursor(data, "event").signed_varint("n") == signed
    with pytest.raises(DecodeError, match="n takes"):
        Cursor(data[:-1], "event").varint("n")
