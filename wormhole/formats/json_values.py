"""The values of updates in JSON. Pure."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from wormhole.model.values import Unavailable, Value

__all__ = ["listed_as_json", "row_as_json", "time_as_json", "value_as_json"]


_PLAIN: Final = frozenset({str, int, bool, type(None)})
"""What JSON has as it is."""


def value_as_json(value: Value) -> Any:
    """A value for JSON: bytes that are UTF-8 become text (encoding it gives the bytes back), others ``{"b64":
    ...}``."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"double": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"b64": base64.b64encode(value).decode()}
        case Unavailable():
            return {"unavailable": True}
        case _:
            return {"entries": [[value_as_json(name), value_as_json(content)] for name, content in value.items()]}


def row_as_json(values: Mapping[str, Value] | None) -> dict[str, Any] | None:
    """A row, by the names of its columns."""
    if values is None or _PLAIN.issuperset(map(type, values.values())):
        return None if values is None else dict(values)
    return {name: value_as_json(value) for name, value in values.items()}


def listed_as_json(values: Iterable[Value] | None) -> list[Any] | None:
    """The values of a key."""
    return None if values is None else [value_as_json(value) for value in values]


def time_as_json(time: datetime | None) -> str | None:
    """A point in time as text in UTC, with microseconds."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
