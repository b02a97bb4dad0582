"""Bounds of the messages of a peer, for both ends of a stream. Pure; docs/wire.md lists them.

Protobuf turns two bytes into an object of fifty, so a message is taken apart here before any object is made of it. Each
frame is parsed by itself, and parsing stops at the first frame that breaks a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from typing import Final

from wormhole.model.errors import ProtocolError

__all__ = [
    "MOST_EPOCHS",
    "MOST_FRAMES",
    "MOST_FRAME_BYTES",
    "MOST_KEYS",
    "MOST_MESSAGE_BYTES",
    "MOST_NAME",
    "MOST_PARCEL_FIELDS",
    "MOST_SCHEMA_BYTES",
    "MOST_TEXT",
    "MOST_WINDOWS",
    "check_count",
    "check_fields",
    "check_name",
    "check_seconds",
    "fields",
    "frames_of",
    "shortened",
]

MOST_MESSAGE_BYTES: Final = 4 << 20
"""Limit in bytes of one gRPC message of a subscriber."""
MOST_FRAMES: Final = 65_536
"""Limit of the frames in one message. An application with as many shards may answer for all of them in one."""
MOST_FRAME_BYTES: Final = 512 << 10
"""Limit in bytes of one frame that carries no part of an update.

The largest legitimate frame holds a datamarker with a long logical position.
"""
MOST_WINDOWS: Final = 4096
"""Limit of the windows of commit time whose counts one frame reports. An application remembers 1,100."""
MOST_EPOCHS: Final = 64
"""Limit of the earlier epochs that ``Accepted`` reports. An application remembers 16."""
MOST_KEYS: Final = 4096
"""Limit of the keys that one ``ChunkEnd`` lists."""
MOST_NAME: Final = 1024
"""Limit of the characters of a name or an id."""
MOST_TEXT: Final = 1000
"""Limit of the characters of a text that is only shown (an error, a cause, a reason); the rest is cut off."""
MOST_SCHEMA_BYTES: Final = 512 << 10
"""Limit in bytes of one canonical schema. 4,096 columns with the longest names take less."""
MOST_PARCEL_FIELDS: Final = 65_536
"""Limit of the protobuf fields of one parked update, including those of its values."""

_LONGEST_VARINT: Final = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}


def fields(data: bytes | memoryview, most: int, where: str) -> Iterator[tuple[int, int, int]]:
    """The top-level fields of a serialized message: number, begin and end of each value, at most ``most`` of them.

    Raises :class:`~wormhole.model.errors.ProtocolError`, which names ``where``, for more fields, and for bytes that are
    no message.
    """
    at, size, found = 0, len(data), 0
    while at < size:
        found += 1
        if found > most:
            raise ProtocolError(f"{where} has more than {most} fields")
        tag, at = _varint(data, at, where)
        kind = tag & 7
        if kind == _VARINT:
            _, end = _varint(data, at, where)
        elif kind == _BYTES:
            length, at = _varint(data, at, where)
            end = at + length
        elif kind in _FIXED:
            end = at + _FIXED[kind]
        else:
            raise ProtocolError(f"{where} is no valid message: wire type {kind}")
        if end > size:
            raise ProtocolError(f"{where} is no valid message: a field of {end - at} bytes where {size - at} are left")
        yield tag >> 3, at, end
        at = end


def frames_of(data: bytes, where: str) -> Iterator[memoryview]:
    """The serialized frames of one message of either side: ``repeated ... frames = 1``. Raises as :func:`fields`."""
    view = memoryview(data)
    for number, begin, end in fields(view, MOST_FRAMES, where):
        if number == 1:
            yield view[begin:end]


def check_fields(data: bytes | memoryview, most: int, where: str) -> None:
    """Raise as :func:`fields` unless ``data`` has at most ``most`` fields at its top level."""
    for _ in fields(data, most, where):
        pass


def check_count(items: Sized, most: int, where: str) -> None:
    """Raise :class:`~wormhole.model.errors.ProtocolError` for a list of more than ``most``."""
    if len(items) > most:
        raise ProtocolError(f"{where}: {len(items)} entries; at most {most} are taken")


def check_name(text: str, where: str) -> str:
    """``text``, a name or an id.

    Raises :class:`~wormhole.model.errors.ProtocolError` if it is too long.
    """
    if len(text) > MOST_NAME:
        raise ProtocolError(f"{where}: {len(text)} characters; at most {MOST_NAME} are taken")
    return text


def check_seconds(value: float, where: str) -> float:
    """``value``, a duration. Raises :class:`~wormhole.model.errors.ProtocolError` if it is not valid."""
    if not (math.isfinite(value) and value >= 0):
        raise ProtocolError(f"{where}: {value} is no duration")
    return value


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """The beginning of a text that is only shown."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _varint(data: bytes | memoryview, at: int, where: str) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        if at >= len(data):
            raise ProtocolError(f"{where} is no valid message: it ends amid a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at
    raise ProtocolError(f"{where} is no valid message: a number of more than {_LONGEST_VARINT} bytes")
