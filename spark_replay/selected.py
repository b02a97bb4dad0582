"""Rows of the archive's files in the form that Spark accepts: pieces of files, and conditions for rows.

Everything that Spark gets from an archive is read here, by the reader that compares every byte with its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_replay.archive.columns import PLACE_BYTES, SCHEMA, place_bytes
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.ranges import files_between
from spark_replay.archive.reader import END, after, open_file, upto
from spark_replay.archive.store import ArchiveStore
from wormhole.model.errors import ArchiveError

__all__ = [
    "ALL",
    "COLUMNS",
    "PLAIN",
    "TYPES",
    "VERIFY",
    "ColumnCondition",
    "FilePiece",
    "Wanted",
    "piece_rows",
    "plain_rows",
    "tasks_of",
]

COLUMNS: Final = tuple(SCHEMA.names)
"""The columns of :mod:`spark_replay.archive.columns`; ``shard`` comes after them."""

PLAIN: Final = pa.schema(
    [
        *(
            pa.field(
                one.name,
                pa.string() if pa.types.is_dictionary(one.type) else pa.binary() if one.name == "place" else one.type,
            )
            for one in SCHEMA
        ),
        pa.field("shard", pa.string()),
    ]
)
"""The columns with their shard, in types that Spark accepts from Arrow."""

TYPES: Final = (
    "place binary, tx_source string, tx_number bigint, tx_index int, ends_tx boolean, committed_at timestamp, op "
    "string, table string, key binary, old_key binary, schema_id bigint, partial boolean, update binary"
)
"""The same columns without the shard, as types of Spark."""
_TASK_BYTES: Final = 8 << 20, 128 << 20
"""Bytes of rows that one task reads: the least, and the most unless one file has more."""
_FILE_BYTES: Final = 1 << 20  # the cost of opening a file, in bytes
_LAST_INDEX: Final = (1 << 32) - 1
_COMPARE: Final = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
VERIFY: Final = (
    "`wormholectl archive verify --deep` shows every file that is missing or damaged; restore it from a backup"
)


@dataclass(frozen=True, slots=True)
class FilePiece:
    """The rows of one file with ``after < place <= until``."""

    shard: str
    entry: FileEntry
    after: bytes
    until: bytes


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """A row's ``column`` (``shard``, ``table``, ``op``, ``place`` or ``committed_at``) compared with ``values``.
    ``compared``: ``in``, or with the one value ``<``, ``<=``, ``>`` or ``>=``. Times are microseconds since 1970.
    """

    column: str
    compared: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The conditions of a query, all of which a row has to fulfil. They are applied to files, places and rows."""

    conditions: tuple[ColumnCondition, ...] = ()

    def cut(self, piece: FilePiece) -> FilePiece | None:
        """The part of a piece that may have such rows; ``None``: none. Its rows still have to be filtered."""
        entry = piece.entry
        low, high = piece.after, piece.until
        for one in self.conditions:
            if one.column == "place":
                least, most = _places(one)
                low, high = max(low, least), min(high, most)
            elif not _may_hold(piece, one):
                return None
        begins, ends = place_bytes(entry.begin.order, False, 0), place_bytes(entry.end.order, True, _LAST_INDEX)
        return None if low >= min(high, ends) or high < begins else replace(piece, after=low, until=high)

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a file's batch that fulfil the conditions. :meth:`cut` has already applied those on shard and
        place."""
        for one in self.conditions:
            if one.column == "shard" or (one.column == "place" and one.compared != "in"):
                continue
            kept = _fulfil(batch.column(one.column), one)
            batch = batch if kept is None else batch.filter(kept)
        return batch

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a file that the conditions need."""
        return tuple(dict.fromkeys(one.column for one in self.conditions if one.column != "shard"))


ALL: Final = Wanted()


def _fulfil(column: pa.Array, one: ColumnCondition) -> pa.Array | None:
    """Whether each row of a file fulfils the condition; ``None``: all rows do."""
    if pa.types.is_dictionary(column.type):
        texts = pc.is_in(column.dictionary, pa.array(one.values, pa.string()))
        return None if pc.all(texts).as_py() else texts.take(column.indices)
    if one.column == "place":
        return pc.is_in(column.cast(pa.binary()), pa.array(one.values, pa.binary()))
    column = column.cast(pa.int64())
    if one.compared == "in":
        return pc.is_in(column, pa.array(one.values, pa.int64()))
    return _COMPARE[one.compared](column, pa.scalar(one.values[0], pa.int64()))


def _may_hold(piece: FilePiece, one: ColumnCondition) -> bool:
    entry = piece.entry
    if one.column == "shard":
        return piece.shard in one.values
    if one.column == "table":
        return any(entry.tables.get(name) for name in one.values)
    if one.column == "op":
        return any(entry.ops.get(name) for name in one.values)
    if not entry.last_us:
        return True  # the file's times are not known
    early = one.compared.startswith(">") or entry.first_us <= max(one.values)
    return early and (one.compared.startswith("<") or entry.last_us >= min(one.values))


def _places(one: ColumnCondition) -> tuple[bytes, bytes]:
    """Two places. Rows that fulfil the condition are after the first and up to the second.

    The places in the condition may have any length."""
    least, most = min(one.values), max(one.values)
    match one.compared:
        case "in":
            return _before(least), _upto(most)
        case ">":
            return _upto(least), END
        case ">=":
            return _before(least), END
        case "<":
            return b"", _before(most)
        case _:
            return b"", _upto(most)


def _before(place: bytes) -> bytes:
    """The greatest possible place of a row that is less than ``place``."""
    if len(place) > PLACE_BYTES:
        return place[:PLACE_BYTES]
    number = int.from_bytes(place.ljust(PLACE_BYTES, b"\0"))
    return (number - 1).to_bytes(PLACE_BYTES) if number else b""


def _upto(place: bytes) -> bytes:
    """The greatest possible place of a row that is not greater than ``place``."""
    return place if len(place) == PLACE_BYTES else _before(place)


def tasks_of(pieces: Sequence[FilePiece], slots: int) -> list[tuple[FilePiece, ...]]:
    """The pieces of each task: consecutive ones, as evenly distributed as files allow. ``slots``: how many tasks run
    at one time."""
    weights = [piece.entry.raw + _FILE_BYTES for piece in pieces]
    least, most = _TASK_BYTES
    enough = min(most, max(least, sum(weights) // max(1, 2 * slots)))
    found: list[list[FilePiece]] = []
    size = enough
    for piece, weight in zip(pieces, weights, strict=True):
        if size >= enough:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += weight
    return [tuple(some) for some in found]


def piece_rows(
    store: ArchiveStore, piece: FilePiece, columns: Sequence[str] = COLUMNS, wanted: Wanted = ALL
) -> Iterator[pa.RecordBatch]:
    """The ``wanted`` rows of a piece, in order: ``columns`` and ``shard``.

    If the file is gone, it was merged into another or dropped since it was chosen. Then its rows are read from the
    files of the newest manifest.

    Raises :class:`~wormhole.model.errors.ArchiveError` for a file that is damaged, or missing although the newest
    manifest names it, and for rows that the archive no longer has.
    """
    reached = piece.after
    try:
        with open_file(store, piece.shard, piece.entry) as file:
            for batch in file.batches(piece.after, piece.until, (*columns, *wanted.columns)):
                found = wanted.rows(batch)
                reached = batch.column("place")[-1].as_py()
                if found.num_rows:
                    yield plain_rows(found, piece.shard, columns)
    except ArchiveError as error:
        if not _is_gone(error):
            raise
        others = _in_its_place(store, replace(piece, after=reached), error)
    else:
        return
    for other in others:
        yield from piece_rows(store, other, columns, wanted)


def _is_gone(error: ArchiveError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


def _in_its_place(store: ArchiveStore, piece: FilePiece, error: ArchiveError) -> list[FilePiece]:
    """The pieces that have the rows of a missing file. Their number has to be that of its entry, else it is an error.

    Rows that a backfill read at the border of two files may be in either.
    """
    entry = piece.entry
    path = store.data_path(piece.shard, entry.name)
    manifest = store.read(piece.shard)
    files = () if manifest is None else files_between(manifest, entry.begin, entry.end)
    if entry.name in {one.name for one in files}:
        raise ArchiveError(f"{path}: the manifest names it, and it is not there", hint=VERIFY) from error
    low, high = after(entry.begin), upto(entry.end)
    count = 0
    for one in files:
        with open_file(store, piece.shard, one) as file:
            count += sum(batch.num_rows for batch in file.batches(low, high, ()))
    if count != entry.rows:
        raise ArchiveError(
            f"{path} is not there any more: it had {entry.rows:,} rows when this query chose it, and the archive has "
            f"{count:,} in its place",
            hint="run the query again: it reads what the archive has now; `keep` and the day that merged files stay "
            "have to be longer than a query takes",
        ) from error
    return [FilePiece(piece.shard, one, max(piece.after, low), min(piece.until, high)) for one in files]


def plain_rows(batch: pa.RecordBatch, shard: str, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Rows of a file with their shard, in Spark's form: without dictionaries and types of fixed length."""
    found = [batch.column(name).cast(PLAIN.field(name).type) for name in columns]
    fields = [PLAIN.field(name) for name in (*columns, "shard")]
    return pa.RecordBatch.from_arrays([*found, pa.repeat(pa.scalar(shard), batch.num_rows)], schema=pa.schema(fields))
