"""Break a valid input the ways that storage and networks break it, and the ways that parsers fear most."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

# Where integer handling goes wrong: the ends of every width, and one beside them.
_EDGES = [
    edge + step for edge in (0, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63) for step in (-1, 0, 1)
]
_EDGES += [(1 << 64) - 1, 5, 100, 32768, 32768 - 7, 32768 - 11]

Mutation = Callable[[random.Random, bytearray, bytes], None]


def _flip_bits(rng: random.Random, data: bytearray, _: bytes) -> None:
    for _unused in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(rng: random.Random, data: bytearray, _: bytes) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _truncate(rng: random.Random, data: bytearray, _: bytes) -> None:
    del data[rng.randrange(len(data)) :]


def _append(rng: random.Random, data: bytearray, _: bytes) -> None:
    data += rng.choice((bytes(rng.randrange(1, 64)), rng.randbytes(rng.randrange(1, 64))))


def _remove(rng: random.Random, data: bytearray, _: bytes) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.randrange(1, 17)]


def _repeat(rng: random.Random, data: bytearray, _: bytes) -> None:
    start = rng.randrange(len(data))
    data[start:start] = data[start : start + rng.randrange(1, 65)]


def _splice(rng: random.Random, data: bytearray, other: bytes) -> None:
    data[rng.randrange(len(data)) :] = other[rng.randrange(len(other) + 1) :]


def _fixed_length(rng: random.Random, data: bytearray, _: bytes) -> None:
    layout = rng.choice(("B", "<H", ">H", "<I", ">I", "<Q", ">Q"))
    field = struct.pack(layout, rng.choice(_EDGES) % (1 << 8 * struct.calcsize(layout)))
    start = rng.randrange(len(data))
    data[start : start + len(field)] = field


def _varint_length(rng: random.Random, data: bytearray, _: bytes) -> None:
    value, field = rng.choice(_EDGES) % (1 << 64), bytearray()
    while value > 0x7F:
        field.append(value & 0x7F | 0x80)
        value >>= 7
    field.append(value)
    if rng.random() < 0.2:
        field = bytearray(b"\xff" * rng.randrange(1, 11)) + bytes([rng.choice((0, 1, 0x0F, 0x10, 0x7F))])
    start = rng.randrange(len(data))
    data[start : start + rng.choice((1, len(field)))] = field


MUTATIONS: tuple[Mutation, ...] = (
    _flip_bits,
    _set_byte,
    _truncate,
    _append,
    _remove,
    _repeat,
    _splice,
    _fixed_length,
    _varint_length,
)


def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """``data`` after one to four mutations; ``other`` is a second valid input to splice with."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if not result:
            break
        rng.choice(MUTATIONS)(rng, result, other)
    return bytes(result)
