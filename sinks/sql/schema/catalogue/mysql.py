"""Reads a table's definition from the information schema of MySQL and MariaDB."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from sinks.sql.schema.catalogue.run import Run, key_of, not_a_table
from sinks.sql.schema.dialect import Dialect, TableName, quoted
from sinks.sql.schema.table import Kind, Obstacle, TargetColumn, TargetTable

__all__ = ["read_mysql"]

_WHERE: Final = "table_schema = COALESCE(%s, DATABASE()) AND table_name = %s"
_TABLE: Final = f"SELECT table_type, engine FROM information_schema.tables WHERE {_WHERE}"  # noqa: S608
_COLUMNS: Final = f"""
SELECT column_name, column_type, data_type, character_maximum_length, numeric_precision, numeric_scale,
    datetime_precision, is_nullable, column_default, extra, collation_name
FROM information_schema.columns WHERE {_WHERE} ORDER BY ordinal_position"""  # noqa: S608
_INDEXES: Final = f"""
SELECT index_name, COALESCE(column_name, '(an expression)'), sub_part FROM information_schema.statistics
WHERE {_WHERE} AND non_unique = 0 ORDER BY index_name, seq_in_index"""  # noqa: S608
_FOREIGN_KEYS: Final = """
SELECT constraint_name FROM information_schema.referential_constraints
WHERE constraint_schema = COALESCE(%s, DATABASE()) AND table_name = %s"""
_ENGINES: Final = frozenset({"innodb", "rocksdb", "ndbcluster"})

_KINDS: Final = {
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob", "varbinary"), Kind.BYTES),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext", "varchar"), Kind.TEXT),
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"), Kind.INT),
    **dict.fromkeys(("date", "time", "datetime", "timestamp"), Kind.TEMPORAL),
    **dict.fromkeys(("enum", "set"), Kind.MEMBERS),
    "binary": Kind.FIXED_BYTES,
    "char": Kind.PADDED,
    "decimal": Kind.DECIMAL,
    "double": Kind.DOUBLE,
    "float": Kind.FLOAT,
    "json": Kind.JSON,
    "uuid": Kind.UUID,
}
_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_YEARS: Final = (1901, 2155)
_UNBOUNDED: Final = 1 << 31  # bytes; a length above this is no limit, because a message to the server is shorter


def read_mysql(run: Run, name: TableName) -> TargetTable | None:
    """See :func:`~sinks.sql.schema.catalogue.actual`."""
    place = (name.schema, name.table)
    found = run(_TABLE, place)
    if not found:
        return None
    ((kind, engine),) = found
    if kind != "BASE TABLE":
        raise not_a_table(name, str(kind).lower())
    columns = tuple(_column(*row) for row in run(_COLUMNS, place))
    table = name.quoted(Dialect.MYSQL)
    primary: tuple[str, ...] = ()
    key_name, unique, usable = "", [], []
    for index, rows in groupby(run(_INDEXES, place), key=lambda row: row[0]):
        parts = list(rows)
        names = tuple(column for _, column, _ in parts)
        is_whole = all(part is None for _, _, part in parts)
        if index == "PRIMARY" and is_whole:
            primary, key_name = names, index
            continue
        shown = names if is_whole else (*names, "(beginnings)")
        unique.append((shown, f"ALTER TABLE {table} DROP INDEX {quoted(index, Dialect.MYSQL)}"))
        if is_whole:
            usable.append(names)
    obstacles = [
        Obstacle(
            f"it has the foreign key {constraint}, and rows of other tables arrive later",
            f"ALTER TABLE {table} DROP FOREIGN KEY {quoted(constraint, Dialect.MYSQL)}",
        )
        for (constraint,) in run(_FOREIGN_KEYS, place)
    ]
    if str(engine).lower() not in _ENGINES:
        obstacles.append(Obstacle(f"its engine {engine} has no transactions", f"ALTER TABLE {table} ENGINE = InnoDB"))
    key = key_of(primary, usable, (column.name for column in columns if not column.nullable))
    return TargetTable(name, columns, key, key_name, tuple(unique), tuple(obstacles))


def _column(
    name: str,
    type_: str,
    data_type: str,
    characters: int | None,
    precision: int | None,
    scale: int | None,
    digits: int | None,
    nullable: str,
    default: str | None,
    extra: str,
    collation: str | None,
) -> TargetColumn:
    data_type = data_type.lower()
    kind = _KINDS.get(data_type, Kind.OTHER)
    lowest, highest = _range(data_type, type_, precision)
    bounds: dict[str, Any] = {"size": None, "scale": digits}
    if kind is Kind.DECIMAL:
        bounds = {"size": int(precision or 0), "scale": int(scale or 0)}
    elif kind is Kind.DOUBLE and scale is not None:
        bounds["scale"] = int(scale)
    elif characters is not None and int(characters) < _UNBOUNDED:
        bounds["size"] = int(characters)
    words = f" {extra.upper()}"
    return TargetColumn(
        name,
        type_ if collation is None else f"{type_} COLLATE {collation}",
        nullable=nullable == "YES",
        default=default if default is not None else "by the server" if "AUTO_INCREMENT" in words else "",
        kind=kind,
        lowest=lowest,
        highest=highest,
        exact=collation is None or collation.endswith(("_nopad_bin", "_0900_bin")) or kind is Kind.MEMBERS,
        problem="is generated" if " GENERATED" in words else "",
        **bounds,
    )


def _range(data_type: str, type_: str, precision: int | None) -> tuple[int, int]:
    if data_type == "bit":
        return 0, (1 << int(precision or 1)) - 1
    if data_type == "year":
        return _YEARS
    bits = _BITS.get(data_type, 64)
    return (0, (1 << bits) - 1) if "unsigned" in type_ else (-(1 << bits - 1), (1 << bits - 1) - 1)
