"""Writes docs/sink-types.md: what becomes of the types of a source in the tables of a SQL mirror. A test compares them.

python -m scripts.sink_types [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from scripts.prepare import ROOT
from sinks.sql.schema import Dialect, Kind, TargetColumn
from sinks.sql.schema.fitting import fit
from sinks.sql.schema.table import native_type
from wormhole.model.values import Value

__all__ = ["FAMILIES", "MYSQL", "NATIVE", "PAGE", "POSTGRES", "SourceType", "filled", "main"]

PAGE: Final = ROOT / "docs" / "sink-types.md"
_BEGIN: Final = "<!-- types -->\n"
_END: Final = "<!-- end -->"

FAMILIES: Final[Mapping[str, Dialect]] = {
    "PostgreSQL": Dialect.POSTGRES,
    "MySQL and MariaDB": Dialect.MYSQL,
    "SQLite": Dialect.SQLITE,
    "DuckDB": Dialect.DUCKDB,
}
_UNSIGNED: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SourceType:
    """Types of a source that arrive as the ``generic`` type. ``sample``: a value. ``made``: the type of a column that
    a user may make beforehand, by the dialect of the target.
    """

    names: tuple[str, ...]
    generic: str
    sample: Value
    made: Mapping[Dialect, str] = field(default_factory=dict)


def _made(postgres: str, mysql: str, duckdb: str) -> dict[Dialect, str]:
    named = {Dialect.POSTGRES: postgres, Dialect.MYSQL: mysql, Dialect.DUCKDB: duckdb}
    return {dialect: type_ for dialect, type_ in named.items() if type_}


MYSQL: Final = (
    SourceType(("BOOL",), "int", 1, _made("boolean", "tinyint(1)", "BOOLEAN")),
    SourceType(("TINYINT", "SMALLINT", "INT", "INT UNSIGNED", "BIGINT", "YEAR"), "int", -5),
    SourceType(("BIGINT UNSIGNED", "BIT(8)"), "uint", 5, _made("bigint", "bigint unsigned", "BIGINT")),
    SourceType(
        ("DECIMAL(10,2)",),
        "decimal",
        Decimal("1.50"),
        _made("numeric(10,2)", "decimal(10,2)", "DECIMAL(10,2)"),
    ),
    SourceType(("FLOAT", "DOUBLE"), "double", 0.1),
    SourceType(("DATE",), "text", "2024-02-29", _made("date", "date", "DATE")),
    SourceType(("TIME(6)",), "text", "-838:59:59.000000", _made("interval", "time(6)", "INTERVAL")),
    SourceType(
        ("DATETIME(6)", "TIMESTAMP(6)"),
        "text",
        "2024-02-29 12:00:00.123456",
        _made("timestamp(6)", "datetime(6)", "TIMESTAMP"),
    ),
    SourceType(("CHAR(9)", "VARCHAR(9)", "TEXT"), "text", "é", _made("varchar(9)", "varchar(9)", "VARCHAR")),
    SourceType(("BINARY(9)", "VARBINARY(9)", "BLOB"), "bytes", b"\x00\xff", _made("bytea", "varbinary(9)", "BLOB")),
    SourceType(("ENUM('a','b')", "SET('a','b')"), "text", "a", _made("varchar(9)", "enum('a','b')", "VARCHAR")),
    SourceType(("JSON",), "text", '{"a": 1.5}', _made("jsonb", "json", "JSON")),
    SourceType(("GEOMETRY",), "bytes", b"\x00"),
)
POSTGRES: Final = (
    SourceType(("boolean",), "bool", True),
    SourceType(("smallint", "integer", "bigint", "oid"), "int", -5),
    SourceType(("real", "double precision"), "double", 0.1),
    SourceType(("numeric",), "decimal", Decimal("1.50"), _made("numeric(10,2)", "decimal(10,2)", "DECIMAL(10,2)")),
    SourceType(("bytea",), "bytes", b"\x00\xff"),
    SourceType(("char(9)", "varchar(9)", "text"), "text", "é", _made("varchar(9)", "varchar(9)", "VARCHAR")),
    SourceType(("date",), "text", "2024-02-29", _made("date", "date", "DATE")),
    SourceType(("time",), "text", "12:00:00.123456", _made("time", "time(6)", "TIME")),
    SourceType(("timestamp",), "text", "2024-02-29 12:00:00.123456", _made("timestamp(6)", "datetime(6)", "TIMESTAMP")),
    SourceType(("timestamptz",), "text", "2024-02-29 12:00:00.123456+00", _made("timestamptz", "", "TIMESTAMP")),
    SourceType(("interval",), "text", "1 day 02:00:00", _made("interval", "", "")),
    SourceType(("json", "jsonb"), "text", '{"a": 1.5}', _made("jsonb", "json", "JSON")),
    SourceType(("uuid",), "text", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", _made("uuid", "varchar(36)", "UUID")),
    SourceType(("inet", "integer[]", "int4range", "tsvector", "xml", "point"), "text", "{1,NULL}"),
)
_SOURCES: Final = {"MySQL and MariaDB": MYSQL, "PostgreSQL": POSTGRES}


def _native(dialect: Dialect) -> dict[str, TargetColumn]:
    """The columns that are made for each generic type."""
    is_number = {"bool": Kind.BOOL, "uint": Kind.INT, "decimal": Kind.DECIMAL}
    kinds = {"bytes": Kind.BYTES, "text": Kind.TEXT, "int": Kind.INT, "double": Kind.DOUBLE, **is_number}
    columns = {name: TargetColumn("c", native_type(name, dialect), kind=kind) for name, kind in kinds.items()}

    def change(name: str, **bounds: object) -> None:
        columns[name] = TargetColumn("c", columns[name].type, **bounds)  # type: ignore[arg-type]

    match dialect:
        case Dialect.POSTGRES:
            change("uint", kind=Kind.DECIMAL, size=20, scale=0)
        case Dialect.MYSQL:
            change("uint", kind=Kind.INT, lowest=0, highest=_UNSIGNED)
            change("bool", kind=Kind.INT, lowest=-128, highest=127)
            change("decimal", kind=Kind.DECIMAL, size=65, scale=30)
        case Dialect.SQLITE:
            change("bool", kind=Kind.INT)
            change("decimal", kind=Kind.TEXT)
        case Dialect.DUCKDB:
            change("uint", kind=Kind.INT, lowest=0, highest=_UNSIGNED)
            change("decimal", kind=Kind.TEXT)
    return columns


NATIVE: Final = {dialect: _native(dialect) for dialect in FAMILIES.values()}
"""The columns that are made, as the catalogues show them."""


def _refused(generic: str, dialect: Dialect) -> str:
    if generic == "text" and dialect is Dialect.POSTGRES:
        return "U+0000, invalid text"
    if generic == "text" and dialect is not Dialect.SQLITE:
        return "invalid text"
    return fit(generic, NATIVE[dialect][generic], dialect, key=False).limit


def _table(types: Sequence[SourceType], dialect: Dialect) -> Iterator[str]:
    yield "| source | arrives as | new column | or made beforehand | refused in a new column |"
    yield "|---|---|---|---|---|"
    for one in types:
        names = ", ".join(f"`{name}`" for name in one.names)
        new = native_type(one.generic, dialect).partition(" CHARACTER")[0]
        made = f"`{one.made[dialect]}`" if dialect in one.made else ""
        cells = [names, one.generic, f"`{new}`", made, _refused(one.generic, dialect)]
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def filled(page: str) -> str:
    """The page with the tables, between its marks, written anew."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError("docs/sink-types.md has no place for the tables")
    tables = []
    for source, types in _SOURCES.items():
        for target, dialect in FAMILIES.items():
            tables += [f"## {source} to {target}", "", *_table(types, dialect), ""]
    return "\n".join([before + begin, *tables, end + after]).replace(begin + "\n\n", begin + "\n")


def main(arguments: Sequence[str]) -> int:
    """Write the page; with ``--check`` only report whether it is up to date."""
    page = PAGE.read_text()
    wanted = filled(page)
    if list(arguments) == ["--check"]:
        if page != wanted:
            print("docs/sink-types.md does not show what sinks/sql does: run python -m scripts.sink_types")
        return int(page != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
