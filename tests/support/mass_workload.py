"""Changes of a store that follow from their numbers: what was written need not be remembered to be compared, however
much it is.

Some 15 of 100 are deletes; keys come again after them, and about four changes share a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FAMILIES = ("default", "users", "orders")
_MASK = (1 << 64) - 1


class Change(NamedTuple):
    """One change. ``value``: empty for a delete."""

    family: str
    key: str
    value: str


def change(number: int, keys: int) -> Change:
    """The change of this number, where each family has so many keys."""
    mixed = _mixed(number)
    family = FAMILIES[mixed % 7 % 3]  # not all of one size
    value = "" if mixed >> 8 & 127 < 19 else f"{number}:".ljust(24 + (mixed >> 16 & 31), "x")
    return Change(family, f"k{(mixed >> 24) % keys}", value)


def transactions(first: int, count: int, keys: int) -> Iterator[list[Change]]:
    """Changes ``first`` to ``first + count - 1`` as they are committed together: one to four."""
    together: list[Change] = []
    for number in range(first, first + count):
        together.append(change(number, keys))
        if _mixed(number) >> 60 < 6 or len(together) == 4:
            yield together
            together = []
    if together:
        yield together


def _mixed(number: int) -> int:
    """A number that looks like chance (the finaliser of splitmix64)."""
    mixed = (number * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
    return mixed ^ mixed >> 31
