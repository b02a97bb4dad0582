"""Archive rows as columns of a table:

``spark_replay.rows(df, table)``, for a DataFrame at rest and for one that streams.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_replay import frames
from spark_replay.archive.store import ArchiveStore
from spark_replay.images import read_row
from spark_replay.replay.plan import Asked
from spark_replay.tables.columns import TableColumn, arrow_type, converter, parse_type, unite
from spark_replay.tables.schemas import attach, lookup, schemas_of
from spark_replay.tables.selection import EARLIEST, LATEST, select
from wormhole.formats import ABSENT, COMPOSITE, BadValue, FormatSpec, open_formats
from wormhole.model.errors import UsageError
from wormhole.model.schema import Schema, free_names
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import Row, op_of, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Decoding", "decoded", "decoding", "read", "rows"]

_VALUE: Final = "value"  # a store of bytes has one column of this name
_PLAIN: Final = ("shard", "place", "tx_source", "tx_number", "tx_index", "op", "committed_at", "schema_id", "update")
_WITHOUT_IMAGE: Final = frozenset({Op.DELETE, Op.TRUNCATE, Op.DELETE_RANGE})
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
    """The updates that the archive holds, of all shards or those named: the archive's columns and ``shard``, in no
    order.

    Raises :class:`~wormhole.model.errors.UsageError`, :class:`~wormhole.model.errors.ReplayError` for a range that it
    does not hold, and :class:`~wormhole.model.errors.ArchiveError`.
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

    ``types``: what columns are to be (``{"price": "decimal(18,2)"}``). ``fields``: named fields of a store's values and
    their types (``{"customer.city": "text"}``), read by ``value_format``. ``before``: a column ``_before`` with the row
    before the change, where the log has it. Columns of ``df`` that begin with ``_`` are kept. Raises
    :class:`~wormhole.model.errors.UsageError` for a table that is not there.
    """
    plan = decoding(schemas_of(df), table, before=before, types=types, fields=fields, value_format=value_format)
    return decoded(df, table, plan)


def decoded(df: DataFrame, table: str, plan: Decoding) -> DataFrame:
    """What :func:`rows` returns, with the columns of ``plan``."""
    import pyspark.sql.functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    kept = [one for one in df.schema.fields if one.name.startswith("_")]
    wanted = df.where(f.col("table") == table).select(*_PLAIN, *(one.name for one in kept))
    shape = from_arrow_schema(plan.shape())
    for one in kept:
        shape.add(one)
    return wanted.mapInArrow(plan.batches, shape)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How rows of one table become columns; goes to the executors. ``fields``: of the values, by path."""

    schemas: tuple[Schema, ...]
    columns: tuple[TableColumn, ...]
    fields: tuple[TableColumn, ...] = ()
    value_format: FormatSpec | None = None
    before: bool = False

    @property
    def _of_key(self) -> tuple[TableColumn, ...]:
        names = {column.name for schema in self.schemas for column in schema.key}
        return tuple(column for column in self.columns if column.name in names)

    def shape(self) -> pa.Schema:
        """The columns that come out, without those that are only kept."""
        key = pa.struct([_field(column) for column in self._of_key])
        given = [_field(column) for column in (*self.columns, *self.fields)]
        given += [pa.field(name, kind) for name, kind in _FIELDS.items()]
        if self._of_key:
            given += [pa.field("_old_key", key), pa.field("_key_end", key)]
        if self.fields:
            given.append(pa.field("_bad_value", pa.string()))
        if self.before:
            given.append(pa.field("_before", pa.struct([_field(column) for column in self.columns])))
            given.append(pa.field("_before_unavailable", pa.list_(pa.string())))
        return pa.schema(given)

    def batches(self, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as columns, batch by batch."""
        reader = _Reader(self)
        for batch in given:
            yield reader.read(batch)


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
    """What :func:`rows` does, decided without Spark. ``only``: see :func:`~spark_replay.tables.columns.unite`. Raises
    as :func:`rows` does.
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
        raise UsageError("nothing says what the values hold", hint="give value_format, or configure it for the dataset")
    try:
        return FormatSpec.from_text(text)
    except ValueError as error:
        raise UsageError(f"value_format {error}") from error


def _field(column: TableColumn) -> pa.Field:
    return pa.field(column.shown, arrow_type(column.type))


class _Reader:
    """One task's work: decoders are opened here, for they cannot travel."""

    def __init__(self, plan: Decoding) -> None:
        self._plan = plan
        self._schema_of = lookup(plan.schemas)
        self._shape = plan.shape()
        self._convert = {column.name: converter(column.type) for column in plan.columns}
        self._fields = [(column, converter(column.type)) for column in plan.fields]
        self._paths = [tuple(column.name.split(".")) for column in plan.fields]
        self._decoder = open_formats(plan.value_format, {}).of("") if plan.value_format else None

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        plan = self._plan
        given = {name: batch.column(name) for name in batch.schema.names}
        updates, ids = given["update"].to_pylist(), given["schema_id"].to_pylist()
        cells: dict[str, list[Any]] = {field.name: [] for field in self._shape}
        for update, schema_id in zip(updates, ids, strict=True):
            row, schema = read_row(update), self._schema_of(schema_id)
            image, unknown = self._image(schema, row)
            for column in plan.columns:
                cells[column.shown].append(image.get(column.shown))
            cells["_unavailable"].append(unknown or None)
            if "_old_key" in cells:
                cells["_old_key"].append(self._key(schema, values_of(row.old_key)))
                cells["_key_end"].append(self._key(schema, values_of(row.key_end)))
            if plan.fields:
                # The operand of a MERGE is no value.
                self._read_fields(cells, () if op_of(row) is Op.MERGE else values_of(row.after))
            if plan.before:
                before, missing = self._named(schema, values_of(row.before))
                cells["_before"].append(before or None)
                cells["_before_unavailable"].append(missing or None)
        sources, numbers = given["tx_source"].to_pylist(), given["tx_number"].to_pylist()
        cells["_tx"] = [f"{source}:{number & (1 << 64) - 1}" for source, number in zip(sources, numbers, strict=True)]
        ready = {
            "_op": given["op"],
            "_shard": given["shard"],
            "_place": given["place"],
            "_index": given["tx_index"],
            "_committed_at": given["committed_at"],
        }
        columns = [
            ready[field.name].cast(field.type) if field.name in ready else pa.array(cells[field.name], field.type)
            for field in self._shape
        ]
        kept = [name for name in given if name.startswith("_")]
        fields = [*self._shape, *(batch.schema.field(name) for name in kept)]
        return pa.RecordBatch.from_arrays([*columns, *(given[name] for name in kept)], schema=pa.schema(fields))

    def _image(self, schema: Schema, row: Row) -> tuple[dict[str, Any], list[str]]:
        op = op_of(row)
        key = {column.name: value for column, value in zip(schema.key, values_of(row.key), strict=False)}
        if op in _WITHOUT_IMAGE:
            return {shown: self._converted(schema, name, key[name]) for name, shown in self._shown() if name in key}, []
        after = values_of(row.after) or (UNAVAILABLE,) * len(schema.columns)
        values = {column.name: value for column, value in zip(schema.columns, after, strict=True)}
        for name, value in key.items():
            if values.get(name, UNAVAILABLE) is UNAVAILABLE:
                values[name] = value
        return self._all(schema, values)

    def _named(self, schema: Schema, given: Sequence[Value]) -> tuple[dict[str, Any], list[str]]:
        if not given:
            return {}, []
        return self._all(schema, {column.name: value for column, value in zip(schema.columns, given, strict=True)})

    def _all(self, schema: Schema, values: Mapping[str, Value]) -> tuple[dict[str, Any], list[str]]:
        cells: dict[str, Any] = {}
        unknown: list[str] = []
        for name, shown in self._shown():
            value = values.get(name, UNAVAILABLE)
            if value is UNAVAILABLE:
                unknown.append(shown)
                cells[shown] = None
            else:
                cells[shown] = self._converted(schema, name, value)
        return cells, unknown

    def _shown(self) -> Iterator[tuple[str, str]]:
        return ((column.name, column.shown) for column in self._plan.columns)

    def _key(self, schema: Schema, values: Sequence[Value]) -> dict[str, Any] | None:
        if not values:
            return None
        shown = dict(self._shown())
        return {
            shown[column.name]: self._converted(schema, column.name, value)
            for column, value in zip(schema.key, values, strict=True)
        }

    def _converted(self, schema: Schema, name: str, value: Value) -> Any:
        try:
            return self._convert[name](value)
        except ValueError as error:
            raise UsageError(
                f"column {name} of {schema.table}: {error}", hint=f"ask for a wider type, or for {name} as text"
            ) from error

    def _read_fields(self, cells: dict[str, list[Any]], after: Sequence[Value]) -> None:
        value = after[0] if after else None
        found: Sequence[Any] = [ABSENT] * len(self._paths)
        problems: list[str] = []
        if isinstance(value, bytes) and self._decoder is not None:
            try:
                found = self._decoder.extract(value, self._paths)
            except BadValue as error:
                problems.append(str(error))
        for (column, convert), one in zip(self._fields, found, strict=True):
            cell = None
            if one is COMPOSITE:
                problems.append(f"{column.name} is a list or an object")
            elif one is not ABSENT:
                try:
                    cell = convert(one)
                except ValueError as error:
                    problems.append(f"{column.name}: {error}")
            cells[column.shown].append(cell)
        cells["_bad_value"].append("; ".join(problems) or None)
