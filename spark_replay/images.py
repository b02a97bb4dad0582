"""Folds the changes of a row to its image. Pure; replay, snapshot, history and export all use this fold.

A log may have only parts of rows. So the image after a change is the image before it, overwritten column by column with
the values of the change. Columns are matched by name, because a table's columns change too. An unknown value stays
unavailable, and never becomes NULL. Changes can be folded before the earlier ones are known. The result may be
applied to the earlier image later, and is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.errors import ArchiveError
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.rows import Row, decode_row, number_of_op, op_of
from wormhole.wire.v1 import update_pb2

__all__ = ["ABSENT", "RowImage", "SchemaOf", "encoded", "fold", "read_row"]

SchemaOf = Callable[[int], Schema]
"""Returns the schema of an id. Raises ``KeyError`` for a schema that no file of the archive names."""

ABSENT: Final = update_pb2.Value(unavailable=True)
"""The value of a column that a change leaves as it was."""
_UNKNOWN: Final = update_pb2.Value()


@dataclass(slots=True)
class RowImage:
    """A row after a change, with values as in the log: ``values`` in the order of ``schema.columns``, ``key`` in that
    of ``schema.key``.

    A value that is unavailable is unchanged since before the first folded change. A value without a kind is no longer
    known.
    """

    schema: Schema
    key: Sequence[update_pb2.Value]
    values: Sequence[update_pb2.Value]

    @property
    def complete(self) -> bool:
        """Whether every value is known."""
        return all(value.WhichOneof("kind") not in (None, "unavailable") for value in self.values)


def read_row(update: bytes) -> Row:
    """Parse the bytes of an archived update. Raises :class:`~wormhole.model.errors.ArchiveError` for other bytes."""
    try:
        return decode_row(update)
    except ProtobufDecodeError as error:
        raise ArchiveError(
            f"an archived update is no valid row: {error}",
            hint="`wormholectl archive verify --deep` names the files that are damaged",
        ) from error


def fold(base: RowImage | None, schema: Schema, row: Row) -> RowImage:
    """The image after ``row``. ``base``: the image before it; ``None`` if it is not known, or is folded in later.

    An UPDATE keeps the values that it lacks. There are two exceptions: its values were left out because they are too
    large, or the log shows only that a value changed (``PARTIAL_JSON`` without the document before). Every other
    operation is the whole row, so values that it lacks are unknown. After a MERGE the value is unknown, because the
    operand is not the result. After a DELETE only the key is known.
    """
    op = op_of(row)
    values: list[update_pb2.Value] = [] if op is Op.MERGE else list(row.after)
    if not values:
        # Some datastores log the key's columns there too. Their values are known.
        of_key = {column.name: value for column, value in zip(schema.key, row.key, strict=True)}
        values = [of_key.get(column.name, ABSENT) for column in schema.columns]
    if op is not Op.UPDATE or row.too_large:
        values = [_UNKNOWN if value.HasField("unavailable") else value for value in values]
    elif base is not None:
        old = _in_columns(base, schema)
        values = [old[at] if value.HasField("unavailable") else value for at, value in enumerate(values)]
    return RowImage(schema, row.key, values)


def _in_columns(base: RowImage, schema: Schema) -> Sequence[update_pb2.Value]:
    if base.schema is schema or base.schema == schema:
        return base.values
    named = {column.name: value for column, value in zip(base.schema.columns, base.values, strict=True)}
    return [named.get(column.name, _UNKNOWN) for column in schema.columns]


def encoded(image: RowImage, op: Op, *, last: bool = True) -> bytes:
    """The bytes of an update ``op`` with ``image`` as its image after the change.

    ``last``: the image is not applied to an earlier one any more, so unknown values become unavailable.
    """
    row = Row(op=number_of_op(op), key=image.key, after=image.values)  # type: ignore[arg-type]
    if last:
        for value in row.after:
            if value.WhichOneof("kind") is None:
                value.unavailable = True
    return row.SerializeToString()
