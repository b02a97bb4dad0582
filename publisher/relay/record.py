"""Encodes segments of the log as records of a relay, merges small segments, and cuts a segment at a place. Pure.

Segments with existing rows (``chunk``) or faults (``broken``) are not recorded. Schemas and sources are written once
for all runs. Arrays are written in their layout in memory. A relay file names the byte order, and is read on the
machine that wrote it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError as ProtobufDecodeError

from caravan.buffer import first_wanted
from wormhole.model.errors import DecodeError, ProtocolError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import Run, Segment
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = ["MERGED", "Border", "Record", "cut", "decode", "encode", "groups", "merge", "proves"]

MERGED: Final = 512 << 10
"""Segments are merged up to this many bytes of memory."""

_HEAD: Final = struct.Struct("<20s20sQqBI")  # begin, end, log_bytes, newest_us, whether there is a gap, runs
_RUN: Final = struct.Struct("<9IQ")
_BORDER: Final = struct.Struct("<20sQ20s")
_COUNT: Final = struct.Struct("<I")
_ONE: Final = array("I", (0,))


class Border(NamedTuple):
    """A place inside a record where one of its merged segments ended, with the anchor of the datamarker there."""

    order: LogPosition
    anchor: Anchor | None


@dataclass(slots=True)
class Record:
    """A segment, and the borders of the segments that were merged into it. Borders that its transactions show are
    omitted."""

    segment: Segment
    borders: tuple[Border, ...] = ()


# --- bytes ------------------------------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """The record as bytes. Raises ``ValueError`` for a segment that cannot be recorded."""
    segment = record.segment
    if segment.broken or segment.chunk is not None:
        raise ValueError("a segment with faults, or with rows of a table, is not recorded")
    schemas: dict[Schema, int] = {}
    sources: dict[str, int] = {}
    body: list[bytes | array[int]] = []
    for shard, run in segment.runs.items():
        _put_run(body, shard, run, schemas, sources)
    gap, marker = segment.gap, segment.marker
    begin, end = segment.begin.to_bytes(), segment.end.to_bytes()
    parts: list[bytes | array[int]] = [
        _HEAD.pack(begin, end, segment.log_bytes, segment.newest_us, gap is not None, len(segment.runs))
    ]
    _put(parts, b"" if marker is None else marker_to_bytes(marker))
    if gap is not None:
        for text in (gap.kind.value, gap.first_missing, gap.last_missing, gap.message, gap.behind):
            _put(parts, text.encode())
    _put_all(parts, [schema.canonical for schema in schemas])
    _put_all(parts, [source.encode() for source in sources])
    parts.append(_COUNT.pack(len(segment.replaced)))
    for name, place in segment.replaced.items():
        _put(parts, name.encode())
        parts.append(place.to_bytes())
    parts += body
    parts.append(_COUNT.pack(len(record.borders)))
    for order, anchor in record.borders:
        _put(parts, b"" if anchor is None else anchor.id.encode())
        checksum, place = (0, order) if anchor is None else (anchor.checksum, anchor.begin)
        parts.append(_BORDER.pack(order.to_bytes(), checksum, place.to_bytes()))
    return b"".join(parts)


def _put(parts: list[bytes | array[int]], data: bytes) -> None:
    parts.append(_COUNT.pack(len(data)))
    parts.append(data)


def _put_all(parts: list[bytes | array[int]], items: Sequence[bytes]) -> None:
    parts.append(_COUNT.pack(len(items)))
    for item in items:
        _put(parts, item)


def _put_run(
    parts: list[bytes | array[int]], shard: str, run: Run, schemas: dict[Schema, int], sources: dict[str, int]
) -> None:
    _put(parts, shard.encode())
    parts.append(
        _RUN.pack(
            len(run.schemas),
            len(run.sources),
            len(run.ends),
            len(run.schema_index),
            len(run.indexes),
            len(run.tx_number),
            len(run.tx_end),
            len(run.tx_source),
            run.first_index,
            len(run.blob),
        )
    )
    parts += (
        array("I", [schemas.setdefault(schema, len(schemas)) for schema in run.schemas]),
        array("I", [sources.setdefault(source, len(sources)) for source in run.sources]),
        run.ends,
        run.schema_index,
        run.indexes,
        run.tx_number,
        run.tx_file,
        run.tx_offset,
        run.tx_committed_at_us,
        run.tx_end,
        run.tx_source,
        run.blob,
    )


class _Input:
    """The unread rest of a record's bytes. A read beyond its end raises an error."""

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self._at = 0

    def take(self, size: int) -> memoryview:
        begin, self._at = self._at, self._at + size
        if self._at > len(self._view):
            raise DecodeError(f"a record of {len(self._view)} bytes ends before byte {self._at}", code="relay-damaged")
        return self._view[begin : self._at]

    def bytes(self) -> bytes:
        return bytes(self.take(self.count()))

    def text(self) -> str:
        return self.bytes().decode()

    def count(self) -> int:
        (count,) = _COUNT.unpack(self.take(_COUNT.size))
        return int(count)

    def numbers(self, typecode: str, count: int) -> array[int]:
        numbers: array[int] = array(typecode)
        numbers.frombytes(self.take(count * numbers.itemsize))
        return numbers

    def place(self) -> LogPosition:
        return LogPosition.from_bytes(bytes(self.take(LogPosition.SIZE)))

    def end(self) -> None:
        if self._at != len(self._view):
            raise DecodeError(
                f"a record of {len(self._view)} bytes has {len(self._view) - self._at} too many", code="relay-damaged"
            )


def decode(data: bytes) -> Record:
    """Inverse of :func:`encode`. Raises :class:`~wormhole.model.errors.DecodeError` for invalid bytes."""
    try:
        return _decode(_Input(data))
    except (ValueError, IndexError, ProtobufDecodeError, ProtocolError, OverflowError) as error:
        raise DecodeError(f"these bytes are no record of a relay: {error}", code="relay-damaged") from error


def _decode(data: _Input) -> Record:
    begin, end, log_bytes, newest_us, has_gap, runs = _HEAD.unpack(data.take(_HEAD.size))
    marker = data.bytes()
    gap = LogGap(LossKind(data.text()), data.text(), data.text(), data.text(), data.text()) if has_gap else None
    schemas = [Schema.from_canonical(data.bytes()) for _ in range(data.count())]
    sources = [data.text() for _ in range(data.count())]
    replaced = {data.text(): data.place() for _ in range(data.count())}
    segment = Segment(
        LogPosition.from_bytes(begin),
        LogPosition.from_bytes(end),
        dict(_take_run(data, schemas, sources) for _ in range(runs)),
        marker_from_bytes(marker) if marker else None,
        log_bytes,
        newest_us,
        gap,
        replaced=replaced,
    )
    borders = tuple(_take_border(data) for _ in range(data.count()))
    data.end()
    return Record(segment, borders)


def _take_border(data: _Input) -> Border:
    name = data.text()
    order, checksum, begin = _BORDER.unpack(data.take(_BORDER.size))
    anchor = Anchor(name, checksum, LogPosition.from_bytes(begin)) if name else None
    return Border(LogPosition.from_bytes(order), anchor)


def _take_run(data: _Input, schemas: Sequence[Schema], sources: Sequence[str]) -> tuple[str, Run]:
    shard = data.text()
    counts = _RUN.unpack(data.take(_RUN.size))
    own_schemas, own_sources, updates, schema_index, indexes, transactions, ended, tx_source, first_index, size = counts
    if schema_index not in (0, updates) or indexes not in (0, updates) or tx_source not in (0, transactions):
        raise DecodeError(f"the columns of shard {shard} are of different lengths", code="relay-damaged")
    named = tuple(schemas[ordinal] for ordinal in data.numbers("I", own_schemas))
    left = tuple(sources[ordinal] for ordinal in data.numbers("I", own_sources))
    ends, schema_of, index_of = data.numbers("I", updates), data.numbers("I", schema_index), data.numbers("I", indexes)
    tx_number, tx_file, tx_offset = (data.numbers("Q", transactions) for _ in range(3))
    tx_committed_at_us = data.numbers("q", transactions)
    tx_end, source_of = data.numbers("I", ended), data.numbers("I", tx_source)
    if ended > transactions or size != (ends[-1] if ends else 0):
        raise DecodeError(f"the updates of shard {shard} do not end where their bytes end", code="relay-damaged")
    run = Run(
        bytes(data.take(size)),
        ends,
        named,
        left,
        tx_number,
        tx_file,
        tx_offset,
        tx_committed_at_us,
        tx_end,
        schema_of,
        index_of,
        first_index,
        source_of,
    )
    return shard, run


# --- a part of a segment ----------------------------------------------------------------------------------------------


def cut(segment: Segment, place: LogPosition) -> Segment:
    """The part of ``segment`` for a reader at ``place``, which is the end of a transaction inside it."""
    if place <= segment.begin:
        return segment
    runs: dict[str, Run] = {}
    for shard, run in segment.runs.items():
        transaction, ordinal = first_wanted(run, place, 0)
        if transaction < len(run.tx_number):
            runs[shard] = _behind(run, transaction, ordinal) if transaction else run
    size = segment.size
    left = replace(
        segment,
        begin=place,
        runs=runs,
        gap=None,
        replaced={name: begin for name, begin in segment.replaced.items() if begin >= place},
    )
    left.log_bytes = segment.log_bytes * left.size // size if size else 0
    return left


def _behind(run: Run, transaction: int, ordinal: int) -> Run:
    """The part of the run from ``transaction`` on. ``ordinal``: the ordinal of its first update."""
    start = run.ends[ordinal - 1] if ordinal else 0
    return Run(
        run.blob[start:],
        array("I", [end - start for end in run.ends[ordinal:]]),
        run.schemas,
        run.sources,
        run.tx_number[transaction:],
        run.tx_file[transaction:],
        run.tx_offset[transaction:],
        run.tx_committed_at_us[transaction:],
        array("I", [end - ordinal for end in run.tx_end[transaction:]]),
        run.schema_index[ordinal:],
        run.indexes[ordinal:],
        0,
        run.tx_source[transaction:],
    )


# --- several segments as one ------------------------------------------------------------------------------------------


def groups(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Group segments for merging, in order. Small segments that end between transactions share a group, and each group
    becomes one record."""
    group: list[Segment] = []
    size = 0
    for segment in segments:
        if group and (size + segment.memory > MERGED or not _adjoins(group[-1], segment)):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.memory
    if group:
        yield group


def _adjoins(before: Segment, segment: Segment) -> bool:
    whole = before.marker is not None and segment.marker is not None
    return (
        whole
        and segment.gap is None
        and segment.begin == before.end
        and segment.end.incarnation == before.end.incarnation == before.begin.incarnation
    )


def merge(segments: Sequence[Segment]) -> Record:
    """Merge the segments of one group of :func:`groups` into a record."""
    first, last = segments[0], segments[-1]
    if len(segments) == 1:
        return Record(first)
    runs: dict[str, list[Run]] = {}
    for segment in segments:
        for shard, run in segment.runs.items():
            runs.setdefault(shard, []).append(run)
    merged = Segment(
        first.begin,
        last.end,
        {shard: own[0] if len(own) == 1 else _joined(own) for shard, own in runs.items()},
        last.marker,
        sum(segment.log_bytes for segment in segments),
        last.newest_us,
        first.gap,
        replaced={name: place for segment in segments for name, place in segment.replaced.items()},
    )
    return Record(merged, tuple(_borders(segments)))


def _borders(segments: Sequence[Segment]) -> Iterator[Border]:
    for segment in segments[:-1]:
        assert segment.marker is not None
        yield Border(segment.marker.order, segment.marker.anchor)


def _joined(runs: Sequence[Run]) -> Run:
    schemas: dict[Schema, int] = {}
    sources: dict[str, int] = {}
    counted = all(not run.indexes and not run.first_index for run in runs[1:]) and not runs[0].indexes
    whole = Run(
        b"".join([run.blob for run in runs]),
        array("I"),
        (),
        (),
        array("Q"),
        array("Q"),
        array("Q"),
        array("q"),
        array("I"),
        first_index=runs[0].first_index,
    )
    bytes_before = 0
    for run in runs:
        before = len(whole.ends)
        schema_of = array("I", [schemas.setdefault(schema, len(schemas)) for schema in run.schemas])
        source_of = array("I", [sources.setdefault(source, len(sources)) for source in run.sources])
        whole.schema_index.extend(_columns(run.schema_index, schema_of, run.updates))
        whole.tx_source.extend(_columns(run.tx_source, source_of, len(run.tx_number)))
        if not counted:
            whole.indexes.extend(run.indexes or _counted(run))
        whole.ends.extend(array("I", [end + bytes_before for end in run.ends]))
        whole.tx_end.extend(array("I", [end + before for end in run.tx_end]))
        whole.tx_number.extend(run.tx_number)
        whole.tx_file.extend(run.tx_file)
        whole.tx_offset.extend(run.tx_offset)
        whole.tx_committed_at_us.extend(run.tx_committed_at_us)
        bytes_before += len(run.blob)
    whole.schemas, whole.sources = tuple(schemas), tuple(sources)
    if len(schemas) < 2:
        whole.schema_index = array("I")
    if len(sources) < 2:
        whole.tx_source = array("I")
    return whole


def _columns(column: array[int], of: array[int], count: int) -> array[int]:
    """A column of ordinals, translated by the table ``of``, with ``count`` entries."""
    if column:
        return array("I", map(of.__getitem__, column))
    return (of[:1] or _ONE) * count


def _counted(run: Run) -> array[int]:
    """The index of each update within its transaction, for a run that numbers them consecutively."""
    indexes = array("I")
    begin, first = 0, run.first_index
    for end in (*run.tx_end, run.updates):
        indexes.extend(range(first, first + end - begin))
        begin, first = end, 0
    return indexes


# --- proof ------------------------------------------------------------------------------------------------------------


def proves(record: Record, before: Anchor | None, marker: Datamarker) -> bool:
    """Whether ``marker``, whose place is inside the record or at its end, belongs to the recorded log.

    ``before``: the anchor of the datamarker where the record begins. The marker's anchor has to equal the recorded
    anchor of the place, or the anchor of the last transaction before the place. An anchor of the log's bytes proves a
    place if no transaction was recorded between these bytes and the place.
    """
    segment, place, anchor = record.segment, marker.order, marker.anchor
    borders = [border.anchor for border in record.borders if border.order == place]
    if place == segment.end and segment.marker is not None:
        borders.append(segment.marker.anchor)
    last = _last_transaction(segment, place)
    if anchor is None:
        return bool(borders) or (last is not None and last.place == (place.file, place.offset))
    if anchor in borders:
        return True
    if any(border is not None and border.id == anchor.id for border in borders):
        return False
    if last is None:
        return anchor == before or anchor.is_of_log_bytes
    if anchor.is_of_log_bytes:
        return last.place <= (place.file, anchor.log_bytes_end)
    known = last.committed_at_us and marker.committed_at_us
    return last.id == anchor.id and (not known or last.committed_at_us == marker.committed_at_us)


class _Ended(NamedTuple):
    place: tuple[int, int]
    id: str
    committed_at_us: int


def _last_transaction(segment: Segment, place: LogPosition) -> _Ended | None:
    """The last recorded transaction that ends at or before ``place``; ``None`` without one."""
    found: list[_Ended] = []
    for run in segment.runs.values():
        transaction, _ = first_wanted(run, place, 0)
        if transaction:
            at = transaction - 1
            ended = run.tx_file[at], run.tx_offset[at]
            found.append(_Ended(ended, run.transaction_id(at), run.tx_committed_at_us[at]))
    return max(found, key=lambda one: one.place, default=None)
