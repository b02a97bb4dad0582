"""The keys of the rows that a relay file changed, and their form as bytes. They stay when the relay file is removed.
Pure.

The keys are grouped by shard and table. A repair reads the rows with these keys again, instead of whole tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from caravan.backfill.encoding import DamagedError, FieldReader, FieldWriter, sealed, unsealed
from wormhole.model.lost_keys import MOST_KEYS, LostKeys, TableKeys, bounded
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run, Segment
from wormhole.wire.v1 import update_pb2

__all__ = ["LostFile", "LostKeysBuilder", "lost_file", "lost_file_to_bytes"]

_VERSION: Final = 1
_MOST_BYTES: Final = 64 << 20  # the most bytes of a file's content before compression
_OF_ONE_ROW: Final = frozenset((update_pb2.INSERT, update_pb2.DELETE, update_pb2.UPSERT, update_pb2.MERGE))
_NO_KEY: Final = "it was emptied, or has no key"
_KEY_FIELD: Final = 0x12  # tag of an Update's key; the values of a RowKey have the same tag


@dataclass(frozen=True, slots=True)
class LostFile:
    """The changed keys of a relay file from ``begin`` to ``end``. ``shards``: by shard, its tables by name; tables
    under ``""`` belong to every shard.
    """

    begin: LogPosition
    end: LogPosition
    shards: dict[str, dict[str, TableKeys]]

    def of(self, shard: str) -> LostKeys:
        """The changed keys in ``shard``."""
        return LostKeys.joined(LostKeys(self.shards[one]) for one in ("", shard) if one in self.shards)


class LostKeysBuilder:
    """Collects the keys of segments. ``unknown``: why the segments do not show all changed rows; empty while they
    do."""

    def __init__(self) -> None:
        self.unknown = ""
        self._place: LogPosition | None = None
        self._keys: dict[tuple[str, str], set[bytes]] = {}
        self._columns: dict[tuple[str, str], tuple[Column, ...]] = {}
        self._whole: dict[tuple[str, str], str] = {}
        self._count = 0

    def add(self, segment: Segment) -> None:
        """Add the keys of the next segment."""
        self._place = segment.end
        if segment.gap is not None or segment.broken:
            self.unknown = "log is missing in it" if segment.gap is not None else "it has updates that were not decoded"
        for table in segment.replaced:
            self._is_whole(("", table), "its rows changed without a trace in the log")
        for shard, run in segment.runs.items():
            self._add(shard, run)
        if self._count > 2 * MOST_KEYS:
            self._bound()

    def built(self, begin: LogPosition, end: LogPosition) -> LostFile | None:
        """The changed keys of the segments, from ``begin`` to ``end``; ``None`` if they are not known completely."""
        if not self.unknown and self._place != end:
            self.unknown = "it is not whole"
        if self.unknown:
            return None
        self._bound()
        shards: dict[str, dict[str, TableKeys]] = {}
        for (shard, table), why in self._whole.items():
            shards.setdefault(shard, {})[table] = TableKeys(whole=why)
        for (shard, table), keys in self._keys.items():
            shards.setdefault(shard, {})[table] = TableKeys(self._columns[shard, table], frozenset(keys))
        return LostFile(begin, end, shards)

    def _add(self, shard: str, run: Run) -> None:
        found: dict[int, set[bytes] | None] = {}
        index, blob = run.schema_index, run.blob
        for ordinal, (begin, end) in enumerate(pairwise((0, *run.ends))):
            number = index[ordinal if len(index) > 1 else 0] if index else 0
            if number not in found:
                found[number] = self._of(shard, run.schemas[number])
            keys = found[number]
            if keys is None:
                continue
            at = begin + 1  # after the tag; the length of the entry follows
            while blob[at] > 0x7F:
                at += 1
            before = len(keys)
            if blob[at + 1] == 0x08 and blob[at + 2] in _OF_ONE_ROW:
                keys.add(_key(blob, at + 3, end))
            else:
                why = _add_change(update_pb2.Update.FromString(blob[at + 1 : end]), keys)
                if why:
                    self._is_whole((shard, run.schemas[number].table), why)
                    found.clear()
                    continue
            self._count += len(keys) - before

    def _of(self, shard: str, schema: Schema) -> set[bytes] | None:
        """The keys of a table; ``None`` if all of its rows may have changed."""
        name = shard, schema.table
        if name in self._whole:
            return None
        if name not in self._keys:
            # The schema of a truncated partition has no columns, so it has no key.
            if not schema.key:
                self._is_whole(name, _NO_KEY)
                return None
            self._keys[name], self._columns[name] = set(), schema.key
        elif self._columns[name] != schema.key:
            self._is_whole(name, "the columns of its key changed" if schema.key else _NO_KEY)
            return None
        return self._keys[name]

    def _is_whole(self, name: tuple[str, str], why: str) -> None:
        self._whole.setdefault(name, why)
        self._count -= len(self._keys.pop(name, ()))
        self._columns.pop(name, None)

    def _bound(self) -> None:
        tables = {name: TableKeys(self._columns[name], frozenset(keys)) for name, keys in self._keys.items()}
        for name, table in bounded(tables).items():
            if table.whole:
                self._is_whole(name, table.whole)


def _key(blob: bytes, at: int, end: int) -> bytes:
    """The key of an update whose fields begin at ``at``: the bytes of a ``RowKey`` with only its values."""
    begin = at
    while at < end and blob[at] == _KEY_FIELD:
        at += 1
        size = shift = 0
        while True:
            byte = blob[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        at += size
    return blob[begin:at]


def _add_change(change: update_pb2.Update, keys: set[bytes]) -> str:
    """Add the keys of a change. Returns why all rows of the table may have changed; empty if only these keys have."""
    if change.op == update_pb2.TRUNCATE:
        return "it was emptied"
    if change.op == update_pb2.DELETE_RANGE:
        return "a range of its rows was deleted"
    if change.op != update_pb2.UPDATE:
        return f"it has a change with an operation that is not known here: {change.op}"
    for values in (change.key, change.old_key):
        if values:
            keys.add(update_pb2.RowKey(values=values).SerializeToString())
    return ""


# -- bytes


def lost_file_to_bytes(lost: LostFile, identity: bytes) -> bytes:
    """``lost`` as bytes. ``identity``: the identity of the relay; keys of another relay are not read."""
    out = FieldWriter()
    out.number(len(lost.shards))
    for shard, tables in sorted(lost.shards.items()):
        out.data(shard.encode())
        out.number(len(tables))
        for name, table in sorted(tables.items()):
            out.data(name.encode())
            out.data(table.whole.encode())
            out.number(len(table.key))
            for column in table.key:
                out.data(column.name.encode())
                out.data(column.type.encode())
            out.number(len(table.keys))
            for key in sorted(table.keys):
                out.data(key)
    head = FieldWriter()
    head.data(identity)
    head.raw(lost.begin.to_bytes() + lost.end.to_bytes())
    head.raw(zlib.compress(out.taken(), 1))
    return sealed(_VERSION, head.taken())


def lost_file(data: bytes, identity: bytes, *, shards: Iterable[str] | None = None) -> LostFile | None:
    """Inverse of :func:`lost_file_to_bytes`; ``None`` for another identity. ``shards``: the shards to read; ``None``:
    all shards.

    Raises :class:`~caravan.backfill.encoding.DamagedError`.
    """
    content = unsealed(_VERSION, data)
    head = FieldReader(content)
    if head.data() != identity:
        return None
    begin, end = (LogPosition.from_bytes(head.raw(LogPosition.SIZE)) for _ in range(2))
    packed = zlib.decompressobj()
    try:
        source = FieldReader(packed.decompress(head.rest(), _MOST_BYTES))
    except zlib.error as error:
        raise DamagedError from error
    chosen = None if shards is None else {"", *shards}
    found: dict[str, dict[str, TableKeys]] = {}
    for _ in range(source.number()):
        shard = source.text()
        tables = {source.text(): _table(source) for _ in range(source.number())}
        if chosen is None or shard in chosen:
            found[shard] = tables
    source.end()
    return LostFile(begin, end, found)


def _table(source: FieldReader) -> TableKeys:
    whole = source.text()
    columns = tuple(Column(source.text(), source.text()) for _ in range(source.number()))
    return TableKeys(columns, frozenset(source.data() for _ in range(source.number())), whole)
