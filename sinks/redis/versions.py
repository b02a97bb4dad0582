"""The version of a row's value: where in the log it is from, as text whose order is the order of the log. Pure.

Only decimal digits are in it: the server's scripts compare texts by the rules of its language, and in every language
digits of one length are in the order of their numbers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from subscriber_sdk import LogPosition

__all__ = ["CHANGE", "READ", "UNFINISHED", "digits", "digits_as_bytes", "place"]

CHANGE: Final = 0
READ: Final = 1
"""The class of existing rows, which are read behind the transaction that ends at their place."""
UNFINISHED: Final = 2
"""The class of changes with the place where their transaction begins, because its end is not known: its last update
was parked, or they were parked themselves."""


def digits(number: int) -> str:
    """A number behind the length of its text, so that shorter numbers come first. ``number``: 0 to 10**99 - 1."""
    text = str(number)
    return f"{len(text):02}{text}"


@lru_cache(10_000)
def digits_as_bytes(number: int) -> bytes:
    """As :func:`digits`."""
    return digits(number).encode()


def place(position: LogPosition, kind: int) -> str:
    """The version without the era before it and the index behind it. ``kind``: the class."""
    return f"{digits(position.incarnation)}{digits(position.file)}{digits(position.offset)}{kind}"
