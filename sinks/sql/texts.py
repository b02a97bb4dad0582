"""Writes values as text for SQL statements and for COPY. Pure.

Drivers convert each value by itself, which takes several times as long as all values of a column at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sinks.sql.failures import RowRefused

__all__ = ["Form", "texts"]

_NONE: Final = {type(None)}
_NUMBERS: Final = {int, Decimal, float, bool}
_BYTES: Final = {bytes}
_TEXT: Final = {str}


@dataclass(frozen=True, slots=True)
class Form:
    """A form of values. ``escapes``: characters of text and their replacements, in order; ``quoted``: the form of text,
    with ``{}`` for the text; ``data``: the form of bytes, with ``{}`` for hexadecimal digits. ``zero``: whether text
    may contain U+0000.
    """

    escapes: tuple[tuple[str, str], ...]
    quoted: str
    data: str
    null: str = "NULL"
    zero: bool = False


def texts(name: str, values: Sequence[Any], form: Form) -> list[str]:
    """The text of each value of the column ``name``. Except NULLs, all values are numbers, or bytes, or text.

    Raises :class:`~sinks.sql.failures.RowRefused`.
    """
    null, types = form.null, set(map(type, values)) - _NONE
    if types <= _NUMBERS:
        return [null if value is None else str(value) for value in values]
    if types == _BYTES:
        return [null if value is None else form.data.format(value.hex()) for value in values]
    if types != _TEXT:
        raise TypeError(f"values of {', '.join(sorted(type_.__name__ for type_ in types))} in column {name}")
    whole = None not in values
    known = values if whole else ["" if value is None else value for value in values]
    joined = "\0".join(known)
    if joined.count("\0") < len(values):
        begin, end = form.quoted.split("{}")
        shown = (begin + _escaped(joined, form).replace("\0", f"{end}\0{begin}") + end).split("\0")  # one call for all
    elif form.zero:
        shown = [form.quoted.format(_escaped(value, form)) for value in known]
    else:
        raise RowRefused(f"text with the character U+0000 in column {name}")
    if whole:
        return shown
    return [null if value is None else text for value, text in zip(values, shown, strict=True)]


def _escaped(text: str, form: Form) -> str:
    for character, escaped in form.escapes:
        text = text.replace(character, escaped)
    return text
