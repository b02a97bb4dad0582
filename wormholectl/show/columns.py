"""Tables whose rows are objects for programs too: each column is declared once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from wormholectl.show.printer import print_table

__all__ = ["FIGURE", "ShownColumn", "ShownTable", "given"]

T = TypeVar("T")

FIGURE: Final[Callable[[Any], str]] = "{:,}".format
"""How a count is shown."""


def given(message: Message, field: str) -> Any:
    """The value of an optional field; ``None``: it is not set."""
    return getattr(message, field) if message.HasField(field) else None


@dataclass(frozen=True, slots=True)
class ShownColumn(Generic[T]):
    """``title`` above the column of a table; ``None``: programs only. ``name`` of the field in an object; ``None``:
    people only.

    ``value``: the value of an item. ``shown``: that value for people, who see ``-`` in place of ``None``.
    """

    title: str | None
    name: str | None
    value: Callable[[T], Any]
    shown: Callable[[Any], str] = str

    def cell(self, item: T) -> str:
        """The value of ``item`` for people."""
        value = self.value(item)
        return "-" if value is None else self.shown(value)


class ShownTable(Generic[T]):
    """``columns`` in the order of the fields; of two with one title the last counts.

    ``titles``: the columns for people in their order. ``names``: the fields. Both are everything by default.
    """

    def __init__(self, *columns: ShownColumn[T], titles: Sequence[str] = (), names: Collection[str] = ()) -> None:
        known = {one.title: one for one in columns if one.title is not None}
        self.titles = tuple(titles or known)
        self._cells = [known[title] for title in self.titles]
        self._fields = {one.name: one for one in columns if one.name and (not names or one.name in names)}

    def row(self, item: T) -> Sequence[str]:
        """One item for people."""
        return [column.cell(item) for column in self._cells]

    def object(self, item: T) -> dict[str, Any]:
        """One item for programs."""
        return {name: column.value(item) for name, column in self._fields.items()}

    def objects(self, items: Iterable[T]) -> list[dict[str, Any]]:
        """Several items for programs."""
        return list(map(self.object, items))

    def show(self, items: Iterable[T], empty: str) -> None:
        """Print ``items``, or ``empty`` where there is none."""
        print_table(self.titles, list(map(self.row, items)), empty)
