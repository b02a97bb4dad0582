"""The name of a table's folder: what the database calls the table, as every library and reader takes it. Pure."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["folder_name"]

_PLAIN: Final = frozenset("-_.")
_LONGEST: Final = 200
"""Bytes; a file system takes 255."""


def folder_name(table: str) -> str:
    """Letters and digits of any language, ``-``, ``_`` and ``.`` stay; every other byte of the name's UTF-8 is ``~``
    and two hexadecimal digits, and so is a ``_`` or ``.`` at the beginning, where readers pass over files. Libraries
    decode ``%``, and take ``?`` and ``#`` for parts of a URL. Two tables never have the same name: the end of a long
    one is a digest.
    """
    kept = "".join(one if one.isalnum() or one in _PLAIN else _escaped(one) for one in table)
    if kept[:1] in {"_", "."}:
        kept = _escaped(kept[0]) + kept[1:]
    encoded = kept.encode()
    if len(encoded) <= _LONGEST:
        return kept
    digest = hashlib.sha256(table.encode()).hexdigest()[:16]
    return f"{encoded[: _LONGEST - 18].decode(errors='ignore')}~~{digest}"


def _escaped(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode())
