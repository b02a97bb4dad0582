"""What the envelopes of other tools share: values without marks for their types, and updates without a form.

A row is a mapping of JSON texts by the names of its columns.
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
_MOST_ZEROS: Final = 20_000  # PostgreSQL's longest number has fewer behind its point
_NO_FORM: Final = frozenset({Op.MERGE, Op.DELETE_RANGE})


def check(update: Update, envelope: str) -> None:
    """Raises :class:`~sinks.records.record.NoForm` for an update that contains more than a row can."""
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
    """A row by the names of its columns: ``values``, and the columns of ``key`` where they are not among them."""
    row = {} if values is None else plain_row(values)
    columns = update.schema.key
    return row if all(column.name in row for column in columns) else named_key(columns, key) | row


def named_key(columns: Iterable[Column], key: tuple[Value, ...]) -> dict[str, str]:
    """The values of a key by the names of its columns."""
    return plain_row({column.name: value for column, value in zip(columns, key, strict=False)})


def plain_row(values: Mapping[str, Value]) -> dict[str, str]:
    """Numbers and text as they are, decimals as text, bytes in Base64. Values that the log does not hold are left
    out.
    """
    return {
        name: _plain(value) if type(value) in _MARKED else value_text(value)
        for name, value in values.items()
        if value is not UNAVAILABLE
    }


def place(table: str) -> tuple[str | None, str]:
    """What stands before the first dot of a table's name, ``None`` without one, and the rest."""
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
        # Only digits are a number to every reader; a number may name more zeros than there is memory.
        return quoted(f"{value:f}" if "E" in text and abs(value.adjusted()) < _MOST_ZEROS else text)
    assert isinstance(value, bytes)
    return quoted(base64.b64encode(value).decode())
