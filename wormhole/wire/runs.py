"""Builds the runs of a segment from encoded rows.

:class:`RunsBuilder`, one row at a time, is for sources that are not on the hot path: the memory source, the test kit
and tests. Hot decoders write the same columns by hand.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from itertools import accumulate, chain

from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.wire.rows import entry, entry_head

__all__ = ["RunsBuilder", "run_of"]


def run_of(
    rows: Collection[bytes], schema: Schema, source: str, number: int, place: LogPosition, first_index: int = 0
) -> Run:
    """The run of a complete transaction ``<source>:<number>`` without a commit time, with these updates in one shard.

    ``first_index``: index of the first update. ``place``: the place after the transaction.
    """
    sizes = list(map(len, rows))
    heads = {size: entry_head(size) for size in set(sizes)}
    lengths = {size: size + len(head) for size, head in heads.items()}
    return Run(
        blob=b"".join(chain.from_iterable(zip(map(heads.__getitem__, sizes), rows, strict=True))),
        ends=array("I", accumulate(map(lengths.__getitem__, sizes))),
        schemas=(schema,),
        sources=(source,),
        tx_number=array("Q", (number,)),
        tx_file=array("Q", (place.file,)),
        tx_offset=array("Q", (place.offset,)),
        tx_committed_at_us=array("q", (0,)),
        tx_end=array("I", (len(sizes),)),
        first_index=first_index,
    )


class _Columns:
    """One shard's columns while they grow."""

    __slots__ = (
        "blob",
        "committed",
        "ends",
        "files",
        "indexes",
        "numbers",
        "offsets",
        "schema_index",
        "schemas",
        "source_index",
        "sources",
        "tx_end",
    )

    def __init__(self) -> None:
        self.blob = bytearray()
        self.ends = array("I")
        self.schemas: dict[Schema, int] = {}
        self.schema_index = array("I")
        self.indexes = array("I")
        self.sources: dict[str, int] = {}
        self.source_index = array("I")
        self.numbers = array("Q")
        self.files = array("Q")
        self.offsets = array("Q")
        self.committed = array("q")
        self.tx_end = array("I")

    def run(self) -> Run:
        indexes, first_index = _packed_indexes(self.indexes, self.tx_end)
        return Run(
            blob=bytes(self.blob),
            ends=self.ends,
            schemas=tuple(self.schemas),
            sources=tuple(self.sources),
            tx_number=self.numbers,
            tx_file=self.files,
            tx_offset=self.offsets,
            tx_committed_at_us=self.committed,
            tx_end=self.tx_end,
            schema_index=self.schema_index if len(self.schemas) > 1 else array("I"),
            indexes=indexes,
            first_index=first_index,
            tx_source=self.source_index if len(self.sources) > 1 else array("I"),
        )


def _packed_indexes(indexes: array[int], tx_end: array[int]) -> tuple[array[int], int]:
    """The indexes to send, and the first index. The indexes are empty if they only count up (see ``Run.indexes``)."""
    if not indexes:
        return indexes, 0
    # For a transaction that ends here without an update the first index does not matter.
    first = indexes[0] if not (tx_end and tx_end[0] == 0) else 0
    starts = set(tx_end)
    expected = first
    for ordinal, index in enumerate(indexes):
        if ordinal and ordinal in starts:
            expected = 0
        if index != expected:
            return indexes, 0
        expected += 1
    return array("I"), first


class RunsBuilder:
    """Collects transactions into runs, one per shard.

    Calls follow ``(begin add* end | add* end)* (begin add*)? take``: :meth:`take` may cut a transaction, which
    continues after it. Not for use by several threads.
    """

    def __init__(self) -> None:
        self._shards: dict[str, _Columns] = {}
        self._open = False
        self._source = ""
        self._number = 0
        self._committed_at_us = 0
        self._begin = LogPosition(0, 0, 0)
        self._index = 0
        self._here: set[str] = set()
        self._earlier: set[str] = set()
        self.size = 0
        """Bytes of encoded rows since the last :meth:`take`."""

    def begin(self, source: str, number: int, committed_at_us: int, place: LogPosition) -> None:
        """A transaction ``<source>:<number>`` begins at ``place``."""
        if self._open:
            raise ValueError("the previous transaction has not ended")
        self._open = True
        self._source, self._number, self._committed_at_us, self._begin = source, number, committed_at_us, place
        self._index = 0

    def add(self, shards: Iterable[str], schema: Schema, row: bytes) -> None:
        """Add the next update of the transaction. A barrier (TRUNCATE, range) belongs to several shards under one
        index.
        """
        if not self._open:
            raise ValueError("no transaction has begun")
        data = entry(row)
        for shard in shards:
            columns = self._transaction_in(shard)
            columns.blob += data
            columns.ends.append(len(columns.blob))
            columns.schema_index.append(columns.schemas.setdefault(schema, len(columns.schemas)))
            columns.indexes.append(self._index)
        self._index += 1
        self.size += len(data)

    def end(self, place: LogPosition) -> None:
        """The transaction is complete. ``place``: the place after it. Its end is recorded in every shard that it
        touched.
        """
        if not self._open:
            raise ValueError("no transaction has begun")
        for shard in self._earlier | self._here:
            columns = self._transaction_in(shard)
            columns.files[-1], columns.offsets[-1] = place.file, place.offset
            columns.tx_end.append(len(columns.ends))
        self._here.clear()
        self._earlier.clear()
        self._open = False

    def take(self) -> dict[str, Run]:
        """The runs collected since the last call. An unfinished transaction continues in the next ones."""
        runs = {shard: columns.run() for shard, columns in self._shards.items()}
        self._shards = {}
        self._earlier |= self._here
        self._here.clear()
        self.size = 0
        return runs

    def _transaction_in(self, shard: str) -> _Columns:
        columns = self._shards.get(shard)
        if columns is None:
            columns = self._shards[shard] = _Columns()
        if shard not in self._here:
            self._here.add(shard)
            columns.source_index.append(columns.sources.setdefault(self._source, len(columns.sources)))
            columns.numbers.append(self._number)
            columns.files.append(self._begin.file)
            columns.offsets.append(self._begin.offset)
            columns.committed.append(self._committed_at_us)
        return columns
