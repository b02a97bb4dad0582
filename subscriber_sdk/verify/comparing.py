"""Compares rows of the source with the application's rows, and checks the results of the application's callbacks.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from math import isfinite
from typing import Any, Final

from subscriber_sdk.backfill import Key
from wormhole.model.errors import UsageError
from wormhole.model.schema import Column
from wormhole.model.values import UNAVAILABLE, Value
from wormhole.model.verification import Difference, DifferenceKind
from wormhole.wire.rows import encode_key
from wormhole.wire.update import Update

__all__ = ["Answer", "canonical", "checked_answer", "checked_key", "compare", "difference"]

Answer = Mapping[Key, Mapping[str, Value]]
"""What ``on_verify`` returns."""

_LONGEST: Final = 64  # bytes; a longer key is replaced by a hash
_SHOWN: Final = 8  # the most columns that a message names
_MOST_DIGITS: Final = 400  # the most digits before the decimal point, or zeros directly after it, that are written out
_MOST_COLUMNS: Final = 64  # the most columns that one difference names
_NUMBERS: Final[Mapping[str, Callable[[Any], Value]]] = {"bool": bool, "int": int, "double": float, "decimal": Decimal}
"""The types of values, by the type of the column."""
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1


def canonical(key: Key) -> bytes:
    """At most 64 bytes that are the same for equal keys, even if their numbers have different types. A long key becomes
    a hash."""
    parts = []
    for value in key:
        part = _canonical(value)
        parts.append(b"%d:%b" % (len(part), part))
    data = b"".join(parts)
    return data if len(data) <= _LONGEST else blake2b(data, digest_size=32).digest()


def _canonical(value: Value) -> bytes:
    match value:
        case bytes():
            return b"b" + value
        case str():
            return b"t" + value.encode("utf-8", "surrogatepass")
        case int():  # and bool
            return b"n%d" % value
        case float() if value.is_integer():
            return b"n%d" % int(value)
        case float() if isfinite(value):
            return _canonical(Decimal(value))
        case Decimal() if value.is_finite():
            if value and abs(value.adjusted()) > _MOST_DIGITS:
                return _scientific(value)  # no other type has such numbers
            text = format(value or Decimal(0), "f")
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return b"n0" if text == "-0" else f"n{text}".encode()
        case _:
            return repr(value).encode()


def _scientific(value: Decimal) -> bytes:
    """The number in a form that does not write out its zeros."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return f"e{sign},{kept},{int(exponent) + len(text) - len(kept)}".encode()


def checked_key(table: str, key: object, columns: Sequence[Column]) -> Key:
    """Check a key from ``on_verify_keys``, and return it with the types of the source's keys. ``columns``: the columns
    of the table's key. Raises :class:`~wormhole.model.errors.UsageError` for a wrong key.
    """
    if not isinstance(key, tuple) or len(key) != len(columns):
        raise UsageError(
            f"on_verify_keys gave {key!r:.100} for table {table}, which is no key: a tuple of {len(columns)} "
            f"value{'s' * (len(columns) != 1)} was expected",
            hint="return keys as Update.key has them",
            code="callback-wrong",
        )
    for value in key:
        if not _is_key_value(value):
            raise UsageError(
                f"on_verify_keys gave {key!r:.100} for table {table}: a {type(value).__name__} is in no key",
                hint="return keys as Update.key has them: of int, str, bytes, Decimal, float and bool",
                code="callback-wrong",
            )
    return tuple(_of_source(value, column.type) for value, column in zip(key, columns, strict=True))


def _of_source(value: Value, type_: str) -> Value:
    """The value in the type that the source's keys have, because the publisher compares keys."""
    if isinstance(value, str):
        return str(value)  # plain text
    number = _NUMBERS.get(type_)
    if number is None or type(value) is number or isinstance(value, bytes):
        return value
    try:
        found = number(value)
    except (ValueError, ArithmeticError):  # not a number, or infinite
        return value
    return found if found == value else value


def _is_key_value(value: object) -> bool:
    if isinstance(value, int):
        return _LEAST_INT <= value <= _MOST_INT
    return isinstance(value, (str, bytes, Decimal, float))


def checked_answer(table: str, answer: object, asked: Iterable[Key]) -> Answer:
    """Check and return the ``answer`` of ``on_verify`` to the keys ``asked``. Raises
    :class:`~wormhole.model.errors.UsageError` for a wrong answer.
    """
    if not isinstance(answer, Mapping):
        raise UsageError(
            f"on_verify returned {answer!r:.100} for table {table}",
            hint="return a mapping: for each of the given keys that you hold, the values of its columns by name",
            code="callback-wrong",
        )
    if others := answer.keys() - set(asked):
        raise UsageError(
            f"on_verify returned the key {next(iter(others))!r:.100} for table {table}, which it was not asked for",
            hint="use the keys that were given, each a tuple as Update.key",
            code="callback-wrong",
        )
    for key, row in answer.items():
        if not isinstance(row, Mapping):
            raise UsageError(
                f"on_verify returned {row!r:.100} for {table}:{key!r:.100}",
                hint="return a mapping of column names to values for each key, and leave out keys that you do not hold",
                code="callback-wrong",
            )
    return answer


def compare(updates: Sequence[Update], answer: Answer) -> list[tuple[Update, Difference]]:
    """The READ ``updates`` for which the application's row differs or is missing.

    Raises :class:`~wormhole.model.errors.UsageError` for a column that the source's row does not have.
    """
    found = []
    for update in updates:
        key = update.key
        held = answer.get(key)
        if held is None:
            found.append((update, difference(DifferenceKind.MISSING, key)))
        elif columns := _differing(update, key, held):
            found.append((update, difference(DifferenceKind.DIFFERS, key, columns)))
    return found


def difference(kind: DifferenceKind, key: Key, columns: tuple[str, ...] = ()) -> Difference:
    """A difference in the row with this key. If many columns differ, only the first 64 are named."""
    return Difference(kind, encode_key(key), columns[:_MOST_COLUMNS])


def _differing(update: Update, key: Key, held: Mapping[str, Value]) -> tuple[str, ...]:
    row: Mapping[str, Any] = update.after or {}
    found = []
    for name, value in held.items():
        ours = row.get(name, _NONE)
        if ours is _NONE:
            ours = _of_key(update, key, name, row)
        if ours is UNAVAILABLE or value is UNAVAILABLE or ours == value or (ours != ours and value != value):
            continue
        found.append(name)
    return tuple(found)


def _of_key(update: Update, key: Key, name: str, row: Mapping[str, Value]) -> Value:
    """The value of the key's column ``name``, because an application may also return the key's columns."""
    names = [column.name for column in update.schema.key]
    if name in names:
        return key[names.index(name)]
    known = [*names, *row]
    listed = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
    raise UsageError(
        f"on_verify returned column {name!r:.100} for table {update.table}, whose rows have {listed}",
        hint="return only columns of the table, under the names that update.after has",
        code="callback-wrong",
    )


_NONE: Final = object()
