"""The keys of rows that changed in a lost range of a log, as far as they are known. A repair reads these rows again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from wormhole.model.schema import Column

__all__ = ["MOST_KEYS", "MOST_KEY_BYTES", "LostKeys", "TableKeys", "bounded"]

_SHOWN: Final = 3
_Name = TypeVar("_Name")

MOST_KEYS: Final = 200_000
"""The limit of the keys of one range. A range with more names whole tables instead."""
MOST_KEY_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The rows of one table whose changes were lost.

    ``key``: the columns of ``keys``, which are serialized ``RowKey`` messages without a table. ``whole``: why any row
    of the table may have changed; empty: only the rows of ``keys`` changed.
    """

    key: tuple[Column, ...] = ()
    keys: frozenset[bytes] = frozenset()
    whole: str = ""

    def joined(self, other: TableKeys) -> TableKeys:
        """The rows that changed in this range or the other."""
        if self.whole or other.whole:
            return TableKeys(whole=self.whole or other.whole)
        if self.key != other.key:
            return TableKeys(whole="the columns of its key changed")
        return TableKeys(self.key, self.keys | other.keys)


@dataclass(frozen=True, slots=True)
class LostKeys:
    """The rows of one shard whose changes were lost, by table. A missing table has no change in the range."""

    tables: Mapping[str, TableKeys] = field(default_factory=dict)

    @property
    def keys(self) -> int:
        """How many keys are known, of all tables together."""
        return sum(len(table.keys) for table in self.tables.values())

    @property
    def whole(self) -> Mapping[str, str]:
        """The tables in which any row may have changed, each with the reason."""
        return {name: table.whole for name, table in self.tables.items() if table.whole}

    def of(self, wanted: Callable[[str], bool]) -> LostKeys:
        """The lost keys without the tables that are not ``wanted``."""
        return LostKeys({name: table for name, table in self.tables.items() if wanted(name)})

    @classmethod
    def joined(cls, parts: Iterable[LostKeys]) -> LostKeys:
        """The rows that changed in any of ``parts``, within the bounds."""
        found: dict[str, TableKeys] = {}
        for part in parts:
            for name, table in part.tables.items():
                found[name] = found[name].joined(table) if name in found else table
            found = bounded(found)
        return cls(found)

    def __str__(self) -> str:
        """The lost keys as text for operators."""
        tables = sum(not table.whole for table in self.tables.values())
        known = f"{_counted(self.keys, 'key')} of {_counted(tables, 'table')}, from the relay"
        whole = [f"{name} as a whole ({why})" for name, why in sorted(self.whole.items())]
        if not whole:
            return known
        shown = ", ".join(whole[:_SHOWN]) + (f" and {len(whole) - _SHOWN} more" if len(whole) > _SHOWN else "")
        return f"{known}; {shown}" if tables else shown


def bounded(tables: Mapping[_Name, TableKeys]) -> dict[_Name, TableKeys]:
    """The tables, reduced to :data:`MOST_KEYS` keys and :data:`MOST_KEY_BYTES` bytes: the tables with the most keys
    become whole.
    """
    found = dict(tables)
    count = sum(len(table.keys) for table in found.values())
    sizes = {name: sum(map(len, table.keys)) for name, table in found.items() if table.keys}
    while count > MOST_KEYS or sum(sizes.values()) > MOST_KEY_BYTES:
        name = max(sizes, key=lambda one: (len(found[one].keys), sizes[one]))
        count -= len(found[name].keys)
        found[name] = TableKeys(whole=f"more than {MOST_KEYS:,} keys changed")
        del sizes[name]
    return found


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
