"""The key of a table whose rows in the log do not show it (REPLICA IDENTITY FULL and NOTHING).

The catalogue has the primary key as it is now, and the log that is read may be older. The log has no numbers of
columns, only their names and types in the table's order, and no trace of a change of the primary key. So the
catalogue's key is taken only where it was the key of that time:

- its constraint was made before the transaction that is decoded, or with the table; or it is the one of an earlier
  message of the same reader, or that one made anew for a column's new type, which the message shows;
- each of its columns is found in the message: by its name where the catalogue's row of it is as old, and otherwise by
  its place, where no column before it may have come or gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from datastores.postgres.decode.messages import Relation

__all__ = ["CatalogueColumn", "CatalogueKey", "KeyPlaces", "LoggedKeys", "places_of"]


@dataclass(frozen=True, slots=True)
class LoggedKeys:
    """What the log does not show of the keys that it contains, by the tables' numbers (OIDs).

    ``generated``: generated columns in a key. ``repeated``: partitioned tables of which two rows may have equal keys.
    """

    generated: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    repeated: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CatalogueColumn:
    """``number``: its place among all columns that the table ever had. ``settled``: nothing about it changed since the
    transaction that is decoded. ``remade``: the transaction that made the key was the last to change it."""

    number: int
    name: str
    type: int
    in_key: bool = False
    settled: bool = True
    dropped: bool = False
    generated: bool = False
    remade: bool = False


@dataclass(frozen=True, slots=True)
class CatalogueKey:
    """A table's columns and its primary key, as the catalogue has them now.

    ``constraint``: the key's own number (OID), 0 without a key. ``settled``: whether the table is known to have had
    this key, or none, in the transaction that is decoded; ``None``: nothing shows it.
    """

    columns: tuple[CatalogueColumn, ...]
    constraint: int = 0
    settled: bool | None = True

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the key's columns."""
        return tuple(column.number for column in self.columns if column.in_key)


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Positions of the key's columns in a Relation message, or why they are not known (``problem``).

    ``constraint`` and ``numbers``: as of a :class:`CatalogueKey`; ``types``: of its columns in the message.
    """

    places: tuple[int, ...] = ()
    problem: str = ""
    constraint: int = 0
    numbers: tuple[int, ...] = ()
    types: tuple[int, ...] = ()


def places_of(relation: Relation, key: CatalogueKey, before: KeyPlaces | None) -> KeyPlaces:
    """Where the key is. ``before``: what was found for the same table last."""
    parts = [column for column in key.columns if column.in_key]
    if not parts:
        # All that is left of a key that was dropped is that a look saw it.
        if key.settled is False or (key.settled is None and before is not None and before.numbers):
            return KeyPlaces(problem="the catalogue does not have its primary key any more")
        return KeyPlaces()
    names = ", ".join(column.name for column in parts)
    if not (key.settled or (before is not None and _is_still(key, before))):
        return KeyPlaces(problem=f"the primary key that the catalogue has ({names}) may be newer than that")
    places: list[int] = []
    for column in parts:
        place = _place(relation, column, key.columns)
        if place is None:
            what = f"the catalogue's primary key ({names}) has a column {column.name} which cannot be told among those "
            return KeyPlaces(problem=what + "that the log has: it was altered since")
        places.append(place)
    if len(set(places)) < len(places):
        return KeyPlaces(problem=f"the columns of the catalogue's primary key ({names}) were renamed since")
    return KeyPlaces(tuple(sorted(places)), "", key.constraint, key.numbers, tuple(column.type for column in parts))


def _is_still(key: CatalogueKey, before: KeyPlaces) -> bool:
    """Whether the key is the one that was found before. A constraint has the same columns for as long as it is there; a
    column that gets a new type has a constraint of the same columns made anew.
    """
    if before.numbers != key.numbers:
        return False
    parts = [column for column in key.columns if column.in_key]
    retyped = [column for column, kind in zip(parts, before.types, strict=True) if column.type != kind]
    return before.constraint == key.constraint or (bool(retyped) and all(column.remade for column in retyped))


def _place(relation: Relation, column: CatalogueColumn, columns: Sequence[CatalogueColumn]) -> int | None:
    """The position of the column of this number."""
    if column.settled:
        at = next((at for at, one in enumerate(relation.columns) if one.name == column.name), None)
    else:
        earlier = [one for one in columns if one.number < column.number and not (one.dropped and one.settled)]
        if any(one.dropped or one.generated for one in earlier):
            return None  # they may be in the log, or not
        at = len(earlier)
        if not _begin_with(relation, [*earlier, column]):
            return None
    return at if at is not None and relation.columns[at].type == column.type else None


def _begin_with(relation: Relation, columns: Sequence[CatalogueColumn]) -> bool:
    """Whether the message's columns begin with these, as far as their names and types are those of that time."""
    return len(relation.columns) >= len(columns) and all(
        one.type == column.type and (one.name == column.name or not column.settled)
        for one, column in zip(relation.columns, columns, strict=False)
    )
