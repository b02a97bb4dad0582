"""Binary JSON and its partial updates; documents of every shape are in tests/property/test_mysql_rare.py."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest

from datastores.mysql.decode.json_diff import apply_diffs
from tests.support.hot import hot_module
from tests.support.mysql_json import Document, Opaque, binary, diff, text
from wormhole.model.errors import DecodeError

# --- json text ---


json_text = hot_module("datastores.mysql.decode.json_text")


def show(module: ModuleType, data: bytes) -> str:
    """The text of a document that stands between other bytes."""
    shown = module.json_text(b"##" + data + b"##", 2, 2 + len(data))
    assert module.json_utf8(data, 0, len(data)) == shown.encode()
    assert isinstance(shown, str)
    return shown


def packed(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: int) -> bytes:
    days = (year * 13 + month) << 5 | day
    return struct.pack("<q", (days << 17 | hour << 12 | minute << 6 | second) << 24 | fraction)


def packed_time(hour: int, minute: int, second: int, fraction: int, sign: int = 1) -> bytes:
    return struct.pack("<q", sign * ((hour << 12 | minute << 6 | second) << 24 | fraction))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("", "null"),
        ("04 00", "null"),
        ("04 01", "true"),
        ("04 02", "false"),
        ("05 ff 7f", "32767"),
        ("05 00 80", "-32768"),
        ("06 ff ff", "65535"),
        ("07 00 00 00 80", "-2147483648"),
        ("08 ff ff ff ff", "4294967295"),
        ("09 00 00 00 00 00 00 00 80", "-9223372036854775808"),
        ("0a ff ff ff ff ff ff ff ff", "18446744073709551615"),
        ("0b 00 00 00 00 00 00 f0 3f", "1.0"),
        ("0c 03 61 22 0a", '"a\\"\\n"'),
        ("02 00 00 04 00", "[]"),
        ("00 00 00 04 00", "{}"),
        ("03 00 00 00 00 08 00 00 00", "[]"),
        ("02 02 00 0c 00 05 fe ff 0c 0a 00 01 78", '[-2, "x"]'),
        ("00 01 00 0c 00 0b 00 01 00 05 01 00 61", '{"a": 1}'),
        ("03 01 00 00 00 0d 00 00 00 07 fe ff ff ff", "[-2]"),
    ],
)
def test_documents_byte_by_byte(json_text: ModuleType, data: str, shown: str) -> None:
    assert show(json_text, bytes.fromhex(data)) == shown


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (-1.5, "-1.5"),
        (3.0, "3.0"),
        (123456789012345.0, "123456789012345.0"),
        (1e14, "100000000000000.0"),
        (999999999999999.0, "999999999999999.0"),
        (1e15, "1e15"),
        (1234567890123456.0, "1.234567890123456e15"),
        (1234567890123456.8, "1234567890123456.8"),
        (9007199254740993.0, "9.007199254740992e15"),
        (1e100, "1e100"),
        (-1.5e100, "-1.5e100"),
        (1e-4, "0.0001"),
        (1.5e-5, "0.000015"),
        (1e-15, "0.000000000000001"),
        (-1.25e-15, "-0.00000000000000125"),
        (1e-16, "1e-16"),
        (1.7976931348623157e308, "1.7976931348623157e308"),
        (5e-324, "5e-324"),
    ],
)
def test_doubles_are_printed_as_mysql_does(json_text: ModuleType, x: float, shown: str) -> None:
    assert show(json_text, binary(x)) == shown
    assert text(x) == shown
    assert float(shown) == x


def test_every_character_is_escaped_as_mysql_does(json_text: ModuleType) -> None:
    shown = show(json_text, binary("".join(map(chr, range(0x80))) + "é😀"))
    assert shown == (
        '"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e\\u000f'
        "\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001a\\u001b\\u001c\\u001d\\u001e\\u001f"
        ' !\\"#$%&\'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\x7fé😀"'
    )


@pytest.mark.parametrize(
    ("column_type", "data", "shown"),
    [
        (246, bytes.fromhex("05 02 80 7b 2d"), "123.45"),
        (246, bytes.fromhex("03 03 7f 83"), "-0.124"),
        (246, bytes.fromhex("14 00 e3 3b 9a c9 ff 3b 9a c9 ff"), "99999999999999999999"),
        # A DECIMAL(65,30), whose digits before the point MySQL counts in nines.
        (
            246,
            bytes.fromhex("421e7fffff84e4c5f3ebeb655bcaf204c72de2329affffffffffffffffffffff"),
            "-123456789012345678901234567890.500000000000000000000000000000",
        ),
        (12, packed(2015, 1, 15, 23, 24, 25, 0), '"2015-01-15 23:24:25.000000"'),
        (7, packed(2015, 1, 15, 23, 24, 25, 120000), '"2015-01-15 23:24:25.120000"'),
        (12, packed(0, 0, 0, 0, 0, 0, 0), '"0000-00-00 00:00:00.000000"'),
        (10, packed(2015, 12, 31, 0, 0, 0, 0), '"2015-12-31"'),
        (11, packed_time(23, 24, 25, 7), '"23:24:25.000007"'),
        (11, packed_time(838, 59, 59, 0, -1), '"-838:59:59.000000"'),
        (11, packed_time(0, 0, 0, 500000, -1), '"-00:00:00.500000"'),
        (253, b'a "string"', '"a \\"string\\""'),
        (16, b"\x0f", '"base64:type16:Dw=="'),
        (252, b"", '"base64:type252:"'),
        (252, b"x" * 57, '"base64:type252:' + "eHh4" * 19 + '"'),
        (252, b"x" * 60, '"base64:type252:' + "eHh4" * 19 + '\\neHh4"'),
    ],
)
def test_opaque_values(json_text: ModuleType, column_type: int, data: bytes, shown: str) -> None:
    value = Opaque(column_type, data)
    assert show(json_text, binary(value)) == shown
    assert show(json_text, binary([1, value])) == f"[1, {shown}]"


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 99, 100, 101])
def test_depth_has_mysqls_limit(json_text: ModuleType, depth: int, large: bool) -> None:
    value: Document = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    if depth > json_text.MAX_DEPTH:
        with pytest.raises(DecodeError, match="more than 100 levels"):
            show(json_text, binary(value, large))
    else:
        assert show(json_text, binary(value, large)) == text(value)


def test_long_containers_are_large(json_text: ModuleType) -> None:
    value: Document = {"items": [-40_000, -10_000, *(f"{n:0100}" for n in range(700))], "text": "y" * 70_000, "": 1}
    assert show(json_text, binary(value)) == text(value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("0d 00", "kind 13 is unknown at byte 1"),
        ("04 03", "literal 3"),
        ("05 01", "a number is cut off"),
        ("0b 00 00 00 00 00 00 f0 7f", "a double is no number"),
        ("0c", "length of a string is none"),
        ("0c 80 80 80 80 80 01", "length of a string is none"),
        ("0c 05 61", "a string is cut off"),
        ("0c 01 ff", "not UTF-8"),
        ("0f", "an opaque value is cut off"),
        ("0f f6 01 05", "a decimal is none"),
        ("0f f6 00", "a decimal is none"),
        ("0f f6 04 05 02 80 7b", "a decimal is none"),
        ("0f f6 05 42 02 80 7b 2d", "a decimal is none"),
        ("0f f6 27 52 00 80" + 36 * " 00", "a decimal is none"),
        ("0f 0a 07 00 00 00 00 00 00 00", "a date or time is none"),
        ("0f 0a 08 00 00 00 00 00 00 00 80", "a date or time is none"),
        ("0f 0c 08 ff ff ff 00 00 00 00 00", "a date or time is none"),
        ("0f 0b 08 00 00 00 00 00 40 00 00", "a date or time is none"),
        ("02 00 00", "a container is cut off"),
        ("02 00 00 05 00", "a container of 0 values in 5 bytes"),
        ("02 00 00 03 00", "a container of 0 values in 3 bytes"),
        ("03 ff ff ff ff ff ff ff ff", "a container of 4294967295 values"),
        ("00 01 00 0c 00 0c 00 01 00 05 01 00 61", "a key lies outside"),
        ("02 01 00 07 00 0c 07 00", "a value lies outside"),
        ("02 01 00 07 00 0c 06 00", "a value lies outside"),
        ("02 01 00 07 00 02 00 00", "a value lies outside"),
        ("02 02 00 0c 00 0c 0a 00 0c 0a 00 01 78", "values overlap"),
    ],
)
def test_bytes_that_are_no_document_say_why(json_text: ModuleType, data: str, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        show(json_text, bytes.fromhex(data))


def test_values_that_share_their_bytes_are_refused_before_they_grow(json_text: ModuleType) -> None:
    """40 arrays, each of which holds the next one twice, would be 10**12 values."""
    data = binary([])[1:]
    for _ in range(40):
        data = struct.pack("<HHBHBH", 2, 10 + len(data), 2, 10, 2, 10) + data
    with pytest.raises(DecodeError, match="values overlap"):
        show(json_text, b"\2" + data)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 1), (0, 3)])
def test_places_outside_of_the_bytes_are_refused(json_text: ModuleType, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        json_text.json_text(b"\4\0", start, end)


# --- json diff ---


REPLACE, INSERT, REMOVE = 0, 1, 2

BEFORE: Document = {
    "a": [1, {"b c": 1.0, "d": "x"}, [None, True]],
    "big": 18446744073709551615,
    "größe": {"": "\n"},
    "n": Opaque(246, bytes.fromhex("05 02 80 7b 2d"), "123.45"),
}


def after(*diffs: bytes) -> str:
    data = b"".join(diffs)
    return apply_diffs(text(BEFORE), b"#" + data + b"#", 1, 1 + len(data))


def expected(**changes: Document) -> str:
    assert isinstance(BEFORE, dict)
    return text({**BEFORE, **changes})


def test_without_changes_the_text_stays() -> None:
    assert after() == text(BEFORE)
    assert apply_diffs("1e100", b"", 0, 0) == "1e100"


@pytest.mark.parametrize(
    ("diffs", "a"),
    [
        ([diff(REPLACE, "$.a[0]", 2)], [2, {"b c": 1.0, "d": "x"}, [None, True]]),
        ([diff(REPLACE, '$.a[1]."b c"', [1.5e20])], [1, {"b c": [1.5e20], "d": "x"}, [None, True]]),
        ([diff(INSERT, "$.a[1]", "new")], [1, "new", {"b c": 1.0, "d": "x"}, [None, True]]),
        ([diff(INSERT, "$.a[9]", "last")], [1, {"b c": 1.0, "d": "x"}, [None, True], "last"]),
        ([diff(INSERT, "$.a[1].aa", 7)], [1, {"b c": 1.0, "d": "x", "aa": 7}, [None, True]]),
        ([diff(INSERT, '$.a[1]."\\u00e9\\""', 7)], [1, {"b c": 1.0, "d": "x", 'é"': 7}, [None, True]]),
        ([diff(REMOVE, "$.a[2][0]")], [1, {"b c": 1.0, "d": "x"}, [True]]),
        ([diff(REMOVE, "$.a[1].d"), diff(REMOVE, "$.a[0]")], [{"b c": 1.0}, [None, True]]),
        ([diff(REPLACE, "$.a[last]", 2)], [1, {"b c": 1.0, "d": "x"}, 2]),
        ([diff(REPLACE, "$.a[last-1].d", 2)], [1, {"b c": 1.0, "d": 2}, [None, True]]),
        ([diff(REMOVE, "$.a[last][last-1]")], [1, {"b c": 1.0, "d": "x"}, [True]]),
        ([diff(REMOVE, "$.a[last-2]"), diff(REMOVE, "$.a[last]")], [{"b c": 1.0, "d": "x"}]),
        ([diff(INSERT, "$.a[last-7]", 0)], [0, 1, {"b c": 1.0, "d": "x"}, [None, True]]),
        ([diff(INSERT, "$.a[last]", 0)], [1, {"b c": 1.0, "d": "x"}, 0, [None, True]]),
        ([diff(INSERT, "$.a[last][last-2]", 0)], [1, {"b c": 1.0, "d": "x"}, [0, None, True]]),
        ([diff(INSERT, "$.a[3]", {}), diff(INSERT, "$.a[3].k", "x" * 300)], [1, {"b c": 1.0, "d": "x"}, [None, True], {"k": "x" * 300}]),  # noqa: E501
    ],
)  # fmt: skip
def test_changes_of_one_member(diffs: list[bytes], a: Document) -> None:
    assert after(*diffs) == expected(a=a)


def test_names_that_are_no_ascii_and_empty_ones() -> None:
    assert after(diff(REPLACE, '$.größe.""', "\t")) == expected(größe={"": "\t"})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\3", "operation 3"),
        (b"\0", "length of the path takes"),
        (b"\0\x09$.a", "path takes 9"),
        (diff(REPLACE, "$.a"), "length of the document takes"),
        (b"\0\3$.a\2\5\1", "a number is cut off"),
        (diff(REPLACE, "$", 1), "no path to one place"),
        (diff(REPLACE, "$.*", 1), "no path to one place"),
        (diff(REPLACE, "$.a[last to last]", 1), "no path to one place"),
        (diff(REPLACE, "$.a[last-]", 1), "no path to one place"),
        (diff(REPLACE, "$.a[last-3]", 1), "does not fit"),
        (diff(REMOVE, "$.a[1][last]"), "does not fit"),
        (diff(INSERT, "$.big[last]", 1), "does not fit"),
        (diff(INSERT, "$.a[last-3][0]", 1), "is not in the document"),
        (diff(REPLACE, '$."a', 1), "no path to one place"),
        (diff(REPLACE, '$."\\x"', 1), "is no name"),
        (diff(REPLACE, "$.b", 1), "does not fit"),
        (diff(REPLACE, "$.a[3]", 1), "does not fit"),
        (diff(REPLACE, "$.a.b", 1), "does not fit"),
        (diff(REPLACE, "$.big.b", 1), "does not fit"),
        (diff(REMOVE, "$.a[3]"), "does not fit"),
        (diff(REMOVE, "$[0]"), "does not fit"),
        (diff(INSERT, "$.a", 1), "does not fit"),
        (diff(INSERT, "$.a.b", 1), "does not fit"),
        (diff(INSERT, "$.b.c", 1), "is not in the document"),
        (diff(INSERT, "$.a[7][0]", 1), "is not in the document"),
    ],
)
def test_changes_that_do_not_fit_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        after(data)
