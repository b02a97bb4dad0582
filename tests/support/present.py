"""A value that a test needs and that may be missing."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["present"]

T = TypeVar("T")


def present(value: T | None) -> T:
    """``value``, which must not be ``None``."""
    assert value is not None, "the value is missing"
    return value
