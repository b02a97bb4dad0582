"""The source beside a server that is played."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from datastores.postgres import source as source_module
from datastores.postgres.decode.encodings import UTF8
from datastores.postgres.log import flushing, places, slots
from datastores.postgres.server.connection import Connection, SessionEnded
from datastores.postgres.server.state import AnotherServer, ServerState, Slot
from datastores.postgres.server.stream import Stream
from datastores.postgres.source import PostgresSource
from tests.support.eventually import PATIENCE_S
from tests.support.given import given
from tests.support.hosts_state import HostsState
from wormhole.model.errors import CoordinationLost, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions

SLOTS = {name: Slot(name, "pgoutput", "shop", False, 0, 90, 100, "reserved", None) for name in ("s_held", "s_lead")}
LOOK_AT_TABLES = PostgresSource._look_at_tables
STATE = ServerState("7", 1, 500, 500, 150000, "logical", 0, 60.0, True, SLOTS)


class Played:
    """What stands for the server. ``meanwhile`` happens while it is asked for its state, ``committed`` at a commit of
    nothing, of which there were ``commits``.
    """

    encoding = UTF8

    def __init__(self) -> None:
        self.state = STATE
        self.meanwhile: Callable[[], None] = lambda: None
        self.committed: Callable[[], None] = lambda: None
        self.commits = 0
        self.is_open = True
        self.closed = 0
        self.pgconn: Any = None

    def connect(self, _address: object, **_: Any) -> Played:
        return self

    def query(self, statement: str, **_: Any) -> list[Any]:
        if "system_identifier" in statement:
            return [STATE.identity]
        if statement == flushing.EMPTY_COMMIT:
            self.commits += 1
            self.committed()
        return [("t",)]

    def cancel(self) -> None:
        pass

    def read_state(self, _connection: object, _publication: str, _slots: Mapping[str, str]) -> ServerState:
        state = self.state
        self.meanwhile()
        return state

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(source_module, "connect", played.connect)
    monkeypatch.setattr(places, "log_bytes_anchor", lambda *_: None)
    monkeypatch.setattr(source_module, "read_state", played.read_state)
    monkeypatch.setattr(PostgresSource, "_look_at_tables", lambda _: None)
    return played


def make(folder: Path, **more: Any) -> PostgresSource:
    folder.mkdir(exist_ok=True)
    password = folder / "password"
    password.touch(0o600)
    password.write_text("a hole")
    options = SourceOptions("log", folder, Sharding("log"), 1 << 20, 0, Login(password), **more)
    return PostgresSource("postgres://w@127.0.0.1/shop?slot=s", options)


@pytest.fixture
def source(server: Played, tmp_path: Path) -> Iterator[PostgresSource]:
    source = make(tmp_path)
    source.start()
    yield source
    source.stop()


def _read_to(source: PostgresSource, lsn: int) -> None:
    place = LogPosition(1, 0, lsn)
    source._note(Datamarker(place, f"1:0/{lsn:X}", place))


def test_a_reader_that_goes_on_while_the_server_is_asked_loses_nothing(server: Played, source: PostgresSource) -> None:
    server.meanwhile = lambda: _read_to(source, 700)
    assert source.latest().order == LogPosition(1, 0, 500)
    server.meanwhile = lambda: None
    server.state = replace(STATE, end=800, flushed=800)
    assert source.latest().order == LogPosition(1, 0, 800)


def test_a_slow_look_at_the_tables_keeps_none_from_the_log(
    source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Datamarker] = []

    def look(*_: object) -> bool:
        found.append(other.submit(source.latest).result(PATIENCE_S))
        return False

    monkeypatch.setattr(source._unlogged, "look", look)
    with ThreadPoolExecutor(1) as other:
        LOOK_AT_TABLES(source)
    assert found == [source.latest()]


def test_a_log_that_ends_before_what_was_read_is_another_history(server: Played, source: PostgresSource) -> None:
    _read_to(source, 700)
    assert source.latest().order == LogPosition(2, 0, 500)
    assert "lost the end of its log" in source._incarnations.current.why  # type: ignore[union-attr]


def test_latest_is_where_a_server_that_crashes_now_goes_on(server: Played, source: PostgresSource) -> None:
    server.state = replace(STATE, end=900, flushed=600)
    assert source.latest().order == LogPosition(1, 0, 600)


# On its disk are two whole pages, and the second one ends inside of a record.
TORN = replace(STATE, end=16500, flushed=16384)


def test_a_record_that_is_being_written_is_waited_for(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walsender that begins inside of a commit's record passes over the commit, which somebody made after asking."""
    monkeypatch.setattr(flushing, "_SOON_S", 60.0)
    answers: list[ServerState] = []

    def answer() -> None:
        server.state = answers.pop(0) if answers else server.state

    server.meanwhile = answer
    asks: list[Callable[[], int]] = [lambda: source.latest().order.offset, lambda: source._published_from(100)]
    for ask in asks:
        server.state = TORN
        answers[:] = [TORN, TORN, TORN, replace(TORN, end=30000, flushed=24576)]
        assert ask() == 16500
    server.meanwhile = lambda: None
    assert not server.commits
    server.state = replace(TORN, end=16384)
    assert source.latest().order.offset == 16384, "the record ends with the page"


def test_a_record_that_nobody_has_written_is_written_by_a_commit_of_nothing(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "_SOON_S", 0.0)

    def write() -> None:
        server.state = replace(TORN, end=16540, flushed=16540)

    server.state, server.committed = TORN, write
    assert source.latest().order.offset == 16500
    assert server.commits == 1


def test_flows_that_wait_for_the_end_wait_for_one_commit(server: Played, source: PostgresSource) -> None:
    looked, found = threading.Event(), list[int]()
    server.state, server.meanwhile = TORN, looked.set
    with source._places._ending:  # another one has it written
        asking = threading.Thread(target=lambda: found.append(source.latest().order.offset))
        asking.start()
        assert looked.wait(60)
        server.state = replace(TORN, end=16540, flushed=16540)
    asking.join()
    assert (found, server.commits) == ([16540], 0)


def test_a_place_is_proven_once_and_not_before_it_is_written(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def prove(_address: object, state: ServerState, _timelines: object, place: LogPosition) -> Anchor | None:
        asked.append(place.offset)
        return None if place.offset == 100 else Anchor(f"log:{state.system}:1:{place.offset}", 5, LogPosition(1, 0, 90))

    monkeypatch.setattr(places, "log_bytes_anchor", prove)
    latest = source.latest()
    assert latest == source.locate("latest")
    assert (given(latest.anchor).id, latest.read_from.offset) == ("log:7:1:500", 90)
    earliest = source.earliest()
    assert (earliest.anchor, earliest.read_from) == (None, earliest.order)
    assert earliest == source.earliest()
    assert asked == [500, 100]
    server.state = replace(STATE, end=900)
    assert source.locate("0/384").anchor is None
    for end in range(600, 700, 10):
        server.state = replace(STATE, end=end, flushed=end)
        source.latest()
    assert asked == [500, 100, *range(600, 700, 10)]
    assert len(source._places._proven) == 4


def test_a_copy_that_was_put_back_has_other_bytes_at_a_place(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def prove(_address: object, state: ServerState, _timelines: object, _place: LogPosition) -> None:
        asked.append(state.started)

    monkeypatch.setattr(places, "log_bytes_anchor", prove)
    source.latest()
    server.state = replace(STATE, started="2")
    source.latest()
    source.latest()
    assert asked == ["", "2"]


def test_readers_of_a_server_that_was_left_are_ended(server: Played, source: PostgresSource) -> None:
    """It may run on beside a copy of its disk that the address leads to, and which has another log by now."""
    left: list[str] = []
    reader = Mock()
    reader.left_behind = lambda: left.append(source._seen.state.started)  # type: ignore[union-attr]
    source._readers.add(reader)
    source.latest()
    assert not left
    server.state = replace(STATE, started="2")
    source.latest()
    source.latest()
    assert left == [""]


def test_the_server_that_the_address_leads_to_is_asked_from_then_on(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was asked before may run on, and its sessions with it."""

    def another(*_: object) -> None:
        raise AnotherServer("another server answers")

    monkeypatch.setattr(source._opening, "open", another)
    latest, closed = source.latest(), server.closed
    with pytest.raises(AnotherServer):
        source.open(latest)
    assert server.closed == closed + 1
    monkeypatch.setattr(source._opening, "verify", another)
    _read_to(source, 400)
    source._shown = None  # which the next session is not
    with pytest.raises(AnotherServer):
        source.latest()
    assert server.closed == closed + 2


def test_a_server_that_writes_nothing_is_unavailable(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "_SOON_S", 0.0)
    monkeypatch.setattr(places, "_PATIENCE_S", 0.001)
    server.state = TORN
    with pytest.raises(SourceUnavailable, match=r"up to 0/4074 .* up to 0/4000, where a commit may be cut"):
        source.latest()
    assert server.commits == 1
    server.committed = source._polling.stopped.set
    monkeypatch.setattr(places, "_PATIENCE_S", 60.0)
    with pytest.raises(SourceUnavailable, match="the log is closed"):
        source.latest()


@pytest.mark.parametrize(
    "then",
    [replace(STATE, system="8"), replace(STATE, started="9"), replace(STATE, session=3)],
    ids=["another", "restarted", "crashed"],
)
def test_the_end_of_another_servers_log_is_none_of_this_one(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch, then: ServerState
) -> None:
    """One that crashed writes other records from there on, where its disk's log ends."""
    monkeypatch.setattr(flushing, "_SOON_S", 0.0)

    def changed() -> None:
        server.state = replace(then, end=20000, flushed=20000)

    server.state, server.committed = TORN, changed
    with pytest.raises(SourceUnavailable, match="another server answers"):
        source.latest()


def test_a_server_that_is_away_is_a_problem_of_the_status(server: Played, source: PostgresSource) -> None:
    assert not source.status().problems

    def away() -> None:
        raise SourceUnavailable("nobody there", hint="look")

    server.meanwhile = away
    source._poll()
    assert [problem.text for problem in source.status().problems] == ["nobody there"]
    server.meanwhile = lambda: None
    source._poll()
    assert not source.status().problems


def test_the_slots_are_part_of_its_status(server: Played, source: PostgresSource) -> None:
    held, lead = source.status().slots
    assert (held.name, held.kept_bytes, held.left_bytes, held.lost, held.unsynced) == ("s_held", 410, None, False, None)
    lost, unsynced = (
        replace(SLOTS["s_held"], wal_status="lost"),
        replace(SLOTS["s_lead"], safe_bytes=-1, failover=False),
    )
    server.state = replace(STATE, slots={"s_held": lost, "s_lead": unsynced}, standbys=1)
    source.latest()
    held, lead = source.status().slots
    assert (held.kept_bytes, held.lost) == (0, True)
    assert (lead.left_bytes, lead.unsynced) == (0, True)


def test_another_publication_of_the_name_is_told_with_its_place(
    server: Played, source: PostgresSource, caplog: pytest.LogCaptureFixture
) -> None:
    server.state = replace(STATE, publication_oid=16400)
    source._poll()
    assert source._published_from(100) == 500, "it was not known since when it is there"
    assert not caplog.records
    server.state = replace(STATE, publication_oid=16500, end=700, flushed=650)
    source._poll()
    assert "was dropped and made again" in caplog.text
    assert (source._published_from(100), source._published_from(700)) == (700, 650)
    server.state = replace(STATE, publication=False, publication_oid=0)
    with pytest.raises(SourceUnavailable, match="has no publication") as error:
        source._published_from(100)
    assert "wormholectl objects create" in (error.value.hint or "")


def test_a_server_that_shuts_down_waits_for_no_paused_reader(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_PAUSED_S", 0.0)
    session = Played()
    stream = Stream(cast("Connection", session), 100)
    source._streams.add(stream)

    def refuse(error: SourceUnavailable) -> Callable[..., Played]:
        def raises(*_: object, **__: object) -> Played:
            server.is_open = False
            raise error

        return raises

    monkeypatch.setattr(server, "read_state", refuse(SourceUnavailable("cut", hint="")))
    monkeypatch.setattr(source_module, "read_state", server.read_state)
    source._poll()
    assert session.closed == 0, "the network may be down for a moment"
    monkeypatch.setattr(source_module, "read_state", refuse(SessionEnded("it shuts down", hint="")))
    source._poll()
    assert session.closed == 1
    with pytest.raises(SourceUnavailable, match="it shuts down"):
        stream.receive(0.0)


def test_who_looks_for_a_datamarker_is_told_that_the_log_is_closed(source: PostgresSource) -> None:
    stream = Stream(cast("Connection", Played()), 100)
    source._streams.add(stream)
    source.stop()
    with pytest.raises(SourceUnavailable, match="the log is closed"):
        stream.receive(0.0)


def test_answers_that_are_not_a_servers_are_one_problem(
    source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misread(*_: object) -> None:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(source_module, "read_state", misread)
    source._poll()
    ((problem),) = source.status().problems
    assert "not those of a PostgreSQL server (not enough values to unpack)" in problem.text


def test_slots_rest_twenty_times_as_long_as_their_move_took(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, moved = 1000.0, 0

    def advance(*_: object) -> bool:
        nonlocal now, moved
        now, moved = now + 2.0, moved + 1
        return True

    monkeypatch.setattr(slots, "advance", advance)
    monkeypatch.setattr(source_module, "time", SimpleNamespace(monotonic=lambda: now))
    _read_to(source, 300)
    source._move_slots()
    assert moved == 1
    now += 39.0
    source._move_slots()
    assert moved == 1
    now += 1.0
    source._move_slots()
    assert moved == 2
    assert slots.rest_s(100.0) == 300.0


def test_a_server_that_is_silent_about_a_missing_publication_is_not_read(
    server: Played, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    reader = SimpleNamespace(
        republished=lambda: told.append("opened again"), outlived=lambda _: None, close=lambda: None
    )
    monkeypatch.setattr(source, "_readers", [reader])
    server.state = replace(STATE, publication_oid=16400, end=600, flushed=600)
    source._poll()
    server.state = replace(STATE, publication=False, publication_oid=0, end=700, flushed=700)
    source._poll()
    assert not told, "this one refuses"
    server.state = replace(server.state, version=180001)
    with pytest.raises(SourceUnavailable, match="has no publication"):
        source.open(Datamarker(LogPosition(1, 0, 600), "1:0/258", LogPosition(1, 0, 600)))
    assert told == ["opened again"]
    server.state = replace(STATE, publication_oid=16500, end=800, flushed=800, version=180001)
    source._poll()
    assert (source._publication.until, source._publication.since) == (600, 800)


class TestHosts:
    """Publishers of several hosts, of which one owns the log at a time."""

    def test_the_next_one_knows_histories_publication_and_how_far_the_log_was_read(
        self, server: Played, tmp_path: Path
    ) -> None:
        shared = HostsState()
        first = make(tmp_path / "a", state=shared)
        server.state = replace(STATE, publication_oid=16400)
        first.start()
        for lsn in (400, 480):
            _read_to(first, lsn)
        server.state = replace(STATE, publication_oid=16500)
        first._poll()
        assert first._publication.since == 500
        first.stop()
        assert not (tmp_path / "a" / "postgres" / "histories.json").exists()
        other = make(tmp_path / "b", state=shared)
        other.start()
        assert (other.latest().order.incarnation, other._publication.since) == (1, 500)
        assert given(other._high_water.last).order.offset == 480
        other.stop()
        server.state = replace(STATE, end=450, publication_oid=16500)
        back = make(tmp_path / "a", state=shared)
        back.start()
        assert back.latest().order.incarnation == 2
        assert "lost the end of its log" in given(back._incarnations.current).why
        back.stop()

    def test_only_who_owns_the_log_moves_slots_and_ends_others_that_do(
        self, server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moved: list[object] = []
        monkeypatch.setattr(slots, "advance", lambda *given: moved.append(given))
        ours = [False]
        source = make(tmp_path, state=HostsState(), may_act=lambda: ours[0])
        source.start()
        _read_to(source, 300)
        source._move_slots()
        assert (moved, source._owns_alone()) == ([], False)
        ours[0] = True
        source._move_slots()
        assert moved
        assert source._owns_alone()
        source.stop()

    def test_who_shares_nothing_ends_nobody(self, source: PostgresSource) -> None:
        assert not source._owns_alone()

    def test_a_state_that_cannot_be_kept_is_said(self, server: Played, tmp_path: Path) -> None:
        shared = HostsState()
        source = make(tmp_path, state=shared)
        source.start()
        for lsn in (300, 400):
            _read_to(source, lsn)
        shared.refuses = CoordinationLost("no contact")
        source._poll()
        status = source.status()
        assert [problem.text for problem in status.problems] == ["how far the log was read cannot be kept: no contact"]
        assert not status.end_unknown
        shared.refuses = None
        source._poll()
        assert not source.status().problems
        source.stop()
