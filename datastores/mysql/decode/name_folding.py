"""Folds the names of databases, tables and savepoints so that they compare as in the servers."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["fold", "fold_newest", "savepoint_key"]

# Letters of Unicode 3.2 that the servers' table, of Unicode 3.0, leaves unchanged.
_UNCHANGED: Final = frozenset("\u0220\u03d8\u03f4\u048a\u04c5\u04c9\u04cd" + "".join(map(chr, range(0x500, 0x510, 2))))
_assigned: Final = unicodedata.ucd_3_2_0.category


def fold(name: str) -> str:
    """The name as servers with ``lower_case_table_names = 1`` write it: ``LOWER`` of ``utf8mb3_general_ci``, which maps
    each character to one character.

    ``tests/integration/test_mysql_statements.py`` compares this with both servers for the Basic Multilingual Plane.
    """
    return name.lower() if name.isascii() else "".join(map(_lower, name))


def fold_newest(name: str) -> str:
    """The name folded by the present Unicode, for servers with a newer table. Names that `fold` makes equal are equal
    here too."""
    return "".join("i" if one == "\u0130" else lower if len(lower := one.lower()) == 1 else one for one in name)


def _lower(character: str) -> str:
    if character == "\u0130":  # a capital I with a dot
        return "i"
    lower = character.lower()
    if len(lower) > 1 or character in _UNCHANGED or "Cn" in (_assigned(character), _assigned(lower)):
        return character
    return lower


def savepoint_key(name: str) -> str:
    """A key that is equal for all names of one savepoint. The servers ignore case and accents
    (``utf8mb3_general_ci``)."""
    return "".join(unicodedata.normalize("NFD", character)[0].upper()[0] for character in name)
