"""Writes dates, times and decimals as the text that SELECT shows. Hot: compiled where possible.

Each function writes ASCII into ``out`` at ``at`` and returns the offset after it, or -1 if the stored bits are no value
of the type. The caller has made room (`ROOM` bytes), and has checked that ``data`` holds the bytes to read.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ROOM",
    "put_date",
    "put_datetime",
    "put_datetime2",
    "put_decimal",
    "put_time",
    "put_time2",
    "put_timestamp",
    "size_of_decimal",
    "size_of_fraction",
]

ROOM: Final = 128
"""The most bytes of these texts: a decimal has at most 81 digits (in JSON), a sign, a point and a zero."""

_ZERO: Final = 48
_MINUS: Final = 45
_POINT: Final = 46
_COLON: Final = 58
_SPACE: Final = 32
# The bytes that store 0 to 9 decimal digits.
_DIGIT_BYTES: Final = bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4))


def size_of_fraction(digits: int) -> int:
    """The bytes that store a second's fraction of ``digits`` digits."""
    return (digits + 1) // 2


def size_of_decimal(precision: int, scale: int) -> int:
    """The bytes that store a DECIMAL: four for each nine digits on either side of the point, fewer for the rest."""
    whole = precision - scale
    sizes = _DIGIT_BYTES
    return whole // 9 * 4 + sizes[whole % 9] + scale // 9 * 4 + sizes[scale % 9]


def _digits(out: bytearray, at: int, n: int, count: int) -> int:
    """Write ``n`` in ``count`` digits. Returns the offset after it, or -1 if ``n`` has more digits."""
    o = out
    i = count - 1
    while i >= 0:
        o[at + i] = _ZERO + n % 10
        n //= 10
        i -= 1
    return -1 if n else at + count


def put_date(out: bytearray, at: int, year: int, month: int, day: int) -> int:
    """Write ``YYYY-MM-DD``. Zero dates and partial dates are valid."""
    if year > 9999 or month > 12 or day > 31:
        return -1
    o = out
    at = _digits(out, at, year, 4)
    o[at] = _MINUS
    at = _digits(out, at + 1, month, 2)
    o[at] = _MINUS
    return _digits(out, at + 1, day, 2)


def _clock(out: bytearray, at: int, hour: int, minute: int, second: int) -> int:
    if minute > 59 or second > 59:
        return -1
    o = out
    at = _digits(out, at, hour, 3 if hour > 99 else 2)
    o[at] = _COLON
    at = _digits(out, at + 1, minute, 2)
    o[at] = _COLON
    return _digits(out, at + 1, second, 2)


def _big_endian(data: bytes, at: int, size: int) -> int:
    p = data
    n = 0
    for i in range(size):
        n = n << 8 | p[at + i]
    return n


def _fraction(out: bytearray, at: int, stored: int, digits: int) -> int:
    """Write ``.digits`` from the stored hundredths, ten-thousandths or millionths, by the number of digits."""
    if digits == 0:
        return at
    kept = digits + (digits & 1)
    if kept == 2:
        most = 100
    elif kept == 4:
        most = 10_000
    else:
        most = 1_000_000
    if stored >= most:
        return -1
    o = out
    o[at] = _POINT
    return _digits(out, at + 1, stored // 10 if digits & 1 else stored, digits)


def _moment(out: bytearray, at: int, year: int, month: int, day: int, seconds: int) -> int:
    at = put_date(out, at, year, month, day)
    if at < 0:
        return -1
    out[at] = _SPACE
    return _clock(out, at + 1, seconds // 3600, seconds // 60 % 60, seconds % 60)


def put_datetime2(out: bytearray, at: int, data: bytes, start: int, digits: int) -> int:
    """Write a DATETIME from 5 bytes, high first: 1 bit sign (1), 17 year * 13 + month, 5 day, 5 hour, 6 minute, 6
    second; the fraction follows."""
    packed = _big_endian(data, start, 5)
    sign = packed >> 39
    months = packed >> 22 & 0x1FFFF
    hour = packed >> 12 & 0x1F
    minute = packed >> 6 & 0x3F
    second = packed & 0x3F
    if sign == 0 or hour > 23 or minute > 59 or second > 59:
        return -1
    at = _moment(out, at, months // 13, months % 13, packed >> 17 & 0x1F, hour * 3600 + minute * 60 + second)
    if at < 0:
        return -1
    return _fraction(out, at, _big_endian(data, start + 5, (digits + 1) // 2), digits)


def put_datetime(out: bytearray, at: int, data: bytes, start: int) -> int:
    """Write a DATETIME of before MySQL 5.6 from 8 bytes, low first: the decimal number YYYYMMDDhhmmss."""
    p = data
    n = 0
    for i in range(7, -1, -1):
        if n > 0xFFFFFFFFFFFF:
            return -1
        n = n << 8 | p[start + i]
    clock = n % 1_000_000
    day = n // 1_000_000
    if clock > 235959 or clock // 100 % 100 > 59 or clock % 100 > 59 or day > 99_991_231:
        return -1
    seconds = clock // 10_000 * 3600 + clock // 100 % 100 * 60 + clock % 100
    return _moment(out, at, day // 10_000, day // 100 % 100, day % 100, seconds)


def put_timestamp(out: bytearray, at: int, seconds: int, stored: int, digits: int) -> int:
    """Write a TIMESTAMP in UTC from seconds since 1970 and the stored fraction. Both are 0 for the zero date."""
    if seconds == 0 and stored == 0:
        at = _moment(out, at, 0, 0, 0, 0)
    else:
        # The proleptic Gregorian calendar, in eras of 400 years that begin on March 1.
        days = seconds // 86400 + 719468
        era = days // 146097
        of_era = days - era * 146097
        year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
        of_year = of_era - (365 * year + year // 4 - year // 100)
        month = (5 * of_year + 2) // 153
        day = of_year - (153 * month + 2) // 5 + 1
        month = month + 3 if month < 10 else month - 9
        at = _moment(out, at, era * 400 + year + (month <= 2), month, day, seconds % 86400)
    if at < 0:
        return -1
    return _fraction(out, at, stored, digits)


def put_time2(out: bytearray, at: int, data: bytes, start: int, digits: int) -> int:
    """Write a TIME from 3 bytes and those of the fraction, high first, together offset by the middle: 10 bits hour, 6
    minute, 6 second, fraction."""
    fraction_bits = (digits + 1) // 2 * 8
    packed = _big_endian(data, start, 3 + (digits + 1) // 2)
    middle = 0x800000
    middle <<= fraction_bits
    o = out
    if packed < middle:
        packed = middle - packed
        o[at] = _MINUS
        at += 1
    else:
        packed -= middle
    clock = packed >> fraction_bits
    if clock >> 12 > 838:
        return -1
    at = _clock(out, at, clock >> 12 & 0x3FF, clock >> 6 & 0x3F, clock & 0x3F)
    if at < 0:
        return -1
    return _fraction(out, at, packed - (clock << fraction_bits), digits)


def put_time(out: bytearray, at: int, data: bytes, start: int) -> int:
    """Write a TIME of before MySQL 5.6 from 3 bytes, low first: the signed decimal number hhhmmss."""
    p = data
    n = p[start] | p[start + 1] << 8 | p[start + 2] << 16
    o = out
    if n >= 0x800000:
        n = 0x1000000 - n
        o[at] = _MINUS
        at += 1
    if n // 10_000 > 838:
        return -1
    return _clock(out, at, n // 10_000, n // 100 % 100, n % 100)


def put_decimal(out: bytearray, at: int, data: bytes, start: int, precision: int, scale: int) -> int:
    """Write a DECIMAL with its full scale. From the point on in both directions, nine digits take four bytes, high
    first. The fewer digits at the ends take fewer bytes. The highest bit is 1 for positive numbers. All bits of a
    negative number are inverted.
    """
    p = data
    o = out
    sizes = _DIGIT_BYTES
    flip = 0 if p[start] & 0x80 else 0xFF
    if flip:
        o[at] = _MINUS
        at += 1
    first = start
    whole = precision - scale
    left = whole
    leading = True
    while left > 0:
        count = left % 9
        if count == 0:
            count = 9
        n = 0
        for i in range(sizes[count]):
            n = n << 8 | (p[start + i] ^ flip ^ (0x80 if start + i == first else 0))
        start += sizes[count]
        end = _digits(out, at, n, count)
        if end < 0:
            return -1
        left -= count
        if leading:
            # Zeros before the first digit are not shown.
            i = at
            while i < end and o[i] == _ZERO:
                i += 1
            if i < end:
                leading = False
                for j in range(i, end):
                    o[at + j - i] = o[j]
                at += end - i
        else:
            at = end
    if leading:
        o[at] = _ZERO
        at += 1
    if scale == 0:
        return at
    o[at] = _POINT
    at += 1
    left = scale
    while left > 0:
        count = min(left, 9)
        n = 0
        for i in range(sizes[count]):
            n = n << 8 | (p[start + i] ^ flip ^ (0x80 if start + i == first else 0))
        start += sizes[count]
        at = _digits(out, at, n, count)
        if at < 0:
            return -1
        left -= count
    return at
