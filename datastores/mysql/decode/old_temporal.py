"""Decodes TIME, DATETIME and TIMESTAMP with a fraction in MariaDB's format of before 10.1.2, which it still uses with
``mysql56_temporal_format=OFF``.

All are numbers with the high byte first, in units of the fraction's last digit (MariaDB's sources,
``Field_time_hires``, ``Field_datetime_hires``, ``Field_timestamp_hires``)::

    TIME       seconds, plus the middle: the number of 838:59:60
    DATETIME   ((((year * 13 + month) * 32 + day) * 24 + hour) * 60 + minute) * 60 + second
    TIMESTAMP  4 bytes of seconds since 1970, then the fraction in bytes of its own

The log does not contain the number of digits, so the server is queried for it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["DATETIME", "TIME", "TIMESTAMP", "old_size", "old_text"]

TIME: Final = 1
DATETIME: Final = 2
TIMESTAMP: Final = 3

_SIZES: Final = {TIME: (3, 4, 4, 5, 5, 5, 6), DATETIME: (8, 6, 6, 7, 7, 7, 8), TIMESTAMP: (4, 5, 5, 6, 6, 7, 7)}
_MIDDLE_S: Final = 838 * 3600 + 59 * 60 + 60
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def old_size(which: int, digits: int) -> int:
    """The bytes of a value with 1 to 6 ``digits``."""
    return _SIZES[which][digits]


def old_text(which: int, digits: int, raw: bytes) -> str | None:
    """The value as ``SELECT`` shows it, a TIMESTAMP in UTC; ``None``: the bytes are no value of the type."""
    unit = 10**digits
    if which == TIMESTAMP:
        seconds, fraction = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big")
        if fraction >= unit:
            return None
        if not seconds and not fraction:
            return f"0000-00-00 00:00:00.{0:0{digits}}"
        return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}.{fraction:0{digits}}"
    packed = int.from_bytes(raw, "big")
    if which == TIME:
        packed -= _MIDDLE_S * unit
        seconds, fraction = divmod(abs(packed), unit)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        sign = "-" if packed < 0 else ""
        return None if hour > 838 else f"{sign}{hour:02}:{minute:02}:{second:02}.{fraction:0{digits}}"
    seconds, fraction = divmod(packed, unit)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    months, day = divmod(days, 32)
    year, month = divmod(months, 13)
    if year > 9999:
        return None
    return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:0{digits}}"
