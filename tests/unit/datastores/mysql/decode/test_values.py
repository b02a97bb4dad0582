"""Stored numbers, temporal values and text as the wire's values."""

from __future__ import annotations

import datetime
import random
import struct
from types import ModuleType

import pytest

from datastores.mysql.decode.charsets import ERRORS, charset_name_of, codec_of
from datastores.mysql.decode.old_temporal import DATETIME, TIME, TIMESTAMP, old_size, old_text
from tests.support import mysql_events as build
from tests.support.given import given
from tests.support.hot import hot_module

# --- floats ---


floats = hot_module("datastores.mysql.decode.floats")


def decoded(singles: object, data: bytes) -> float:
    out = bytearray(b"#" * 10)
    assert singles.put(out, 1, b"!" + data, 1) == 9  # type: ignore[attr-defined]
    assert out.startswith(b"#")
    assert out.endswith(b"#")
    result: float = struct.unpack("<d", out[1:9])[0]
    return result


def shortest(data: bytes) -> float:
    (x,) = struct.unpack("<f", data)
    for digits in range(9):
        candidate = float(f"{x:.{digits}e}")
        try:
            if struct.pack("<f", candidate) == data:
                return candidate
        except OverflowError:
            continue
    return float(x)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("-3.14", -3.14), ("16777216", 16777216.0), ("1073741824", 1073741800.0), ("1e-45", 1e-45)],
)
def test_numbers_that_people_write(floats: ModuleType, text: str, value: float) -> None:
    assert decoded(floats.Singles(), struct.pack("<f", float(text))) == value


def test_any_bits_are_what_the_reference_gives(floats: ModuleType) -> None:
    rng = random.Random(7)
    singles = floats.Singles()
    cases = [struct.pack("<f", x) for x in (0.0, -0.0, float("inf"), float("-inf"), 3.4028234663852886e38, 1e-12)]
    for _ in range(1500):
        cases += [rng.randbytes(4), struct.pack("<f", round(rng.uniform(-1e4, 1e4), rng.randrange(6)))]
    for data in cases:
        expected = shortest(data)
        got = decoded(singles, data)
        assert got == expected or (got != got and expected != expected), data.hex()


# --- old temporal ---


MIDDLE = 3_020_400


@pytest.mark.parametrize(
    ("which", "digits", "number", "text"),
    [
        (TIME, 1, MIDDLE * 10, "00:00:00.0"),
        (TIME, 3, (MIDDLE - 1) * 1000 - 5, "-00:00:01.005"),
        (TIME, 6, (MIDDLE + 3_020_399) * 10**6 + 999_999, "838:59:59.999999"),
        (TIME, 2, (MIDDLE + 3_020_400) * 100, None),
        (DATETIME, 4, 0, "0000-00-00 00:00:00.0000"),
        (DATETIME, 2, ((((2026 * 13 + 11) * 32 + 22) * 24 + 11) * 3600 + 45 * 60 + 46) * 100 + 7, "2026-11-22 11:45:46.07"),  # noqa: E501
        (DATETIME, 6, ((((9999 * 13 + 12) * 32 + 31) * 24 + 23) * 3600 + 3599) * 10**6 + 999_999, "9999-12-31 23:59:59.999999"),  # noqa: E501
        (DATETIME, 6, (10_000 * 13 * 32 * 24 * 3600) * 10**6, None),
        (TIMESTAMP, 1, 0, "0000-00-00 00:00:00.0"),
        (TIMESTAMP, 3, 1 << 16 | 5, "1970-01-01 00:00:01.005"),
        (TIMESTAMP, 5, 1 << 24 | 100_000, None),
    ],
)  # fmt: skip
def test_a_value_as_select_shows_it(which: int, digits: int, number: int, text: str | None) -> None:
    assert old_text(which, digits, number.to_bytes(old_size(which, digits), "big")) == text


# --- dates and decimals ---


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


# --- charsets ---


@pytest.mark.parametrize(
    ("collation", "charset"),
    [
        (8, "latin1"),
        (28, "gbk"),
        (33, "utf8mb3"),
        (45, "utf8mb4"),
        (63, "binary"),
        (255, "utf8mb4"),
        (309, "utf8mb4"),
        (151, "ucs2"),
        (159, "ucs2"),
        (101, "utf16"),
        (183, "utf32"),
        (215, "utf8mb3"),
        (608, "utf8mb4"),
        (1024 + 28, "gbk"),
        (2048, "utf8mb3"),
        (2304, "utf8mb4"),
        (2560, "ucs2"),
        (3071, "utf16"),
        (3072, "utf32"),
        (3328, ""),
        (17, ""),
        (0, ""),
    ],
)
def test_collations_have_the_charset_of_their_number(collation: int, charset: str) -> None:
    assert charset_name_of(collation) == charset


@pytest.mark.parametrize(
    ("collation", "raw", "text"),
    [
        (8, bytes(range(256)), bytes(range(128)).decode() + "€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ" + "".join(map(chr, range(160, 256)))),  # noqa: E501
        (45, "größe 😀".encode(), "größe 😀"),
        (28, b"\xd6\xd0\xce\xc4", "中文"),
        (1, b"\xa4\xa4\xf9\xd6", "中碁"),
        (19, b"\xc7\xd1\x81\x41", "한갂"),
        (13, b"\x82\xa0\x81\x5f\xb1", "あ\\ｱ"),
        (12, b"\xa4\xa2\xa1\xc0\xf5\xa1\x8f\xf5\xa1", "あ\\\ue000\ue3ac"),
        (95, b"\x87\x40\xfa\x40", "①ⅰ"),
        (248, b"\x81\x30\x81\x30\xa8\xbc\x81\x35\xf4\x37", "\x80ḿ\ue7c7"),
        (35, b"\x4e\x2d", "中"),
        (54, b"\xd8\x3d\xde\x00", "😀"),
        (56, b"\x3d\xd8\x00\xde", "😀"),
        (60, b"\x00\x01\xf6\x00", "😀"),
        (36, b"\x80\xfc\xfd", "Аⁿ²"),
        (25, b"\xa1\xe1", "ʽα"),
        (16, b"\xaf\xe0", "‾א"),
        (22, b"\x95\xc1", "•а"),
        (18, b"\xa1\xdb", "ก\ufffd"),
        (3, b"\xa1\xa8\xd7\xa4", "¡¤Œ?"),
        (10, b"[\\]{|}~@", "ÄÖÅäöåüÉ"),
        (32, b"\xa2\xb2", "§\u0531"),
        (37, b"\x80\xa0", "Čá"),
        (92, b"\xc0\xc1", "აბ"),
        (97, b"a\xa4\xa2\x8e\xb1\x8f\xf3\xf3\x8f\xa2\xb7\xf5\xa1\x8f\xf5\xa1\xa4", "aあｱⅰ～\ue000\ue3ac?"),
        (57, b"\x8a", "?"),
        (25, b"\xa4", "?"),
    ],
)  # fmt: skip
def test_text_is_what_select_shows(collation: int, raw: bytes, text: str) -> None:
    codec = given(codec_of(collation))
    assert raw.decode(codec, ERRORS) == text


@pytest.mark.parametrize(
    ("collation", "raw", "text"),
    [
        (28, b"a\xa1\x40b", "a?b"),
        (28, b"a\xa1", "a?"),
        (1, b"\xf9\xfe\xa3\xe0z", "▓?z"),
        (12, b"\x8f\xa1\xa1z\xa9\xa1z", "?z?z"),
        (65, b"a\xffb", "a?b"),
        (26, b"\x81", "?"),
        (45, b"a\xf0\x9f\x98", "a?"),
        (54, b"\xd8\x3d", "?"),
    ],
)
def test_what_is_no_character_becomes_a_question_mark(collation: int, raw: bytes, text: str) -> None:
    codec = given(codec_of(collation))
    assert raw.decode(codec, ERRORS) == text


@pytest.mark.parametrize("collation", [63, 0, 9999])
def test_what_has_no_codec_stays_bytes(collation: int) -> None:
    assert codec_of(collation) is None


def test_the_codecs_only_decode() -> None:
    with pytest.raises(NotImplementedError):
        "text".encode("mysql-latin1")
    with pytest.raises(UnicodeEncodeError):
        "é".encode("ascii", ERRORS)
    with pytest.raises(LookupError):
        b"x".decode("mysql-other")
