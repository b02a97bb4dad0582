"""What a reader of a log hands out, as plain values that tests compare; and the port's rules, checked on the way."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field

from tests.support.eventually import PATIENCE_S
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.ports.log_source import LogReader
from wormhole.wire.body import build_body, parse_body
from wormhole.wire.rows import decode_row, op_of, values_of

__all__ = ["Read", "Seen", "read_until"]


@dataclass(slots=True)
class Seen:
    """One update; ``place``: the file and offset after its transaction, or where that begins in a piece that does
    not end it."""

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
    """Everything read so far from one reader."""

    updates: list[Seen] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    """(shard, transaction id), in the order in which transactions ended."""
    markers: list[Datamarker] = field(default_factory=list)
    gaps: list[LogGap] = field(default_factory=list)
    broken: list[DecodeError] = field(default_factory=list)
    segments: int = 0
    pieces: int = 0
    """Segments that ended inside a transaction."""
    last_end: LogPosition | None = None
    open: dict[str, str] = field(default_factory=dict)
    """Shard -> transaction that goes on there."""

    def ids(self, shard: str | None = None) -> list[str]:
        """Ids of the updates (of one shard)."""
        return [u.id for u in self.updates if shard in (None, u.shard)]

    def keys(self) -> list[object]:
        """First key column of each update."""
        return [u.key[0] for u in self.updates]

    def add(self, segment: Segment) -> None:
        """Take in a segment, and check what the port promises of it."""
        assert segment.begin <= segment.end
        if self.last_end is not None and segment.gap is None:
            assert segment.begin == self.last_end, f"{segment.begin} does not follow on {self.last_end}"
        self.last_end = segment.end
        self.segments += 1
        if segment.gap is not None:
            self.gaps.append(segment.gap)
        self.broken += segment.broken.values()
        if segment.marker is None:
            self.pieces += 1
        else:
            assert segment.marker.order == segment.end
            assert segment.marker.read_from <= segment.marker.order
            self.markers.append(segment.marker)
        fresh: list[tuple[str, int, Seen]] = []
        for shard, run in segment.runs.items():
            assert run.ends.typecode == "I"
            assert isinstance(run.tx_end, array)
            body = build_body(run, segment.end.incarnation)
            assert body is not None, "a run without updates and ends"
            parsed = parse_body(body.data)
            schemas = {schema.id: schema for schema in run.schemas}
            if shard in self.open:
                assert parsed.transaction_id(0) == self.open.pop(shard), "a transaction was interleaved"
            for i in range(len(parsed.updates)):
                tx = parsed.transaction_of(i)
                row = decode_row(parsed.updates[i])
                schema = schemas[parsed.schema_id_of(i)]
                index = parsed.index_of(i)
                seen = Seen(
                    f"{parsed.transaction_id(tx)}:{index}",
                    shard,
                    op_of(row).value,
                    schema.table,
                    values_of(row.key),
                    values_of(row.after),
                    parsed.committed_at_us(tx),
                    (parsed.position_of(tx).file, parsed.position_of(tx).offset),
                )
                fresh.append((parsed.transaction_id(tx), index, seen))
            for tx in range(len(parsed.tx_number)):
                if tx < len(parsed.tx_end):
                    self.ended.append((shard, parsed.transaction_id(tx)))
                    assert parsed.position_of(tx) <= segment.end
                else:
                    self.open[shard] = parsed.transaction_id(tx)
        if segment.marker is not None:
            assert not self.open, f"a marker inside {self.open}"
        # Shards are separate runs; within a segment their updates are put back in log order, as far as the numbers tell
        # it.
        if len(segment.runs) > 1:
            fresh.sort(key=lambda f: (int(f[0].rpartition(":")[2]), f[1]))
        self.updates += [seen for _, _, seen in fresh]


def read_until(reader: LogReader, end: LogPosition, *, max_bytes: int = 1 << 20, into: Read | None = None) -> Read:
    """Read until ``end`` is reached."""
    read = into or Read()
    ends = time.monotonic() + PATIENCE_S
    while read.last_end is None or read.last_end < end or read.open:
        segment = reader.read(max_bytes, 0.2)
        if segment is not None:
            read.add(segment)
        assert time.monotonic() < ends, f"the reader is at {read.last_end}, {end} was asked for"
    return read
