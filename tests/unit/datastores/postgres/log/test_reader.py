"""The reader over a stream that is played: what it takes for a place, and for its proof."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import cast

import pytest

from datastores.postgres.decode.encoder import Encoder
from datastores.postgres.decode.tables import FindKey, Tables
from datastores.postgres.history.delivered_transactions import DeliveredTransactions
from datastores.postgres.history.incarnations import History
from datastores.postgres.history.timelines import Timelines
from datastores.postgres.log.reader import WalReader
from datastores.postgres.server.connection import ServerError
from datastores.postgres.server.stream import Stream
from datastores.postgres.tables.unlogged_changes import NOTHING_NOTICED, Noticed, UnloggedChange, UnloggedChanges
from tests.support import postgres_messages as build
from tests.support.given import given
from tests.support.postgres_messages import EPOCH_US, INT4
from wormhole.model.errors import DecodeError, Diverged, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.segment import Segment
from wormhole.model.sharding import Sharding
from wormhole.wire.body import build_body, parse_body

TABLE = build.relation(7, "shop.orders", [("id", INT4)])
ANCHOR = Anchor("9:1:90", 5, LogPosition(1, 0, 90))
START = Datamarker(LogPosition(1, 0, 100), "1:0/64", LogPosition(1, 0, 90), ANCHOR, 77)


class Played:
    """Hands out batches of messages, then nothing; an exception is raised."""

    def __init__(self) -> None:
        self.batches: list[list[bytes] | Exception] = []
        self.closed = False

    def receive(self, _wait_s: float) -> list[bytes]:
        batch = self.batches.pop(0) if self.batches else []
        if isinstance(batch, Exception):
            raise batch
        return batch

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def stream() -> Played:
    return Played()


class Catalogue:
    """What the looks at the catalogue noticed so far."""

    def __init__(self, changes: Mapping[str, UnloggedChange] | None = None) -> None:
        self._noticed = NOTHING_NOTICED if changes is None else Noticed(changes)

    def notice(self, table: str, change: UnloggedChange, number: int = 7) -> None:
        """A change of the rows of a table, which has this number."""
        before = self._noticed
        self._noticed = Noticed({**before.changes, table: change}, {**before.names, number: (change.place, table)})

    def of(self, _system: str) -> Noticed:
        return self._noticed


def _made(
    stream: Played,
    silent: tuple[int, int] = (0, 0),
    start: Datamarker = START,
    find_key: FindKey | None = None,
    unlogged: Catalogue | None = None,
) -> WalReader:
    tables = Tables("log", Sharding("log"), find_key=find_key)
    return WalReader(
        cast("Stream", stream),
        Encoder(tables, 1 << 20),
        tables,
        start,
        History(1, "9", 1),
        Timelines(1),
        unread=[],
        passed=lambda _: None,
        closed=lambda _: None,
        prove=lambda at: replace(ANCHOR, id=f"log:9:1:{at.offset}"),
        delivered=DeliveredTransactions(),
        unlogged=cast("UnloggedChanges", unlogged or Catalogue()),
        published_from=lambda lsn: max(lsn, 400),
        silent=silent,
    )


@pytest.fixture
def reader(stream: Played) -> Iterator[WalReader]:
    made = _made(stream)
    yield made
    made.close()


def _read(reader: WalReader, stream: Played, *messages: bytes) -> Segment:
    stream.batches = [list(messages)]
    return given(reader.read(1 << 20, 10.0))


def _marker(segment: Segment) -> Datamarker:
    assert segment.marker is not None
    return segment.marker


def _transaction(commit: int, end: int, at_us: int = 5) -> list[bytes]:
    return [build.begin(commit, at_us), TABLE, build.insert(7, ["1"]), build.commit(commit, end, at_us)]


def _keepalive(end: int) -> bytes:
    return b"k" + struct.pack(">QqB", end, 0, 0)


def test_a_message_outside_of_a_transaction_moves_the_place_and_not_the_anchor(
    reader: WalReader, stream: Played
) -> None:
    segment = _read(reader, stream, build.message("outbox", b"x", 160, transactional=False))
    marker = _marker(segment)
    assert (marker.order, marker.delivered) == (LogPosition(1, 0, 160), "1:0/A0")
    assert (marker.anchor, marker.read_from, marker.committed_at_us) == (ANCHOR, ANCHOR.begin, 77)
    assert sum(run.updates for run in segment.runs.values()) == 1


def test_a_transaction_behind_a_message_is_the_anchor(reader: WalReader, stream: Played) -> None:
    message = build.message("outbox", b"x", 160, transactional=False)
    marker = _marker(_read(reader, stream, message, *_transaction(200, 240)))
    assert marker.anchor is not None
    assert (marker.anchor.id, marker.order.offset, marker.committed_at_us) == ("9:1:200", 240, EPOCH_US + 5)
    later = _marker(_read(reader, stream, build.message("outbox", b"y", 300, transactional=False)))
    assert (later.anchor, later.order.offset, later.committed_at_us) == (marker.anchor, 300, EPOCH_US + 5)


def test_a_message_in_a_transaction_is_part_of_it(reader: WalReader, stream: Played) -> None:
    inside = [build.begin(200), build.message("outbox", b"x", 180, transactional=True), build.commit(200, 240)]
    segment = _read(reader, stream, *inside)
    assert _marker(segment).anchor != ANCHOR
    assert (segment.end.offset, sum(run.updates for run in segment.runs.values())) == (240, 1)


def test_what_ended_before_a_fault_goes_out_first(reader: WalReader, stream: Played) -> None:
    stream.batches = [_transaction(200, 240), SourceUnavailable("gone", hint="wait")]
    assert given(reader.read(1 << 20, 10.0)).end.offset == 240
    stream.batches = [SourceUnavailable("gone", hint="wait")]
    with pytest.raises(SourceUnavailable):
        reader.read(1 << 20, 10.0)


def test_another_history_ends_the_reader(reader: WalReader) -> None:
    reader.outlived(1)
    assert reader.read(1 << 20, 0.0) is None
    reader.outlived(2)
    with pytest.raises(SourceUnavailable, match="incarnation 2"):
        reader.read(1 << 20, 0.0)


def test_a_read_ends_in_time_while_the_server_never_stops_sending(reader: WalReader, stream: Played) -> None:
    """A segment takes any number of keepalives and of transactions without updates."""

    batches, commits = 0, itertools.count(200, 100)
    messages: Iterator[list[bytes]] = itertools.repeat([_keepalive(50)])

    def endless(_wait_s: float) -> list[bytes]:
        nonlocal batches
        batches += 1
        assert batches < 9, "it does not end"
        return next(messages)

    stream.receive = endless  # type: ignore[method-assign]
    assert reader.read(1 << 20, 0.0) is None
    assert batches == 1
    messages = ([build.begin(at), build.commit(at, at + 40)] for at in commits)
    assert given(reader.read(1 << 20, 0.0)).end.offset == 240
    assert batches == 2


def test_a_closed_reader_reads_nothing(reader: WalReader, stream: Played) -> None:
    reader.close()
    assert stream.closed
    assert reader.read(1 << 20, 10.0) is None


def test_an_idle_log_moves_the_place_between_transactions_only(
    reader: WalReader, stream: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, *_ = _transaction(200, 240)
    monkeypatch.setattr("datastores.postgres.log.reader._IDLE_S", 0.0)
    assert _read(reader, stream, _keepalive(150)).end.offset == 150
    stream.batches = [[begin, _keepalive(190)]]
    assert reader.read(1 << 20, 0.0) is None


def test_a_place_without_a_proof_gets_one_at_once(stream: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastores.postgres.log.reader._IDLE_S", 0.0)
    for start, proof in ((START, ANCHOR.id), (replace(START, anchor=None), "log:9:1:150")):
        with closing(_made(stream, start=start)) as reader:
            assert given(_marker(_read(reader, stream, _keepalive(150))).anchor).id == proof


def test_a_transaction_before_the_place_is_of_another_history(
    reader: WalReader, stream: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was restored from a copy between the proof and the place; or one that lies about its log's end."""
    stream.batches = [[build.origin("elsewhere"), *_transaction(80, 99), *_transaction(200, 240)]]
    with pytest.raises(Diverged, match=r"up to 0/64, .* of 0/50") as error:
        reader.read(1 << 20, 10.0)
    assert "accept-loss" in (error.value.hint or "")
    monkeypatch.setattr("datastores.postgres.log.reader._IDLE_S", 0.0)
    with closing(_made(stream)) as another:
        assert _read(another, stream, *_transaction(100, 110)).end.offset == 110
        assert _read(another, stream, _keepalive(1 << 60)).end.offset == 1 << 60
        stream.batches = [_transaction(120, 130)]
        with pytest.raises(Diverged):
            another.read(1 << 20, 10.0)


def test_what_was_written_without_the_publication_is_a_gap_with_its_range(reader: WalReader, stream: Played) -> None:
    refused = ServerError("publication does not exist", sqlstate="42704", hint="")
    stream.batches = [_transaction(200, 240), refused]
    assert reader.read(1 << 20, 10.0) is not None
    stream.batches = [refused]
    segment = given(reader.read(1 << 20, 10.0))
    assert segment.gap is not None
    assert (segment.gap.first_missing, segment.gap.last_missing) == ("1:0/F0", "1:0/190")
    assert segment.begin == segment.end == _marker(segment).order == LogPosition(1, 0, 400)
    anchor = given(_marker(segment).anchor)
    assert anchor.id == "log:9:1:400", "a copy of the server that is put back later has other bytes there"
    with pytest.raises(ServerError):
        reader.read(1 << 20, 10.0)


def test_a_server_that_passes_over_it_in_silence_is_not_believed(stream: Played) -> None:
    here = START.delivered
    for silent_from, first in ((0, here), (START.order.offset + 1, here), (80, "1:0/50")):
        reader = _made(stream, silent=(silent_from, 300))
        stream.batches = [_transaction(350, 390)]
        segment = given(reader.read(1 << 20, 10.0))
        assert segment.gap is not None
        assert (segment.gap.first_missing, segment.gap.last_missing) == (first, "1:0/190")
        with pytest.raises(SourceUnavailable, match="dropped and made again"):
            reader.read(1 << 20, 10.0)
        reader.close()


def test_a_reader_that_was_there_meanwhile_is_opened_again(reader: WalReader) -> None:
    reader.republished()
    with pytest.raises(SourceUnavailable, match="dropped and made again"):
        reader.read(1 << 20, 0.0)


def test_a_look_at_the_catalogue_that_fails_ends_the_reader_before_the_transaction(stream: Played) -> None:
    """It is opened again behind the one before, and asks again: no row is handed on without its key."""

    def fails(*_: object) -> None:
        raise SourceUnavailable("cut in the middle", hint="")

    with closing(_made(stream, find_key=fails)) as reader:
        full = build.relation(8, "shop.full", [("id", INT4)], (0,), "f")
        late = [build.begin(300), TABLE, build.insert(7, ["2"]), full, build.insert(8, ["1"]), build.commit(300, 340)]
        segment = _read(reader, stream, *_transaction(200, 240), *late)
        assert (_marker(segment).order.offset, sum(run.updates for run in segment.runs.values())) == (240, 1)
        assert not segment.broken
        for _ in range(2):
            with pytest.raises(SourceUnavailable, match="cut in the middle"):
                reader.read(1 << 20, 10.0)


def test_a_call_comes_back_although_the_server_never_stops_sending_nothing(
    reader: WalReader, stream: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "receive", lambda _: [_keepalive(100)] * 10)
    assert reader.read(1 << 20, 0.0) is None


def test_transactions_that_end_where_the_one_before_ended_are_an_error(reader: WalReader, stream: Played) -> None:
    twice = [build.begin(200), build.commit(200, 240)]
    assert _marker(_read(reader, stream, *twice)).order.offset == 240
    stream.batches = [twice]
    with pytest.raises(DecodeError, match="0/F0 again and again"):
        reader.read(1 << 20, 10.0)


def test_a_part_of_a_transaction_behind_one_that_ended_is_no_error(reader: WalReader, stream: Played) -> None:
    stream.batches = [_transaction(200, 240), [build.begin(300), build.insert(7, ["2"])]]
    assert _marker(given(reader.read(1 << 20, 10.0))).order.offset == 240


def test_a_reader_of_another_server_than_the_one_that_answers_is_opened_again(reader: WalReader) -> None:
    reader.left_behind()
    with pytest.raises(SourceUnavailable, match="another server answers"):
        reader.read(1 << 20, 0.0)


def test_rows_that_changed_without_a_trace_are_reported_once_at_their_place(stream: Played) -> None:
    unlogged = Catalogue({"shop.orders": UnloggedChange(140, 100), "shop.items": UnloggedChange(150, 100)})
    reader = _made(stream, unlogged=unlogged)
    first = [build.begin(110), TABLE, build.insert(7, ["1"]), build.commit(110, 140)]
    assert _read(reader, stream, *first).replaced == {"shop.orders": LogPosition(1, 0, 140)}
    second = [build.begin(145), build.insert(7, ["2"]), build.commit(145, 160)]
    assert _read(reader, stream, *second).replaced == {"shop.items": LogPosition(1, 0, 150)}
    unlogged.notice("shop.orders", UnloggedChange(155, 140))  # noticed when the reader was there already
    assert _read(reader, stream).replaced == {"shop.orders": LogPosition(1, 0, 160)}
    assert reader.read(1 << 20, 0.0) is None
    later = _made(stream, start=replace(START, order=LogPosition(1, 0, 151)), unlogged=unlogged)
    third = [build.begin(152), TABLE, build.insert(7, ["3"]), build.commit(152, 160)]
    assert _read(later, stream, *third).replaced == {"shop.orders": LogPosition(1, 0, 155)}


def test_rows_that_a_truncate_removed_are_not_reported(stream: Played) -> None:
    """It gives the table another file, and it is in the log."""
    unlogged = Catalogue({"shop.orders": UnloggedChange(140, 100, files=True)})
    reader = _made(stream, unlogged=unlogged)
    truncated = [build.begin(110), TABLE, build.truncate(7), build.commit(110, 140)]
    assert _read(reader, stream, *truncated).replaced == {}
    unlogged.notice("shop.orders", UnloggedChange(180, 141, files=True))
    written = [build.begin(150), build.insert(7, ["2"]), build.commit(150, 180)]
    assert _read(reader, stream, *written).replaced == {"shop.orders": LogPosition(1, 0, 180)}


def _tables(segment: Segment) -> dict[str, int]:
    """How many updates each table has."""
    found: Counter[str] = Counter()
    for run in segment.runs.values():
        names = {schema.id: schema.table for schema in run.schemas}
        body = parse_body(given(build_body(run, 1)).data)
        found.update(names[body.schema_id_of(at)] for at in range(len(body.updates)))
    return dict(found)


def _written(commit: int, end: int, *first: bytes) -> list[bytes]:
    return [build.begin(commit), *first, build.insert(7, ["1"]), build.commit(commit, end)]


def test_a_table_has_its_new_name_from_the_place_of_its_change_on(stream: Played) -> None:
    """The server describes a partitioned table once for each partition, whatever its name is later."""
    unlogged = Catalogue()
    unlogged.notice("shop.sales", UnloggedChange(150, 100))
    with closing(_made(stream, unlogged=unlogged)) as reader:
        segment = _read(reader, stream, *_written(110, 120, TABLE), *_written(149, 160), *_written(160, 170))
        assert _tables(segment) == {"shop.orders": 2, "shop.sales": 1}
        assert segment.replaced == {"shop.sales": LogPosition(1, 0, 150)}
        later = build.relation(7, "shop.latest", [("id", INT4)])
        assert _tables(_read(reader, stream, *_written(180, 190, later), *_written(200, 210))) == {"shop.latest": 2}


def test_a_description_that_is_younger_than_the_change_counts(stream: Played) -> None:
    """The change is noticed when the reader is behind its place."""
    unlogged = Catalogue()
    with closing(_made(stream, unlogged=unlogged)) as reader:
        _read(reader, stream, *_written(200, 210, TABLE))
        unlogged.notice("shop.sales", UnloggedChange(150, 100))
        stream.batches = [_written(220, 230)]
        assert given(reader.read(1 << 20, 10.0)).replaced == {"shop.sales": LogPosition(1, 0, 210)}
        assert _tables(given(reader.read(1 << 20, 10.0))) == {"shop.orders": 1}


def test_a_new_name_is_reported_behind_the_transaction_that_was_open_then(stream: Played) -> None:
    """So no row comes under the former name behind the report, after which a backfill may begin."""
    unlogged = Catalogue()
    with closing(_made(stream, unlogged=unlogged)) as reader:
        begun, *rest = _written(200, 240)
        assert not _read(reader, stream, *_written(110, 120, TABLE), begun).replaced
        unlogged.notice("shop.sales", UnloggedChange(150, 100))
        stream.batches = [[_keepalive(120)]]
        assert reader.read(1 << 20, 0.0) is None
        segment = _read(reader, stream, *rest, *_written(250, 260))
        assert _tables(segment) == {"shop.orders": 1, "shop.sales": 1}
        assert segment.replaced == {"shop.sales": LogPosition(1, 0, 201)}
