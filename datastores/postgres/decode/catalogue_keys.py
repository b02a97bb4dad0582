"""Finds the key of a table whose rows in the log do not show it (REPLICA IDENTITY FULL and NOTHING).

The catalogue has the present primary key, but the log may be older. The log has only names and types of columns, in the
table's order, and does not show that a primary key changed. So the catalogue's key is used only if it was the key when
the transaction was written. This requires both:

- The key's constraint was created with the table, or before the transaction. The constraint that an earlier message of
  the same reader led to also counts, even if it was recreated for a new column type, which the message shows.
- Each column of the key is found in the message: by its name if the catalogue's row of the column is old enough, or by
  its position if no column before it may have been added or dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from datastores.postgres.decode.messages import Relation

__all__ = ["CatalogueColumn", "CatalogueKey", "KeyPlaces", "LoggedKeys", "places_of"]


@dataclass(frozen=True, slots=True)
class LoggedKeys:
    """Facts about keys that the log does not show. Tables are identified by OID.

    ``generated``: the generated columns of a key. ``repeated``: the partitioned tables in which rows may share a key.
    """

    generated: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    repeated: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CatalogueColumn:
    """``number``: the column's position among all columns that the table ever had. ``settled``: the column did not
    change since the decoded transaction. ``remade``: the transaction that created the key was the last to change the
    column."""

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
    """A table's present columns and primary key in the catalogue.

    ``constraint``: the OID of the key; 0: there is no key. ``settled``: whether the table had this key, or none, in the
    decoded transaction; ``None``: unknown.
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
    """The positions of the key's columns in a Relation message. ``problem``: why they are unknown.

    ``constraint`` and ``numbers``: those of the :class:`CatalogueKey`. ``types``: the columns' types in the message.
    """

    places: tuple[int, ...] = ()
    problem: str = ""
    constraint: int = 0
    numbers: tuple[int, ...] = ()
    types: tuple[int, ...] = ()


def places_of(relation: Relation, key: CatalogueKey, before: KeyPlaces | None) -> KeyPlaces:
    """The positions of the key's columns. ``before``: the previous result for the same table."""
    parts = [column for column in key.columns if column.in_key]
    if not parts:
        # A dropped key is known only from an earlier result.
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
    """Whether the key is the one found before. A constraint keeps its columns while it exists. If a column gets a new
    type, PostgreSQL recreates the constraint with the same columns.
    """
    if before.numbers != key.numbers:
        return False
    parts = [column for column in key.columns if column.in_key]
    retyped = [column for column, kind in zip(parts, before.types, strict=True) if column.type != kind]
    return before.constraint == key.constraint or (bool(retyped) and all(column.remade for column in retyped))


def _place(relation: Relation, column: CatalogueColumn, columns: Sequence[CatalogueColumn]) -> int | None:
    """The position of ``column`` in the message; ``None``: unknown."""
    if column.settled:
        at = next((at for at, one in enumerate(relation.columns) if one.name == column.name), None)
    else:
        earlier = [one for one in columns if one.number < column.number and not (one.dropped and one.settled)]
        if any(one.dropped or one.generated for one in earlier):
            return None  # an earlier column may be missing in the log
        at = len(earlier)
        if not _begin_with(relation, [*earlier, column]):
            return None
    return at if at is not None and relation.columns[at].type == column.type else None


def _begin_with(relation: Relation, columns: Sequence[CatalogueColumn]) -> bool:
    """Whether the message's columns begin with ``columns``. Only names and types that did not change since are
    compared."""
    return len(relation.columns) >= len(columns) and all(
        one.type == column.type and (one.name == column.name or not column.settled)
        for one, column in zip(relation.columns, columns, strict=False)
    )
