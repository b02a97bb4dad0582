"""What is left of a batch of updates for one table: at most one change of each row. Pure.

An update of a row replaces what earlier updates of the batch left of it, so that each row is written once. What touches
many rows, and what needs the stored row, is a step of its own between two such changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sinks.sql.failures import RowRefused
from subscriber_sdk import UNAVAILABLE, Key, Op, Update, Value

__all__ = ["Clear", "Move", "Names", "Range", "Step", "Write", "steps"]

Names = tuple[str, ...]
"""Names of columns in updates."""
Row = tuple[Key, tuple[Value, ...]]
"""A row's key, and the values of some other columns."""

_WHOLE: Final = frozenset({Op.INSERT, Op.READ, Op.UPSERT})


@dataclass(slots=True)
class Write:
    """Changes of rows, each of another key. Deletes come first.

    ``deletes``: keys. ``upserts``: rows by the columns that they have; all other columns stay as they are. ``patches``:
    the same for rows that have to be there. ``appends``: rows without a key.
    """

    deletes: list[Key] = field(default_factory=list)
    upserts: dict[Names, list[Row]] = field(default_factory=dict)
    patches: dict[Names, list[Row]] = field(default_factory=dict)
    appends: dict[Names, list[Row]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clear:
    """Every row of the shard goes."""


@dataclass(frozen=True, slots=True)
class Range:
    """Every row of the shard from ``begin`` (inclusive) to ``end`` (exclusive) goes."""

    begin: Key
    end: Key


@dataclass(frozen=True, slots=True)
class Move:
    """The row ``old`` gets the key ``new``, and these values."""

    old: Key
    new: Key
    columns: Names
    values: tuple[Value, ...]


Step = Write | Clear | Range | Move


@dataclass(frozen=True, slots=True)
class _Image:
    """A row as it is after the batch. ``whole``: it is written whether or not the row is there."""

    columns: Names
    values: tuple[Value, ...]
    whole: bool

    def over(self, before: _Image) -> _Image:
        """The row after both."""
        merged = dict(zip(before.columns, before.values, strict=True)) | dict(
            zip(self.columns, self.values, strict=True)
        )
        return _Image(tuple(merged), tuple(merged.values()), self.whole or before.whole)


class _Rows:
    """The changes since the last step. ``None``: the row is deleted."""

    def __init__(self) -> None:
        self.images: dict[Key, _Image | None] = {}
        self.appends: dict[Names, list[Row]] = {}

    def take(self) -> Iterator[Write]:
        """The step, if there is something to do."""
        if not self.images and not self.appends:
            return
        write = Write(appends=self.appends)
        for key, image in self.images.items():
            if image is None:
                write.deletes.append(key)
            else:
                groups = write.upserts if image.whole else write.patches
                groups.setdefault(image.columns, []).append((key, image.values))
        self.images, self.appends = {}, {}
        yield write

    def add(self, update: Update) -> Iterator[Step]:
        """Take an update in. Yields the steps that come before what is left."""
        op = update.op
        if op is Op.TRUNCATE:
            self.images, self.appends = {}, {}
            yield Clear()
            return
        if op is Op.MERGE or update.too_large:
            raise RowRefused.of(
                update,
                "it has no values, because they are larger than max_update_bytes"
                if update.too_large
                else "a merge operand is not a row",
            )
        key, after = update.key, update.after
        if op is Op.DELETE_RANGE:
            assert update.key_end is not None
            yield from self.take()
            yield Range(key, update.key_end)
        elif not key:
            self._append(update)
        elif after is None or op is Op.DELETE or update.left:
            self._delete(update.old_key)
            self._delete(key)
        else:
            image = _image(after, op in _WHOLE)
            if (old := update.old_key) is not None and old != key:
                if not image.whole:
                    yield from self._move(old, key, image)
                    return
                self._delete(old)
            if len(image.columns) < len(after) and key in self.images:
                yield from self._over(key, image)
            else:
                self.images[key] = image

    def _over(self, key: Key, image: _Image) -> Iterator[Write]:
        """Some columns of a row that has another change."""
        before = self.images[key]
        if before is not None:
            self.images[key] = image.over(before)
        elif image.whole:  # the deleted row had other columns
            yield from self.take()
            self.images[key] = image

    def _delete(self, key: Key | None) -> None:
        if key is not None:
            self.images[key] = None

    def _move(self, old: Key, new: Key, image: _Image) -> Iterator[Step]:
        """Columns that are not in the log stay with the row, whose key changes."""
        before = self.images.get(old)
        if before is not None and before.whole:
            self.images[old], self.images[new] = None, image.over(before)
            return
        yield from self.take()
        yield Move(old, new, image.columns, image.values)

    def _append(self, update: Update) -> None:
        if update.op not in _WHOLE or update.after is None:
            raise RowRefused.of(update, "the table has no key, so the row that changed is not known")
        image = _image(update.after, whole=True)
        self.appends.setdefault(image.columns, []).append(((), image.values))


def steps(updates: Iterable[Update]) -> Iterator[Step]:
    """The steps that have the effect of the ``updates``, which are of one table.

    Raises :class:`~sinks.sql.failures.RowRefused` for an update that no row follows from.
    """
    rows = _Rows()
    for update in updates:
        yield from rows.add(update)
    yield from rows.take()


def _image(after: Mapping[str, Value], whole: bool) -> _Image:
    """``whole``: the operation writes the row whether or not it is there. With every column an update does, too."""
    values = tuple(after.values())
    if UNAVAILABLE not in values:
        return _Image(tuple(after), values, True)
    known = {name: value for name, value in after.items() if value is not UNAVAILABLE}
    return _Image(tuple(known), tuple(known.values()), whole)
