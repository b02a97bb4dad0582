"""What a datastore lacks of what was delivered, for people."""

from __future__ import annotations

from typing import Final

__all__ = ["shortened"]

_MOST: Final = 300
_CUT: Final = "..."


def shortened(text: str) -> str:
    """At most 300 characters of it."""
    return text if len(text) <= _MOST else text[: _MOST - len(_CUT)] + _CUT
