"""Packs rows that tasks of a large range send each other: the necessary columns, as one Arrow message without a schema.

An Arrow stream repeats its schema and dictionaries in each piece. With three hundred parts they were thirty times as
large as the rows. Here both ends know the columns. Operation and table are sent as numbers, and the sources of ids
beside the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.columns import PLACE_BYTES
from spark_replay.replay.latest import FOLDABLE
from wormhole.model.schema import Schema

__all__ = ["Folding", "Packed", "Pushing"]

Packed = tuple[tuple[str, ...], bytes]
"""The sources of the rows' ids, and the message."""

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "place": pa.binary(PLACE_BYTES),
    "tx_source": pa.int32(),
    "tx_number": pa.int64(),
    "tx_index": pa.int32(),
    "ends_tx": pa.bool_(),
    "committed_at": pa.timestamp("us", tz="UTC"),
    "op": pa.int32(),
    "table": pa.int32(),
    "key": pa.binary(),
    "schema_id": pa.int64(),
    "partial": pa.bool_(),
    "update": pa.binary(),
}
_PUSHED: Final = ("place", "tx_source", "tx_number", "tx_index", "ends_tx", "committed_at", "schema_id", "update")
_OPS: Final = pa.array([op.value for op in FOLDABLE])


class Pushing:
    """Packs the columns of rows that a push needs."""

    columns: tuple[str, ...] = _PUSHED

    def __init__(self) -> None:
        self._schema = pa.schema([pa.field(name, _TYPES[name]) for name in self.columns])
        self._names: dict[str, pa.Array] = {}

    def pack(self, rows: pa.RecordBatch) -> Packed:
        """Pack rows. Texts may be plain or in dictionaries."""
        sources = _encoded(rows.column("tx_source"))
        found = []
        for name in self.columns:
            column: Any = rows.column(name)
            if name == "tx_source":
                column = sources.indices
            elif name in self._names:
                column = _encoded(column)
                column = pc.index_in(column.dictionary, self._names[name]).take(column.indices)
            found.append(column.cast(_TYPES[name]))
        packed = pa.RecordBatch.from_arrays(found, schema=self._schema)
        return tuple(sources.dictionary.to_pylist()), packed.serialize().to_pybytes()

    def unpack(self, sources: tuple[str, ...], message: pa.Buffer) -> pa.RecordBatch:
        """Unpack a message. The rows share its memory."""
        rows = pa.ipc.read_record_batch(message, self._schema)
        names = {"tx_source": pa.array(sources, pa.string()), **self._names}
        columns = [
            pa.DictionaryArray.from_arrays(column, names[name]) if name in names else column
            for name, column in zip(self.columns, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, list(self.columns))


class Folding(Pushing):
    """Packs the columns of rows that a fold needs. ``schemas``: the schemas of all rows, by id."""

    columns = tuple(_TYPES)

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        super().__init__()
        self._names = {"op": _OPS, "table": pa.array(sorted({schema.table for schema in schemas.values()}))}


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
