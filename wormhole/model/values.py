"""Operations and values as a subscriber sees them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final, final

__all__ = ["NAN", "UNAVAILABLE", "Op", "Unavailable", "Value"]


class Op(Enum):
    """The kind of a change of a row or key. The member values are the names used in filters and in JSON."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    UPSERT = "upsert"
    """A write of which the log does not show whether the row existed before (a put into a key-value store)."""
    MERGE = "merge"
    """A merge of a key-value store: ``after`` holds the operand, not the result."""
    DELETE_RANGE = "delete_range"
    """Every key from ``key`` (inclusive) to ``key_end`` (exclusive)."""
    READ = "read"
    """An existing row, read from its table by a backfill; not a change, and in no log."""


@final
class Unavailable:
    """The type of :data:`UNAVAILABLE`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNAVAILABLE"

    def __bool__(self) -> bool:
        raise TypeError("this value is not in the log: compare with `is UNAVAILABLE` instead of testing its truth")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Let a field of a pydantic model be ``str | Unavailable``."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    def __reduce__(self) -> str:
        return "UNAVAILABLE"


UNAVAILABLE: Final = Unavailable()
"""A value that the log does not hold. Distinct from ``None``, which is a NULL."""

NAN: Final = float("nan")
"""The one object for every NaN in a row. A dict finds a key that contains it, because Python compares identity first.
"""

Value = bytes | str | int | float | bool | Decimal | None | Unavailable | Mapping[bytes, bytes]
"""The value of a key or a column."""
