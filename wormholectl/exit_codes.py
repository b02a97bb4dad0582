"""What a command ends with. 0 is: all well."""

from __future__ import annotations

from typing import Final

__all__ = ["BROKEN", "UNREACHABLE", "WRONG"]

BROKEN: Final = 1
"""A problem was found, or something broke."""
WRONG: Final = 2
"""The request is wrong."""
UNREACHABLE: Final = 3
"""What it needs cannot be reached just now."""
