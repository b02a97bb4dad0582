"""Collects what a reader of a log returns, as values that tests compare, and checks the rules of the port."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field

from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader, LogSource
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import decode_row, op_of, values_of

__all__ = ["LIMIT_S", "Read", "ReadUpdate", "read_log", "read_until"]

LIMIT_S = 300.0
"""How long :func:`read_until` reads before it fails. No other check depends on time."""


@dataclass(slots=True)
class ReadUpdate:
    """One update.

    ``place``: the file and offset after its transaction. If the piece does not end the transaction: where that begins.
    """

    id: str
    shard: str
    op: str
    table: str
    key: tuple[object, ...]
    after: tuple[object, ...]
    committed_at_us: int
    place: tuple[int, int] = field(compare=False)


@dataclass(slots=True)
class Read:
    """Everything read so far from one reader. ``last_end``: where the first segment has to begin, if known."""

    updates: list[ReadUpdate] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    """(shard, transaction id), in the order in which transactions ended."""
    markers: list[Datamarker] = field(default_factory=list)
    gaps: list[LogGap] = field(default_factory=list)
    broken: list[DecodeError] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)
    pieces: int = 0
    """Segments that ended inside a transaction."""
    largest: int = 0
    """Bytes of the largest segment."""
    last_end: LogPosition | None = None
    unfinished: dict[str, str] = field(default_factory=dict)
    """Shard -> its transaction that has not ended."""

    def ids(self) -> list[str]:
        """Ids of the updates."""
        return [update.id for update in self.updates]

    def keys(self) -> list[object]:
        """First key column of each update."""
        return [update.key[0] for update in self.updates]

    def check_ends(self) -> None:
        """Check that each transaction ended once in each shard in which it changed a row."""
        touched = {(update.shard, update.id.rpartition(":")[0]) for update in self.updates}
        assert set(self.ended) == touched
        assert len(self.ended) == len(touched)

    def add(self, segment: Segment) -> None:
        """Add a segment. Raises ``AssertionError``, which names the broken rule of the port."""
        assert segment.begin <= segment.end, f"a segment ends at {segment.end}, before its beginning {segment.begin}"
        if self.last_end is not None and segment.gap is None:
            assert segment.begin == self.last_end, (
                f"a segment begins at {segment.begin} and not at {self.last_end}, where the one before ended"
            )
        self.last_end = segment.end
        if segment.gap is not None:
            self.gaps.append(segment.gap)
        self.broken += segment.broken.values()
        self.replaced |= segment.replaced.keys()
        self.largest = max(self.largest, sum(len(run.blob) for run in segment.runs.values()))
        self._add_updates(segment)
        if segment.marker is None:
            self.pieces += 1
            return
        assert segment.marker.order == segment.end, f"the datamarker {segment.marker} is not at the segment's end"
        assert segment.marker.read_from <= segment.marker.order, f"{segment.marker} is read from a later place"
        assert not self.unfinished, f"the datamarker {segment.marker} lies inside a transaction: {self.unfinished}"
        self.markers.append(segment.marker)

    def _add_updates(self, segment: Segment) -> None:
        found: list[tuple[int, int, ReadUpdate]] = []
        for shard, run in segment.runs.items():
            assert run.ends.typecode == "I"
            assert isinstance(run.tx_end, array)
            body = build_body(run, segment.end.incarnation)
            assert body is not None, f"the run of {shard} has neither updates nor ends of transactions"
            parsed = parse_body(body.data)
            schemas = {schema.id: schema for schema in run.schemas}
            if shard in self.unfinished:
                assert parsed.transaction_id(0) == self.unfinished.pop(shard), f"transactions of {shard} are mixed"
            for i in range(len(parsed.updates)):
                tx, index = parsed.transaction_of(i), parsed.index_of(i)
                transaction = parsed.transaction_id(tx)
                row = decode_row(parsed.updates[i])
                update = ReadUpdate(
                    f"{transaction}:{index}",
                    shard,
                    op_of(row).value,
                    schemas[parsed.schema_id_of(i)].table,
                    values_of(row.key),
                    values_of(row.after),
                    parsed.committed_at_us(tx),
                    (parsed.position_of(tx).file, parsed.position_of(tx).offset),
                )
                found.append((int(transaction.rpartition(":")[2]), index, update))
            for tx in range(len(parsed.tx_number)):
                if tx < len(parsed.tx_end):
                    self.ended.append((shard, parsed.transaction_id(tx)))
                    assert parsed.position_of(tx) <= segment.end, "a transaction ends behind its segment"
                else:
                    self.unfinished[shard] = parsed.transaction_id(tx)
        # Each shard has a run. All updates are sorted into log order, as far as transaction numbers show it.
        if len(segment.runs) > 1:
            found.sort(key=lambda one: one[:2])
        self.updates += [update for _, _, update in found]


def read_until(reader: LogReader, end: LogPosition, *, max_bytes: int = 1 << 20, into: Read | None = None) -> Read:
    """Read until ``end`` is reached."""
    read = into or Read()
    limit = time.monotonic() + LIMIT_S
    while read.last_end is None or read.last_end < end or read.unfinished:
        segment = reader.read(max_bytes, 0.2)
        if segment is not None:
            read.add(segment)
        assert time.monotonic() < limit, f"after {LIMIT_S:g} s the reader is at {read.last_end}; the log ends at {end}"
    return read


def read_log(source: LogSource, marker: Datamarker, max_bytes: int = 1 << 20) -> Read:
    """Read from a marker to the present end of the log, with a reader of its own."""
    reader = source.open(marker)
    try:
        return read_until(reader, source.latest().order, max_bytes=max_bytes, into=Read(last_end=marker.order))
    finally:
        reader.close()
