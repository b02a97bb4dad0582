"""Every column type of MySQL and MariaDB: how it is declared, values worth storing, and what ``SELECT`` shows of them.

Values of all sides are compared in one form: the name of the wire's kind and what it holds, exactly: ``("decimal",
"1.50")``. Doubles are compared by their bits, so that -0.0 is not 0.0.
"""

from __future__ import annotations

import datetime
import ipaddress
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

Shown = tuple[str, object]
"""Kind of the wire, and the value."""

NULL: Final[Shown] = ("null", True)
UNAVAILABLE: Final[Shown] = ("unavailable", True)
CHANGED: Final[Shown] = ("changed", None)
"""A value that changed to what is not in the log."""

_BOTH: Final = frozenset({"mariadb", "mysql"})
_MARIADB: Final = frozenset({"mariadb"})
_MYSQL: Final = frozenset({"mysql"})


@dataclass(frozen=True)
class Type:
    """A column type. ``edges``: SQL expressions of values to store; ``more`` makes further ones.

    ``shown``: from the bytes that ``SELECT`` answers with; ``asked``: what it is asked for, with the column's name in
    it. ``key``: the column's name as part of a primary key; empty for a type that cannot be one.
    """

    name: str
    declared: str
    edges: tuple[str, ...]
    more: st.SearchStrategy[str]
    shown: Callable[[bytes], Shown]
    asked: str = "{}"
    flavours: frozenset[str] = _BOTH
    key: str = "{}"

    def __str__(self) -> str:
        return self.name


# --- what SELECT shows -------------------------------------------------------------------------------------------


def double(value: float) -> Shown:
    """A double, by its bits."""
    return "double", struct.pack("<d", value).hex()


def shortest(single: float) -> float:
    """The shortest decimal number that means the same single."""
    for digits in range(1, 10):
        candidate = float(f"{single:.{digits}g}")
        try:
            if struct.unpack("<f", struct.pack("<f", candidate))[0] == single:
                return candidate
        except OverflowError:
            continue
    return single


def _int(raw: bytes) -> Shown:
    value = int(raw)
    return ("uint" if value >> 63 > 0 else "int"), value


def _bits(raw: bytes) -> Shown:
    return "uint", int.from_bytes(raw, "big")


def _decimal(raw: bytes) -> Shown:
    return "decimal", raw.decode()


def _double(raw: bytes) -> Shown:
    return double(float(raw))


def _single(raw: bytes) -> Shown:
    return double(shortest(float(raw)))


def _text(raw: bytes) -> Shown:
    # MariaDB sends a half of a surrogate pair as it stands in the column; that is no character of any text.
    text = raw.decode("utf-8", "surrogatepass")
    return "text", "".join("?" if 0xD800 <= ord(c) < 0xE000 else c for c in text)


def _bytes(raw: bytes) -> Shown:
    return "bytes", raw


def _address(raw: bytes) -> Shown:
    return "bytes", ipaddress.ip_address(raw.decode()).packed


def _uuid(raw: bytes) -> Shown:
    return "bytes", uuid.UUID(raw.decode()).bytes


# --- numbers -----------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A string literal."""
    return f"_utf8mb4 x'{text.encode().hex()}'"


def _raw(data: bytes) -> str:
    return f"x'{data.hex()}'"


def _apostrophes(text: str) -> str:
    return f"'{text}'"


def _integers() -> list[Type]:
    types = []
    for name, size in (("TINYINT", 1), ("SMALLINT", 2), ("MEDIUMINT", 3), ("INT", 4), ("BIGINT", 8)):
        half, whole = 1 << 8 * size - 1, 1 << 8 * size
        signed = {0, 1, -1, 127, -128, half - 1, -half, 1 - half}
        unsigned = {0, 1, 127, 128, 255, half - 1, half, whole - 1}
        types += [
            Type(name.lower(), name, tuple(map(str, sorted(signed))), st.integers(-half, half - 1).map(str), _int),
            Type(
                f"{name.lower()} unsigned",
                f"{name} UNSIGNED",
                tuple(map(str, sorted(unsigned))),
                st.integers(0, whole - 1).map(str),
                _int,
            ),
        ]
    zerofill = Type("int zerofill", "INT(8) ZEROFILL", ("0", "42"), st.integers(0, 10**8).map(str), _int)
    years = Type(
        "year", "YEAR", ("0", "1901", "2155", "'0000'", "2000", "70", "'0'"), st.integers(1901, 2155).map(str), _int
    )
    return [*types, zerofill, years]


def _decimals(precision: int, scale: int, extra: str = "") -> Type:
    def literal(n: int) -> str:
        digits = f"{abs(n):0{scale + 1}d}"
        whole, fraction = (digits[:-scale], digits[-scale:]) if scale else (digits, "0")
        return f"{'-' if n < 0 else ''}{whole}.{fraction}"

    most = 10**precision - 1
    numbers = (
        0,
        1,
        -1,
        5 * 10**scale // 10,
        most,
        -most,
        10 ** (precision - 1),
        -(10**scale),
        10**9 - 1,
        1 - 10**9,
        10**9,
    )
    return Type(
        f"decimal({precision},{scale}){extra.lower()}",
        f"DECIMAL({precision},{scale}){extra}",
        (*map(literal, numbers), "-0.0"),
        st.integers(-most, most).map(literal),
        _decimal,
    )


def _bit(width: int) -> Type:
    most = (1 << width) - 1
    edges = tuple(f"b'{n:b}'" for n in sorted({0, 1, most, most >> 1, 1 << width - 1}))
    return Type(f"bit({width})", f"BIT({width})", edges, st.integers(0, most).map("b'{:b}'".format), _bits)


_DOUBLES: Final = (
    "0e0", "-0e0", "0.1e0", "1e0", "-1e0", "1.7976931348623157e308", "-1.7976931348623157e308", "2.2250738585072014e-308", "5e-324",  # noqa: E501
    "1e15", "1e16", "123456789012345678e0", "0.1e0 + 0.2e0", "1e-7", "3.141592653589793e0", "1e0/3",
)  # fmt: skip
_SINGLES: Final = (
    "0e0", "-0e0", "0.1e0", "1.1e0", "-1e0", "3.4028234663852886e38", "-3.4028234663852886e38", "1.1754943508222875e-38", "1.401298464324817e-45",  # noqa: E501
    "16777216e0", "16777217e0", "33554434e0", "123456789e0", "1e10", "1e-10", "0.333333343e0", "1e30", "1e0/3", "8388608.5e0", "65504.25e0",  # noqa: E501
)  # fmt: skip
_singles: Final = st.floats(width=32, allow_nan=False, allow_infinity=False).map("{!r}e0".format)


def _real(number: float) -> str:
    text = repr(number)
    return text if "e" in text else f"{text}e0"


def _reals() -> list[Type]:
    doubles = st.floats(allow_nan=False, allow_infinity=False).map(_real)
    singles = st.floats(width=32, allow_nan=False, allow_infinity=False).map(_real)
    exact = "CAST({} AS DOUBLE)"
    return [
        Type("double", "DOUBLE", _DOUBLES, doubles, _double),
        Type("double(20,4)", "DOUBLE(20,4)", ("0", "1.23456", "-12345678.9", "1.84"), st.integers(-(10**12), 10**12).map("{}e-3".format), _double, asked=exact),  # noqa: E501
        Type("float", "FLOAT", _SINGLES, singles, _single, asked=exact),
        Type("float(10,2)", "FLOAT(10,2)", ("0", "1.23456", "-1234567.89"), st.integers(-(10**9), 10**9).map("{}e-3".format), _single, asked=exact),  # noqa: E501
    ]  # fmt: skip


# --- dates and times ---------------------------------------------------------------------------------------------

_clocks: Final = st.builds(
    "{:02d}:{:02d}:{:02d}.{:06d}".format,
    st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999),
)  # fmt: skip
_partial_dates: Final = st.builds(
    "{:04d}-{:02d}-{:02d}".format, st.integers(0, 9999), st.integers(0, 12), st.integers(0, 28)
)
_dates: Final = st.dates().map(str) | _partial_dates
_stamp_dates: Final = st.dates(datetime.date(1970, 1, 2), datetime.date(2038, 1, 18)).map(str)
_durations: Final = st.builds(
    "{}{:d}:{:02d}:{:02d}.{:06d}".format,
    st.sampled_from(["", "-"]), st.integers(0, 837), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999),
)  # fmt: skip

_DATES: Final = (
    "'0000-00-00'", "'2024-02-29'", "'9999-12-31'", "'1000-01-01'", "'2024-00-00'", "'2024-02-00'", "'0000-01-01'", "'0001-01-01'", "'2023-02-30'",  # noqa: E501
)  # fmt: skip
_TIMES: Final = (
    "'00:00:00'", "'-00:00:00.1'", "'838:59:59'", "'-838:59:59'", "'838:59:58.999999'", "'-838:59:58.999999'", "'24:00:00'", "'-25:00:00.000001'",  # noqa: E501
    "'00:00:00.999999'", "'-00:00:00.999999'", "'-00:00:01'", "'100:00:00'", "'-00:00:00.01'", "'12:34:56.5'", "'-12:34:56.789012'",  # noqa: E501
)  # fmt: skip
_MOMENTS: Final = (
    "'0000-00-00 00:00:00'", "'9999-12-31 23:59:59'", "'1000-01-01'", "'2024-02-29 12:34:56.123456'", "'2024-00-00 01:02:03.5'", "'2024-02-00'",  # noqa: E501
    "'0000-00-00 00:00:00.000001'", "'0000-01-01 00:00:00.9'", "'1969-12-31 23:59:59.999999'", "'0001-01-01'", "'2024-06-30 23:59:59.987654'",  # noqa: E501
)  # fmt: skip
_STAMPS: Final = (
    "'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'", "'1970-01-01 00:00:00.000001'", "'2038-01-19 03:14:07.499999'", "'2000-02-29 23:59:59.5'",  # noqa: E501
    "'2024-12-31 23:59:59.999999'", "'1999-12-31 23:59:59'", "'1972-01-01'", "'2023-03-26 02:30:00.123456'",
)  # fmt: skip


def _temporal(digits: int) -> list[Type]:
    f = f"({digits})" if digits else ""
    moments, stamps = st.builds("'{} {}'".format, _dates, _clocks), st.builds("'{} {}'".format, _stamp_dates, _clocks)
    return [
        Type(f"time{f}", f"TIME{f}", _TIMES, _durations.map(_apostrophes), _text),
        Type(f"datetime{f}", f"DATETIME{f}", _MOMENTS, moments, _text),
        Type(f"timestamp{f}", f"TIMESTAMP{f}", _STAMPS, stamps, _text),
    ]


# --- strings -----------------------------------------------------------------------------------------------------

# A charset, the Python codec whose characters are stored, and codes to store as they are.
_CHARSETS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "latin1": ("cp1252", ("808182", "a0ff", "9d8f90")),
    "utf8mb3": ("utf-8", ("e282ac",)),
    "utf8mb4": ("utf-8", ("f09f9880", "efbfbd", "f48fbfbf")),
    "gbk": ("gbk", ("8140", "d6d0", "fe4f", "a2a0", "fea1", "a1a4a1aa")),
    "ucs2": ("utf-8", ("0041", "20ac", "d800", "dc000041", "fffe", "ffff", "0000")),
    "sjis": ("shift_jis", ("835c", "5c7e", "a1df", "8160")),
    "ujis": ("euc_jp", ("8fb0a1", "8eb1", "a1c0")),
    "utf16": ("utf-8", ("d83dde00", "0041")),
    "utf16le": ("utf-8", ("3dd800de", "4100")),
    "utf32": ("utf-8", ("0001f600", "00000041")),
    "koi8r": ("koi8-r", ("c1",)),
    "ascii": ("ascii", ("41",)),
}
_COMMON: Final = frozenset({"latin1", "utf8mb3", "utf8mb4", "gbk", "ucs2"})
_SURROGATES: Final = "Cs"


def _texts(charset: str, most: int) -> st.SearchStrategy[str]:
    codec = _CHARSETS[charset][0]
    last = 0xFFFF if charset in {"utf8mb3", "ucs2"} else None
    alphabet = st.characters(codec=codec, exclude_categories=[_SURROGATES], exclude_characters="¥‾", max_codepoint=last)
    return st.text(alphabet, max_size=most).map(quoted)


def _strings(charset: str) -> list[Type]:
    of = f"CHARACTER SET {charset}"
    codes = tuple(f"_{charset} x'{code}'" for code in _CHARSETS[charset][1])
    edges = ("''", "'a'", "'trailing  '", quoted("größe €"), quoted("中文😀"), quoted("\0\x1a'\"\\\n"), *codes)
    short, longer = _texts(charset, 12), _texts(charset, 60)
    plain = [
        Type(f"char {charset}", f"CHAR(12) {of}", edges, short, _text),
        Type(f"varchar {charset}", f"VARCHAR(60) {of}", (*edges, "REPEAT('x', 60)"), longer, _text),
    ]
    if charset not in _COMMON:
        return plain
    return [
        *plain,
        Type(f"long char {charset}", f"CHAR(100) {of}", (*edges, "REPEAT('ab', 50)"), longer, _text),
        Type(
            f"long varchar {charset}", f"VARCHAR(300) {of}", (*edges, "REPEAT('y', 256)"), longer, _text, key="{}(40)"
        ),
        Type(f"text {charset}", f"TEXT {of}", (*edges, "REPEAT('z', 20000)"), longer, _text, key="{}(20)"),
    ]


def _text_sizes() -> list[Type]:
    repeats = tuple(f"REPEAT('t', {n})" for n in (0, 255, 256, 65535, 65536))
    short = _texts("utf8mb4", 12)
    return [
        Type("tinytext", "TINYTEXT", ("''", "REPEAT('t', 255)", quoted("€" * 80)), short, _text, key="{}(10)"),
        Type("mediumtext", "MEDIUMTEXT", (*repeats, quoted("€" * 30000)), short, _text, key="{}(10)"),
        Type("longtext", "LONGTEXT", (*repeats, quoted("😀" * 300)), short, _text, key="{}(10)"),
    ]


def _binaries() -> list[Type]:
    edges = ("''", "x'00'", "x'0000'", "x'ff00'", "x'00ff'", "x'00010203fffefd'", "x'c3a9'", "x'20'", "'plain  '")
    short, longer = st.binary(max_size=8).map(_raw), st.binary(max_size=300).map(_raw)
    repeats = tuple(f"REPEAT(x'80', {n})" for n in (255, 256, 65535, 65536))
    return [
        Type("binary(1)", "BINARY(1)", ("''", "x'00'", "x'ff'", "x'20'"), st.binary(max_size=1).map(_raw), _bytes),
        Type("binary(8)", "BINARY(8)", edges, short, _bytes),
        Type("binary(255)", "BINARY(255)", (*edges, repeats[0]), st.binary(max_size=255).map(_raw), _bytes),
        Type("varbinary(8)", "VARBINARY(8)", edges, short, _bytes),
        Type("varbinary(400)", "VARBINARY(400)", (*edges, repeats[1]), longer, _bytes),
        Type("tinyblob", "TINYBLOB", (*edges, repeats[0]), st.binary(max_size=255).map(_raw), _bytes, key="{}(10)"),
        Type("blob", "BLOB", (*edges, repeats[2]), longer, _bytes, key="{}(10)"),
        Type("mediumblob", "MEDIUMBLOB", (*edges, *repeats), longer, _bytes, key="{}(10)"),
        Type("longblob", "LONGBLOB", (*edges, *repeats), longer, _bytes, key="{}(10)"),
        Type("char binary", "CHAR(8) CHARACTER SET binary", edges, short, _bytes),
        Type("varchar binary", "VARCHAR(8) CHARACTER SET binary", edges, short, _bytes),
    ]


def _bare() -> list[Type]:
    """Texts of character sets that Python has no codec for."""
    return [
        Type("varchar dec8", "VARCHAR(20) CHARACTER SET dec8", ("''", "'a'", "_dec8 x'a1e9'"), st.just("'dec'"), _text),
        Type("text eucjpms", "TEXT CHARACTER SET eucjpms", ("''", "'a'", "_eucjpms x'a4a2'"), st.just("'euc'"), _text, key="{}(10)"),  # noqa: E501
        Type("char swe7", "CHAR(20) CHARACTER SET swe7", ("''", "'a'"), st.just("'swe'"), _text),
    ]  # fmt: skip


def _members() -> list[Type]:
    def both(names: list[str], charset: str, name: str) -> list[Type]:
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
        of = f"CHARACTER SET {charset}"
        numbers = st.integers(0, len(names)).map(str)
        masks = st.integers(0, (1 << min(len(names), 64)) - 1).map(str)
        every = (1 << min(len(names), 64)) - 1
        return [
            Type(
                f"enum {name}", f"ENUM({listed}) {of}", ("0", "1", str(len(names)), "'no such member'"), numbers, _text
            ),
            Type(f"set {name}", f"SET({listed}) {of}", ("''", "1", str(every), str(every >> 1)), masks, _text),
        ]

    many = [f"member {n}" for n in range(300)]
    return [
        *both(["a", "b", "c"], "utf8mb4", "of three"),
        *both(["größe", "中文", "😀", "it's"], "utf8mb4", "of utf8mb4"),
        *both(["größe", "naïve", "plain"], "latin1", "of latin1"),
        *both(["中文", "字", "abc"], "gbk", "of gbk"),
        *both(["中文", "é", "abc"], "ucs2", "of ucs2"),
        *[t for t in both(many[:64], "utf8mb4", "of 64") if t.name.startswith("set")],
        *[t for t in both([f"bit{n}" for n in range(9)], "utf8mb4", "of nine") if t.name.startswith("set")],
        *[t for t in both(many, "utf8mb4", "of 300") if t.name.startswith("enum")],
        *[t for t in both(["only"], "utf8mb4", "of one") if t.name.startswith("enum")],
        *[t for t in both(["", "x"], "utf8mb4", "with an empty name") if t.name.startswith("enum")],
    ]


# --- JSON and the rest -------------------------------------------------------------------------------------------

_scalars: Final = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=[_SURROGATES]), max_size=8)
)
_documents: Final = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab$é", max_size=3), inner, max_size=4),
    max_leaves=12,
)


def _json_text(document: object) -> str:
    import json

    return quoted(json.dumps(document, ensure_ascii=False))


_DOCUMENTS: Final = (
    "'{}'", "'[]'", "'null'", "'\"\"'", "'0'", "'-0.0'", "'true'", "'1e400'", "'{\"\": {\"\": []}}'",
    "'[9223372036854775807, -9223372036854775808, 18446744073709551615, 99999999999999999999]'",
    "'[32767, 32768, -32768, -32769, 65535, 65536, 2147483647, 4294967296]'",
    "'[1.0, 0.1, 1e15, 1e16, 1e-5, 123456789.125, 1.7976931348623157e308]'",
    quoted('{"größe": "😀", "b": "\\u0001\\n\\t\\"\\\\/", "aa": "", "ab": "x"}'),
    "CONCAT(REPEAT('[', 30), REPEAT(']', 30))",
    "CONCAT('[', REPEAT('\"0123456789\", ', 7000), '1]')",
)  # fmt: skip
_BINARY_DOCUMENTS: Final = (
    "CAST(CAST(1.50 AS DECIMAL(10,4)) AS JSON)", ("JSON_ARRAY(CAST(-123456789012345678901234567890.5 AS DECIMAL(65,30)), CAST(0 AS DECIMAL(5,2)))"),  # noqa: E501
    ("JSON_ARRAY(DATE'2024-02-29', TIME'-838:59:59.000000', TIMESTAMP'2024-02-29 12:34:56.123456', CAST('2024-02-29 12:34:56' AS DATETIME))"),  # noqa: E501
    "JSON_ARRAY(x'00ff80', b'101', CAST('abc' AS BINARY), 1.5e0, CAST(1 AS UNSIGNED), TRUE, NULL)",
    "JSON_OBJECT('geometry', ST_GeomFromText('POINT(1 2)'), 'year', CAST(2024 AS YEAR))", "JSON_OBJECT('k', REPEAT('v', 70000))",  # noqa: E501
)  # fmt: skip


def _json() -> list[Type]:
    more = _documents.map(_json_text)
    return [
        Type(
            "json", "JSON", (*_DOCUMENTS[:7], *_DOCUMENTS[8:], *_BINARY_DOCUMENTS), more, _text, flavours=_MYSQL, key=""
        ),
        Type("json as text", "JSON", _DOCUMENTS, more, _text, flavours=_MARIADB, key=""),
    ]


_GEOMETRIES: Final = (
    "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0, 1 1, 2.5 -3)')",
    "ST_GeomFromText('POLYGON((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 1))')", "ST_GeomFromText('MULTIPOINT(0 0, 1 2)')",  # noqa: E501
    "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))')", "ST_GeomFromText('POINT(1 2)', 4326)",
)  # fmt: skip
_points: Final = st.builds("ST_GeomFromText('POINT({} {})')".format, st.integers(-180, 180), st.integers(-90, 90))


def _others() -> list[Type]:
    six = (
        "'::'",
        "'::1'",
        "'2001:db8::ff00:42:8329'",
        "'::ffff:192.0.2.1'",
        "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00'",
        "'2001:db8::'",
    )
    identities = (
        "'00000000-0000-0000-0000-000000000000'",
        "'ffffffff-ffff-ffff-ffff-ffffffffff00'",
        "'123e4567-e89b-12d3-a456-426655440000'",
        "'123e4567-e89b-42d3-a456-426655440000'",
    )
    vectors = ("TO_VECTOR('[1, 2, 3]')", "TO_VECTOR('[0.1, -1e30]')", "TO_VECTOR('[0]')")
    compressed = ("''", "'a'", "REPEAT('abc', 200)", "REPEAT('x', 900)", quoted("größe 中文" * 20))
    short = _texts("utf8mb4", 60)
    return [
        Type("geometry", "GEOMETRY", _GEOMETRIES, _points, _bytes, key=""),
        Type("point", "POINT", _GEOMETRIES[:1], _points, _bytes, key=""),
        Type("vector", "VECTOR(3)", vectors, st.lists(st.integers(-99, 99), min_size=1, max_size=3).map("TO_VECTOR('{}')".format), _bytes,  # noqa: E501
             flavours=_MYSQL, key=""),
        Type("inet4", "INET4", ("'0.0.0.0'", "'192.0.2.1'", "'255.255.255.0'"), st.ip_addresses(v=4).map("'{}'".format), _address, flavours=_MARIADB),  # noqa: E501
        Type("inet6", "INET6", six, st.ip_addresses(v=6).map("'{}'".format), _address, flavours=_MARIADB),
        Type("uuid", "UUID", identities, st.uuids().map("'{}'".format), _uuid, flavours=_MARIADB),
        *(
            Type(f"compressed {name}", f"{declared} COMPRESSED{of}", compressed, short, shown, flavours=_MARIADB, key="")  # noqa: E501
            for name, declared, of, shown in (
                ("varchar", "VARCHAR(1000)", "", _text),
                ("varchar latin1", "VARCHAR(1000)", " CHARACTER SET latin1", _text),
                ("text", "TEXT", "", _text),
                ("text ucs2", "MEDIUMTEXT", " CHARACTER SET ucs2", _text),
                ("varbinary", "VARBINARY(1000)", "", _bytes),
                ("blob", "BLOB", "", _bytes),
                ("longblob", "LONGBLOB", "", _bytes),
            )
        ),
    ]  # fmt: skip


_PRECISIONS: Final = ((65, 30), (10, 0), (1, 0), (1, 1), (9, 9), (18, 9), (20, 6), (30, 30), (65, 0), (38, 10), (14, 4))

TYPES: Final[tuple[Type, ...]] = (
    *_integers(),
    *(_decimals(precision, scale) for precision, scale in _PRECISIONS),
    *(_bit(width) for width in (1, 7, 8, 9, 15, 16, 17, 24, 25, 33, 40, 57, 63, 64)),
    *_reals(),
    Type("date", "DATE", _DATES, _dates.map(_apostrophes), _text),
    *(kind for digits in range(7) for kind in _temporal(digits)),
    *(kind for charset in _CHARSETS for kind in _strings(charset)),
    *_text_sizes(),
    *_binaries(),
    *_bare(),
    *_members(),
    *_json(),
    *_others(),
)  # fmt: skip


def of_flavour(flavour: str) -> list[Type]:
    """The types that a server has."""
    return [kind for kind in TYPES if flavour in kind.flavours]
