"""What the demo writes: a seeded sequence of transactions over two column families. Pure."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["TABLES", "Change", "serial_of", "transactions"]

TABLES = ("users", "orders")
USERS = 400
"""So few keys that most are written again and again: the final state then depends on the order."""

_SERIAL = struct.Struct(">Q")


@dataclass(slots=True, frozen=True)
class Change:
    """One change: ``value`` ``None`` deletes. ``serial`` counts changes from 1; a value begins with its eight bytes."""

    serial: int
    table: str
    key: bytes
    value: bytes | None


def serial_of(value: bytes) -> int:
    """The serial number in a value; 0 for something that this module did not make."""
    return int(_SERIAL.unpack_from(value)[0]) if len(value) >= _SERIAL.size else 0


def transactions(seed: int) -> Iterator[tuple[Change, ...]]:
    """Transactions without end, the same for the same seed: two changes each on average, about 1.2 KB a value.

    Users are overwritten; an order is written once and may be deleted once, so that (table, key) names a delete.
    """
    chance = random.Random(seed)
    serial = 0
    orders = 0
    open_orders: deque[bytes] = deque()
    while True:
        changes: list[Change] = []
        for _ in range(chance.choices((1, 2, 3, 4), (4, 3, 2, 1))[0]):
            serial += 1
            kind = chance.random()
            if kind < 0.5:
                key = b"user-%04d" % chance.randrange(USERS)
                changes.append(Change(serial, "users", key, _value(chance, serial)))
            elif kind < 0.8 or len(open_orders) < 20:
                orders += 1
                key = b"order-%06d" % orders
                open_orders.append(key)
                changes.append(Change(serial, "orders", key, _value(chance, serial)))
            else:
                changes.append(Change(serial, "orders", open_orders.popleft(), None))
        yield tuple(changes)


def _value(chance: random.Random, serial: int) -> bytes:
    return _SERIAL.pack(serial) + chance.randbytes(chance.randrange(400, 2000))
