"""Bounds the number of fields of a batch body before it is parsed. Pure.

Parsing makes an object of each field. A body of empty updates, two bytes each, takes memory of eight times its size at
once, and of fifty times when its updates are decoded. A publisher's bodies are about 512 KiB, with a few thousand
updates; only one large update makes a body larger.
"""

from __future__ import annotations

from typing import Final

from wormhole.model.errors import ProtocolError

__all__ = ["LONGEST_SOURCE", "MOST_UPDATES", "check_shape"]

MOST_UPDATES: Final = 1 << 18
"""Limit of the updates, and of the transactions, of one body."""
LONGEST_SOURCE: Final = 1000
"""Limit of the characters of a transaction's source."""
_SMALL: Final = 2 << 20  # the size alone bounds the memory for such a body
_MOST_COLUMN_BYTES: Final = 8 << 20  # all other fields: at most 25 bytes for each of `MOST_UPDATES`
_UPDATES: Final = 0x0A  # tag of BatchBody.updates


def check_shape(data: bytes) -> None:
    """Raise :class:`~wormhole.model.errors.ProtocolError` for a large body of many fields or columns."""
    size = len(data)
    if size <= _SMALL:
        return
    at = fields = columns = 0
    while at < size:
        fields += 1
        if fields > 2 * MOST_UPDATES:
            raise ProtocolError(f"batch body: more than {2 * MOST_UPDATES} fields in {size} bytes")
        tag, begin = _varint(data, at, size)
        match tag & 7:
            case 0:
                _, end = _varint(data, begin, size)
            case 1:
                end = begin + 8
            case 2:
                length, begin = _varint(data, begin, size)
                end = begin + length
            case 5:
                end = begin + 4
            case _:
                raise ProtocolError("batch body: a field of an unknown wire type")
        if tag != _UPDATES:
            columns += end - at
            if columns > _MOST_COLUMN_BYTES:
                raise ProtocolError(f"batch body: more than {_MOST_COLUMN_BYTES} bytes beside its updates")
        at = end


def _varint(data: bytes, at: int, size: int) -> tuple[int, int]:
    value = shift = 0
    while at < size and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ProtocolError("batch body is no valid message: a number is cut off")
