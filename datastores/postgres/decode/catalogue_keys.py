"""The key of a table whose rows in the log do not show it (REPLICA IDENTITY FULL and NOTHING).

The catalogue has the present primary key, and the log may be older. The log has no numbers of columns, only their names
and types in the table's order, and no trace of a change of the primary key. So the catalogue's key is used only if it
was the key when the transaction was written:

- Its constraint was created before the transaction that is decoded, or with the table. Or it is the constraint found
  for an earlier message of the same reader, or that constraint recreated for a column's new type, which the message
  shows.
- Each of its columns is found in the message: by its name if the catalogue's row of the column is old enough, otherwise
  by its position, if no column before it may have been added or dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from datastores.postgres.decode.messages import Relation

__all__ = ["CatalogueColumn", "CatalogueKey", "KeyPlaces", "LoggedKeys", "places_of"]


@dataclass(frozen=True, slots=True)
class LoggedKeys:
    """Facts about the keys in the log that the log does not show, by the tables' numbers (OIDs).

    ``generated``: generated columns in a key. ``repeated``: partitioned tables in which two rows may have equal keys.
    """

    generated: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    repeated: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CatalogueColumn:
    """``number``: the column's position among all columns that the table ever had. ``settled``: the column did not
    change since the transaction that is decoded. ``remade``: the last change of the column was by the transaction that
    created the key."""

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

    ``constraint``: the key's own number (OID), 0 without a key. ``settled``: whether the table had this key, or none,
    in the transaction that is decoded; ``None``: not known.
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

    ``constraint`` and ``numbers``: as of a :class:`CatalogueKey`; ``types``: the types of its columns in the message.
    """

    places: tuple[int, ...] = ()
    problem: str = ""
    constraint: int = 0
    numbers: tuple[int, ...] = ()
    types: tuple[int, ...] = ()


def places_of(relation: Relation, key: CatalogueKey, before: KeyPlaces | None) -> KeyPlaces:
    """The positions of the key's columns. ``before``: the last result for the same table."""
    parts = [column for column in key.columns if column.in_key]
    if not parts:
        # The only trace of a dropped key is that an earlier look saw it.
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
            what = f"the catalogue's primary key ({names}) has a column {column.name} which cannot be distinguished"
            return KeyPlaces(problem=f"{what} among those that the log has: it was altered since")
        places.append(place)
    if len(set(places)) < len(places):
        return KeyPlaces(problem=f"the columns of the catalogue's primary key ({names}) were renamed since")
    return KeyPlaces(tuple(sorted(places)), "", key.constraint, key.numbers, tuple(column.type for column in parts))


def _is_still(key: CatalogueKey, before: KeyPlaces) -> bool:
    """Whether the key is the one found before. A constraint keeps its columns for as long as it exists. When a column
    gets a new type, the constraint is recreated with the same columns.
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
            return None  # a column before this one may be in the log or not
        at = len(earlier)
        if not _begin_with(relation, [*earlier, column]):
            return None
    return at if at is not None and relation.columns[at].type == column.type else None


def _begin_with(relation: Relation, columns: Sequence[CatalogueColumn]) -> bool:
    """Whether the message's columns begin with ``columns``. Names and types are compared where they did not change
    since."""
    return len(relation.columns) >= len(columns) and all(
        one.type == column.type and (one.name == column.name or not column.settled)
        for one, column in zip(relation.columns, columns, strict=False)
    )
