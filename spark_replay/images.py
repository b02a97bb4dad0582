"""The image of a row, folded over the changes of it. Pure; what ``latest``, snapshot and history share.

A log need not hold whole rows: the image after a change is what the change says, laid over the
image before it, column by column and by name, since a table's columns change too. What is not known stays
:data:`~wormhole.model.values.UNAVAILABLE`, and never becomes a NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.errors import ArchiveError
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import Row, decode_row, encode_row, op_of, values_of

__all__ = ["Image", "SchemaOf", "encoded", "fold", "read_row"]

SchemaOf = Callable[[int], Schema]
"""Schema by id; raises ``KeyError`` for one that no file of the archive names."""

_WHOLE = frozenset({Op.INSERT, Op.UPSERT, Op.READ})


@dataclass(slots=True)
class Image:
    """A row as it was after a change:

    ``values`` in the order of ``schema.columns``, ``key`` in that of ``schema.key``.
    """

    schema: Schema
    key: tuple[Value, ...]
    values: tuple[Value, ...]


def read_row(update: bytes) -> Row:
    """Parse the bytes of an archived update. Raises :class:`~wormhole.model.errors.ArchiveError` for what is none."""
    try:
        return decode_row(update)
    except ProtobufDecodeError as error:
        raise ArchiveError(
            f"an archived update is no valid row: {error}",
            hint="`wormholectl archive verify --deep` names the files that are damaged",
        ) from error


def fold(base: Image | None, schema: Schema, row: Row) -> Image | None:
    """The image after ``row``; ``base``: the one before it, ``None`` where nothing is known of it. ``None`` after a
    delete.

    An INSERT, UPSERT or READ is the whole row: what it lacks is unknown. An UPDATE leaves what it lacks as it was,
    unless its values were left out because they are too large, or the log says that a value changed and not to what
    (``PARTIAL_JSON`` without the document before). After a MERGE the value is unknown: the operand is not the result.
    """
    op = op_of(row)
    if op is Op.DELETE:
        return None
    key = values_of(row.key)
    values = values_of(row.after) if op is not Op.MERGE else ()
    if not values:
        # Some datastores log the key's columns there as well; they are known.
        of_key = {column.name: value for column, value in zip(schema.key, key, strict=True)}
        values = tuple(of_key.get(column.name, UNAVAILABLE) for column in schema.columns)
    if op not in _WHOLE and op is not Op.MERGE and not row.too_large and base is not None:
        unknown = [i for i, value in enumerate(row.after) if value.WhichOneof("kind") is None]
        values = _laid_over(base, schema, values)
        if unknown:
            values = tuple(UNAVAILABLE if i in unknown else value for i, value in enumerate(values))
    return Image(schema, key, values)


def _laid_over(base: Image, schema: Schema, values: Sequence[Value]) -> tuple[Value, ...]:
    if all(value is not UNAVAILABLE for value in values):
        return tuple(values)
    if base.schema is schema or base.schema == schema:
        return tuple(old if value is UNAVAILABLE else value for value, old in zip(values, base.values, strict=True))
    before = {column.name: value for column, value in zip(base.schema.columns, base.values, strict=True)}
    return tuple(
        before.get(column.name, UNAVAILABLE) if value is UNAVAILABLE else value
        for column, value in zip(schema.columns, values, strict=True)
    )


def encoded(image: Image, op: Op) -> bytes:
    """Update bytes of ``op`` with the image after it."""
    return encode_row(op, image.key, after=image.values)
