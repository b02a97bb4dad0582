"""Archive rows as columns of a table: ``spark_replay.rows(df, table)``, for static and streaming DataFrames."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay import frames
from spark_replay.archive.arrays import ends_of
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.tables.columns import TableColumn, arrow_type, converter, parse_type, unite
from spark_replay.tables.schemas import attach, lookup, schemas_of
from spark_replay.tables.selection import EARLIEST, LATEST, select
from wormhole.formats import ABSENT, COMPOSITE, BadValue, FormatSpec, open_formats
from wormhole.model.errors import ArchiveError, DecodeError, UsageError
from wormhole.model.schema import Schema, free_names
from wormhole.model.values import Op, Value
from wormhole.wire.arrow_message import Message
from wormhole.wire.cells import DECIMAL, ENTRIES, Cells, Layout, pairs, width_of
from wormhole.wire.columns import bits_of_bytes, empty, kinds_of, unavailable
from wormhole.wire.rows import number_of_op

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NEEDED", "Decoding", "decoding", "needed", "read", "rows", "without"]

_VALUE: Final = "value"  # a store of bytes has one column of this name
NEEDED: Final = ("shard", "place", "tx_source", "tx_number", "tx_index", "op", "committed_at", "schema_id", "update")
"""The columns of the archive from which the changes of a table are decoded."""
_KNOWN: Final = bytes(map(number_of_op, Op))
_MERGE: Final = number_of_op(Op.MERGE)
# Operations without an image, and kinds of cells without a value. They are used to map bytes to 1 or 0.
_WITHOUT_IMAGE: Final = frozenset(map(number_of_op, (Op.DELETE, Op.TRUNCATE, Op.DELETE_RANGE)))
_NO_IMAGE: Final = bytes(number in _WITHOUT_IMAGE for number in range(256))
_ABSENT: Final = b"\1" + bytes(255)
# By the type of a column: kinds of cells whose values already have this type, with the Arrow type to read them as.
_AS_THEY_ARE: Final[Mapping[str, Mapping[int, pa.DataType]]] = {
    "bytes": {1: pa.binary(), 2: pa.binary(), DECIMAL: pa.binary()},
    "text": {2: pa.string(), DECIMAL: pa.string()},
    "int": {3: pa.int64()},
    "uint": {4: pa.uint64(), 3: pa.int64()},
    "double": {5: pa.float64()},
    "bool": {6: pa.bool_()},
    "decimal": {DECIMAL: pa.string(), 2: pa.string()},
    "entries": {ENTRIES: pa.map_(pa.binary(), pa.binary())},
}
_PLAIN: Final = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?|NaN|-?Infinity)$"
_FIELDS: Final[Mapping[str, pa.DataType]] = {
    "_op": pa.string(),
    "_shard": pa.string(),
    "_place": pa.binary(),
    "_tx": pa.string(),
    "_index": pa.int32(),
    "_committed_at": pa.timestamp("us", tz="UTC"),
    "_unavailable": pa.list_(pa.string()),
}


def read(
    spark: SparkSession,
    store: ArchiveStore,
    shards: Collection[str] = (),
    *,
    start: Asked = EARLIEST,
    until: Asked = LATEST,
) -> DataFrame:
    """The updates of an archive, in no order: the archive's columns and ``shard``. ``shards``: the shards to read;
    empty: all.

    Raises :class:`~wormhole.model.errors.UsageError`, :class:`~wormhole.model.errors.ReplayError` for a range that the
    archive does not hold, and :class:`~wormhole.model.errors.ArchiveError`.
    """
    selection = select(store, shards, start, until)
    return attach(frames.read(spark, store, selection.shards), selection.schemas)


def rows(
    df: DataFrame,
    table: str,
    *,
    before: bool = False,
    types: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
    value_format: FormatSpec | str | None = None,
) -> DataFrame:
    """The changes of ``table`` in archive rows ``df``, with the table's columns; one row per change, in no order.

    ``types``: requested types of columns (``{"price": "decimal(18,2)"}``). ``fields``: named fields of a store's values
    with their types (``{"customer.city": "text"}``), which are read by ``value_format``. ``before``: add a column
    ``_before`` with the row before the change, if the log has it. Columns of ``df`` that begin with ``_`` are kept.
    Raises :class:`~wormhole.model.errors.UsageError` for a table that ``df`` does not have.
    """
    plan = decoding(schemas_of(df), table, before=before, types=types, fields=fields, value_format=value_format)
    from pyspark.sql.pandas.types import from_arrow_schema

    given = needed(df, table)
    shape = from_arrow_schema(plan.shape())
    for one in given.schema.fields:
        if one.name.startswith("_"):
            shape.add(one)
    return given.mapInArrow(plan.batches, shape)


def needed(df: DataFrame, table: str) -> DataFrame:
    """The table's rows in the archive, with columns that :class:`Decoding` needs and those that begin with ``_``."""
    import pyspark.sql.functions as f

    kept = [name for name in df.columns if name.startswith("_")]
    return df.where(f.col("table") == table).select(*NEEDED, *kept)


def without(shape: pa.Schema, *names: str) -> pa.Schema:
    """The columns without ``names``."""
    return pa.schema([field for field in shape if field.name not in names])


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decodes rows of one table to columns. It is sent to the executors. ``fields``: the fields of the values, by
    path.
    """

    schemas: tuple[Schema, ...]
    columns: tuple[TableColumn, ...]
    fields: tuple[TableColumn, ...] = ()
    value_format: FormatSpec | None = None
    before: bool = False

    @property
    def of_key(self) -> tuple[TableColumn, ...]:
        """The columns that are in the key of some schema."""
        names = {column.name for schema in self.schemas for column in schema.key}
        return tuple(column for column in self.columns if column.name in names)

    @property
    def order(self) -> tuple[str, ...]:
        """The names in Parquet of the columns of the newest key, in its order."""
        shown = {column.name: column.shown for column in self.columns}
        key = next((schema.key for schema in reversed(self.schemas) if schema.key), ())
        return tuple(shown[column.name] for column in key)

    def shape(self) -> pa.Schema:
        """The columns of the result, without the columns of the input that are kept."""
        key = pa.struct([_field(column) for column in self.of_key])
        given = [_field(column) for column in (*self.columns, *self.fields)]
        given += [pa.field(name, kind) for name, kind in _FIELDS.items()]
        if self.of_key:
            given += [pa.field("_old_key", key), pa.field("_key_end", key)]
        if self.fields:
            given.append(pa.field("_bad_value", pa.string()))
        if self.before:
            given.append(pa.field("_before", pa.struct([_field(column) for column in self.columns])))
            given.append(pa.field("_before_unavailable", pa.list_(pa.string())))
        return pa.schema(given)

    def batches(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode the rows, batch by batch."""
        reader = _Reader(self)
        for batch in given:
            yield from reader.read(batch)


def decoding(
    schemas: Sequence[Schema],
    table: str,
    *,
    before: bool = False,
    types: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
    value_format: FormatSpec | str | None = None,
    only: Collection[Schema] = (),
) -> Decoding:
    """The decoding of :func:`rows`, determined without Spark. ``only``: see
    :func:`~spark_replay.tables.columns.unite`. Raises as :func:`rows`.
    """
    own = tuple(schema for schema in schemas if schema.table == table)
    if not own:
        known = ", ".join(sorted({schema.table for schema in schemas})) or "none"
        raise UsageError(f"the archive has no table {table} here", hint=f"its tables are {known}")
    columns = unite(own, types, only=only)
    if not fields:
        return Decoding(own, columns, before=before)
    spec = value_format if isinstance(value_format, FormatSpec) else _spec(value_format)
    if not any(column.name == _VALUE and column.type == "bytes" for column in columns):
        raise UsageError(f"fields are read out of a store's values; the rows of {table} have columns of their own")
    shown = free_names([*(column.shown for column in columns), *(path.replace(".", "_") for path in fields)])
    named = tuple(TableColumn(path, shown[path.replace(".", "_")], parse_type(kind)) for path, kind in fields.items())
    return Decoding(own, columns, named, spec, before)


def _spec(text: str | None) -> FormatSpec:
    if text is None:
        raise UsageError(
            "it is not known what the values hold", hint="give value_format, or configure it for the dataset"
        )
    try:
        return FormatSpec.from_text(text)
    except ValueError as error:
        raise UsageError(f"value_format {error}") from error


def _field(column: TableColumn) -> pa.Field:
    return pa.field(column.shown, arrow_type(column.type))


class _Reader:
    """Decodes the rows of one task. Decoders are opened here, because they cannot be sent to executors."""

    def __init__(self, plan: Decoding) -> None:
        self._plan = plan
        self._schema_of = lookup(plan.schemas)
        self._shape = plan.shape()
        self._convert = {column.name: converter(column.type) for column in plan.columns}
        self._fields = [(column, converter(column.type)) for column in plan.fields]
        self._paths = [tuple(column.name.split(".")) for column in plan.fields]
        self._decoder = open_formats(plan.value_format, {}).of("") if plan.value_format else None
        self._layouts: dict[int, Layout] = {}

    def read(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Decode a batch. The rows of each schema are a batch of their own."""
        ids = batch.column("schema_id")
        found = ids.unique().to_pylist()
        for schema_id in found:
            part = batch if len(found) == 1 else batch.filter(pc.equal(ids, schema_id))
            yield self._read(part, self._schema_of(schema_id))

    def _read(self, batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
        plan, count = self._plan, batch.num_rows
        layout = self._layouts.get(schema.id)
        if layout is None:
            layout = self._layouts[schema.id] = Layout.of(schema, before=plan.before)
        cells = _cells(batch.column("update"), layout)
        own, keys = len(layout.names), len(schema.key)
        columns = _Columns(cells, schema, self._convert)
        places = _places(schema)
        mine = [columns.add(column, places.get(column.name)) for column in plan.columns]
        rows: dict[str, tuple[int, list[int]]] = {}
        if plan.of_key:
            of_key = {column.name: i for i, column in enumerate(schema.key)}
            for name, begin in (("_old_key", own + keys), ("_key_end", own + 2 * keys)):
                within = {key: begin + i for key, i in of_key.items()}
                rows[name] = begin, [columns.add(column, within.get(column.name)) for column in plan.of_key]
        made = {"_unavailable": _unavailable(cells, [places.get(column.name) for column in plan.columns], plan)}
        if plan.before:
            begin = own + 3 * keys
            within = {column.name: begin + i for i, column in enumerate(schema.columns)}
            wanted = [within.get(column.name) for column in plan.columns]
            rows["_before"] = (
                begin,
                [columns.add(column, place) for column, place in zip(plan.columns, wanted, strict=True)],
            )
            there = cells.kinds[begin * count : (begin + 1) * count]
            made["_before_unavailable"] = _unavailable(cells, wanted, plan, there)
        if plan.fields:
            made |= self._read_fields(cells)
        arrays = columns.made()
        made |= {column.shown: arrays[slot] for column, slot in zip(plan.columns, mine, strict=True)}
        for name, (begin, slots) in rows.items():
            kind = self._shape.field(name).type
            if not schema.key and name != "_before":
                made[name] = pa.nulls(count, kind)
                continue
            valid = bytearray((count + 7) // 8)
            bits_of_bytes(cells.kinds, begin * count, count, valid, 0)
            children = [arrays[slot] for slot in slots]
            made[name] = pa.Array.from_buffers(kind, count, [pa.py_buffer(valid)], children=children)
        number = batch.column("tx_number").view(pa.uint64()).cast(pa.string())
        made["_tx"] = pc.binary_join_element_wise(batch.column("tx_source").cast(pa.string()), number, ":")
        for name in ("op", "shard", "place", "committed_at"):
            made[f"_{name}"] = batch.column(name)
        made["_index"] = batch.column("tx_index")
        kept = [name for name in batch.schema.names if name.startswith("_")]
        fields = [*self._shape, *(batch.schema.field(name) for name in kept)]
        given = [made[field.name].cast(field.type) for field in self._shape]
        return pa.RecordBatch.from_arrays([*given, *map(batch.column, kept)], schema=pa.schema(fields))

    def _read_fields(self, cells: Cells) -> dict[str, pa.Array]:
        named: list[list[Any]] = [[] for _ in self._fields]
        bad: list[str | None] = []
        for i in range(cells.count):
            # The operand of a MERGE is not a value.
            value = cells.value(i) if cells.ops[i] != _MERGE else None
            found: Sequence[Any] = [ABSENT] * len(self._paths)
            problems: list[str] = []
            if isinstance(value, bytes) and self._decoder is not None:
                try:
                    found = self._decoder.extract(value, self._paths)
                except BadValue as error:
                    problems.append(str(error))
            for (column, convert), into, one in zip(self._fields, named, found, strict=True):
                cell = None
                if one is COMPOSITE:
                    problems.append(f"{column.name} is a list or an object")
                elif one is not ABSENT:
                    try:
                        cell = convert(one)
                    except ValueError as error:
                        problems.append(f"{column.name}: {error}")
                into.append(cell)
            bad.append("; ".join(problems) or None)
        arrays = {
            column.shown: pa.array(one, arrow_type(column.type))
            for (column, _), one in zip(self._fields, named, strict=True)
        }
        return {**arrays, "_bad_value": pa.array(bad, pa.string())}


class _Columns:
    """Converts cells of one schema to columns of the table's types."""

    def __init__(self, cells: Cells, schema: Schema, convert: Mapping[str, Callable[[Value], Any]]) -> None:
        self._cells = cells
        self._schema = schema
        self._convert = convert
        self._wanted: list[tuple[TableColumn, int | None]] = []
        self._kinds: list[int] = []  # kinds of the columns that are taken as they are; 0 for others

    def add(self, column: TableColumn, place: int | None) -> int:
        """Add a column. Returns its number in :meth:`made`. ``place``: in the grid; ``None``: the schema lacks it."""
        kind = 0
        if place is not None and (as_they_are := _AS_THEY_ARE.get(column.type)):
            count = self._cells.count
            found, until = kinds_of(
                self._cells.kinds[place * count : (place + 1) * count], count, bytes((next(iter(as_they_are)),))
            )
            kind = found[0] if until == count and found[0] in as_they_are else 0
        self._wanted.append((column, place))
        self._kinds.append(kind)
        return len(self._wanted) - 1

    def made(self) -> list[pa.Array]:
        """The columns. Raises :class:`~wormhole.model.errors.UsageError` for a value that its type cannot represent."""
        cells, kinds = self._cells, bytearray(filter(None, self._kinds))
        most = cells.count * width_of(kinds) + 2 * len(cells.data) + 40 * len(kinds) + 600
        message = Message(cells.count, pairs(kinds), most)
        fields: list[pa.Field] = []
        for (column, place), kind in zip(self._wanted, self._kinds, strict=True):
            if kind and place is not None:
                cells.write(place, bytearray((kind,)), message)
                fields.append(pa.field(str(len(fields)), _AS_THEY_ARE[column.type][kind]))
        ready = iter(pa.ipc.read_record_batch(pa.py_buffer(message.written()), pa.schema(fields)).columns)
        return [
            self._checked(next(ready), column, place, kind) if kind else self._converted(column, place)
            for (column, place), kind in zip(self._wanted, self._kinds, strict=True)
        ]

    def _checked(self, values: pa.Array, column: TableColumn, place: int | None, kind: int) -> pa.Array:
        # Encoders write a decimal in Python's own notation.
        plain = (
            kind != DECIMAL or pc.all(pc.match_substring_regex(values.cast(pa.string()), _PLAIN)).as_py() is not False
        )
        return values.cast(arrow_type(column.type)) if plain else self._converted(column, place)

    def _converted(self, column: TableColumn, place: int | None) -> pa.Array:
        cells, kind = self._cells, arrow_type(column.type)
        if place is None:
            return pa.nulls(cells.count, kind)
        convert, begin = self._convert[column.name], place * cells.count
        try:
            return pa.array([convert(cells.value(cell)) for cell in range(begin, begin + cells.count)], kind)
        except ValueError as error:
            raise UsageError(
                f"column {column.name} of {self._schema.table}: {error}",
                hint=f"ask for a wider type, or for {column.name} as text",
            ) from error


def _cells(updates: pa.Array, layout: Layout) -> Cells:
    data, ends = ends_of(updates)
    first = ends[0]
    spans = array("q", bytes(16 * len(updates)))
    spans[::2] = array("q", (end - first for end in ends[:-1]))
    spans[1::2] = array("q", (end - first for end in ends[1:]))
    try:
        cells = Cells(bytes(data[first : ends[-1]]), spans, 0, len(updates), layout, falls_back=False)
        if cells.ops.translate(None, _KNOWN):
            raise DecodeError("it has an operation that this release does not know", code="release-too-old")
    except DecodeError as error:
        raise ArchiveError(
            f"an archived update is no valid row: {error}",
            hint="`wormholectl archive verify --deep` names the files that are damaged",
        ) from error
    return cells


def _places(schema: Schema) -> dict[str, int]:
    """The place in the grid of each column of a schema and of its key."""
    return {name: i for i, name in enumerate(dict.fromkeys(c.name for c in (*schema.columns, *schema.key)))}


def _unavailable(
    cells: Cells, places: Sequence[int | None], plan: Decoding, there: bytearray | None = None
) -> pa.Array:
    """The names of the unavailable columns of each row; null if there are none, and for rows that are not ``there``."""
    count = cells.count
    kinds = bytearray().join(
        bytes(count) if place is None else cells.kinds[place * count : (place + 1) * count] for place in places
    )
    rows = cells.ops.translate(_NO_IMAGE) if there is None else bytearray(there.translate(_ABSENT))
    empty(kinds, count, 0, len(places), rows)
    valid, offsets, found = unavailable(kinds, 0, len(places), count)
    names = pa.array([column.shown for column in plan.columns], pa.string())
    indexes = pa.Array.from_buffers(pa.int32(), len(found), [None, pa.py_buffer(found)])
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.list_(pa.string()), count, buffers, children=[names.take(indexes)])
