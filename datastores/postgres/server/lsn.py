"""Converts places in the write-ahead log between the server's text and the form in datamarkers."""

from __future__ import annotations

import re
from typing import Final

from wormhole.model.errors import PositionError

__all__ = ["PLACE", "format_delivered", "format_lsn", "parse_delivered", "parse_lsn"]

_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
PLACE: Final = re.compile(rf"(?a)(?:(\d{{1,10}}):)?({_LSN.pattern})")
"""The form of a logical position: ``timeline:LSN``, or an LSN of the server's present timeline."""


def parse_lsn(text: str) -> int:
    """The number of bytes of an LSN such as ``0/16B3748``. Raises :class:`~wormhole.model.errors.PositionError`."""
    found = _LSN.fullmatch(text)
    if found is None:
        raise PositionError(f"{text!r} is no LSN", hint="write it as the server does, for example 0/16B3748")
    return int(found[1], 16) << 32 | int(found[2], 16)


def format_lsn(lsn: int) -> str:
    """Format a number of bytes as an LSN."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def format_delivered(timeline: int, lsn: int) -> str:
    """The logical position of ``lsn`` in ``timeline``."""
    return f"{timeline}:{format_lsn(lsn)}"


def parse_delivered(text: str) -> tuple[int, int]:
    """Timeline and LSN of a logical position. The timeline is 0 if it is left out.

    Raises :class:`~wormhole.model.errors.PositionError`.
    """
    found = PLACE.fullmatch(text)
    if found is None:
        raise PositionError(
            f"{text!r} is no place of this log",
            hint="use earliest, latest, a place such as 1/0/26418000, or an LSN such as 0/16B3748 or 2:0/16B3748, with "
            "its timeline",
        )
    return int(found[1] or 0), parse_lsn(found[2])
