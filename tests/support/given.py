"""Values that a test needs to be there."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["given"]

T = TypeVar("T")


def given(value: T | None) -> T:
    """``value``, which is not ``None``."""
    assert value is not None
    return value
