"""Stored temporal values and decimals as text, at the ends of their ranges, in both forms."""

from __future__ import annotations

import datetime
from types import ModuleType

import pytest

from tests.support import mysql_events as build
from tests.support.hot import hot_module

texts = hot_module("datastores.mysql.decode.dates_and_decimals")


def shown(out: bytearray, at: int, end: int) -> str | None:
    return None if end < 0 else out[at:end].decode()


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        ("2024-02-29 23:59:59", 0),
        ("0000-00-00 00:00:00", 0),
        ("2024-00-00 00:00:00.5", 1),
        ("2024-05-00 01:02:03.25", 2),
        ("1000-01-01 00:00:00.001", 3),
        ("9999-12-31 23:59:59.9999", 4),
        ("9999-12-31 23:59:59.00001", 5),
        ("9999-12-31 23:59:59.999999", 6),
    ],
)
def test_datetimes(texts: ModuleType, value: str, digits: int) -> None:
    out, data = bytearray(b"##" + bytes(40)), b"!" + build.datetime2("a", digits).store(value)
    assert shown(out, 2, texts.put_datetime2(out, 2, data, 1, digits)) == value
    if digits == 0:
        assert shown(out, 2, texts.put_datetime(out, 2, b"!" + build.old_datetime("a").store(value), 1)) == value


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        ("00:00:00", 0),
        ("838:59:59", 0),
        ("-838:59:59", 0),
        ("-00:00:01", 0),
        ("-00:00:00.5", 1),
        ("-00:00:01.50", 2),
        ("12:34:56.001", 3),
        ("-12:34:56.0001", 4),
        ("99:00:00.00001", 5),
        ("-838:59:58.999999", 6),
        ("100:00:00.000000", 6),
    ],
)
def test_times(texts: ModuleType, value: str, digits: int) -> None:
    out, data = bytearray(40), b"!" + build.time2("a", digits).store(value)
    assert shown(out, 0, texts.put_time2(out, 0, data, 1, digits)) == value
    if digits == 0:
        assert shown(out, 0, texts.put_time(out, 0, b"!" + build.old_time("a").store(value), 1)) == value


def test_timestamps_are_in_utc_on_every_day_of_the_calendar(texts: ModuleType) -> None:
    out = bytearray(40)
    for seconds in [
        *range(1, (1 << 32) - 1, 86400 * 11 + 3601),
        951_782_400,
        951_868_799,
        (1 << 31) - 1,
        (1 << 32) - 1,
    ]:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        assert shown(out, 0, texts.put_timestamp(out, 0, seconds, 0, 0)) == moment.strftime("%Y-%m-%d %H:%M:%S")
    assert shown(out, 0, texts.put_timestamp(out, 0, 1, 1230, 3)) == "1970-01-01 00:00:01.123"
    assert shown(out, 0, texts.put_timestamp(out, 0, 0, 0, 2)) == "0000-00-00 00:00:00.00"
    # MariaDB stores the first second of 1970, less its beginning.
    assert shown(out, 0, texts.put_timestamp(out, 0, 0, 1, 6)) == "1970-01-01 00:00:00.000001"


@pytest.mark.parametrize(
    ("value", "precision", "scale"),
    [
        ("0", 1, 0),
        ("-1", 10, 0),
        ("0.00", 10, 2),
        ("-0.01", 10, 2),
        ("1234567890.1234", 14, 4),
        ("0.12345", 5, 5),
        ("-100000000", 9, 0),
        ("1000000000", 10, 0),
        ("1000000000000000000.000000001", 28, 9),
        ("9" * 35 + "." + "9" * 30, 65, 30),
        ("-" + "9" * 65, 65, 0),
        ("0." + "0" * 37 + "1", 38, 38),
        ("7.0000000001", 20, 10),
    ],
)
def test_decimals_have_their_full_scale_and_no_zeros_in_front(
    texts: ModuleType, value: str, precision: int, scale: int
) -> None:
    data = b"!" + build.decimal("a", precision, scale).store(value)
    assert texts.size_of_decimal(precision, scale) == len(data) - 1
    out = bytearray(texts.ROOM)
    assert shown(out, 3, texts.put_decimal(out, 3, data, 1, precision, scale)) == value


def test_bits_that_are_no_value(texts: ModuleType) -> None:
    out = bytearray(200)
    date = build.datetime2("a").store("2024-01-01 00:00:00")
    bad = [
        texts.put_date(out, 0, 10000, 1, 1),
        texts.put_date(out, 0, 2024, 13, 1),
        texts.put_datetime2(out, 0, bytes(5), 0, 0),  # the sign says it is negative
        texts.put_datetime2(out, 0, date[:3] + b"\xff\xff", 0, 0),
        texts.put_datetime2(out, 0, date + b"\x64", 0, 2),  # 100 hundredths
        texts.put_datetime(out, 0, (20240101_240000).to_bytes(8, "little"), 0),
        texts.put_datetime(out, 0, (20240101_006000).to_bytes(8, "little"), 0),
        texts.put_datetime(out, 0, (20240101_000060).to_bytes(8, "little"), 0),
        texts.put_datetime(out, 0, (123_991_231_000000).to_bytes(8, "little"), 0),
        texts.put_datetime(out, 0, b"\xff" * 8, 0),
        texts.put_timestamp(out, 0, 1, 1_000_000, 6),
        texts.put_time2(out, 0, b"\xff\xff\xff", 0, 0),
        texts.put_time2(out, 0, b"\x80\x00\x3c", 0, 0),
        texts.put_time(out, 0, (8_400_000 - 10_000).to_bytes(3, "little"), 0),
        texts.put_time(out, 0, (6000).to_bytes(3, "little"), 0),
        texts.put_decimal(out, 0, b"\xbf\xff\xff\xff", 0, 9, 0),
        texts.put_decimal(out, 0, b"\x80\x64", 0, 3, 2),  # one digit, and 100 in two
    ]
    assert bad == [-1] * len(bad)


def test_fractions_take_a_byte_for_two_digits(texts: ModuleType) -> None:
    assert [texts.size_of_fraction(digits) for digits in range(7)] == [0, 1, 1, 2, 2, 3, 3]
