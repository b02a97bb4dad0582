"""The versions of rows: every change of a row begins a version and ends the previous one. Pure.

The changes of one *group* are read in the order of the log. Usually a group is the rows of one key. If a key changed
into another one and the log did not have the whole image, both keys are one group, because the image before the change
is under the other key. Changes that end versions of many rows at once (TRUNCATE, DELETE_RANGE) are collected first, as
:class:`Barriers`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from spark_replay.images import ABSENT, RowImage, SchemaOf, encoded, fold, read_row
from wormhole.model.values import Op, Value
from wormhole.wire.rows import Row, op_of, values_of

__all__ = ["KEY_CHANGE", "Barriers", "EndedVersion", "RowChange", "Version", "linked_keys", "versions"]

KEY_CHANGE: Final = "key_change"
"""The end of a version whose row continues under another key."""


@dataclass(slots=True)
class RowChange:
    """One archive row. ``carried``: columns that are copied to the version that it begins. ``left``: this is the change
    in the group of its former key, which the row leaves; its image belongs to another group.
    """

    place: bytes
    time: object
    op: str
    key: bytes
    old_key: bytes | None
    schema_id: int
    partial: bool
    update: bytes
    left: bool = False
    carried: object = None


@dataclass(frozen=True, slots=True)
class EndedVersion:
    """The end of a version: its place, its time, and its cause, which is an operation's name or :data:`KEY_CHANGE`."""

    place: bytes
    time: object
    by: str


@dataclass(slots=True)
class Version:
    """One version. ``change``: the change that began it; if the archive does not have its beginning (``unseen``), the
    change that ended it. ``update``: the bytes of an update with the whole image. ``ended``: ``None`` for the current
    version.
    """

    change: RowChange
    update: bytes
    partial: bool
    unseen: bool = False
    ended: EndedVersion | None = None


@dataclass(slots=True)
class Barriers:
    """The changes that ended many rows of one table in one shard at once.

    ``truncates``: ascending by place. ``ranges``: each with its first key and the key after its last.
    """

    truncates: list[EndedVersion] = field(default_factory=list)
    ranges: list[tuple[bytes, bytes, EndedVersion]] = field(default_factory=list)
    _starts: list[bytes] = field(default_factory=list)

    def sort(self) -> None:
        """Sort the barriers. Call it after all were added."""
        self.truncates.sort(key=lambda one: one.place)
        self.ranges.sort(key=lambda one: one[0])
        self._starts = [one[0] for one in self.ranges]

    def first(self, after: bytes, before: bytes | None, key: tuple[Value, ...]) -> EndedVersion | None:
        """The first barrier between the places that ends the row with ``key``. ``before``: ``None`` means the end."""
        found: EndedVersion | None = None
        at = bisect_right(self.truncates, after, key=lambda one: one.place)
        if at < len(self.truncates):
            found = self.truncates[at]
        if self.ranges and key and isinstance(key[0], bytes):
            for _, stop, one in self.ranges[: bisect_right(self._starts, key[0])]:
                if key[0] < stop and one.place > after and (found is None or one.place < found.place):
                    found = one
        return found if found is not None and (before is None or found.place < before) else None

    def __bool__(self) -> bool:
        return bool(self.truncates or self.ranges)


@dataclass(slots=True)
class _Open:
    """A version that has not ended. Its row is parsed at the first use."""

    version: Version
    schema_of: SchemaOf
    image: RowImage | None = None
    row: Row | None = None

    def parsed(self) -> Row:
        if self.row is None:
            self.row = read_row(self.version.update)
        return self.row

    def folded(self) -> RowImage:
        if self.image is None:
            self.image = fold(None, self.schema_of(self.version.change.schema_id), self.parsed())
        return self.image


def versions(
    changes: Iterable[RowChange], barriers: Barriers, schema_of: SchemaOf, *, from_first: bool
) -> Iterator[Version]:
    """The versions of one group's rows. ``changes``: ascending by place. A version is yielded when it has ended, and
    the current ones at the end.

    ``from_first``: nothing came before the first change. Otherwise a delete of a row that was not seen before yields an
    ``unseen`` version, of which only the end is known. It has the image before the delete, if the log has it.
    """
    current: dict[bytes, _Open] = {}
    met: set[bytes] = set()
    for change in changes:
        gone = change.key if change.op == Op.DELETE.value else change.old_key
        if gone is not None:
            open_ = current.pop(gone, None)
            by = change.op if gone == change.key else KEY_CHANGE
            end = EndedVersion(change.place, change.time, by)
            if open_ is not None and _end(open_, barriers, change.place):
                yield open_.version
                open_, met_before = None, True
            else:
                met_before = gone in met
            if open_ is not None:
                open_.version.ended = end
                yield open_.version
            elif not met_before and not from_first:
                yield _unseen(change, gone, end, schema_of)
            met.add(gone)
        else:
            open_ = current.pop(change.key, None)
            if open_ is not None:
                if _end(open_, barriers, change.place):
                    yield open_.version
                    open_ = None
                else:
                    open_.version.ended = EndedVersion(change.place, change.time, change.op)
                    yield open_.version
        if change.left or change.op == Op.DELETE.value:
            continue
        if change.old_key is not None and (replaced := current.pop(change.key, None)) is not None:
            # Another row had the new key before, and the log does not have the deletion of that row.
            if not _end(replaced, barriers, change.place):
                replaced.version.ended = EndedVersion(change.place, change.time, change.op)
            yield replaced.version
        met.add(change.key)
        current[change.key] = _begun(change, open_, schema_of)
    for open_ in current.values():
        _end(open_, barriers, None)
        yield open_.version


def _end(open_: _Open, barriers: Barriers, before: bytes | None) -> bool:
    """If a barrier ended the version before that place, set the version's end. Returns whether one did."""
    if not barriers:
        return False
    key = values_of(open_.parsed().key) if barriers.ranges else ()
    ended = barriers.first(open_.version.change.place, before, key)
    if ended is not None:
        open_.version.ended = ended
    return ended is not None


def _begun(change: RowChange, before: _Open | None, schema_of: SchemaOf) -> _Open:
    if not change.partial and change.op != Op.MERGE.value:
        return _Open(Version(change, change.update, False), schema_of)
    row = read_row(change.update)
    image = fold(None if before is None else before.folded(), schema_of(change.schema_id), row)
    op = op_of(row)
    update = encoded(image, Op.UPSERT if op is Op.MERGE else op)
    return _Open(Version(change, update, not image.complete), schema_of, image)


def _unseen(change: RowChange, gone: bytes, ended: EndedVersion, schema_of: SchemaOf) -> Version:
    row, schema = read_row(change.update), schema_of(change.schema_id)
    key = row.key if gone == change.key else row.old_key
    known = dict(zip((column.name for column in schema.columns), row.before, strict=False))
    known.update(zip((column.name for column in schema.key), key, strict=True))
    image = RowImage(schema, key, [known.get(column.name, ABSENT) for column in schema.columns])
    return Version(change, encoded(image, Op.UPDATE), not image.complete, unseen=True, ended=ended)


def linked_keys(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """For each key, the least of all keys that it is linked with, directly or not.

    A change of one key into another links both.
    """
    above: dict[bytes, bytes] = {}

    def top(key: bytes) -> bytes:
        path = []
        while (up := above.setdefault(key, key)) != key:
            path.append(key)
            key = up
        for one in path:
            above[one] = key
        return key

    for one, other in pairs:
        low, high = sorted((top(one), top(other)))
        above[high] = low
    return {key: top(key) for key in list(above)}
