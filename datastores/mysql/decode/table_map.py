"""Parses table maps: a table's columns, and the layout by which `row_image` decodes its rows.

The layout of the body, from MySQL's documentation of ``Table_map_event`` (MariaDB adds types of its own)::

    body     := table_id (6) flags (2) database (1-byte length, text, 0) table (same form) columns (packed)
                types (1 each) metadata (packed length, bytes) nullable (bitmap) optional*
    optional := type (1) length (packed) value      the types are listed below; an unknown one is skipped

``packed`` is a length-encoded integer. Bits of signedness and visibility begin with the highest bit of a byte.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from datastores.mysql.decode import kinds, old_temporal
from datastores.mysql.decode.charsets import ERRORS, codec_of
from datastores.mysql.decode.cursor import Cursor
from wormhole.model.errors import DecodeError
from wormhole.model.schema import Column, Schema

__all__ = [
    "LONGLONG",
    "OLD_TEMPORAL",
    "TIMESTAMP2",
    "ColumnMap",
    "Layout",
    "TableMap",
    "parse_table_map",
    "schema_of",
    "type_name",
]

_DECIMAL, _TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _TIMESTAMP = 0, 1, 2, 3, 4, 5, 7
_LONGLONG, _INT24, _DATE, _TIME, _DATETIME, _YEAR, _NEWDATE = 8, 9, 10, 11, 12, 13, 14
_VARCHAR, _BIT, _TIMESTAMP2, _DATETIME2, _TIME2 = 15, 16, 17, 18, 19
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED = 140, 141
TIMESTAMP2: Final = _TIMESTAMP2
"""The type of a TIMESTAMP in table maps."""
LONGLONG: Final = _LONGLONG
"""The type of a BIGINT in table maps."""
OLD_TEMPORAL: Final = {_TIME: old_temporal.TIME, _DATETIME: old_temporal.DATETIME, _TIMESTAMP: old_temporal.TIMESTAMP}
"""Types of before MySQL 5.6 and MariaDB 10.1.2. MariaDB's may have a fraction, which table maps do not contain."""
_VECTOR, _JSON, _NEWDECIMAL, _ENUM, _SET = 242, 245, 246, 247, 248
_TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB, _VAR_STRING, _STRING, _GEOMETRY = 249, 250, 251, 252, 253, 254, 255

_NAMES: Final = {
    _DECIMAL: "DECIMAL of before 5.0",
    _TINY: "TINYINT",
    _SHORT: "SMALLINT",
    _LONG: "INT",
    _FLOAT: "FLOAT",
    _DOUBLE: "DOUBLE",
    6: "NULL",
    _TIMESTAMP: "TIMESTAMP of before 5.6",
    _LONGLONG: "BIGINT",
    _INT24: "MEDIUMINT",
    _DATE: "DATE",
    _TIME: "TIME of before 5.6",
    _DATETIME: "DATETIME of before 5.6",
    _YEAR: "YEAR",
    _NEWDATE: "DATE",
    _VARCHAR: "VARCHAR",
    _BIT: "BIT",
    _TIMESTAMP2: "TIMESTAMP",
    _DATETIME2: "DATETIME",
    _TIME2: "TIME",
    20: "typed array",
    _BLOB_COMPRESSED: "compressed BLOB",
    _VARCHAR_COMPRESSED: "compressed VARCHAR",
    _VECTOR: "VECTOR",
    _JSON: "JSON",
    _NEWDECIMAL: "DECIMAL",
    _ENUM: "ENUM",
    _SET: "SET",
    _TINY_BLOB: "BLOB",
    _MEDIUM_BLOB: "BLOB",
    _LONG_BLOB: "BLOB",
    _BLOB: "BLOB",
    _VAR_STRING: "VARCHAR",
    _STRING: "CHAR",
    _GEOMETRY: "GEOMETRY",
}
_ONE_BYTE: Final = frozenset(
    {_FLOAT, _DOUBLE, _TIMESTAMP2, _DATETIME2, _TIME2, _BLOB_COMPRESSED, _VECTOR, _JSON}
    | {_TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB, _GEOMETRY}
)
_TWO_BYTES: Final = frozenset({_VARCHAR, _VARCHAR_COMPRESSED, _VAR_STRING, _BIT})
_TWO_BYTES_HIGH_FIRST: Final = frozenset({_NEWDECIMAL, _ENUM, _SET, _STRING})
# Both servers write a bit for YEAR and for the DECIMAL of before 5.0, although it has no meaning. Without these types
# here, every later column would get another column's bit.
_SIGNED: Final = frozenset({_DECIMAL, _TINY, _SHORT, _INT24, _LONG, _LONGLONG, _YEAR, _FLOAT, _DOUBLE, _NEWDECIMAL})
_BLOBS: Final = frozenset({_TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB})
_CHARACTER: Final = _BLOBS | {_STRING, _VAR_STRING, _VARCHAR, _VECTOR, _BLOB_COMPRESSED, _VARCHAR_COMPRESSED}
_MEMBERS: Final = frozenset({_ENUM, _SET})
_INTEGER_SIZE: Final = {_TINY: 1, _SHORT: 2, _INT24: 3, _LONG: 4, _LONGLONG: 8}

_BINARY: Final = 63
"""The collation of bytes."""
_MOST_COLUMNS: Final = 4096
"""MySQL's and MariaDB's own limit of columns in a table."""


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """One column. ``type``: the real type, such as ENUM for a column that is logged as a CHAR.

    ``meta``: for strings the most bytes of a value, for `OLD_TEMPORAL` the digits of the fraction, otherwise as in the
    event. ``collation``: its number; 0: none. ``members``: of an ENUM or SET. ``hidden``: neither a SELECT nor an
    update has the column.
    """

    name: str
    type: int
    meta: int
    nullable: bool = True
    unsigned: bool = False
    collation: int = 0
    members: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table's description in the log. ``key``: positions of the primary key's columns, in the key's order.

    ``has_names``: the log has the columns' names (``binlog_row_metadata=FULL``). Otherwise the optional metadata has
    only signedness and charsets.
    """

    table_id: int
    database: str
    table: str
    columns: tuple[ColumnMap, ...]
    key: tuple[int, ...]
    has_names: bool

    @property
    def name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"


def type_name(kind: int) -> str:
    """A column type's name, for messages."""
    return _NAMES.get(kind, f"type {kind}")


def parse_table_map(body: bytes, mariadb: bool = False) -> TableMap:
    """Parse a table map event without header and checksum.

    ``mariadb``: whether MariaDB wrote it; there a GEOMETRY column has a charset. Raises :class:`DecodeError` with table
    and field.
    """
    cursor = Cursor(body, "TABLE_MAP event")
    table_id = cursor.number(6, "table id")
    cursor.number(2, "flags")
    database = _name(cursor, "database name")
    table = _name(cursor, "table name")
    cursor.what = f"TABLE_MAP event of {database}.{table}"
    count = cursor.length("number of columns")
    if not 0 < count <= _MOST_COLUMNS:
        raise DecodeError(f"{cursor.what}: it claims {count} columns")
    types = cursor.take(count, "column types")
    size = cursor.length("length of the column metadata")
    metadata = Cursor(body, cursor.what, cursor.at, cursor.at + size)
    cursor.take(size, "column metadata")
    shapes = [_shape(kind, metadata) for kind in types]
    if metadata.left:
        raise DecodeError(f"{cursor.what}: {metadata.left} bytes of column metadata are left over")
    nullable = cursor.take((count + 7) // 8, "nullable columns")
    optional = _Optional([kind for kind, _ in shapes], mariadb)
    while cursor.left:
        field = cursor.number(1, "type of optional metadata")
        length = cursor.length("length of optional metadata")
        part = Cursor(body, cursor.what, cursor.at, cursor.at + length)
        cursor.take(length, "optional metadata")
        optional.read(field, part)
    columns = tuple(
        ColumnMap(
            optional.names[i] if optional.names else "",
            kind,
            meta,
            bool(nullable[i // 8] >> i % 8 & 1),
            optional.unsigned.get(i, False),
            optional.collations.get(i, 0),
            _members(optional.members.get(i, ()), optional.collations.get(i, 0)),
        )
        for i, (kind, meta) in enumerate(shapes)
    )
    return TableMap(table_id, database, table, columns, tuple(optional.key), bool(optional.names))


def _name(cursor: Cursor, field: str) -> str:
    name = cursor.text(cursor.number(1, field), field)
    cursor.take(1, field)
    return name


def _shape(kind: int, metadata: Cursor) -> tuple[int, int]:
    """The real type and the metadata of a column."""
    if kind in _ONE_BYTE:
        return kind, metadata.number(1, "column metadata")
    if kind in _TWO_BYTES:
        return kind, metadata.number(2, "column metadata")
    if kind in _TWO_BYTES_HIGH_FIRST:
        high, low = metadata.take(2, "column metadata")
        if kind == _NEWDECIMAL:
            return kind, high << 8 | low
        # Bits 4 and 5 of the real type are always set. In their place are bits 8 and 9 of the length, inverted.
        real = high | 0x30
        return (real if real in _MEMBERS else _STRING), low | ((high & 0x30) ^ 0x30) << 4
    if kind not in _NAMES or kind == 20:
        raise DecodeError(
            f"{metadata.what}: a column has type {kind}, which is not known",
            hint="look for a newer release of Wormhole, or keep the table out of the binlog",
            code="release-too-old",
        )
    return kind, 0


def _members(raw: Sequence[bytes], collation: int) -> tuple[str, ...]:
    codec = codec_of(collation)
    if codec is None:  # bytes, or a collation unknown to this release
        return tuple(member.decode("utf-8", "backslashreplace") for member in raw)
    return tuple(member.decode(codec, ERRORS) for member in raw)


class _Optional:
    """Optional metadata, by column position."""

    def __init__(self, types: list[int], mariadb: bool) -> None:
        self._types = types
        self._character = self._those(_CHARACTER | {_GEOMETRY} if mariadb else _CHARACTER)
        self.names: list[str] = []
        self.key: list[int] = []
        self.unsigned: dict[int, bool] = {}
        self.collations: dict[int, int] = {}
        self.members: dict[int, list[bytes]] = {}

    def read(self, field: int, part: Cursor) -> None:
        """Read one entry. Unknown entries are skipped, and so are geometry types (7), visibility (12) and vector
        dimensions (13), which are not needed."""
        match field:
            case 1:
                self.unsigned = self._signedness(part)
            case 2:
                self._default_charset(part, self._character)
            case 3:
                self._column_charset(part, self._character)
            case 4:
                self.names = []
                while part.left:
                    self.names.append(part.text(part.length("column name"), "column name"))
                if len(self.names) != len(self._types):
                    raise DecodeError(f"{part.what}: {len(self.names)} names for {len(self._types)} columns")
            case 5:
                self._strings(part, self._those({_SET}))
            case 6:
                self._strings(part, self._those({_ENUM}))
            case 8 | 9:
                self._primary_key(part, prefixes=field == 9)
            case 10:
                self._default_charset(part, self._those(_MEMBERS))
            case 11:
                self._column_charset(part, self._those(_MEMBERS))
            case _:
                return
        if part.left:  # values for other columns than these, so every value would be assigned wrongly
            raise DecodeError(f"{part.what}: {part.left} bytes of optional metadata of type {field} are left over")

    def _those(self, types: AbstractSet[int]) -> list[int]:
        """Positions of the columns of these types."""
        return [i for i, kind in enumerate(self._types) if kind in types]

    def _signedness(self, part: Cursor) -> dict[int, bool]:
        positions = self._those(_SIGNED)
        data = part.take((len(positions) + 7) // 8, "signedness")
        return {position: bool(data[i // 8] >> (7 - i % 8) & 1) for i, position in enumerate(positions)}

    def _primary_key(self, part: Cursor, *, prefixes: bool) -> None:
        self.key = []
        while part.left:
            position = part.length("primary key")
            if position >= len(self._types):
                raise DecodeError(f"{part.what}: the primary key has column {position} of {len(self._types)}")
            self.key.append(position)
            if prefixes:
                part.length("primary key's prefix")

    def _default_charset(self, part: Cursor, positions: list[int]) -> None:
        default = part.length("default charset")
        self.collations.update(dict.fromkeys(positions, default))
        while part.left:
            index = part.length("column of a charset")
            if index >= len(positions):
                raise DecodeError(f"{part.what}: a charset for column {index} of {len(positions)} that have one")
            self.collations[positions[index]] = part.length("charset")

    def _column_charset(self, part: Cursor, positions: list[int]) -> None:
        self.collations.update({position: part.length("charset") for position in positions})

    def _strings(self, part: Cursor, positions: list[int]) -> None:
        for position in positions:
            count = part.length("number of members")
            if count > part.left:
                raise DecodeError(f"{part.what}: {count} members in {part.left} bytes")
            self.members[position] = [part.take(part.length("member"), "member") for _ in range(count)]


def _ascii_safe(codec: str) -> bool:
    ascii_bytes = bytes(range(0x80))
    try:
        return ascii_bytes.decode(codec) == ascii_bytes.decode("ascii")
    except UnicodeDecodeError:
        return False


def _string(column: ColumnMap, length_bytes: int) -> tuple[int, int, str | None]:
    codec = None if column.collation == _BINARY else codec_of(column.collation)
    if codec is None:
        if column.type == _STRING and column.collation == _BINARY:
            return kinds.PADDED, length_bytes | column.meta << 8, None
        return kinds.BYTES, length_bytes, None
    if codec in {"utf-8", "ascii"}:
        return kinds.TEXT, length_bytes, codec
    return kinds.CODED, length_bytes | (kinds.ASCII_SAFE if _ascii_safe(codec) else 0), codec


_FIXED: Final = {
    _FLOAT: kinds.FLOAT,
    _DOUBLE: kinds.DOUBLE,
    _TIMESTAMP: kinds.TIMESTAMP,
    _DATE: kinds.DATE,
    _NEWDATE: kinds.DATE,
    _TIME: kinds.TIME,
    _DATETIME: kinds.DATETIME,
    _YEAR: kinds.YEAR,
}
_FRACTION: Final = {_TIMESTAMP2: kinds.TIMESTAMP2, _DATETIME2: kinds.DATETIME2, _TIME2: kinds.TIME2}


def _plan(column: ColumnMap) -> tuple[int, int, str | None]:
    """Kind, meta and codec of a column; `kinds.UNKNOWN`: it cannot be decoded, for example because of its metadata."""
    kind, meta = column.type, column.meta
    if column.hidden:
        return kinds.HIDDEN, _INTEGER_SIZE[kind], None
    if kind in _INTEGER_SIZE:
        return (kinds.UINT if column.unsigned else kinds.INT), _INTEGER_SIZE[kind], None
    if kind in OLD_TEMPORAL and 0 < meta <= 6:
        return kinds.OLD, OLD_TEMPORAL[kind] * 8 + meta, None
    if kind in _FIXED:
        return _FIXED[kind], 0, None
    if kind in _FRACTION and meta <= 6:
        return _FRACTION[kind], meta, None
    if kind == _NEWDECIMAL and 0 < meta >> 8 <= 65 and meta & 0xFF <= min(meta >> 8, 38):
        return kinds.DECIMAL, meta, None
    if kind in {_VARCHAR, _VAR_STRING, _STRING}:
        return _string(column, 2 if meta > 255 else 1)
    if kind in _BLOBS and 1 <= meta <= 4:
        return _string(column, meta)
    if kind in {_GEOMETRY, _VECTOR} and 1 <= meta <= 4:
        return kinds.BYTES, meta, None
    if kind == _JSON and 1 <= meta <= 4:
        return kinds.JSON, meta, None
    if kind == _VARCHAR_COMPRESSED or (kind == _BLOB_COMPRESSED and 1 <= meta <= 4):
        length_bytes = meta if kind == _BLOB_COMPRESSED else 2 if meta > 255 else 1
        return kinds.COMPRESSED, length_bytes, None if column.collation == _BINARY else codec_of(column.collation)
    if kind == _ENUM and meta in {1, 2}:
        return kinds.ENUM, meta, None
    if kind == _SET and 1 <= meta <= 8:
        return kinds.SET, meta, None
    if kind == _BIT and 0 < (meta & 0xFF) + 8 * (meta >> 8) <= 64 and meta & 0xFF <= 7:
        return kinds.BIT, (meta >> 8) + (meta & 0xFF > 0), None
    return kinds.UNKNOWN, 0, None


class Layout:
    """How a table's rows are decoded, by column: ``kinds`` and ``metas`` (see `datastores.mysql.decode.kinds`),
    ``codecs`` (empty: none), ``members`` (UTF-8), ``names`` and ``types``.

    ``key``: see `TableMap`. ``table``: ``database.table``.
    """

    def __init__(self, table_map: TableMap) -> None:
        plans = [_plan(column) for column in table_map.columns]
        self.table = table_map.name
        self.key = table_map.key
        self.kinds = array("B", [kind for kind, _, _ in plans])
        self.metas = array("I", [meta for _, meta, _ in plans])
        self.codecs = [codec or "" for _, _, codec in plans]
        self.members = [[member.encode() for member in column.members] for column in table_map.columns]
        self.names = [column.name for column in table_map.columns]
        self.types = [type_name(column.type) for column in table_map.columns]


_SCHEMA_TYPE: Final = {
    kinds.INT: "int",
    kinds.YEAR: "int",
    kinds.BIT: "uint",
    kinds.DOUBLE: "double",
    kinds.FLOAT: "double",
    kinds.DECIMAL: "decimal",
    kinds.BYTES: "bytes",
    kinds.PADDED: "bytes",
    kinds.UNKNOWN: "bytes",
}


def schema_of(table_map: TableMap) -> Schema:
    """The schema for subscribers: the key's columns, and all columns in the table's order."""
    columns: dict[int, Column] = {}
    for i, column in enumerate(table_map.columns):
        kind, meta, codec = _plan(column)
        if kind == kinds.HIDDEN:
            continue
        if kind == kinds.UINT:
            type_ = "uint" if meta == 8 else "int"
        elif kind == kinds.COMPRESSED:
            type_ = "text" if codec else "bytes"
        else:
            type_ = _SCHEMA_TYPE.get(kind, "text")
        columns[i] = Column(column.name, type_)
    return Schema(table_map.name, tuple(columns[i] for i in table_map.key), tuple(columns.values()))
