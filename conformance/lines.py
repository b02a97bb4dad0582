"""Builds the lines that a client has to print, and compares printed lines with them. Pure."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from google.protobuf.message import DecodeError

from wormhole.model.schema import Schema
from wormhole.wire.body import parse_body
from wormhole.wire.v1 import push_pb2, update_pb2

__all__ = ["AnyOrder", "agrees", "differs", "held_row", "update_lines"]

_INTS: Final = frozenset({"int", "uint"})
_KEYS: Final = ("old_key", "key_end")


class AnyOrder(tuple[Any, ...]):
    """A list whose order does not matter."""


def agrees(expected: Any, printed: Any) -> bool:
    """Whether the ``printed`` data matches the ``expected`` data."""
    try:
        match expected:
            case update_pb2.Value():
                return _value_agrees(expected, printed)
            case push_pb2.Datamarker():
                return push_pb2.Datamarker.FromString(base64.b64decode(printed, validate=True)) == expected
            case AnyOrder():
                left = list(printed)
                for one in expected:
                    left.remove(next(other for other in left if agrees(one, other)))
                return not left
            case Mapping():
                return expected.keys() == printed.keys() and all(agrees(expected[k], printed[k]) for k in expected)
            case str() | bytes() | None | bool() | int():
                return type(printed) is type(expected) and bool(printed == expected)
            case _:
                return len(expected) == len(printed) and all(map(agrees, expected, printed))
    except (AttributeError, TypeError, ValueError, KeyError, StopIteration, InvalidOperation, DecodeError):
        return False


def differs(line: Mapping[str, Any], held: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the update of this line has no equal row among those that the application holds."""
    return not any(agrees(line["key"], row["key"]) and agrees(line["after"], row["columns"]) for row in held)


def held_row(row: Sequence[Any]) -> dict[str, Any]:
    """A row of ``holds`` as the client gets it: from its key, a whole number, and its columns, which are texts."""
    key, columns = row
    texts = {name: {"type": "text", "value": text} for name, text in columns.items()}
    return {"key": [{"type": "int", "value": str(key)}], "columns": texts}


def _value_agrees(value: update_pb2.Value, printed: Mapping[str, Any]) -> bool:
    kind, type_ = value.WhichOneof("kind"), printed["type"]
    if kind in {None, "null", "unavailable"}:
        return bool(type_ == (kind or "unavailable"))
    given, text = getattr(value, kind), printed["value"]
    if kind == "decimal":
        exact = Decimal(given)
        # A decimal that the client's library cannot represent is printed as text.
        known = type_ == "decimal" or (type_ == "text" and not exact.is_finite())
        return bool(known and Decimal(text).as_tuple() == exact.as_tuple())
    if type_ != ("int" if kind in _INTS else kind):
        return False
    match kind:
        case "int" | "uint":
            return bool(text == str(given))
        case "double":
            number = float(text)
            same = bool(struct.pack("<d", number) == struct.pack("<d", given))
            return same or (math.isnan(given) and math.isnan(number))
        case "bool":
            return bool(text == str(given).lower())
        case "text":
            return bool(text == given)
        case "bytes":
            return bool(_bytes_of(text) == given)
        case _:
            pairs = [(_bytes_of(name), _bytes_of(held)) for name, held in text]
            return dict(pairs) == dict(zip(given.names, given.values, strict=True)) and len(pairs) == len(dict(pairs))


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def update_lines(
    data: bytes, schema_of: Callable[[int], Schema], **shared: Any
) -> Iterator[tuple[dict[str, Any], update_pb2.Update, Schema]]:
    """The line of each update of a body, with the update and its schema. ``shared``: fields that all lines have."""
    body = parse_body(data)
    for ordinal, encoded in enumerate(body.updates):
        row = update_pb2.Update.FromString(bytes(encoded))
        schema = schema_of(body.schema_id_of(ordinal))
        at, mark = body.transaction_of(ordinal), body.mark_of(ordinal)
        transaction = body.transaction_id(at)
        line = {
            **shared,
            "id": f"{transaction}:{body.index_of(ordinal)}",
            "op": update_pb2.Op.Name(row.op).lower(),
            "table": schema.table,
            "key": list(row.key),
            **{name: list(getattr(row, name)) or None for name in _KEYS},
            "before": _named(schema, row.before),
            "after": _named(schema, row.after),
            "transaction": transaction,
            "position": str(body.position_of(at)),
            "index": body.index_of(ordinal),
            "ends_transaction": at < len(body.tx_end) and body.tx_end[at] == ordinal + 1,
            "committed_at_us": body.committed_at_us(at),
            "too_large": row.too_large,
            "entered": mark == update_pb2.ENTERED,
            "left": mark == update_pb2.LEFT,
        }
        yield line, row, schema


def _named(schema: Schema, values: Sequence[update_pb2.Value]) -> dict[str, update_pb2.Value] | None:
    return dict(zip(schema.names, values, strict=True)) if values else None
