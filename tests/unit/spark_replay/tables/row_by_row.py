"""Archive rows as columns in the plain way, by an object for each row and each value: what the columns are compared
with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from spark_replay.images import read_row
from spark_replay.tables.columns import converter
from spark_replay.tables.rows import Decoding
from spark_replay.tables.schemas import lookup
from wormhole.model.errors import UsageError
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import Row, op_of, values_of

__all__ = ["RowByRow"]

_WITHOUT_IMAGE: Final = frozenset({Op.DELETE, Op.TRUNCATE, Op.DELETE_RANGE})


class RowByRow:
    """A batch, a row at a time."""

    def __init__(self, plan: Decoding) -> None:
        self._plan = plan
        self._schema_of = lookup(plan.schemas)
        self._shape = plan.shape()
        self._convert = {column.name: converter(column.type) for column in plan.columns}

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
