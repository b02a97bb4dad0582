"""Parses sizes, rates, durations and times as people write them, and formats sizes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

__all__ = ["format_size", "parse_duration", "parse_rate", "parse_size", "parse_time", "rounded_size"]

_SIZE_UNITS: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_DURATION_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_NUMBER_AND_UNIT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", re.ASCII)

# A date alone is not taken for a time, because some datastores write their positions as dates.
_LIKE_A_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:.*", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?(?P<zone>[Zz]|[+-]\d\d:\d\d)?", re.ASCII)

# Larger than any disk. The limit keeps arithmetic on sizes within 64 bits everywhere.
_LARGEST_SIZE: Final = 1 << 50
_LONGEST_S: Final = 366 * 86400.0


def parse_size(value: object) -> int:
    """Bytes from ``"256MiB"`` or a whole number of bytes. Raises ``ValueError`` with what is allowed."""
    return _size(value, 'a size such as "256MiB", "64KiB" or a whole number of bytes')


def parse_rate(value: object) -> int:
    """Bytes per second from ``"40MiB/s"`` or a whole number. Raises ``ValueError`` with what is allowed."""
    allowed = 'a rate such as "40MiB/s" or a whole number of bytes per second'
    if isinstance(value, str):
        amount, slash, per = value.partition("/")
        if slash and per.strip() != "s":
            raise ValueError(f"must be {allowed}")
        return _size(amount.strip(), allowed)
    return _size(value, allowed)


def parse_time(text: str) -> int | None:
    """Microseconds since 1970 of a time in the form of RFC 3339; ``None`` for a text that does not have the form of a
    time.

    Raises ``ValueError``, with what is allowed, for a time without zone and for a time that does not exist.
    """
    if not _LIKE_A_TIME.fullmatch(text):
        return None
    form = _TIME.fullmatch(text)
    if form is None:
        raise ValueError('must be a time such as "2026-05-01T12:00:00Z" or "2026-05-01T12:00:00+02:00"')
    if form["zone"] is None:
        raise ValueError(f'must say its zone: "{text}Z" is UTC, "{text}+02:00" two hours before UTC')
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"is no time that exists: {error}") from None
    return round(moment.timestamp() * 1_000_000)


def parse_duration(value: object) -> float:
    """Seconds from ``"250ms"``, ``"1m"`` or a number of seconds. Raises ``ValueError`` with what is allowed."""
    allowed = 'a duration such as "250ms", "10s", "1m" or a number of seconds'
    seconds: float
    if isinstance(value, str):
        match = _NUMBER_AND_UNIT.fullmatch(value.strip())
        if match is None or match[2] not in _DURATION_UNITS:
            raise ValueError(f"must be {allowed}")
        seconds = float(match[1]) * _DURATION_UNITS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ValueError(f"must be {allowed}")
    if not 0 <= seconds <= _LONGEST_S:  # false for NaN, too
        raise ValueError(f"must be {allowed}, from 0 to 366 days")
    return seconds


def format_size(size: int) -> str:
    """``268435456`` as ``256MiB``: the largest unit that divides it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


def rounded_size(count: float) -> str:
    """Bytes with a unit, rounded to about three digits: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _size(value: object, allowed: str) -> int:
    size: int
    if isinstance(value, str):
        match = _NUMBER_AND_UNIT.fullmatch(value)
        if match is None or match[2] not in _SIZE_UNITS:
            raise ValueError(f"must be {allowed}")
        # A number of very many digits becomes infinite, which cannot be rounded.
        size = round(min(float(match[1]) * _SIZE_UNITS[match[2]], 2.0 * _LARGEST_SIZE))
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        raise ValueError(f"must be {allowed}")
    if not 0 <= size <= _LARGEST_SIZE:
        raise ValueError(f"must be {allowed}, from 0 to {format_size(_LARGEST_SIZE)}")
    return size
