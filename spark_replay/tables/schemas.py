"""Keeps the schemas of archive rows within their DataFrame, as metadata of its column ``schema_id``.

Rows name their schema by id. Spark keeps a column's metadata in ``select``, ``where`` and ``union``. So the rows of a
derived DataFrame can be decoded too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from spark_replay.archive.arrays import U64, signed
from spark_replay.images import SchemaOf
from wormhole.model.errors import ArchiveError, UsageError
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["METADATA", "attach", "by_signed_id", "lookup", "metadata", "schemas_of"]

METADATA: Final = "wormhole.schemas"
"""Key of the metadata: canonical schemas in base64, oldest first."""


def attach(df: DataFrame, schemas: Iterable[Schema]) -> DataFrame:
    """``df`` with the schemas of its rows. ``schemas``: oldest first."""
    return df.withMetadata("schema_id", metadata(schemas))


def metadata(schemas: Iterable[Schema]) -> dict[str, list[str]]:
    """The metadata of the column ``schema_id``. ``schemas``: oldest first."""
    return {METADATA: [base64.b64encode(schema.canonical).decode() for schema in schemas]}


def schemas_of(df: DataFrame) -> tuple[Schema, ...]:
    """The schemas of :func:`attach`, oldest first.

    Raises :class:`~wormhole.model.errors.UsageError` for a DataFrame without them.
    """
    fields = {one.name: one for one in df.schema.fields}
    texts = fields["schema_id"].metadata.get(METADATA) if "schema_id" in fields else None
    if texts is None:
        raise UsageError(
            "these are no rows of an archive: they do not carry their schemas",
            hint="take them from spark_replay.read or spark_replay.stream, and keep the column schema_id",
        )
    return tuple(Schema.from_canonical(base64.b64decode(text)) for text in texts)


def by_signed_id(schemas: Iterable[Schema]) -> dict[int, Schema]:
    """Schemas by id, in the form of the column: 64 bits in two's complement."""
    return {signed(schema.id): schema for schema in schemas}


def lookup(schemas: Iterable[Schema]) -> SchemaOf:
    """A function that returns the schema of a signed id.

    It raises :class:`~wormhole.model.errors.ArchiveError` for a schema that did not exist when reading began.
    """
    known = by_signed_id(schemas)

    def find(id_: int) -> Schema:
        try:
            return known[id_]
        except KeyError:
            raise ArchiveError(
                f"schema {id_ & U64:016x} was not known when reading began: a table changed since",
                hint="start the query again: it goes on where it stopped, with the columns of now",
            ) from None

    return find
