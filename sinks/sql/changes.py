"""Reduces a batch of updates of one table to at most one change of each row. Pure.

A later update of a row replaces the result of earlier updates in the batch, so that each row is written once. An
operation on many rows, or one that needs the stored row, is a separate step between two such groups of changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from sinks.sql.failures import RowRefused
from subscriber_sdk import UNAVAILABLE, Key, Op, Update, Value
from wormhole.wire.update import by_column

__all__ = ["Clear", "Move", "Moved", "Names", "Range", "Room", "Rows", "Step", "Write", "steps"]

Names = tuple[str, ...]
"""Names of columns in updates."""
Row = tuple[Key, tuple[Value, ...]]
"""A row's key, and the values of some other columns."""

_WHOLE: Final = frozenset({Op.INSERT, Op.READ, Op.UPSERT})
_NEW: Final = frozenset({Op.INSERT, Op.READ})
_IMAGES: Final = _WHOLE | {Op.UPDATE}
_LEFT: Final = 1024  # the most keys that are remembered as left by their row
_ENTRY: Final = 200
"""Bytes of an entry of :class:`Moved`, without the text of its key."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, column by column. ``keys``: the columns of the key; ``values``: some other columns."""

    keys: Sequence[Sequence[Value]]
    values: Sequence[Sequence[Value]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Rows:
        """These rows."""
        keys, values = zip(*rows, strict=True)
        return cls(list(map(list, zip(*keys, strict=True))), list(map(list, zip(*values, strict=True))))


@dataclass(slots=True)
class Write:
    """A step with changes of rows with different keys. Deletes come first.

    ``deletes``: keys. ``upserts``: rows to insert or update, grouped by their columns; all other columns keep their
    values. ``patches``: rows to update that have to exist, grouped in the same way. ``appends``: rows without a key.
    ``new``: whether all rows of ``upserts`` were inserted or read in the source.
    """

    deletes: list[Key] = field(default_factory=list)
    upserts: dict[Names, Rows] = field(default_factory=dict)
    patches: dict[Names, Rows] = field(default_factory=dict)
    appends: dict[Names, Rows] = field(default_factory=dict)
    new: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Clear:
    """A step that removes every row of the shard."""


@dataclass(frozen=True, slots=True)
class Range:
    """A step that removes every row of the shard from ``begin`` (inclusive) to ``end`` (exclusive)."""

    begin: Key
    end: Key


@dataclass(frozen=True, slots=True)
class Move:
    """A step that gives the row with the key ``old`` the key ``new``, and these values."""

    old: Key
    new: Key
    columns: Names
    values: tuple[Value, ...]


Step = Write | Clear | Range | Move


@dataclass(frozen=True, slots=True)
class _Part:
    """Some columns of a row. ``whole``: whether they are written even if the row does not exist."""

    columns: Names
    values: tuple[Value, ...]
    whole: bool

    def over(self, before: _Part) -> _Part:
        """The row after both."""
        columns, values = (*before.columns, *self.columns), (*before.values, *self.values)
        merged = dict(zip(columns, values, strict=True))
        return _Part(tuple(merged), tuple(merged.values()), self.whole or before.whole)


@dataclass(frozen=True, slots=True)
class _Image:
    """``values``: the values of every column, or a part of them; ``None``: the row is deleted."""

    values: tuple[Value, ...] | _Part | None


@dataclass(slots=True)
class Room:
    """The memory for moved keys of one shard's open transaction. ``size``: the most bytes; ``taken``: the used
    bytes."""

    size: int = 64 << 20
    taken: int = 0


class Moved:
    """The keys to which rows moved in the open transaction while another row may still have the same key, as a
    deferrable key of PostgreSQL allows. ``rows``: by key a hash of the values of the row that moved. ``lost``: whether
    a row may be lost, because the memory was full, or because it is not known which row has a key.
    """

    def __init__(self, room: Room) -> None:
        self.rows: dict[Key, int] = {}
        self.lost = False
        self._room = room
        self._left: dict[Key, None] = {}  # keys that no row has, the latest of them
        self._transaction = ""

    @property
    def knows_nothing(self) -> bool:
        """Whether no row changed its key in the open transaction."""
        return not self.rows and not self._left

    def begin(self, update: Update) -> None:
        """Forget the keys of an earlier transaction."""
        if (transaction := update.transaction.id) != self._transaction:
            self._transaction = transaction
            self.clear()

    def clear(self) -> None:
        """Forget every key."""
        self._room.taken -= sum(map(_entry, self.rows))
        self.rows.clear()
        self._left.clear()

    def leave(self, key: Key) -> None:
        """Note that a row no longer has this key, so that at most one row has it now."""
        if self.rows.pop(key, None) is not None:
            self._room.taken -= _entry(key)

    def leave_for_another(self, key: Key) -> None:
        """Note that a row moved from this key to another key. The next row with this key is then the only one."""
        if key in self.rows:
            self.leave(key)
            return
        self._left[key] = None
        if len(self._left) > _LEFT:
            del self._left[next(iter(self._left))]

    def come(self, key: Key, update: Update, after: Mapping[str, Value]) -> None:
        """Note that the row of ``update`` has this key now, with the values ``after``."""
        alone = self.took(key)
        if key in self.rows:  # a third row has come to the key, unless the row with the key changed
            self.lost |= not alone and (update.old_key is not None or update.op is Op.INSERT)
        else:
            if alone or update.old_key is None or not _is_whole(update.before):
                return
            if self._room.taken + _entry(key) > self._room.size:
                self.lost = True
                return
            self._room.taken += _entry(key)
        self.rows[key] = _digest(after.values())

    def took(self, key: Key) -> bool:
        """Note that a row has this key now. Returns whether it is known that no other row has the key."""
        known = key in self._left
        if known:
            del self._left[key]
        return known

    def is_other(self, key: Key, before: Mapping[str, Value] | None) -> bool:
        """Whether the row with the values ``before`` is not the row that moved to the key."""
        known = self.rows.get(key)
        return known is not None and _is_whole(before) and known != _digest(before.values())


class _Changes:
    """The changes since the last step. ``names``: the columns that updates have.

    An image is the values of every column, or a part of them; ``None``: the row is deleted.
    """

    def __init__(self, moved: Moved) -> None:
        self.moved = moved
        self.names: Names = ()
        self.new = True
        self.images: dict[Key, tuple[Value, ...] | _Part | None] = {}
        self.appends: dict[Names, list[Row]] = {}
        self.under: dict[Key, _Image | None] = {}
        """By key to which another row moved since the last step, the former row with the key. ``None``: the former row
        is unchanged in the database."""

    def take(self) -> Iterator[Write]:
        """The step for the collected changes; no step if there are none."""
        if not self.images and not self.appends:
            return
        deletes: list[Key] = []
        upserts: dict[Names, list[Row]] = {}
        patches: dict[Names, list[Row]] = {}
        for key, image in self.images.items():
            if isinstance(image, tuple):
                upserts.setdefault(self.names, []).append((key, image))
            elif image is not None:
                group = upserts if image.whole else patches
                group.setdefault(image.columns, []).append((key, image.values))
            else:
                deletes.append(key)
        yield Write(deletes, _columns(upserts), _columns(patches), _columns(self.appends), new=self.new)
        self.images, self.appends, self.under, self.new = {}, {}, {}, True

    def add(self, update: Update) -> Iterator[Step]:
        """Add an update. Yields the steps that have to come before the changes that remain collected."""
        op = update.op
        self.moved.begin(update)
        if op is Op.TRUNCATE:
            self.moved.clear()
            self.images, self.appends, self.under = {}, {}, {}
            yield Clear()
            return
        if op is Op.MERGE or update.too_large:
            raise RowRefused.of(
                update,
                "it has no values, because they are larger than max_update_bytes"
                if update.too_large
                else "a merge operand is not a row",
            )
        key, after = update.key, _after(update)
        if op is Op.DELETE_RANGE:
            assert update.key_end is not None
            yield from self.take()
            yield Range(key, update.key_end)
        elif not key:
            self._append(update)
        elif after is None or op is Op.DELETE or update.left:
            self._leave(update.old_key, update)
            self._leave(key, update)
        else:
            yield from self._put(update, after, _part(after, op in _WHOLE))

    def _put(self, update: Update, after: Mapping[str, Value], part: _Part) -> Iterator[Step]:
        key, old = update.key, update.old_key
        if len(part.columns) == len(self.names):
            if old is None and self.moved.is_other(key, update.before):
                self.under[key] = _Image(part.values)  # another row already has the key
                return
            if old is not None:
                self._vacate(old, update)
                self.moved.leave_for_another(old)
                if key not in self.under:
                    self.under[key] = _Image(self.images[key]) if key in self.images else None
            self.moved.come(key, update, after)
            self.images[key] = part.values
            return
        self.moved.took(key)
        if old is not None and old != key:
            yield from self._move(old, key, part)
        elif key not in self.images:
            self.images[key] = part
        elif (before := self._part(key)) is not None:
            self.images[key] = part.over(before)
        elif part.whole:  # the row was deleted before, so its other columns are not kept
            yield from self.take()
            self.images[key] = part

    def _part(self, key: Key) -> _Part | None:
        image = self.images.get(key)
        return _Part(self.names, image, True) if isinstance(image, tuple) else image

    def _leave(self, key: Key | None, update: Update) -> None:
        """Handle that the row of ``update`` no longer has the key."""
        if key is not None:
            self._vacate(key, update)
            self.moved.leave(key)

    def _vacate(self, key: Key, update: Update) -> None:
        """Find the image of the key after one of two rows leaves it. If the former row leaves, the row that moved to
        the key stays. If the row that moved to the key leaves, the former row stays. Equal rows need no distinction.
        """
        if self.moved.is_other(key, update.before):
            self.under.pop(key, None)
            return
        known, image = key in self.under, self.images.get(key)
        under = self.under.pop(key, None)
        if key not in self.moved.rows:
            if isinstance(image, tuple) and _is_whole(update.before):
                self.moved.lost |= _digest(image) != _digest(update.before.values())
            self.images[key] = None
        elif under is not None:
            self.images[key] = under.values
        elif known:
            del self.images[key]
        else:
            self.images[key] = None
            self.moved.lost = True  # a former step may have overwritten another row with this key

    def _move(self, old: Key, new: Key, part: _Part) -> Iterator[Step]:
        """Change the key of a row. Columns that the log lacks keep their values."""
        before = self._part(old)
        if before is not None and before.whole:
            self.images[old], self.images[new] = None, part.over(before)
            return
        yield from self.take()
        yield Move(old, new, part.columns, part.values)

    def _append(self, update: Update) -> None:
        if update.op not in _WHOLE or update.after is None:
            raise RowRefused.of(update, "the table has no key, so the row that changed is not known")
        part = _part(update.after, whole=True)
        self.appends.setdefault(part.columns, []).append(((), part.values))


def steps(updates: list[Update], moved: Moved) -> Iterator[Step]:
    """The steps that have the effect of the ``updates``, which have one table and schema. ``moved``: the moved keys of
    that table.

    Raises :class:`~sinks.sql.failures.RowRefused` for an update that determines no row.
    """
    usual = _usual(updates) if moved.knows_nothing else None
    if usual is not None:
        yield usual
        return
    changes = _Changes(moved)
    for update in updates:
        op = update.op
        changes.new = changes.new and op in _NEW
        if op in _IMAGES and (after := update.after) is not None:
            changes.names = changes.names or tuple(after)
            values = tuple(after.values())
            # The usual case, a row with all its columns and an unchanged key, is handled here without a call.
            whole = UNAVAILABLE not in values and (op in _NEW or update.old_key is None) and not update.left
            if whole and moved.knows_nothing and (key := update.key):
                changes.images[key] = values
                continue
        yield from changes.add(update)
    yield from changes.take()


def _usual(updates: list[Update]) -> Write | None:
    """The step for updates that all have every column and an unchanged key; ``None`` for any other updates."""
    found = by_column(updates)
    if found is None:
        return None
    ops, keys, values = found
    if not (keys and values and ops <= _IMAGES):
        return None
    last = {key: place for place, key in enumerate(zip(*keys, strict=True))}
    if len(last) < len(updates):
        keys, values = ([[column[i] for i in last.values()] for column in columns] for columns in (keys, values))
    return Write(upserts={updates[0].schema.names: Rows(keys, values)}, new=ops <= _NEW)


def _digest(values: Iterable[Value]) -> int:
    """A hash that is equal for equal values. NaN is equal to itself."""
    return hash(repr(list(values)))


def _entry(key: Key) -> int:
    """About the bytes that an entry of the key takes."""
    return _ENTRY + sum(len(value) for value in key if isinstance(value, str | bytes))


def _is_whole(before: Mapping[str, Value] | None) -> TypeGuard[Mapping[str, Value]]:
    """Whether the image has every value."""
    return before is not None and UNAVAILABLE not in before.values()


def _columns(groups: Mapping[Names, Sequence[Row]]) -> dict[Names, Rows]:
    return {names: Rows.of(rows) for names, rows in groups.items()}


def _after(update: Update) -> Mapping[str, Value] | None:
    """The row after the update. A column that only the image before the change has did not change: a large value of
    PostgreSQL, or a column that `binlog_row_image` leaves out.
    """
    before, after = update.before, update.after
    if before is None or after is None or UNAVAILABLE not in after.values():
        return after
    return {name: before.get(name, UNAVAILABLE) if value is UNAVAILABLE else value for name, value in after.items()}


def _part(after: Mapping[str, Value], whole: bool) -> _Part:
    """The known columns of a row. ``whole``: whether they are written even if the row does not exist."""
    known = {name: value for name, value in after.items() if value is not UNAVAILABLE}
    return _Part(tuple(known), tuple(known.values()), whole or len(known) == len(after))
