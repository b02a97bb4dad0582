"""The exit codes of commands. 0 means success."""

from __future__ import annotations

from typing import Final

__all__ = ["BROKEN", "UNREACHABLE", "WRONG"]

BROKEN: Final = 1
"""A problem was found, or something broke."""
WRONG: Final = 2
"""The request is wrong."""
UNREACHABLE: Final = 3
"""A process or service that the command needs cannot be reached now."""
