"""Reads data files of the archive: from rows back to the pieces of log that they came from.

The archiver wrote the output of a decoder. So a piece that is read here is a :class:`~wormhole.model.segment.Segment`.
Bodies are built from its run, and filters are applied to it, as for the live log.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_replay.archive.arrays import U64, ends_of, values_of
from spark_replay.archive.checksums import CheckedSource
from spark_replay.archive.columns import PLACE_BYTES, SCHEMA, before_reads, place_bytes, position_of
from spark_replay.archive.footer import Footer, read_footer
from spark_replay.archive.kernel import boundaries, framed, grouped
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.store import ArchiveStore
from wormhole.model.errors import ArchiveError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.reads import is_read_source
from wormhole.model.schema import Schema
from wormhole.model.segment import Run, Segment

__all__ = ["COLUMNS", "END", "LIMIT", "DataFile", "after", "markers_of", "open_file", "segments_of", "upto"]

LIMIT: Final = 1 << 20
"""About the bytes of updates in one piece: so large that the cost per piece is negligible, and small compared with the
credit of a flow.
"""
END: Final = b"\xff" * PLACE_BYTES
"""A bound that no place is after."""

# Made from a buffer. To convert a Python object, pyarrow would import pandas if it is installed, which takes 50 MiB.
_NO_TIME: Final = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])[0]
_LAST_INDEX: Final = (1 << 32) - 1
COLUMNS: Final = ("place", "tx_source", "tx_number", "tx_index", "ends_tx", "committed_at", "schema_id", "update")
"""The columns that a piece of log is made from. The others are for queries."""


def upto(marker: Datamarker) -> bytes:
    """The greatest place of an update before ``marker``: updates with ``place <= upto(marker)`` are before it.

    So are rows that a backfill read at its position.
    """
    return place_bytes(marker.order, False, _LAST_INDEX)


def after(marker: Datamarker) -> bytes:
    """The bound for updates after ``marker``: they have ``place > after(marker)``.

    Rows that a backfill read at its position are on both sides. Whether they came before the marker is not known, and
    they are existing rows, not changes.
    """
    return before_reads(marker.order)


_after = after  # for functions with a parameter `after`


def open_file(store: ArchiveStore, shard: str, entry: FileEntry) -> DataFile:
    """Open the file that a manifest names.

    Raises :class:`~wormhole.model.errors.ArchiveError` if it is missing, damaged, or not the file of the manifest's
    entry. Otherwise the content of another file in its place would be read as the shard's updates.
    """
    where = store.data_path(shard, entry.name)
    file = DataFile(store.open_data(shard, entry.name), where, entry)
    footer = file.footer
    said = (store.dataset, shard, entry.begin.order, entry.rows)
    found = (footer.dataset, footer.shard, footer.begin.order, file.rows)
    # When a log continues without updates for the shard, only the manifest is extended.
    if found == said and footer.end.order <= entry.end.order:
        return file
    file.close()
    raise ArchiveError(
        f"{where} is another file than the manifest records: dataset {footer.dataset}, shard {footer.shard}, "
        f"{footer.begin.order} to "
        f"{footer.end.order} with {file.rows} rows, instead of {entry.begin.order} to {entry.end.order} with "
        f"{entry.rows}",
        shard=shard,
        hint="`wormholectl archive verify` shows what else is wrong; restore the file from a backup",
    )


def markers_of(store: ArchiveStore, shard: str, entry: FileEntry) -> Sequence[Datamarker]:
    """The datamarkers of a file's footer, ascending. Raises as :func:`open_file`."""
    with open_file(store, shard, entry) as file:
        return file.footer.markers


class DataFile(AbstractContextManager["DataFile"]):
    """One open data file. Use it as a context manager. Methods block.

    They raise :class:`~wormhole.model.errors.ArchiveError`, which names the file, if it cannot be read, or if its bytes
    differ from the checksums in the manifest.
    """

    def __init__(self, source: pa.NativeFile, where: str, entry: FileEntry | None = None) -> None:
        """``source``: from :meth:`~spark_replay.archive.store.ArchiveStore.open_data`. ``where``: its path, for
        messages. ``entry``: its entry in the manifest; ``None``: the file is read without a manifest.
        """
        self._where = where
        self._checked: CheckedSource | None = None
        try:
            self._source = source
            if entry is not None:
                source = self._compared(entry)
            self._file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        except (pa.ArrowException, OSError, ValueError) as error:  # a column name that is not UTF-8 is a ValueError
            self._source.close()
            raise self._damaged(error) from error
        try:
            self.footer: Footer = read_footer(self._file.metadata, where)
        except ArchiveError:
            self._source.close()
            raise
        self.rows: int = self._file.metadata.num_rows

    def _compared(self, entry: FileEntry) -> Any:
        """A source of which every byte is compared with a checksum before it is used. Raises ``ValueError``."""
        if (size := self._source.size()) != entry.bytes:
            raise ValueError(
                f"it has {size:,} bytes, the manifest records {entry.bytes:,}: it is damaged, or another file"
            )
        self._checked = CheckedSource(self._source, size, entry.blocks)
        return pa.PythonFile(self._checked, mode="r")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()
        self._source.close()

    def check(self) -> None:
        """Compare every byte of the file, also bytes that no reader uses. The file was opened with its entry."""
        assert self._checked is not None
        try:
            self._checked.check()
        except OSError as error:
            raise self._damaged(error) from error

    def batches(
        self, after: bytes = b"", until: bytes = END, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows with ``after < place <= until``, a batch for each row group that has any. Other row groups are not read.

        ``columns``: ``None`` for all. ``place`` is always included.
        """
        wanted = None if columns is None else list(dict.fromkeys(("place", *columns)))
        metadata = self._file.metadata
        place = SCHEMA.get_field_index("place")
        try:
            for group in range(metadata.num_row_groups):
                statistics = metadata.row_group(group).column(place).statistics
                if statistics is not None and statistics.has_min_max:
                    if statistics.max <= after:
                        continue
                    if statistics.min > until:
                        return
                for batch in self._file.read_row_group(group, columns=wanted).combine_chunks().to_batches():
                    begin, end = _bisect(batch, after), _bisect(batch, until)
                    if begin < end:
                        yield batch.slice(begin, end - begin)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from error

    def spans(self) -> list[tuple[bytes, bytes]]:
        """The least and the greatest place of each row group, from the footer. Row groups without them are left out."""
        column = SCHEMA.get_field_index("place")
        groups = (self._file.metadata.row_group(i) for i in range(self._file.metadata.num_row_groups))
        found = (group.column(column).statistics for group in groups)
        return [(one.min, one.max) for one in found if one is not None and one.has_min_max]

    def segments(
        self, after: Datamarker | None = None, until: Datamarker | None = None, limit: int = LIMIT
    ) -> Iterator[Segment]:
        """The pieces of log between two datamarkers, in order; see :func:`segments_of`. ``None``: no bound but the
        file's own.
        """
        footer = self.footer
        begin = footer.begin if after is None or after.order < footer.begin.order else after
        end = footer.end if until is None or until.order > footer.end.order else until
        markers = [marker for marker in footer.markers if begin.order < marker.order <= end.order]
        batches = self.batches(_after(begin), upto(end), COLUMNS)
        return segments_of(
            batches,
            shard=footer.shard,
            schema_of=self._schema,
            markers=markers,
            begin=begin.order,
            limit=limit,
        )

    def _schema(self, id_: int) -> Schema:
        schema = self.footer.schemas.get(id_)
        if schema is None:
            raise self._damaged(KeyError(f"{id_:#018x}, a schema that its rows refer to"))
        return schema

    def _damaged(self, error: Exception) -> ArchiveError:
        return ArchiveError(
            f"{self._where} cannot be read as a file of the archive: {error}",
            hint="`wormholectl archive verify` shows what else is wrong; restore the file from a backup",
        )


def _bisect(batch: pa.RecordBatch, place: bytes) -> int:
    """How many rows have a place up to ``place``."""
    places = values_of(batch.column("place"), "B", PLACE_BYTES)
    return _upto(places, batch.num_rows, place)


def _upto(places: memoryview, count: int, place: bytes) -> int:
    return bisect_right(range(count), place, key=lambda i: bytes(places[i * PLACE_BYTES : (i + 1) * PLACE_BYTES]))


class _Rows:
    """A batch of rows, in the form that the loops of :mod:`spark_replay.archive.kernel` need."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.count: int = batch.num_rows
        self.batch = batch
        self._places = values_of(batch.column("place").cast(pa.binary(PLACE_BYTES)), "B", PLACE_BYTES)
        source = batch.column("tx_source")
        if not pa.types.is_dictionary(source.type):
            source = source.dictionary_encode()
        self._sources: tuple[str, ...] = tuple(source.dictionary.to_pylist())
        self._source_of = values_of(source.indices.cast(pa.int32()), "i")
        self._numbers = values_of(batch.column("tx_number"), "q")
        self._indexes = values_of(batch.column("tx_index"), "i")
        times = batch.column("committed_at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        times = pc.fill_null(times, _NO_TIME)
        self._times = values_of(times, "q")
        self._schema_ids = batch.column("schema_id")
        # Values of transactions, for every row. A run takes the value at the first row of each transaction.
        places = pa.concat_arrays([batch.column("place").cast(pa.binary())])
        self._of_tx = pa.RecordBatch.from_arrays(
            [
                batch.column("tx_number"),
                _numbers_at(places, 4),
                _numbers_at(places, 12),
                times,
                source.indices.cast(pa.int32()),
            ],
            names=["number", "file", "offset", "time", "source"],
        )
        self._data, self._ends = ends_of(batch.column("update"))

    def place(self, i: int) -> bytes:
        return bytes(self._places[i * PLACE_BYTES : (i + 1) * PLACE_BYTES])

    def begins_last(self) -> int:
        """The first row of the last transaction if it may continue after the batch, else the number of rows."""
        last = self.count - 1
        if self.batch.column("ends_tx")[last].as_py() or self._places[last * PLACE_BYTES + LogPosition.SIZE]:
            return self.count
        of = (self._numbers[last], self._source_of[last])
        while last and (self._numbers[last - 1], self._source_of[last - 1]) == of:
            last -= 1
        return last

    def cuts(self, markers: Iterable[Datamarker], limit: int, whole: bool) -> list[int]:
        """The row where each piece ends."""
        stops = array("I", (_upto(self._places, self.count, upto(marker)) for marker in markers))
        found = boundaries(self._places, self._numbers, self._source_of, self._ends, stops, limit, whole)
        return [*sorted({*found, *self._borders()}), self.count]

    def _borders(self) -> Iterator[int]:
        """The rows where rows of a backfill begin or end. They are not changes, and no piece has both."""
        reads = {number for number, source in enumerate(self._sources) if is_read_source(source)}
        if reads:
            of = [source in reads for source in self._source_of]
            yield from (at for at in range(1, self.count) if of[at] != of[at - 1])

    def bytes(self, begin: int, end: int) -> int:
        """Bytes of the updates of these rows."""
        return self._ends[end] - self._ends[begin]

    def newest(self, begin: int, end: int) -> int:
        """The last commit time in these rows."""
        return self._times[end - 1]

    def run(self, begin: int, end: int, schema_of: Callable[[int], Schema], whole: bool) -> Run:
        """Rows as a run. If the transaction of the last row was unfinished there, the run's last transaction is too."""
        places = self._places
        blob, ends = framed(self._data, self._ends, begin, end)
        firsts, counting, indexes = grouped(places, self._numbers, self._source_of, self._indexes, begin, end, whole)
        tx_end = firsts[1:]
        if whole or not places[(end - 1) * PLACE_BYTES + LogPosition.SIZE]:
            tx_end.append(end - begin)
        picked = pa.Array.from_buffers(pa.uint32(), len(firsts), [None, pa.py_buffer(firsts)])
        number, file, offset, time, source = self._of_tx.slice(begin, end - begin).take(picked).columns
        schemas = self._schema_ids.slice(begin, end - begin).dictionary_encode()
        ids = schemas.dictionary.to_pylist()
        return Run(
            blob=blob,
            ends=ends,
            schemas=tuple(schema_of(id_ & U64) for id_ in ids),
            sources=self._sources,
            tx_number=_array("Q", number),
            tx_file=_array("Q", file),
            tx_offset=_array("Q", offset),
            tx_committed_at_us=_array("q", time),
            tx_end=tx_end,
            schema_index=_array("I", schemas.indices) if len(ids) > 1 else array("I"),
            indexes=array("I") if counting else indexes,
            first_index=indexes[0] if counting else 0,
            tx_source=_array("I", source) if len(self._sources) > 1 else array("I"),
        )


def _array(code: str, column: pa.Array) -> array[int]:
    """A copy of a column of numbers, as an array of the same width."""
    found = array(code)
    found.frombytes(values_of(column, "B", found.itemsize))
    return found


def _numbers_at(places: pa.Array, begin: int) -> pa.Array:
    """Eight bytes of each place from ``begin`` on, big endian, as numbers."""
    cut = array("Q")
    cut.frombytes(ends_of(pc.binary_slice(places, begin, begin + 8))[0])
    if sys.byteorder == "little":
        cut.byteswap()
    return pa.Array.from_buffers(pa.uint64(), len(cut), [None, pa.py_buffer(cut)])


def segments_of(
    batches: Iterable[pa.RecordBatch],
    *,
    shard: str,
    schema_of: Callable[[int], Schema],
    begin: LogPosition,
    markers: Sequence[Datamarker] = (),
    limit: int = LIMIT,
    whole: bool = False,
) -> Iterator[Segment]:
    """Rows of one shard, ascending by place, as pieces of log from ``begin`` on.

    ``batches`` need only the columns of :data:`COLUMNS`. A piece has updates of the log, or rows that a backfill read,
    never both. It has about ``limit`` bytes of updates, or more if a transaction that came in one piece has more.

    ``markers``: datamarkers among the rows, ascending. The marker of a segment is the newest one at its end. ``None``:
    there is none, so the segment cannot be acknowledged. A segment of a datamarker without updates has no run.
    ``whole``: each row is complete by itself (the last change of its key) and ends its transaction. ``schema_of``:
    returns the schema of an id; its errors pass.
    """
    waiting = list(reversed(markers))
    at = begin
    before = b""  # the last place that was yielded

    def passed(place: bytes) -> Datamarker | None:
        """The newest marker between the last yielded row and ``place``. A marker inside a yielded piece is dropped."""
        newest = None
        while waiting and upto(waiting[-1]) < place:
            newest = waiting.pop()
        return newest if newest is not None and upto(newest) >= before else None

    for batch in batches if whole else _at_ends(batches):
        rows = _Rows(batch)
        if (marker := passed(rows.place(0))) is not None:
            yield Segment(at, marker.order, {}, marker, 0, marker.committed_at_us)
            at = marker.order
        last = rows.place(rows.count - 1)
        among = [one for one in reversed(waiting) if upto(one) < last]
        first = 0
        for cut in rows.cuts(among, limit, whole):
            before = rows.place(cut - 1)
            marker = passed(rows.place(cut)) if cut < rows.count else None
            end = position_of(before) if marker is None else marker.order
            run = rows.run(first, cut, schema_of, whole)
            yield Segment(at, end, {shard: run}, marker, rows.bytes(first, cut), rows.newest(first, cut))
            at, first = end, cut
    if (marker := passed(END)) is not None:
        yield Segment(at, marker.order, {}, marker, 0, marker.committed_at_us)


def _at_ends(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches that end with a transaction, or with a piece of an unfinished one."""
    rest: list[pa.RecordBatch] = []
    for batch in batches:
        joined = pa.concat_batches([*rest, batch]) if rest else batch
        end = _Rows(joined).begins_last()
        rest = [joined.slice(end)] if end < joined.num_rows else []
        if end:
            yield joined.slice(0, end)
    yield from rest
