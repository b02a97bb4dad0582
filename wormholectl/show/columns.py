"""Declares a table once for two outputs: rows for people and JSON objects for programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from wormholectl.show.printer import print_table

__all__ = ["FIGURE", "ShownColumn", "ShownTable", "given"]

T = TypeVar("T")

FIGURE: Final[Callable[[Any], str]] = "{:,}".format
"""The format of a count."""


def given(message: Message, field: str) -> Any:
    """The value of an optional field; ``None`` if it is not set."""
    return getattr(message, field) if message.HasField(field) else None


@dataclass(frozen=True, slots=True)
class ShownColumn(Generic[T]):
    """A column. ``title``: its title in a table; ``None``: only for programs. ``name``: its field in an object;
    ``None``: only for people.

    ``value``: returns the value of an item. ``shown``: formats that value for people; ``None`` is shown as ``-``.
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
    """A table. ``columns``: in the order of the fields. If two columns have the same title, the last one is used.

    ``titles``: the columns for people, in order. ``names``: the fields for programs. By default, both contain all.
    """

    def __init__(self, *columns: ShownColumn[T], titles: Sequence[str] = (), names: Collection[str] = ()) -> None:
        known = {one.title: one for one in columns if one.title is not None}
        self.titles = tuple(titles or known)
        self._cells = [known[title] for title in self.titles]
        self._fields = {one.name: one for one in columns if one.name and (not names or one.name in names)}

    def row(self, item: T) -> Sequence[str]:
        """The cells of an item, for people."""
        return [column.cell(item) for column in self._cells]

    def object(self, item: T) -> dict[str, Any]:
        """An item as a JSON object, for programs."""
        return {name: column.value(item) for name, column in self._fields.items()}

    def objects(self, items: Iterable[T]) -> list[dict[str, Any]]:
        """Several items as JSON objects, for programs."""
        return list(map(self.object, items))

    def show(self, items: Iterable[T], empty: str) -> None:
        """Print ``items``, or the text ``empty`` if there are none."""
        print_table(self.titles, list(map(self.row, items)), empty)
