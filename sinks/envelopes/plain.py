"""Code that the envelopes of other tools (Debezium, Maxwell) share: values in plain JSON, and refusals of updates.

A row is a mapping from the names of its columns to JSON texts.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from sinks.envelopes.texts import quoted, value_text
from sinks.records.record import NoForm
from wormhole.model.schema import Column
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.update import Update

__all__ = ["after_of", "check", "microseconds", "named_key", "place", "plain_row", "row_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MARKED: Final = frozenset({float, Decimal, bytes})
_NON_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_MOST_ZEROS: Final = 20_000  # more zeros than PostgreSQL's longest number has after its decimal point
_NO_FORM: Final = frozenset({Op.MERGE, Op.DELETE_RANGE})


def check(update: Update, envelope: str) -> None:
    """Check that a row can represent the update. Raises :class:`~sinks.records.record.NoForm` if it cannot."""
    if update.op in _NO_FORM:
        raise NoForm(update, f'the envelope "{envelope}" has no form for the operation {update.op.value}')


def after_of(update: Update, envelope: str) -> dict[str, str]:
    """The row after the change, without values that the log does not hold.

    Raises :class:`~sinks.records.record.NoForm` if the values were left out for their size.
    """
    if update.too_large:
        raise NoForm(update, f'the envelope "{envelope}" has no form for values that are larger than max_update_bytes')
    return row_of(update, update.key, update.after)


def row_of(update: Update, key: tuple[Value, ...], values: Mapping[str, Value] | None) -> dict[str, str]:
    """A row by the names of its columns: ``values``, and the columns of ``key`` that ``values`` lacks."""
    row = {} if values is None else plain_row(values)
    columns = update.schema.key
    return row if all(column.name in row for column in columns) else named_key(columns, key) | row


def named_key(columns: Iterable[Column], key: tuple[Value, ...]) -> dict[str, str]:
    """The values of a key by the names of its columns."""
    return plain_row({column.name: value for column, value in zip(columns, key, strict=False)})


def plain_row(values: Mapping[str, Value]) -> dict[str, str]:
    """A row with decimals as text and bytes in Base64. Values that the log lacks are left out."""
    return {
        name: _plain(value) if type(value) in _MARKED else value_text(value)
        for name, value in values.items()
        if value is not UNAVAILABLE
    }


def place(table: str) -> tuple[str | None, str]:
    """A table's name split at its first dot: database or schema (``None`` without a dot), and the rest."""
    first, dot, rest = table.partition(".")
    return (first, rest) if dot else (None, table)


def microseconds(time: datetime | None) -> int | None:
    """Since 1970."""
    return None if time is None else (time - _EPOCH) // _MICROSECOND


def _plain(value: Value) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else quoted(_NON_FINITE[str(value)])
    if isinstance(value, Decimal):
        text = str(value)
        # Every reader knows a number written in digits. But an exponent may stand for more zeros than fit into memory.
        return quoted(f"{value:f}" if "E" in text and abs(value.adjusted()) < _MOST_ZEROS else text)
    assert isinstance(value, bytes)
    return quoted(base64.b64encode(value).decode())
