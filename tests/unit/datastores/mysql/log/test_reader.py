from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from datastores.mysql.history.confirmation import Unconfirmed
from datastores.mysql.log.dump import Dump
from datastores.mysql.log.reader import BinlogReader
from datastores.mysql.log.scan import fails_again
from datastores.mysql.server.catalog import Catalog
from tests.support import mysql_events as build
from tests.support.given import given
from tests.support.mysql_dump import Scripted, beginning, format_description, insert, rotate, table
from wormhole.model.errors import DecodeError, SourceUnavailable, WormholeError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.reading import Read

START = LogPosition(1, 3, 4)


class Reading:
    """A reader over what a server would send."""

    def __init__(
        self,
        folder: Path,
        stream: build.Stream,
        *,
        marker: Datamarker | None = None,
        placed: bool = True,
        sharding: Sharding | None = None,
        confirmed: Callable[[WormholeError, LogPosition], WormholeError] = lambda error, since: error,
    ) -> None:
        self.scripted = Scripted(folder, stream, sharding=sharding, file=3 if placed else 0, offset=4 if placed else 0)
        self.closed = 0
        self.markers: list[Datamarker] = []
        self.reader = BinlogReader(
            cast(Dump, self.scripted.dump),
            self.scripted.encoder,
            self.scripted.walk,
            self.scripted.tables,
            self.scripted.prepared,
            self.scripted.delivered,
            marker or Datamarker(START, "", START),
            placed=placed,
            passed=self.markers.append,
            closed=self._close,
            confirmed=confirmed,
        )

    def _close(self) -> None:
        self.closed += 1

    def all(self, max_bytes: int = 1 << 20) -> list[Segment]:
        segments = []
        while (segment := self.reader.read(max_bytes, 0.0)) is not None:
            segments.append(segment)
        return segments


def checked(segments: list[Segment]) -> Read:
    read = Read(last_end=START)
    for segment in segments:
        read.add(segment)
    return read


def test_transactions_come_together_up_to_what_was_asked_for(tmp_path: Path) -> None:
    stream = beginning()
    for n in range(1, 6):
        stream.transaction(n, table(), insert(n))
    (segment,) = Reading(tmp_path, stream).all()
    assert segment.begin == START
    assert segment.end == LogPosition(1, 3, stream.offset)
    assert segment.marker is not None
    assert segment.marker.delivered == f"{build.UUID_TEXT}:1-5"
    assert given(segment.marker.anchor).id == f"{build.UUID_TEXT}:5"
    assert segment.newest_us == segment.marker.committed_at_us == 5_000_000
    assert segment.log_bytes == len(stream.packets())
    assert checked([segment]).keys() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("sharding", [Sharding("log"), Sharding("hash", 3)])
@pytest.mark.parametrize("max_bytes", [1, 50, 400])
def test_a_large_transaction_comes_in_pieces_between_its_neighbours(
    tmp_path: Path, max_bytes: int, sharding: Sharding
) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    begin = stream.offset
    stream.transaction(2, table(), *(insert(*range(k, k + 5)) for k in range(10, 60, 5)))
    stream.transaction(3, table(), insert(70))
    segments = Reading(tmp_path, stream, sharding=sharding).all(max_bytes)
    read = checked(segments)
    assert sorted(read.keys()) == [1, *range(10, 60), 70]  # type: ignore[type-var]
    assert len(set(read.ids())) == 52
    inside = [segment for segment in segments if segment.marker is None]
    assert len(inside) > 1
    assert LogPosition(1, 3, begin) in {segment.end for segment in inside}
    # A datamarker stands before it, so that nothing of its neighbour comes twice.
    assert LogPosition(1, 3, begin) in {marker.order for marker in read.markers}


def test_a_small_transaction_comes_whole_however_its_bytes_arrive(tmp_path: Path) -> None:
    """In pieces its updates would be told at another place than when they come again."""
    stream = beginning()
    known = len(stream.packets())
    for n in (1, 10, 20):
        stream.transaction(n, table(), insert(n), insert(n + 1), insert(n + 2))
    reading = Reading(tmp_path, beginning())
    data = stream.packets()[known:]
    segments = []
    for i in range(0, len(data), 30):
        reading.scripted.dump.feed(data[i : i + 30])
        segments += reading.all()
    read = checked(segments)
    assert read.keys() == [1, 2, 3, 10, 11, 12, 20, 21, 22]
    assert read.pieces == 0


def test_a_segment_without_updates_moves_the_place_on(tmp_path: Path) -> None:
    stream = beginning()
    stream.statement(1, "CREATE TABLE t (id INT)")
    (segment,) = Reading(tmp_path, stream).all()
    assert not segment.updates
    assert segment.marker is not None
    assert (segment.marker.order.offset, segment.marker.delivered) == (stream.offset, f"{build.UUID_TEXT}:1")


def test_nothing_but_heartbeats_is_nothing(tmp_path: Path) -> None:
    stream = beginning("binlog.000003", 400)
    place = LogPosition(1, 3, 400)
    anchor = Anchor("a:1", 1, START)
    reading = Reading(tmp_path, stream, marker=Datamarker(place, "", place, anchor))
    reading.scripted.encoder.file_offset = 400
    more = build.Stream()
    more.add(27, b"binlog.000003", place=400)
    reading.scripted.dump.feed(more.packets())
    assert reading.all() == []
    assert reading.markers == []


def test_each_piece_is_of_one_file(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    rotate(stream, "binlog.000004", 4, artificial=False)
    rotate(stream, "binlog.000004", 4)
    stream.offset = 4
    format_description(stream)
    stream.transaction(2, table(), insert(2))
    segments = Reading(tmp_path, stream).all()
    read = checked(segments)
    assert [segment.end.file for segment in segments if segment.updates] == [3, 4]
    assert read.keys() == [1, 2]
    assert given(read.markers[-1].anchor).begin.file == 4


def test_what_comes_before_a_fault_goes_out_first(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    reading = Reading(tmp_path, stream)
    reading.scripted.dump.error = SourceUnavailable("gone")
    segment = given(reading.reader.read(1 << 20, 0.0))
    assert checked([segment]).keys() == [1]
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="gone"):
            reading.reader.read(1 << 20, 0.0)


def test_a_reader_that_its_log_outlived_hands_out_what_it_has_and_ends(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    reading = Reading(tmp_path, stream)
    reading.reader.outlived(1)
    assert checked(reading.all()).keys() == [1]
    reading.reader.outlived(2)
    with pytest.raises(SourceUnavailable, match="incarnation 2") as error:
        reading.reader.read(1 << 20, 0.0)
    assert error.value.hint


def test_found_by_gtids_the_first_transaction_shows_the_place(tmp_path: Path) -> None:
    stream = beginning("binlog.000009")
    stream.offset = 5000  # what was delivered is passed over by the server
    old = Datamarker(LogPosition(0, 12, 77), f"{build.UUID_TEXT}:1-6", LogPosition(0, 12, 77), Anchor("x:1", 1, START))
    reading = Reading(tmp_path, stream, marker=old, placed=False)
    assert reading.all() == []
    more = build.Stream(offset=5000)
    more.transaction(7, table(), insert(7))
    reading.scripted.dump.feed(more.packets())
    (segment,) = reading.all()
    assert segment.begin == old.order
    assert segment.end == LogPosition(1, 9, more.offset)
    assert segment.marker is not None
    assert given(segment.marker.anchor).begin == LogPosition(1, 9, 5000)


def test_missing_log_is_a_segment_of_its_own(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    begin = stream.offset
    stream.statement(2, "XA COMMIT X'61',X'',1")
    end = stream.offset
    stream.transaction(3, table(), insert(3))
    first, gap, last = Reading(tmp_path, stream).all()
    assert first.end.offset == begin
    assert gap.gap is not None
    assert gap.begin.offset == gap.end.offset == last.begin.offset == end
    # The one transaction that is missing, and not the first, which was delivered.
    assert (gap.gap.first_missing, gap.gap.last_missing) == (f"{build.UUID_TEXT}:2",) * 2
    assert given(gap.marker).delivered == gap.gap.delivered == f"{build.UUID_TEXT}:1-2"
    assert checked([first, gap, last]).keys() == [1, 3]


def test_a_broken_shard_is_reported_with_the_transaction_and_not_before(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    begin = stream.offset
    stream.transaction(2, table("bad.t", names=False, table_id=8), insert(1, table_id=8), table(), insert(2))
    stream.transaction(3, table(), insert(3))
    reading = Reading(tmp_path, stream, sharding=Sharding("database"))
    first, second = reading.all()
    assert (first.end.offset, first.broken) == (begin, {})
    assert list(second.broken) == ["log.bad"]
    assert isinstance(second.broken["log.bad"], DecodeError)
    assert checked([first, second]).keys() == [1, 2, 3]


def test_a_table_is_durable_before_anything_behind_it_is_handed_out(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    assert Reading(tmp_path, stream).all()
    assert Catalog(tmp_path / "tables.jsonl").of_database("shop") == ["t"]


def test_each_statement_that_cannot_be_read_comes_in_a_segment_of_its_own(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table(), insert(1))
    for number in (2, 3):
        stream.add(build.GTID, build.gtid(build.UUID, number))
        stream.add(build.QUERY, build.query("DROP TABLE a, ") + b"\xff")
    stream.transaction(4, table(), insert(4))
    segments = Reading(tmp_path, stream).all()
    ids = [error.update_id for segment in segments for error in segment.broken.values()]
    assert ids == [f"{build.UUID_TEXT}:2:1", f"{build.UUID_TEXT}:3:1"]
    assert [bool(segment.broken) for segment in segments] == [False, True, True, False]
    assert [len(segment.runs["log"].ends) for segment in segments if segment.runs] == [1, 1, 1, 1]
    checked(segments)


def test_closing_gives_everything_back_once(tmp_path: Path) -> None:
    reading = Reading(tmp_path, beginning())
    reading.reader.close()
    reading.reader.close()
    assert reading.closed == 1
    assert reading.scripted.dump.closed
    assert reading.reader.read(1 << 20, 5.0) is None


class Flipped(build.Stream):
    """A stream with one byte changed on its way."""

    def __init__(self, packets: bytes, at: int, mask: int) -> None:
        super().__init__()
        self._packets = packets[:at] + bytes([packets[at] ^ mask]) + packets[at + 1 :]

    def packets(self) -> bytes:
        return self._packets


def sound(checksums: bool = True) -> build.Stream:
    stream = build.Stream(checksums)
    rotate(stream, "binlog.000003", 4)
    format_description(stream)
    for n in (1, 2):
        stream.transaction(n, table(), insert(n))
    return stream


def read_beside(folder: Path, seen: build.Stream, there: build.Stream) -> list[Segment]:
    """What a reader makes of ``seen``, if the log is ``there`` for the second look. Raises as it does."""

    def confirmed(error: WormholeError, since: LogPosition) -> WormholeError:
        again = Scripted(folder, there)
        again.encoder.checksums = there.checksums
        again.dump.error = SourceUnavailable("the server ended the binlog stream")
        failed = reading.scripted.walk.place
        try:
            return error if fails_again(again.walk, failed, error) else Unconfirmed(str(error))
        finally:
            again.walk.close()

    reading = Reading(folder, seen, confirmed=confirmed)
    reading.scripted.encoder.checksums = there.checksums
    try:
        return reading.all()
    finally:
        reading.reader.close()


def test_one_changed_byte_of_the_stream_holds_nothing_wherever_it_is(tmp_path: Path) -> None:
    stream = sound()
    whole = read_beside(tmp_path, stream, stream)
    data = stream.packets()
    doubted = 0
    for at in range(0, len(data), 3):  # the fields of all events begin at other remainders
        seen = Flipped(data, at, 1 << at % 8)
        try:
            segments = read_beside(tmp_path, seen, stream)
        except SourceUnavailable:
            doubted += 1
            continue
        # What is not looked at (a packet's number), or what makes the reader wait for more; heartbeats end that.
        read = checked(segments).ids()
        assert read == checked(whole).ids()[: len(read)], f"byte {at}"
    assert doubted > len(data) // 6


def test_an_error_that_is_there_again_is_believed(tmp_path: Path) -> None:
    stream = sound()
    damaged = Flipped(stream.packets(), len(stream.packets()) - 30, 1)
    with pytest.raises(DecodeError, match="checksum does not match"):
        read_beside(tmp_path, damaged, damaged)


def test_rows_without_a_checksum_break_their_shard_only_when_they_do_so_again(tmp_path: Path) -> None:
    stream = sound(checksums=False)
    at = stream.packets().rindex(b"n2") - 1  # the length of the text
    damaged = Flipped(stream.packets(), at, 0x40)
    damaged.checksums = False
    with pytest.raises(Unconfirmed):
        read_beside(tmp_path, damaged, stream)
    assert set(read_beside(tmp_path, damaged, damaged)[-1].broken) == {"log"}
