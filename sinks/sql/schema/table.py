"""Definitions of target tables, wanted or existing, and the table that a sink wants for a schema. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from sinks.sql.schema.dialect import Dialect, TableName, quoted
from wormhole.model.schema import Schema, free_names

__all__ = ["Kind", "Obstacle", "Options", "TargetColumn", "TargetTable", "definition", "native_type", "wanted"]


class Kind(Enum):
    """The kind of values that a column of a target holds."""

    BYTES = "bytes"
    FIXED_BYTES = "bytes of a fixed length"
    TEXT = "text"
    PADDED = "text without spaces at its end"
    INT = "integers"
    DECIMAL = "decimals"
    DOUBLE = "floating point numbers"
    FLOAT = "floating point numbers of four bytes"
    BOOL = "truth values"
    TEMPORAL = "dates and times"
    JSON = "JSON"
    UUID = "UUIDs"
    MEMBERS = "members of an enumeration"
    OTHER = "values of another type"


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """One column.

    ``type``: the type in DDL. ``cast``: the type without length and digits, because a cast to a type with a length
    truncates silently. ``generic``: for a wanted column, the type in the arriving schema. ``default``: as in DDL.

    The other fields are set for existing columns only. ``size``: the characters, bytes or digits that fit; ``None``: no
    bound that matters. ``scale``: digits after the decimal point, or of a second's fraction. ``lowest``, ``highest``:
    the range of integers. ``exact``: whether only values with the same bytes are equal. ``problem``: why the column
    cannot be written.
    """

    name: str
    type: str
    cast: str = ""
    nullable: bool = True
    default: str = ""
    generic: str = ""
    kind: Kind = Kind.OTHER
    size: int | None = None
    scale: int | None = None
    lowest: int = -(1 << 63)
    highest: int = (1 << 63) - 1
    exact: bool = True
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A property of a table that would refuse or misdirect writes. ``remedy``: the statement that removes it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class TargetTable:
    """``key``: the columns of the primary key. ``unique``: the columns of each other unique index, with the statement
    that drops it. ``key_name``: the name of the constraint in PostgreSQL.
    """

    name: TableName
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    key_name: str = ""
    unique: tuple[tuple[tuple[str, ...], str], ...] = ()
    obstacles: tuple[Obstacle, ...] = ()

    def column(self, name: str) -> TargetColumn | None:
        """The column with this name; if there is none, the one whose name differs only in case."""
        exact = next((column for column in self.columns if column.name == name), None)
        return exact or next((column for column in self.columns if column.name.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class Options:
    """The sink's own columns of a table. ``soft_delete``: whether the table has ``_wormhole_deleted``. ``merge``: how
    several tables of the source share the target. With ``by_source`` the key begins with ``_wormhole_log`` and
    ``_wormhole_table``. With ``global`` keys are unique in all source tables, and ``_wormhole_table`` is a plain
    column.
    """

    soft_delete: bool = False
    merge: Literal["no", "by_source", "global"] = "no"


_TEXT: Final = "text"
_SOURCES: Final = {"no": (), "by_source": ("_wormhole_log", "_wormhole_table"), "global": ("_wormhole_table",)}
_INDEX_BYTES: Final = 3072
"""The bytes of InnoDB's longest key with the default page size."""
_KEY_BYTES: Final = {"int": 8, "uint": 8, "double": 8, "bool": 1, "decimal": 30}
_SHARD_CHARACTERS: Final = 255
_DECIMAL_DIGITS: Final = (65, 30)
"""The most digits of a decimal number in MySQL and MariaDB."""
_BINARY_COLLATION: Final = {Dialect.MYSQL: "utf8mb4_0900_bin", Dialect.MARIADB: "utf8mb4_nopad_bin"}
"""Collations without padding, so that `'a'` and `'a '` are two keys."""

_MYSQL_TYPES: Final = {
    "bytes": "longblob",
    "text": "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "int": "bigint",
    "uint": "bigint unsigned",
    "double": "double",
    "bool": "tinyint(1)",
    "decimal": "decimal({},{})".format(*_DECIMAL_DIGITS),
}
_TYPES: Final[Mapping[Dialect, Mapping[str, str]]] = {
    Dialect.POSTGRES: {
        "bytes": "bytea",
        "text": "text",
        "int": "bigint",
        "uint": "numeric(20,0)",
        "double": "double precision",
        "bool": "boolean",
        "decimal": "numeric",
    },
    Dialect.MYSQL: _MYSQL_TYPES,
    Dialect.MARIADB: _MYSQL_TYPES,
    Dialect.SQLITE: {
        "bytes": "BLOB",
        "text": "TEXT",
        "int": "INTEGER",
        "uint": "INTEGER",
        "double": "REAL",
        "bool": "INTEGER",
        "decimal": "TEXT",
    },
    Dialect.DUCKDB: {
        "bytes": "BLOB",
        "text": "VARCHAR",
        "int": "BIGINT",
        "uint": "UBIGINT",
        "double": "DOUBLE",
        "bool": "BOOLEAN",
        "decimal": "VARCHAR",
    },
}


def native_type(generic: str, dialect: Dialect, key_bytes: int | None = None) -> str:
    """The type of a new column for values of a ``generic`` type. ``key_bytes``: for a column of a key, the bytes that
    it may take in the dialect's index.
    """
    types = _TYPES[dialect]
    generic = generic if generic in types else _TEXT  # `hash` and `entries` are text
    if key_bytes is None or generic not in (_TEXT, "bytes"):
        return types[generic]
    if dialect is Dialect.POSTGRES and generic == _TEXT:
        return 'text COLLATE "C"'
    if not dialect.is_mysql:
        return types[generic]
    if generic == "bytes":
        return f"varbinary({key_bytes})"
    return f"varchar({key_bytes // 4}) CHARACTER SET utf8mb4 COLLATE {_BINARY_COLLATION[dialect]}"


def wanted(schema: Schema, name: TableName, dialect: Dialect, options: Options) -> TargetTable:
    """The table that holds rows of ``schema``: columns of the key, other columns, columns of the sink's own.

    A name of the source that begins with ``_``, or that differs from another only in case, gets an ``_`` at its end.
    """
    generic = {column.name: column.type for column in (*schema.key, *schema.columns)}
    names = free_names(generic)
    sources = _SOURCES[options.merge]
    own_key = sources if options.merge == "by_source" and schema.key else ()
    key = {**dict.fromkeys(own_key, _TEXT), **{names[column.name]: column.type for column in schema.key}}
    share = _share(key.values())
    columns = [_column(target, type_, dialect, share) for target, type_ in key.items()]
    columns += [_column(names[source], type_, dialect) for source, type_ in generic.items() if names[source] not in key]
    columns += [_own(own, _TEXT, "''", dialect) for own in sources if own not in own_key]
    columns.append(_own("_wormhole_shard", _TEXT, "''", dialect))
    columns.append(_own("_wormhole_generation", "int", "0", dialect))
    if options.soft_delete:
        columns.append(_own("_wormhole_deleted", "bool", "false", dialect))
    return TargetTable(name, tuple(columns), tuple(key))


def definition(column: TargetColumn, dialect: Dialect) -> str:
    """A column in DDL."""
    words = [quoted(column.name, dialect), column.type]
    if not column.nullable:
        words.append("NOT NULL")
    if column.default:
        words.append(f"DEFAULT {column.default}")
    return " ".join(words)


def _column(name: str, generic: str, dialect: Dialect, key_bytes: int | None = None) -> TargetColumn:
    type_ = native_type(generic, dialect, key_bytes)
    return TargetColumn(name, type_, _without_size(type_), key_bytes is None, generic=generic)


def _own(name: str, generic: str, default: str, dialect: Dialect) -> TargetColumn:
    type_ = native_type(generic, dialect, 4 * _SHARD_CHARACTERS)
    return TargetColumn(name, type_, _without_size(type_), False, default, generic)


def _without_size(type_: str) -> str:
    return type_.partition("(")[0].partition(" COLLATE")[0]


def _share(types: Collection[str]) -> int:
    """The bytes that an index has for each column of the key whose values have no fixed length."""
    fixed = sum(_KEY_BYTES.get(type_, 0) for type_ in types)
    free = sum(type_ not in _KEY_BYTES for type_ in types)
    return (_INDEX_BYTES - fixed) // max(1, free)
