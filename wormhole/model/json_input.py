"""Reads JSON that another program may have written: a node of ZooKeeper, a manifest, a file in a state folder. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

__all__ = ["read_json"]

_MOST_DIGITS: Final = 40
_LONG: Final = re.compile(rf"[0-9]{{{_MOST_DIGITS + 1}}}")
_SHOWN: Final = 20
_HALF: Final = re.compile(r"(?i)\\ud[89a-f]")


def read_json(data: str | bytes) -> Any:
    """The value of the JSON. Every number in it converts to ``int`` and ``float``, and every text to UTF-8.

    Raises ``ValueError`` for everything else: no JSON, no UTF-8, deeper than Python's stack allows, an infinite number
    or one of more than 40 digits, ``NaN``, half of a surrogate pair. :func:`json.loads` raises other errors for some of
    these, and accepts some that fail where they are used.
    """
    text = data.decode() if isinstance(data, bytes) else data
    try:
        # Calling a function for each number would take as long as everything else.
        whole = _whole if _LONG.search(text) else None
        value = json.loads(text, parse_int=whole, parse_float=_finite, parse_constant=_refused)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if _HALF.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _whole(text: str) -> int:
    if len(text.removeprefix("-")) > _MOST_DIGITS:
        _refused(text)
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _refused(text)
    return number


def _refused(text: str) -> NoReturn:
    raise ValueError(f"{text[:_SHOWN]} is no number that can be here")
