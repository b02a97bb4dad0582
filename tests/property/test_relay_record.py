"""Records of a relay: bytes and back; a part of one, and several as one, are read as the log that they are of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.relay.record import Record, cut, decode, encode, groups, merge, proves
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.testing.reading import Read
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder

SCHEMAS = [Schema(name, (Column("k", "bytes"),), ()) for name in ("t", "u", "v")]
SHARDS = ("one", "two", "three")


@dataclass
class Log:
    """Segments that adjoin, and the datamarker after each transaction; the first one is where the log begins."""

    segments: list[Segment]
    markers: list[Datamarker]


_rows = st.lists(st.tuples(st.sets(st.sampled_from(SHARDS), min_size=1), st.sampled_from(SCHEMAS)), max_size=5)


@st.composite
def logs(draw: st.DrawFn, *, pieces: bool = True) -> Log:
    """A random log, cut into segments at random."""
    builder = RunsBuilder()
    place = LogPosition(2, 1, draw(st.integers(0, 1 << 40)))
    markers = [Datamarker(place, "", place)]
    log = Log([], markers)
    begin = place

    def take(marker: Datamarker | None) -> None:
        nonlocal begin
        gap = None
        if draw(st.integers(0, 2)) == 0:
            gap = LogGap(LossKind.PURGED, "1", "2", "gone", draw(st.sampled_from(["", "x"])))
        replaced = {"t": begin} if draw(st.integers(0, 5)) == 0 else {}
        segment = Segment(
            begin, place, builder.take(), marker, draw(st.integers(0, 1 << 50)), 7, gap, replaced=replaced
        )
        log.segments.append(segment)
        begin = place

    for tx, rows in enumerate(draw(st.lists(_rows, min_size=1, max_size=6)), 1):
        source = draw(st.sampled_from(["s", "r:s"]))
        start = place
        time = draw(st.integers(-5, 1 << 50))
        builder.begin(source, tx, time, place)
        for index, (shards, schema) in enumerate(rows):
            if pieces and draw(st.integers(0, 5)) == 0:
                take(None)
            builder.add(tuple(shards), schema, encode_row(Op.UPSERT, (b"%d/%d" % (tx, index),)))
        place = LogPosition(2, place.file + draw(st.integers(0, 1)), place.offset + 10)
        builder.end(place)
        read_from = draw(st.sampled_from([place, start]))
        anchor = Anchor(f"{source}:{tx}", draw(st.integers(0, (1 << 32) - 1)), start)
        markers.append(Datamarker(place, f"{source}:1-{tx}", read_from, anchor, time))
        if draw(st.booleans()):
            take(markers[-1])
    if begin != place:
        take(markers[-1])
    return log


def read(segments: list[Segment]) -> Read:
    """What a reader makes of the segments, which obey the rules of the port."""
    found = Read()
    for segment in segments:
        found.add(segment)
    return found


def updates_of(segments: list[Segment]) -> dict[str, list[object]]:
    """The updates of each shard with their places, and the transactions that ended."""
    found: dict[str, list[object]] = {}
    for update in read(segments).updates:
        found.setdefault(update.shard, []).append((update, update.place))
    for shard, transaction in read(segments).ended:
        found.setdefault(f"{shard} ended", []).append(transaction)
    return found


@given(logs())
def test_a_record_is_read_as_it_was_written(log: Log) -> None:
    for segment in log.segments:
        data = encode(Record(segment))
        assert decode(data).segment == segment
        assert encode(decode(data)) == data


@given(logs(pieces=False))
def test_a_record_keeps_the_borders_inside_it(log: Log) -> None:
    for group in groups(log.segments):
        record = merge(group)
        assert decode(encode(record)) == record


@given(logs(), st.data())
def test_other_bytes_are_refused(log: Log, data: st.DataObject) -> None:
    whole = encode(Record(log.segments[0]))
    at = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DecodeError):
        decode(whole[:at])
    changed = whole[:at] + bytes((whole[at] ^ data.draw(st.integers(1, 255)),)) + whole[at + 1 :]
    try:
        decode(changed)
    except DecodeError:
        pass  # no other error, and no memory for a length that is wrong


@given(logs())
def test_small_segments_together_are_read_as_the_log(log: Log) -> None:
    whole = [merge(group).segment for group in groups(log.segments)]
    assert updates_of(whole) == updates_of(log.segments)
    assert [segment.gap for segment in whole if segment.gap] == [one.gap for one in log.segments if one.gap]
    assert sum(segment.log_bytes for segment in whole) == sum(segment.log_bytes for segment in log.segments)
    assert all(before.end == segment.begin for before, segment in pairwise(whole))


@given(logs(pieces=False))
def test_what_is_left_behind_a_place_is_the_rest_of_the_log(log: Log) -> None:
    everything = read(log.segments).ids()
    for group in groups(log.segments):
        record = merge(group)
        segment = record.segment
        for marker in log.markers:
            if not segment.begin <= marker.order < segment.end:
                continue
            left = cut(segment, marker.order)
            own, rest = updates_of([segment]), updates_of([left])
            assert left.begin == marker.order
            assert left.marker == segment.marker
            for shard, updates in own.items():
                behind = rest.get(shard, [])
                assert updates[len(updates) - len(behind) :] == behind
            before = set(read([segment]).ids()) - set(read([left]).ids())
            transactions = [
                f"{marker.anchor.id}:" for marker in log.markers if marker.anchor and marker.order <= left.begin
            ]
            assert all(any(one.startswith(id_) for id_ in transactions) for one in before)
            assert not any(one.startswith(id_) for id_ in transactions for one in read([left]).ids())
    assert everything == read(log.segments).ids()


@given(logs(pieces=False))
def test_a_place_inside_a_record_is_proven_by_its_transaction_alone(log: Log) -> None:
    for group in groups(log.segments):
        record = merge(group)
        inside = [m for m in log.markers if record.segment.begin < m.order <= record.segment.end]
        for marker in inside:
            assert marker.anchor is not None
            shown = any(
                marker.anchor.id == run.transaction_id(tx)
                for run in record.segment.runs.values()
                for tx in range(len(run.tx_number))
            )
            border = marker.order in {segment.end for segment in group}
            if shown or border:
                assert proves(record, None, marker)
            other = Anchor("s:99", marker.anchor.checksum, marker.anchor.begin)
            assert not proves(record, None, Datamarker(marker.order, "", marker.order, other))
