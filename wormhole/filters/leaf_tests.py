"""Compiles each test of a filter to a function: over keys, records of fields, an update's images, or ranges of
keys.

Every function answers whether the update *may* match. A test that cannot be decided (a value that is not in the log, a
number compared with text, a column that the table does not have) passes, also under ``not``.

Only single tests are negated (:mod:`wormhole.filters.normal`), so a function exists for each test and for its
opposite.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast

from wormhole.filters.tree import (
    Changed,
    Compare,
    Expr,
    Field,
    HashIn,
    In,
    Is,
    KeyPart,
    Leaf,
    Literal,
    Moved,
    OpIn,
    StartsWith,
    Subject,
    TableIn,
    TableMatches,
    WholeKey,
    leaves,
)
from wormhole.filters.view import Image, Reader, Record
from wormhole.formats import ABSENT
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Value

__all__ = ["GeneralTest", "Names", "RangeTest", "RecordTest", "SimpleTest"]
__all__ += ["as_bytes", "general_test", "range_test", "record_test", "simple_test"]

SimpleTest = Callable[[bytes], bool]
"""May the update with this key match, whatever its values? The key is one bytes value."""

RecordTest = Callable[[Record], bool]
"""May the update with this record of fields match?"""

GeneralTest = Callable[[Image], bool]
RangeTest = Callable[[tuple[bytes, bytes]], bool]
"""May a key from the first (inclusive) to the second (exclusive) match?"""

_FieldTest = Callable[[Any], bool]

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _maybe(of: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Names:
    """The meaning of a filter's names in one table. ``reader``: ``None`` if the filter tests no values."""

    schema: Schema
    reader: Reader | None

    def key(self, subject: Subject) -> int | None:
        """The index of a subject's key column; ``None`` if the table's key has no such column."""
        columns = self.schema.key
        match subject:
            case WholeKey():
                return 0 if len(columns) == 1 else None
            case KeyPart(index):
                return index if index < len(columns) else None
            case Field(name, path):
                if path or (self.reader is not None and self.reader.decoder is not None):
                    return None  # where values have a format, names are those of its fields
                return next((i for i, column in enumerate(columns) if column.name == name), None)

    def slot(self, subject: Subject) -> int | None:
        """The slot of a field in a record; ``None`` if the record has no such field."""
        if not isinstance(subject, Field) or self.reader is None or self.key(subject) is not None:
            return None
        return self.reader.slot(subject.parts)

    def valued(self, expr: Expr) -> bool:
        """Whether an expression tests a row's values."""
        return any(
            isinstance(leaf, Changed)
            or (isinstance(leaf, Compare | In | StartsWith | Is) and self.slot(leaf.subject) is not None)
            for leaf in leaves(expr)
        )


# --- a key that is one bytes value: the hot form --------------------------------------------------------------------


def simple_test(leaf: Leaf, negated: bool, names: Names) -> SimpleTest:
    """A test of a plain key. A test of values passes, because values may always match."""
    match leaf:
        case HashIn(modulus, remainders):
            return _hash_test(modulus, remainders, negated)
        case Compare(subject, order, bytes() as value) if names.key(subject) == 0:
            return _bytes_test(order, value, negated)
        case In(subject, values) if isinstance(values[0], bytes) and names.key(subject) == 0:
            allowed = frozenset(values)
            return (lambda key: key not in allowed) if negated else allowed.__contains__
        case StartsWith(subject, bytes() as prefix) if names.key(subject) == 0:
            return (lambda key: not key.startswith(prefix)) if negated else (lambda key: key.startswith(prefix))
        case Is(subject) if names.key(subject) == 0:
            return lambda key: negated  # bytes are neither null nor absent
        case _:
            return _maybe


def _hash_test(modulus: int, remainders: tuple[int, ...], negated: bool) -> SimpleTest:
    crc32 = zlib.crc32
    if len(remainders) == 1 and not negated:
        remainder = remainders[0]
        return lambda key: crc32(key) % modulus == remainder
    allowed = frozenset(remainders)
    return lambda key: (crc32(key) % modulus in allowed) != negated


def _bytes_test(order: str, value: bytes, negated: bool) -> SimpleTest:
    match order:
        case "==":
            return (lambda key: key != value) if negated else (lambda key: key == value)
        case "<":
            return lambda key: key < value
        case "<=":
            return lambda key: key <= value
        case ">":
            return lambda key: key > value
        case _:
            return lambda key: key >= value


# --- one found value --------------------------------------------------------------------------------------------------


def as_bytes(value: Value) -> bytes | None:
    """Bytes, or the UTF-8 of text; ``None`` for anything else."""
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else None


def _comparable(value: Value, like: Literal) -> Any:
    """``value`` in the form that compares with ``like``; ``None`` if the two do not compare."""
    if isinstance(like, bytes):
        return as_bytes(value)
    if isinstance(like, bool):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if value == value else None
    return value if isinstance(value, Decimal) and not value.is_nan() else None


def _as_written(literal: Literal) -> tuple[Literal, Any]:
    # A double is never exactly 0.1: it is compared with the double nearest to the number written.
    return literal, float(literal) if isinstance(literal, Decimal) else literal


def _field_test(leaf: Leaf, negated: bool) -> _FieldTest:
    """A test of the value that was found for its subject.

    Null equals no value, begins with no value, and has no order.
    """
    match leaf:
        case Is(_, "null"):
            return lambda found: found is UNAVAILABLE or ((found is None) != negated)
        case Is():
            return lambda found: found is UNAVAILABLE or ((found is ABSENT) != negated)
        case Compare(_, "==", bytes() as value):
            return _equal_text(value, negated)
        case Compare(_, order, value):
            holds = _ORDERS[order]
            exact, near = _as_written(value)
            null = negated or order != "=="

            def compare(found: Any) -> bool:
                if found is None:
                    return null
                comparable = _comparable(found, value)
                if comparable is None:
                    return True
                return holds(comparable, near if type(comparable) is float else exact) != negated

            return compare
        case In(_, values):
            exacts, nears = zip(*map(_as_written, values), strict=True)

            def within(found: Any) -> bool:
                if found is None:
                    return negated
                comparable = _comparable(found, values[0])
                return comparable is None or (
                    (comparable in (nears if type(comparable) is float else exacts)) != negated
                )

            return within
        case StartsWith(_, prefix):

            def starts(found: Any) -> bool:
                if found is None:
                    return negated
                comparable = as_bytes(found)
                return comparable is None or comparable.startswith(cast(bytes, prefix)) != negated

            return starts
        case _:
            return _maybe


def _equal_text(value: bytes, negated: bool) -> _FieldTest:
    try:
        text: str | None = value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = None

    def equal(found: Any) -> bool:
        kind = type(found)
        if kind is str:
            return bool(found == text) != negated
        if kind is bytes:
            return bool(found == value) != negated
        return negated or found is not None

    return equal


# --- a record of fields, and any update -------------------------------------------------------------------------------


def record_test(leaf: Leaf, negated: bool, names: Names) -> RecordTest:
    """A test of a record: the key is its first entry, fields are at their slots."""
    if isinstance(leaf, Compare | In | StartsWith | Is):
        slot = names.slot(leaf.subject)
        if slot is not None:
            test = _field_test(leaf, negated)
            return lambda record: test(record[slot])
    simple = simple_test(leaf, negated, names)
    return lambda record: simple(record[0])


def general_test(leaf: Leaf, negated: bool, names: Names) -> GeneralTest:
    """A test of one image of any update."""
    match leaf:
        case HashIn(modulus, remainders):
            hashed = _hash_test(modulus, remainders, negated)
            # A row without its key cannot be hashed.
            return lambda image: not image.values or hashed(image.hash_bytes)
        case Compare(subject) | In(subject) | StartsWith(subject) | Is(subject):
            test = _field_test(leaf, negated)
            slot, column = names.slot(subject), names.key(subject)
            if slot is not None:
                return lambda image: image.record is None or test(image.record[slot])
            if column is not None:
                return lambda image: column >= len(image.values) or test(image.values[column])
            return _maybe
        case Changed(subject):
            return _changed_test(names.slot(subject), negated)
        case TableIn() | TableMatches() | OpIn() | Moved():
            return _maybe


def _changed_test(slot: int | None, negated: bool) -> GeneralTest:
    def changed(image: Image) -> bool:
        before, after = image.parsed.was, image.parsed.new
        if slot is None or before is None or after is None:
            return True
        old, new = before[slot], after[slot]
        if old is UNAVAILABLE or new is UNAVAILABLE:
            return True
        # NaN differs from itself, and true from 1, in a database.
        return (old is not new and (type(old) is not type(new) or old != new)) != negated

    return changed


# --- all keys of a range ----------------------------------------------------------------------------------------------


def range_test(leaf: Leaf, negated: bool, names: Names) -> RangeTest:
    """A test of the keys from one to another: whether any of them may match."""
    match leaf:
        case Compare(subject, order, bytes() as value) if names.key(subject) == 0 and not negated:
            match order:
                case "==":
                    return lambda keys: keys[0] <= value < keys[1]
                case "<":
                    return lambda keys: keys[0] < value
                case "<=":
                    return lambda keys: keys[0] <= value
                case ">":
                    # The keys right after `value` begin with `value + b"\0"`.
                    return lambda keys: keys[1] > value + b"\0"
                case _:
                    return lambda keys: keys[1] > value
        case In(subject, values) if names.key(subject) == 0 and not negated and isinstance(values[0], bytes):
            listed = cast(tuple[bytes, ...], values)
            return lambda keys: any(keys[0] <= value < keys[1] for value in listed)
        case StartsWith(subject, bytes() as prefix) if names.key(subject) == 0:
            after = _after_prefix(prefix)
            if negated:
                return lambda keys: keys[0] < prefix or (after is not None and keys[1] > after)
            return lambda keys: keys[1] > prefix and (after is None or keys[0] < after)
        case _:
            return _maybe


def _after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys that begin with ``prefix``; ``None`` if there is none."""
    shortened = prefix.rstrip(b"\xff")
    return shortened[:-1] + bytes((shortened[-1] + 1,)) if shortened else None
