"""Suggests the nearest known name in messages about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

__all__ = ["suggestion"]

# Names of the same settings in other products.
_MEANT: Final = {"filter": "where", "from": "start", "url": "source", "password": "password_file"}


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` for the known name nearest to ``name``, else the list of known names."""
    names = sorted(known)
    close = [one for one in (_MEANT.get(name),) if one in names] or difflib.get_close_matches(name, names, n=1)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; known are {', '.join(names)}" if names else ""
