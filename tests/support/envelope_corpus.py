"""The changes that peers and our envelopes are compared over. Types, and what is written into a column of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["MYSQL", "POSTGRES", "Corpus"]


class Corpus:
    """``tables``: what makes them. ``existing``: rows before the readers begin. ``changes``: transactions. ``types``:
    those of the table ``types``, by its columns.
    """

    def __init__(
        self, types: Mapping[str, tuple[str, str]], schema: str, tables: list[str], changes: list[list[str]], odd: str
    ) -> None:
        columns = ", ".join(f"{name} {type_}" for name, (type_, _) in types.items())
        values = ", ".join(value for _, value in types.values())
        key = "bigint" if schema == "public" else "BIGINT UNSIGNED"
        self.types = {"id": key} | {name: type_ for name, (type_, _) in types.items()}
        self.tables = [*tables, f"CREATE TABLE {schema}.types (id {key} PRIMARY KEY, {columns})"]
        self.existing = [
            f"INSERT INTO {schema}.orders VALUES (1, 'new', NULL)",
            f"INSERT INTO {schema}.types VALUES (1, {values})",
        ]
        big = 2**63 - 1 if schema == "public" else 2**64 - 1
        self.changes = [
            [f"INSERT INTO {schema}.orders VALUES (7, 'new', NULL)"],
            [f"UPDATE {schema}.orders SET status = 'paid' WHERE id = 7"],
            [f"UPDATE {schema}.orders SET status = 'paid' WHERE id = 7"],
            [f"UPDATE {schema}.orders SET id = 8, note = 'moved' WHERE id = 7"],
            [f"DELETE FROM {schema}.orders WHERE id = 8"],
            [
                f"INSERT INTO {schema}.parts VALUES (1, 1, 'a'), (1, 2, 'b')",
                f"UPDATE {schema}.parts SET item = NULL WHERE line = 2",
                f"DELETE FROM {schema}.parts WHERE line = 1",
            ],
            [f"INSERT INTO {schema}.types VALUES ({big}, {values})"],
            [f"INSERT INTO {schema}.types (id) VALUES (3)"],
            [f"INSERT INTO {schema}.types {odd}"],
            *changes,
            [f"TRUNCATE TABLE {schema}.orders"],
            [f"TRUNCATE TABLE {schema}.notes"],  # a time that ends in zeros by chance has company
            [f"INSERT INTO {schema}.parts VALUES (9, 9, 'last')"],
        ]


_TABLES: Final = (
    "CREATE TABLE {0}.orders (id INT PRIMARY KEY, status VARCHAR(20) NOT NULL, note TEXT)",
    "CREATE TABLE {0}.parts (ordered INT, line SMALLINT, item VARCHAR(20), PRIMARY KEY (ordered, line))",
    "CREATE TABLE {0}.notes (a INT, b TEXT)",
)

_MYSQL_TYPES: Final = {
    "tiny": ("TINYINT", "-1"),
    "flag": ("BOOL", "true"),
    "medium": ("MEDIUMINT", "-70000"),
    "unsig": ("INT UNSIGNED", "4000000000"),
    "ubig": ("BIGINT UNSIGNED", "18446744073709551615"),
    "price": ("DECIMAL(12,4)", "12.5"),
    "whole": ("DECIMAL(20,0)", "12345678901234567890"),
    "f": ("FLOAT", "0.1"),
    "d": ("DOUBLE", "1e-7"),
    "b1": ("BIT(1)", "b'1'"),
    "b10": ("BIT(10)", "b'1000000001'"),
    "y": ("YEAR", "2026"),
    "da": ("DATE", "'2026-11-29'"),
    "t": ("TIME", "'12:30:00'"),
    "t6": ("TIME(6)", "'12:30:00.123456'"),
    "dt": ("DATETIME", "'2026-11-29 05:30:00'"),
    "dt3": ("DATETIME(3)", "'2026-11-29 05:30:00.125'"),
    "dt6": ("DATETIME(6)", "'2026-11-29 05:30:00.123456'"),
    "ts": ("TIMESTAMP NULL", "'2026-11-29 05:30:00'"),
    "ts6": ("TIMESTAMP(6) NULL", "'2026-11-29 05:30:00.123456'"),
    "c": ("CHAR(4)", "'ab'"),
    "v": ("VARCHAR(20)", "'Grüße'"),
    "bin": ("BINARY(4)", "X'00FF'"),
    "vb": ("VARBINARY(8)", "X'CAFE00'"),
    "bl": ("BLOB", "X'0001'"),
    "j": ("JSON", """'{"a":1.5,"b":[null,"x"]}'"""),
    "e": ("ENUM('small','large')", "'large'"),
    "s": ("SET('a','b','c')", "'a,c'"),
    "p": ("POINT", "ST_GeomFromText('POINT(1 2)')"),
}
MYSQL: Final = Corpus(
    _MYSQL_TYPES,
    "shop",
    ["CREATE DATABASE shop", *(table.format("shop") for table in _TABLES)],
    [
        ["INSERT INTO shop.notes VALUES (1, 'x')"],
        ["UPDATE shop.notes SET b = 'y'"],
        ["DELETE FROM shop.notes"],
        ["UPDATE shop.types SET " + ", ".join(f"{name} = NULL" for name in _MYSQL_TYPES) + " WHERE id > 9"],
    ],
    "(id, da, dt, ts, y, e, t, d, f)"
    " VALUES (4, '0000-00-00', '0000-00-00', '0000-00-00', 0, '', '-838:59:59', 1e300, 3.4e38)",
)

_POSTGRES_TYPES: Final = {
    "flag": ("boolean", "true"),
    "small": ("smallint", "-300"),
    "o": ("oid", "4000000000"),
    "price": ("numeric(12,4)", "12.5"),
    "free": ("numeric", "1234567890.00001"),
    "cash": ("money", "12.5"),
    "f": ("real", "0.1"),
    "d": ("double precision", "1e-7"),
    "c": ("char(4)", "'ab'"),
    "v": ("varchar(20)", "'Grüße'"),
    "b": ("bytea", "'\\x0001'"),
    "da": ("date", "'2026-11-29'"),
    "t": ("time", "'12:30:00.123456'"),
    "tz": ("timetz", "'12:30:00+02'"),
    "ts": ("timestamp", "'2026-11-29 05:30:00.123456'"),
    "ts3": ("timestamp(3)", "'2026-11-29 05:30:00.125'"),
    "tstz": ("timestamptz", "'2026-11-29 05:30:00.123456+00'"),
    "iv": ("interval", "'1 mon 2 days 03:04:05'"),
    "j": ("json", """'{"a":1.50}'"""),
    "jb": ("jsonb", """'{"b":[null],"a":1.50}'"""),
    "u": ("uuid", "'11111111-2222-3333-4444-555555555555'"),
    "e": ("size", "'large'"),
    "a": ("integer[]", "'{1,NULL,3}'"),
    "r": ("int4range", "'[1,5)'"),
    "ip": ("inet", "'10.0.0.1'"),
    "bits": ("bit(4)", "B'1010'"),
    "p": ("point", "'(1,2)'"),
}
POSTGRES: Final = Corpus(
    _POSTGRES_TYPES,
    "public",
    [
        *(table.format("public") for table in _TABLES),
        "CREATE TYPE size AS ENUM ('small', 'large')",
        "CREATE TABLE whole (id int PRIMARY KEY, status text NOT NULL)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE docs (id int PRIMARY KEY, n int, doc text, raw bytea)",
        "ALTER TABLE docs ALTER doc SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL",
    ],
    [
        ["INSERT INTO notes VALUES (1, 'x')"],
        [
            "INSERT INTO whole VALUES (7, 'new')",
            "UPDATE whole SET status = 'paid'",
            "UPDATE whole SET id = 8",
            "DELETE FROM whole",
        ],
        ["INSERT INTO docs VALUES (1, 1, repeat('x', 5000), convert_to(repeat('y', 5000), 'UTF8'))"],
        ["UPDATE docs SET n = 2"],
        ["SELECT pg_logical_emit_message(true, 'note', 'hello')"],
    ],
    "(id, f, d, free, da, ts, tstz) VALUES (4, 'NaN', '-Infinity', 'NaN', 'infinity', '-infinity', 'infinity')",
)
