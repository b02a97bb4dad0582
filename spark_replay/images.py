"""The image of a row, folded over the changes of it. Pure; the one fold of replay, snapshot, history and export.

A log need not hold whole rows: the image after a change is what the change says, laid over the image before it, column
by column and by name, since a table's columns change too. What is not known stays unavailable, and never becomes a
NULL. Some changes can be folded before those in front of them are known: the result laid over these is the same.
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
"""Schema by id; raises ``KeyError`` for one that no file of the archive names."""

ABSENT: Final = update_pb2.Value(unavailable=True)
"""What a change says of a value that is as it was."""
_UNKNOWN: Final = update_pb2.Value()


@dataclass(slots=True)
class RowImage:
    """A row as it was after a change, with values as the log has them:

    ``values`` in the order of ``schema.columns``, ``key`` in that of ``schema.key``. One that is unavailable is as it
    was before the first change that was folded; one without a kind is not known any more.
    """

    schema: Schema
    key: Sequence[update_pb2.Value]
    values: Sequence[update_pb2.Value]

    @property
    def complete(self) -> bool:
        """Whether every value is known."""
        return all(value.WhichOneof("kind") not in (None, "unavailable") for value in self.values)


def read_row(update: bytes) -> Row:
    """Parse the bytes of an archived update. Raises :class:`~wormhole.model.errors.ArchiveError` for what is none."""
    try:
        return decode_row(update)
    except ProtobufDecodeError as error:
        raise ArchiveError(
            f"an archived update is no valid row: {error}",
            hint="`wormholectl archive verify --deep` names the files that are damaged",
        ) from error


def fold(base: RowImage | None, schema: Schema, row: Row) -> RowImage:
    """The image after ``row``; ``base``: the one before it, ``None`` where that comes later or nothing is known of it.

    An UPDATE leaves what it lacks as it was, unless its values were left out because they are too large, or the log
    says that a value changed and not to what (``PARTIAL_JSON`` without the document before). Every other operation is
    the whole row: what it lacks is unknown. After a MERGE the value is unknown, since the operand is not the result.
    After a DELETE only the key is known.
    """
    op = op_of(row)
    values: list[update_pb2.Value] = [] if op is Op.MERGE else list(row.after)
    if not values:
        # Some datastores log the key's columns there as well; they are known.
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
    """Update bytes of ``op`` with the image after it. ``last``: it is not laid over an earlier one any more, so what is
    not known is unavailable.
    """
    row = Row(op=number_of_op(op), key=image.key, after=image.values)  # type: ignore[arg-type]
    if last:
        for value in row.after:
            if value.WhichOneof("kind") is None:
                value.unavailable = True
    return row.SerializeToString()
