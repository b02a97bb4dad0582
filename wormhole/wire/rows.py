"""Converts rows to update bytes and back, with the meaning of ``wormhole.wire.v1.Update``.

Decoders of a hot path write the same bytes by hand; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from wormhole.model.errors import ProtocolError
from wormhole.model.values import NAN, UNAVAILABLE, Op, Unavailable, Value
from wormhole.wire.v1 import update_pb2
from wormhole.wire.values import decimal_of

__all__ = [
    "Row",
    "column_type",
    "decode_key",
    "decode_row",
    "encode_key",
    "encode_row",
    "entry",
    "entry_head",
    "number_of_op",
    "op_numbered",
    "op_of",
    "value_of",
    "values_of",
]

_OP_NUMBER: Final = {op: update_pb2.Op.Value(op.name) for op in Op}
_OP: Final = {number: op for op, number in _OP_NUMBER.items()}

Row = update_pb2.Update
"""A parsed row, as :func:`decode_row` returns it. :func:`values_of` reads its repeated fields."""


def column_type(value: Value) -> str:
    """The schema type that carries ``value``; NULL and UNAVAILABLE fit every type and give ``bytes``."""
    match value:
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "double"
        case str():
            return "text"
        case Decimal():
            return "decimal"
        case bytes() | None | Unavailable():
            return "bytes"
        case _:
            return "entries"


def _fill(target: update_pb2.Value, value: Value) -> None:
    match value:
        case None:
            target.null = True
        case Unavailable():
            target.unavailable = True
        case bool():
            target.bool = value
        case bytes():
            target.bytes = value
        case str():
            target.text = value
        case int() if -(1 << 63) <= value < 1 << 63:
            target.int = value
        case int() if 0 <= value < 1 << 64:
            target.uint = value
        case int():
            raise OverflowError(f"{value} does not fit 64 bits; use Decimal")
        case float():
            target.double = value
        case Decimal():
            if value.is_finite():
                target.decimal = format(value, "f")
            else:
                target.text = str(value)
        case _:
            target.entries.names.extend(value.keys())
            target.entries.values.extend(value.values())


def encode_row(
    op: Op,
    key: Iterable[Value],
    *,
    after: Iterable[Value] = (),
    before: Iterable[Value] = (),
    old_key: Iterable[Value] = (),
    key_end: Iterable[Value] = (),
    too_large: bool = False,
) -> bytes:
    """Serialize one update. Values are in schema order."""
    message = update_pb2.Update(op=_OP_NUMBER[op], too_large=too_large)  # type: ignore[arg-type]
    for values, target in (
        (key, message.key),
        (after, message.after),
        (before, message.before),
        (old_key, message.old_key),
        (key_end, message.key_end),
    ):
        for value in values:
            _fill(target.add(), value)
    return message.SerializeToString()


def encode_key(key: Iterable[Value]) -> bytes:
    """Serialize a ``RowKey`` without a table. Its bytes equal those of the field ``key`` of an update."""
    message = update_pb2.RowKey()
    for value in key:
        _fill(message.values.add(), value)
    return message.SerializeToString(deterministic=True)


def decode_key(data: bytes) -> tuple[Value, ...]:
    """The values in a serialized ``RowKey``. Raises ``google.protobuf.message.DecodeError``, and
    :class:`~wormhole.model.errors.ProtocolError`.
    """
    return values_of(update_pb2.RowKey.FromString(data).values)


def _value(message: update_pb2.Value) -> Value:
    kind = message.WhichOneof("kind")
    if kind == "bytes":
        return message.bytes
    if kind == "null":
        return None
    if kind is None or kind == "unavailable":
        return UNAVAILABLE
    if kind == "entries":
        names, values = message.entries.names, message.entries.values
        if len(names) != len(values):
            raise ProtocolError(f"row: entries has {len(names)} names for {len(values)} values")
        return dict(zip(names, values, strict=True))
    if kind == "decimal":
        return decimal_of(message.decimal)
    value: Value = getattr(message, kind)
    return NAN if value != value else value


def value_of(data: bytes) -> Value:
    """The Python value in a serialized ``wormhole.wire.v1.Value``.

    Raises ``google.protobuf.message.DecodeError``, and :class:`~wormhole.model.errors.ProtocolError`."""
    return _value(update_pb2.Value.FromString(data))


def values_of(field: Sequence[update_pb2.Value]) -> tuple[Value, ...]:
    """The Python values of one repeated field of a row. Raises :class:`~wormhole.model.errors.ProtocolError`."""
    return tuple(map(_value, field))


def op_of(row: Row) -> Op:
    """The row's operation. Raises as :func:`op_numbered`."""
    return op_numbered(row.op)


def number_of_op(op: Op) -> int:
    """The number of an operation in ``wormhole.wire.v1.Op``."""
    return int(_OP_NUMBER[op])


def op_numbered(number: int) -> Op:
    """The operation with this number in ``wormhole.wire.v1.Op``. Only the low 32 bits are used.

    Raises :class:`~wormhole.model.errors.ProtocolError` for a number that this release does not know.
    """
    op = _OP.get(number)
    if op is None:
        number = (number + (1 << 31)) % (1 << 32) - (1 << 31)
        raise ProtocolError(
            f"row: operation {number} is not known to this release",
            hint="install the release of the side that sent it; if both are equal, the bytes are damaged: report this",
        )
    return op


def decode_row(data: bytes) -> Row:
    """Parse update bytes. Raises ``google.protobuf.message.DecodeError``."""
    return Row.FromString(data)


def entry(data: bytes) -> bytes:
    """``data`` as one ``BatchBody.updates`` entry: field tag, length, bytes."""
    return entry_head(len(data)) + data


def entry_head(length: int) -> bytes:
    """The beginning of an entry (:func:`entry`) of ``length`` bytes."""
    head = bytearray((0x0A,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)
