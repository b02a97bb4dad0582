"""Reads the TOML of a configuration. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["read_toml"]

_DEEPEST: Final = 100
_INTEGERS: Final = range(-(1 << 63), 1 << 63)


def read_toml(text: str) -> dict[str, Any]:
    """The table in ``text``.

    Raises ``ValueError`` for text that is no TOML, for more than 100 levels of tables and lists, and for a whole
    number of more than 64 bits. TOML need not support such a number, and Python cannot convert a long one to ``float``
    or text.
    """
    try:
        given = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a number has too many digits") from None
    _check(given)
    return given


def _check(given: dict[str, Any]) -> None:
    level: list[object] = [given]
    for _ in range(_DEEPEST):
        if not level:
            return
        level = [within for one in level for within in _within(one)]
    raise ValueError("it is nested too deeply")


def _within(one: object) -> Iterable[object]:
    if isinstance(one, int) and one not in _INTEGERS:
        raise ValueError("a number has too many digits")
    if isinstance(one, dict):
        return one.values()
    return one if isinstance(one, list) else ()
