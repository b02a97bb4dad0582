"""The version of a row's value: its position in the log, as text that sorts in the order of the log. Pure.

The text has only decimal digits, because the server's scripts compare texts by the rules of the server's language. In
every language, numbers with the same number of digits sort by their values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from subscriber_sdk import LogPosition

__all__ = ["CHANGE", "READ", "UNFINISHED", "digits", "digits_as_bytes", "place"]

CHANGE: Final = 0
READ: Final = 1
"""The class of existing rows, which sort after the transaction that ends at their position."""
UNFINISHED: Final = 2
"""The class of changes that have the position of their transaction's beginning, because the end is not known: the last
update of the transaction was parked, or the changes themselves were parked."""


def digits(number: int) -> str:
    """A number after the length of its text, so that shorter numbers sort first. ``number``: 0 to 10**99 - 1."""
    text = str(number)
    return f"{len(text):02}{text}"


@lru_cache(10_000)
def digits_as_bytes(number: int) -> bytes:
    """As :func:`digits`."""
    return digits(number).encode()


def place(position: LogPosition, kind: int) -> str:
    """The middle part of a version, between the era and the update's index. ``kind``: the class."""
    return f"{digits(position.incarnation)}{digits(position.file)}{digits(position.offset)}{kind}"
