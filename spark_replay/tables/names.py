"""The name of a table's folder: the table's name, escaped so that every library and reader accepts it. Pure."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["folder_name"]

_PLAIN: Final = frozenset("-_.")
_LONGEST: Final = 200
"""The most bytes of a name. A file system permits 255."""


def folder_name(table: str) -> str:
    """The folder name of a table.

    Letters and digits of any language, ``-``, ``_`` and ``.`` stay. Every other byte of the name's UTF-8 becomes ``~``
    and two hexadecimal digits. So does a ``_`` or ``.`` at the beginning, because readers ignore such files. (``%`` is
    not used, because libraries decode it; ``?`` and ``#`` are parts of a URL.) Two tables never have the same folder:
    a long name ends with a digest.
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
