"""Every type that a column may have, with values where decoders go wrong."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

from tests.support.postgres_server import PostgresServer

__all__ = ["EXTENSIONS", "NOT_IN_TABLES", "SETUP", "TYPES", "VERSION"]

EXTENSIONS: Final = ("hstore", "citext")

_EVERY: Final = 15
"""The first version that has every type below with every value."""


def _version() -> int:
    """The version of the server that ``WORMHOLE_POSTGRES`` names; any other server has every type."""
    if not os.environ.get("WORMHOLE_POSTGRES"):
        return _EVERY
    server = PostgresServer()
    told = subprocess.run(
        [*server.program("postgres"), "--version"], check=True, capture_output=True, text=True, env=server.environment
    ).stdout
    return int(told.split()[2].partition(".")[0])


VERSION: Final = _version()
_HAS_MULTIRANGES: Final = VERSION >= 14
SETUP: Final = (
    "CREATE TYPE mood AS ENUM ('sad', 'so, so', 'glücklich', '')",
    'CREATE TYPE pair AS (a int, "B c" text)',
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE DOMAIN more_positive AS positive CHECK (VALUE > 1)",
    "CREATE DOMAIN price AS numeric(12, 2)",
    "CREATE DOMAIN short_text AS varchar(5)",
    "CREATE DOMAIN flags AS bool[]",
    "CREATE DOMAIN raw AS bytea",
    "CREATE DOMAIN mooded AS mood",
    f"CREATE TYPE span AS RANGE (subtype = float8{', multirange_type_name = spans' * _HAS_MULTIRANGES})",
)

_NUMBERS: Final = {
    "bool": ("t", "f"),
    "int2": ("-32768", "32767", "0", "-1"),
    "int4": ("-2147483648", "2147483647", "0", "-1", "10"),
    "int8": ("-9223372036854775808", "9223372036854775807", "0", "-1", "1000000000000000000"),
    "oid": ("0", "4294967295"),
    "xid": ("3", "4294967295"),
    "cid": ("0", "4294967295"),
    "xid8": ("3", "18446744073709551615", "9223372036854775807", "9223372036854775808"),
    "numeric": ("0", "-0.00", "1.50", "NaN", "1e-30", "-12345678901234567890.5", "1e400",
                *(("Infinity", "-Infinity") if VERSION >= 14 else ())),
    "numeric(10, 2)": ("99999999.99", "-0.01", "NaN"),
    **({"numeric(3, -2)": ("12300",)} if VERSION >= _EVERY else {}),
    "float4": ("0.1", "-0", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38", "16777217", "123456.79"),
    "float8": ("0.1", "-0", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308", "1e22"),
    "money": ("12.34", "-92233720368547758.08"),
}  # fmt: skip
_TEXTS: Final = {
    "text": ("", "a", "grüße 🌍 \\ ' \" \t\r\n", "NULL", "x" * 300, "\u0001"),
    "varchar(7)": ("", "7 chars"),
    "bpchar(5)": ("", "a", "ab  "),
    "name": ("a name",),
    '"char"': ("c", ""),
    "citext": ("MiXed", ""),
    "bytea": (r"\x", r"\x00ff5c78", r"\x" + "ab" * 300),
    "json": ('{"b": 1,  "a": [null, 1.50]}', '"ü"', "null"),
    "jsonb": ('{"b": 1,  "a": [null, 1.50]}', '"ü"', "null"),
    "jsonpath": ("$.a[*] ? (@ > 1)",),
    "xml": ("<a>ü</a>", ""),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "hstore": ('a=>1, "b c"=>NULL', ""),
    "tsvector": ("fat:2 cat:3A", "'it''s'"),
    "tsquery": ("fat & (rat | !cat)",),
    "mood": ("sad", "so, so", "glücklich", ""),
    "bit(5)": ("10101", "00000"),
    "varbit": ("", "1"),
    "refcursor": ("a cursor",),
}
_TIMES: Final = {
    "date": ("2024-02-29", "infinity", "-infinity", "0044-03-15 BC", "4713-01-01 BC", "5874897-12-31"),
    "time": ("00:00", "24:00", "23:59:59.999999"),
    "time(0)": ("12:34:56",),
    "timetz": ("12:34:56.7+05:30", "00:00-15:59:59"),
    "timestamp": ("2024-02-29 12:34:56.789", "infinity", "-infinity", "0001-01-01 BC", "294276-12-31 23:59:59.9"),
    "timestamp(0)": ("1999-12-31 23:59:59",),
    "timestamptz": ("2024-02-29 12:34:56.789+02", "infinity", "-infinity", "4713-01-01 00:00+00 BC"),
    "interval": ("1 year 2 mons -3 days 04:05:06.789", "-1 mon", "0", "-178000000 years", "-00:00:00.000001"),
}  # fmt: skip
_SHAPES: Final = {
    "point": ("(1.5,-2)", "(NaN,Infinity)"),
    "line": ("{1,2,3}",),
    "lseg": ("[(0,0),(1,1)]",),
    "box": ("(2,2),(0,0)",),
    "path": ("[(0,0),(1,1)]", "((0,0),(1,1))"),
    "polygon": ("((0,0),(1,1),(1,0))",),
    "circle": ("<(1,1),2.5>",),
    "cidr": ("192.168.0.0/16", "2001:db8::/32"),
    "inet": ("192.168.0.1/24", "192.168.0.1", "::1"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
}
_RANGES: Final = {
    "int4range": ("[1,5)", "empty", "(,)", "[5,]"),
    "int8range": ("[1,9223372036854775807)",),
    "numrange": ("(1.5,2.50]", "[NaN,]"),
    "daterange": ("[2024-01-01,infinity)",),
    "tsrange": ('["2024-01-01 00:00","2024-01-02 00:00")',),
    "tstzrange": ('["2024-01-01 00:00+02",)',),
    "span": ("[0.1,0.3)",),
}
_MULTIRANGES: Final = {
    "int4multirange": ("{}", "{[1,3),[5,7)}"),
    "int8multirange": ("{[1,3)}",),
    "nummultirange": ("{(1.5,2]}",),
    "datemultirange": ("{[2024-01-01,2024-01-03)}",),
    "tsmultirange": ('{["2024-01-01 00:00","2024-01-02 00:00")}',),
    "tstzmultirange": ('{["2024-01-01 00:00+02",)}',),
    "spans": ("{[0.1,0.3)}",),
}
_CATALOGUE: Final = {
    "pg_lsn": ("16/B374D848", "0/0"),
    "tid": ("(0,1)", "(4294967295,65535)"),
    "pg_snapshot": ("10:20:10,14,15",),
    "txid_snapshot": ("10:20:10,14,15",),
    "regclass": ("pg_catalog.pg_class", "0"),
    "regtype": ("int4",),
    "regproc": ("pg_catalog.now",),
    "regprocedure": ("pg_catalog.abs(integer)",),
    "regoper": ("pg_catalog.||/",),
    "regoperator": ("pg_catalog.+(integer,integer)",),
    "regconfig": ("pg_catalog.english",),
    "regdictionary": ("pg_catalog.simple",),
    "regrole": ("postgres",),
    "regnamespace": ("pg_catalog",),
    "regcollation": ('pg_catalog."C"',),
    "int2vector": ("1 2 3", ""),
    "oidvector": ("1 2 3",),
    "aclitem": ("postgres=r/postgres",),
}
_MADE: Final = {
    "pair": ('(1,"a, b")', "(,)", '(-1,"ü ""q""")'),
    "positive": ("1", "2147483647"),
    "more_positive": ("2",),
    "price": ("1.50", "NaN"),
    "short_text": ("", "grüße"),
    "flags": ("{t,NULL,f}", "{}"),
    "raw": (r"\x00ff",),
    "mooded": ("sad",),
    "mood[]": ('{sad,"so, so",NULL,""}',),
    "pair[]": ('{"(1,\\"a, b\\")",NULL}',),
    "positive[]": ("{1,2}",),
    "text[][]": ('{{a,"b c"},{NULL,"NULL"}}', "[2:3][0:0]={{a},{b}}"),
}

_PLAIN: Final = {
    **_NUMBERS,
    **_TEXTS,
    **_TIMES,
    **_SHAPES,
    **_RANGES,
    **(_MULTIRANGES if _HAS_MULTIRANGES else {}),
    **_CATALOGUE,
}


def _array(kind: str, values: tuple[str, ...]) -> str:
    quoted = ('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)
    return "{" + (";" if kind == "box" else ",").join((*quoted, "NULL")) + "}"


_ARRAYS: Final = {f"{kind}[]": (_array(kind, values),) for kind, values in _PLAIN.items()}

TYPES: Final[Mapping[str, tuple[str, ...]]] = {**_PLAIN, **_MADE, **_ARRAYS}
"""Values by type, as literals."""

NOT_IN_TABLES: Final = frozenset(
    {
        "gtsvector",  # only indexes have it
        "pg_brin_bloom_summary",
        "pg_brin_minmax_multi_summary",
        "pg_dependencies",
        "pg_mcv_list",
        "pg_ndistinct",
        "pg_node_tree",
    }
)
"""Built-in types that take no values."""
