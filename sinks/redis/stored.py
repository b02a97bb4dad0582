"""Converts the values of a stored JSON document back to values of a row. Pure."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

from wormhole.model.values import UNAVAILABLE, Value

__all__ = ["value_of"]


def value_of(stored: Any, type_: str) -> Value:
    """Inverse of :func:`wormhole.formats.json_values.value_as_json` for a column of this type. A value that another
    program wrote becomes some value that differs from the row's value.
    """
    try:
        return _value(stored, type_)
    except (ValueError, ArithmeticError, TypeError):
        return repr(stored)


def _value(stored: Any, type_: str) -> Value:
    match stored:
        case str() if type_ == "bytes":
            return stored.encode()
        case {"b64": str(text)}:
            return base64.b64decode(text)
        case {"decimal": str(text)}:
            return Decimal(text)
        case {"double": str(text)}:
            return float(text)
        case {"entries": list(pairs)}:
            return {_bytes(name): _bytes(content) for name, content in pairs}
        case {"unavailable": True}:
            return UNAVAILABLE
        case None | bool() | int() | float() | str():
            return stored
    return repr(stored)


def _bytes(stored: Any) -> bytes:
    value = _value(stored, "bytes")
    if not isinstance(value, bytes):
        raise TypeError
    return value
