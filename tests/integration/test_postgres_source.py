"""The source over real PostgreSQL servers: what the contract of all sources does not ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.postgres import source as source_module
from datastores.postgres.datastore import DATASTORE
from datastores.postgres.log import reader as reader_module
from datastores.postgres.log import slots
from datastores.postgres.log.opening import MESSAGES_SINCE
from datastores.postgres.server import stream as stream_module
from datastores.postgres.source import PostgresSource
from tests.support.eventually import until
from tests.support.fault_proxy import FaultProxy
from tests.support.hosts_state import HostsState
from tests.support.postgres_harness import all_tables, drop_slots, prepare_database
from tests.support.postgres_server import NewPostgres, PostgresServer, template
from tests.support.postgres_tail import NewShop, NewSource
from tests.support.postgres_types import VERSION
from wormhole.model.errors import DecodeError, Diverged, PositionPurged, SourceUnavailable
from wormhole.model.findings import Severity
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login, SourceOptions
from wormhole.ports.testing.reading import Read, read_log, read_until

_TABLE = "CREATE TABLE t (k int PRIMARY KEY, v text)"
_LEAD = slots.lead_slot("wormhole_log")
_HELD = slots.held_slot("wormhole_log")


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One for all tests here, which may kill it."""
    with PostgresServer(template=template()) as server:
        yield server


@pytest.fixture
def server(own_server: PostgresServer) -> PostgresServer:
    own_server.start()
    drop_slots(own_server)
    own_server.sql("DROP DATABASE IF EXISTS shop WITH (FORCE)", "DROP TABLE IF EXISTS other")
    prepare_database(own_server, "shop", _TABLE)
    return own_server


@contextmanager
def _setting(server: PostgresServer, **settings: str) -> Iterator[None]:
    """The server has these settings within the block."""
    server.sql(*(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()), "SELECT pg_reload_conf()")
    for name, value in settings.items():
        until(lambda: server.sql(f"SHOW {name}") == [(value,)], "the setting is not there")  # noqa: B023
    try:
        yield
    finally:
        server.sql("ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")


@pytest.fixture
def source(server: PostgresServer, new_source: NewSource) -> PostgresSource:
    return new_source(server)


def _insert(server: PostgresServer, *keys: int) -> None:
    server.sql(*(f"INSERT INTO t VALUES ({key}, 'v')" for key in keys), database="shop")


def _idle_marker(server: PostgresServer, source: PostgresSource, start: Datamarker) -> Datamarker:
    """A datamarker behind what only another database wrote."""
    _insert(server, 1)
    reader = source.open(start)
    read = read_until(reader, source.latest().order)
    server.sql("CREATE TABLE other AS SELECT generate_series(1, 100000)", "CHECKPOINT")
    read_until(reader, source.latest().order, into=read)
    reader.close()
    return read.markers[-1]


def test_posthog_83333_the_slot_follows_while_only_another_database_writes(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, new_source: NewSource
) -> None:
    """The log of a busy server fills its disk while the publication is idle."""
    monkeypatch.setattr(reader_module, "_PROOF_S", 0.0)
    monkeypatch.setattr(source_module, "_ADVANCE_S", 0.2)
    source = new_source(server)
    begin = source.status().oldest
    marker = _idle_marker(server, source, source.latest())
    source.release(marker.read_from)
    until(lambda: source.status().oldest == marker.read_from, "the slot does not follow")
    assert marker.order.offset - begin.offset > 3 << 20, "the other database wrote little"
    assert marker.order.offset - source.status().oldest.offset < 1 << 16
    _insert(server, 2)
    assert read_log(source, marker).keys() == [2]


def test_an_idle_log_is_known_by_its_bytes(
    server: PostgresServer, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_PROOF_S", 0.0)
    marker = _idle_marker(server, source, source.latest())
    assert marker.anchor is not None
    assert marker.anchor.is_of_log_bytes
    source.open(marker).close()
    server.sql("DROP TABLE other")
    later = replace(marker, order=source.latest().order)
    assert later.order > marker.order
    source.open(later).close()  # the proof may be of seconds before
    forged = replace(marker, anchor=replace(marker.anchor, checksum=marker.anchor.checksum ^ 1))
    with pytest.raises(Diverged) as error:
        source.open(forged)
    assert error.value.hint


def test_an_idle_place_moves_on_between_two_proofs(
    server: PostgresServer, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its anchor is of bytes before it. What is committed since those were read, and before it, is another history."""
    monkeypatch.setattr(reader_module, "_IDLE_S", 0.0)
    monkeypatch.setattr(reader_module, "_PROOF_S", 0.0)
    _insert(server, 1)
    reader = source.open(source.earliest())
    read = read_until(reader, source.latest().order)
    server.sql("CREATE TABLE other (v int)")
    read_until(reader, source.latest().order, into=read)
    proven = read.markers[-1]
    monkeypatch.setattr(reader_module, "_PROOF_S", 1000.0)
    server.sql("INSERT INTO other SELECT generate_series(1, 100)")
    read_until(reader, source.latest().order, into=read)
    reader.close()
    marker = read.markers[-1]
    assert marker.anchor == proven.anchor
    assert marker.order > proven.order
    source.open(marker).close()
    _insert(server, 2)
    assert read_log(source, marker).keys() == [2]
    with pytest.raises(Diverged, match="where none was"):
        source.open(replace(marker, order=source.latest().order))


def test_an_idle_place_is_found_whose_proof_begins_before_the_slots(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, new_source: NewSource
) -> None:
    """A quiet database: both slots are at its last transaction, and the log has hardly grown since."""
    monkeypatch.setattr(reader_module, "_IDLE_S", 0.0)
    monkeypatch.setattr(reader_module, "_PROOF_S", 0.0)
    monkeypatch.setattr(source_module, "_ADVANCE_S", 0.2)
    source = new_source(server)
    server.sql("CREATE TABLE other AS SELECT generate_series(1, 1000)")
    with closing(source.open(source.latest())) as reader:
        _insert(server, 1)
        marker = read_until(reader, source.latest().order).markers[-1]
        source.release(marker.order)
        until(lambda: source.status().oldest == marker.order, "the slot does not follow")
        server.sql("SELECT pg_logical_emit_message(true, '', '')")
        marker = read_until(reader, source.latest().order).markers[-1]
    assert marker.read_from < source.status().oldest < marker.order
    source.open(marker).close()
    _insert(server, 2)
    assert read_log(source, marker).keys() == [2]


def test_the_address_leads_to_a_copy_of_the_server_while_that_runs_on(
    server: PostgresServer, new_postgres: NewPostgres, monkeypatch: pytest.MonkeyPatch, new_source: NewSource
) -> None:
    """An old copy of the server's disk, with the same system and timeline, which has written more than the server. Its
    bytes must not prove a place of the server's log, else what only the server had is lost in silence."""
    monkeypatch.setattr(reader_module, "_IDLE_S", 0.0)
    monkeypatch.setattr(reader_module, "_PROOF_S", 0.0)
    monkeypatch.setattr(source_module, "_POLL_S", 3600.0)
    copy = new_postgres()
    prepare_database(copy, "shop", _TABLE)
    copy.sql(*slots.drop_statements("wormhole_log"), *slots.create_statements("wormhole_log"), database="shop")
    with FaultProxy("127.0.0.1", server.port) as proxy:
        source = new_source(server, port=proxy.port)
        with closing(source.open(source.latest())) as reader:
            _insert(server, 1)
            read = read_until(reader, source.latest().order)
            marker = read.markers[-1]
            proxy.lead_to("127.0.0.1", copy.port)
            server.sql("CREATE TABLE other AS SELECT generate_series(1, 1000)")
            end = source.latest().order
            copy.sql("CREATE TABLE other AS SELECT generate_series(1, 100000)", "CHECKPOINT")
            read_until(reader, end, into=read)
            idle = read.markers[-1]
            assert read.keys() == [1]
            assert idle.order > marker.order
            with pytest.raises(SourceUnavailable, match="another server answers"):
                source.open(idle)
            for place in (idle, marker):
                with pytest.raises(Diverged):
                    source.open(place)
            with pytest.raises(SourceUnavailable, match="another server answers"):
                reader.read(1 << 20, 0.0)
        assert source.latest().order.incarnation > marker.order.incarnation


def test_a_server_that_is_still_waited_for_is_reported(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, new_source: NewSource
) -> None:
    """A question may take half a minute until its time is up, and others wait for their turn behind it."""
    monkeypatch.setattr(source_module, "_POLL_S", 0.01)
    monkeypatch.setattr(source_module, "_SILENT_S", 0.5)
    with FaultProxy("127.0.0.1", server.port) as proxy:
        source = new_source(server, port=proxy.port)
        until(lambda: not source.status().end_unknown, "it is not asked")
        proxy.mute()
        until(lambda: "was not asked with success for 0.5 s" in source.status().end_unknown, "it is not reported")
        proxy.pass_through()
        until(lambda: not source.status().end_unknown, "it is not asked again")


def test_slots_made_anew_behind_an_idle_place_are_a_loss_with_its_range(
    server: PostgresServer, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that prove the place are removed, too."""
    monkeypatch.setattr(reader_module, "_PROOF_S", 0.0)
    marker = _idle_marker(server, source, source.latest())
    source.stop()
    drop_slots(server)
    for _ in range(3):
        server.sql("SELECT pg_create_restore_point('later')", "SELECT pg_switch_wal()")
    server.sql("CHECKPOINT", "CHECKPOINT")
    server.sql(*slots.create_statements("wormhole_log"), database="shop")
    source.start()
    with pytest.raises(PositionPurged) as error:
        source.open(marker)
    assert (error.value.first_missing, error.value.last_missing) == (marker.delivered, source.earliest().delivered)


def test_a_reader_that_pauses_keeps_its_session(server: PostgresServer, new_source: NewSource) -> None:
    server.sql("ALTER DATABASE shop SET wal_sender_timeout = '1s'")
    source = new_source(server)
    reader = source.open(source.latest())
    sessions = "SELECT pid, reply_time FROM pg_stat_replication WHERE application_name = 'wormhole'"
    until(lambda: server.sql(sessions)[0][1] is not None, "the server is not answered")
    ((pid, since),) = server.sql(sessions)
    _insert(server, *range(50))

    def answered_for_long() -> bool:
        ((now, at),) = server.sql(sessions)
        assert now == pid, "the server ended the session"
        return bool((at - since).total_seconds() > 4)

    until(answered_for_long, "the server is not answered")
    assert read_until(reader, source.latest().order).keys() == list(range(50))
    reader.close()


def test_a_server_that_never_asks_is_not_taken_for_a_silent_one(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, new_source: NewSource
) -> None:
    """Without `wal_sender_timeout` it sends nothing while nothing is written."""
    monkeypatch.setattr(stream_module, "_SILENCE_S", 1.0)
    monkeypatch.setattr(source_module, "_ANSWER_S", 0.1)
    server.sql("ALTER DATABASE shop SET wal_sender_timeout = 0")
    source = new_source(server)
    reader = source.open(source.latest())
    (stream,) = source._streams
    heard = {stream._heard_s}
    while len(heard) < 4:
        reader.read(1 << 20, 0.1)
        heard.add(stream._heard_s)
    _insert(server, 1)
    assert read_until(reader, source.latest().order).keys() == [1]
    reader.close()


def test_of_two_publishers_one_moves_the_slots(
    server: PostgresServer, source: PostgresSource, new_source: NewSource
) -> None:
    """Two would move them beyond each other's datamarkers."""
    source._move_slots()
    other = new_source(server, state="other")
    _insert(server, 1)
    end = other.latest().order
    other.release(end)
    other._move_slots()
    (problem,) = other.status().problems
    assert "another publisher moves the replication slots wormhole_log_*" in problem.text
    assert "process " in problem.text
    assert other.earliest().order < end
    source.stop()

    def moved() -> bool:
        other._move_slots()
        return other.earliest().order == end

    until(moved, "the slots stay where they were")
    assert not other.status().problems


def test_another_host_that_owns_the_log_goes_on_and_ends_what_moved_the_slots(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, new_source: NewSource
) -> None:
    """Although the sessions of the one before are still there: its host died, and the server has not noticed."""
    shared = HostsState()
    one = new_source(server, state="a", shared=shared)
    start = one.latest()
    _insert(server, 1)
    marker = read_log(one, start).markers[-1]
    one._move_slots()
    one._options = replace(one._options, may_act=lambda: False)
    left = one.open(marker)
    _insert(server, 2)
    other = new_source(server, state="b", shared=shared)
    try:
        read = read_log(other, marker)
        assert read.keys() == [2]
        assert read.markers[-1].order.incarnation == marker.order.incarnation
        other.release(read.markers[-1].read_from)
        other._move_slots()
        assert not other.status().problems
        assert "is ended (process " in caplog.text
        assert other.earliest().order == read.markers[-1].read_from, "beside a reader of the one before"
        assert not (tmp_path / "b" / "postgres" / "histories.json").exists()
    finally:
        left.close()
        one.stop()


def test_a_killed_server_costs_nothing_that_was_committed(server: PostgresServer, source: PostgresSource) -> None:
    start = source.latest()
    reader = source.open(start)
    _insert(server, *range(10))
    read = read_until(reader, source.latest().order)
    server.kill()
    with pytest.raises(SourceUnavailable):
        while True:
            reader.read(1 << 20, 1.0)
    reader.close()
    server.start()
    _insert(server, *range(10, 20))
    assert read.keys() == list(range(10))
    assert read_log(source, read.markers[-1]).keys() == list(range(10, 20))
    assert read_log(source, start).keys() == list(range(20))


def test_a_transaction_that_began_before_the_place_is_read_whole(
    server: PostgresServer, source: PostgresSource
) -> None:
    with server.connect("shop", autocommit=False) as writer:
        writer.execute("INSERT INTO t VALUES (1, 'early')")
        _insert(server, 2)
        marker = read_log(source, source.earliest()).markers[-1]
        writer.commit()
    assert read_log(source, marker).keys() == [1]


def test_a_commit_across_two_pages_lies_before_latest_or_is_delivered(
    server: PostgresServer, new_source: NewSource
) -> None:
    """For a second only the beginning of its record is on the server's disk, which writes whole pages first. A reader
    that began between would never get it."""
    source = new_source(server)
    with (
        _setting(server, wal_writer_delay="1s", wal_writer_flush_after="0"),
        server.connect("shop", autocommit=False) as writer,
    ):

        def place(function: str) -> int:
            (found,) = writer.execute(f"SELECT ({function}() - '0/0')::bigint").fetchone() or (0,)
            return int(found)

        def write(size: int) -> None:  # a message is a record of 54 bytes more
            writer.execute("SELECT pg_logical_emit_message(false, '', repeat('x', %s))", (size - 54,))

        writer.execute("SET synchronous_commit = off")
        writer.execute("INSERT INTO t VALUES (1, 'v')")
        if -place("pg_current_wal_insert_lsn") % 8192 < 1000:
            write(2000)
        here = place("pg_current_wal_insert_lsn")
        page = here + -here % 8192
        write(page - 16 - here)
        assert place("pg_current_wal_insert_lsn") == page - 16, "the commit's record does not begin there"
        writer.commit()
        end = place("pg_current_wal_insert_lsn")
        until(lambda: place("pg_current_wal_flush_lsn") >= page, "the page is not written")
        start = source.latest()
    assert page < end
    assert start.order.offset >= end or read_log(source, start).keys() == [1]


def test_a_damaged_file_of_the_log_is_one_clear_error_until_it_is_put_back(
    server: PostgresServer, source: PostgresSource
) -> None:
    start = source.latest()
    _insert(server, 1)
    ((file, offset),) = server.sql("SELECT * FROM pg_walfile_name_offset(pg_current_wal_insert_lsn())")
    _insert(server, 2)
    server.sql("SELECT pg_switch_wal()")  # the server writes whole pages, and not this one any more
    path = server.data / "pg_wal" / file
    kept = path.read_bytes()
    at = offset + 30  # in the next record, behind its header
    with path.open("r+b") as log:
        log.seek(at)
        log.write(bytes([kept[at] ^ 1]))
    with closing(source.open(start)) as reader:
        read = Read()
        with pytest.raises(DecodeError, match="cannot read its own log: ") as error:
            read_until(reader, source.latest().order, into=read)
    assert read.keys() == [1]
    assert "pg_wal is damaged" in (error.value.hint or "")
    path.write_bytes(kept)
    assert read_log(source, read.markers[-1]).keys() == [2]


def test_airbyte_46571_a_slot_that_another_program_advanced_is_a_loss(
    server: PostgresServer, source: PostgresSource
) -> None:
    """The slot is ahead of the stored place. Who is ahead of the slot goes on."""
    _insert(server, 1, 2)
    marker = read_log(source, source.earliest()).markers[-1]
    _insert(server, 3)
    server.sql(
        *(
            f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())"
            for name in (_HELD, "wormhole_log_lead")
        ),
        database="shop",
    )
    with pytest.raises(PositionPurged) as error:
        source.open(marker)
    assert (error.value.first_missing, error.value.last_missing) == (
        marker.delivered,
        source.earliest().delivered,
    )
    ahead = source.latest()
    _insert(server, 4)
    assert read_log(source, ahead).keys() == [4]


def test_posthog_83333_a_stalled_reader_fills_the_disk_up_to_its_bound_only(
    server: PostgresServer, new_source: NewSource
) -> None:
    """The log fills the disk while a load stalls. The server gives up the slot at its bound; whoever is ahead of that
    goes on, also after a restart, and the others are told the range."""
    source = new_source(server)
    stalled = source.latest()
    lead = source.open(stalled)

    def given_up() -> bool:
        server.sql("INSERT INTO t SELECT 1000 + count(*), 'v' FROM t", database="shop")
        read_until(lead, source.latest().order)
        source._moves_again_s = 0.0
        source._move_slots()
        server.sql("SELECT pg_switch_wal()", "CHECKPOINT")
        return bool(
            server.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{_HELD}' AND wal_status = 'lost'")
        )

    with _setting(server, max_slot_wal_keep_size="80MB"):
        until(given_up, "the server keeps the log")
    marker = source.latest()
    source.stop()
    source = new_source(server)
    with pytest.raises(PositionPurged) as lost:
        source.open(stalled)
    assert (lost.value.first_missing, lost.value.last_missing) == (stalled.delivered, source.earliest().delivered)
    _insert(server, 1)
    assert read_log(source, marker).keys() == [1]
    (problem,) = source.status().problems
    assert f"{_HELD} has lost its log" in problem.text
    server.sql(*problem.hint.splitlines()[1:], database="shop")
    source._poll()
    assert not source.status().problems
    assert read_log(source, marker).keys() == [1]


def test_what_is_missing_is_said_with_the_statement_that_makes_it(
    server: PostgresServer, new_source: NewSource
) -> None:
    drop_slots(server)
    server.sql("DROP PUBLICATION wormhole_log", database="shop")
    with pytest.raises(SourceUnavailable, match="has no publication") as error:
        new_source(server)
    assert "wormholectl objects create" in (error.value.hint or "")
    server.sql(all_tables("wormhole_log"), database="shop")
    with pytest.raises(SourceUnavailable) as error:
        new_source(server)
    server.sql(*(error.value.hint or "").splitlines()[1:], database="shop")
    new_source(server).stop()


def test_a_look_at_the_log_leaves_nothing_on_the_server(server: PostgresServer, tmp_path: Path) -> None:
    drop_slots(server)
    options = SourceOptions(
        log="log",
        state_dir=tmp_path,
        sharding=Sharding("log"),
        max_update_bytes=1 << 20,
        disk_budget=0,
        login=Login(server.password_file),
        transient=True,
    )
    source = PostgresSource(server.url("shop"), options)
    source.start()
    start = source.latest()
    _insert(server, 1)
    assert read_log(source, start).keys() == [1]
    assert server.sql("SELECT slot_name FROM pg_replication_slots")
    source.stop()
    until(lambda: not server.sql("SELECT slot_name FROM pg_replication_slots"), "a slot is left")


def _problems(server: PostgresServer, tmp_path: Path, database: str = "shop") -> dict[str, str]:
    report = DATASTORE.examine(server.url(database), tmp_path, Login(server.password_file))
    return {one.check: one.next_step for one in report.findings if one.severity is Severity.PROBLEM}


def test_doctor_names_each_problem_with_its_statement(new_postgres: NewPostgres, tmp_path: Path) -> None:
    server = new_postgres(wal_level="replica", max_replication_slots="1")
    server.sql("CREATE DATABASE shop", "ALTER ROLE wormhole NOREPLICATION")
    server.sql("CREATE TABLE keyless (v text)", database="shop")
    found = _problems(server, tmp_path)
    assert "ALTER SYSTEM SET wal_level = logical;" in found["wal_level"]
    assert 'ALTER ROLE "wormhole" REPLICATION;' in found["replication"]
    assert "ALTER SYSTEM SET max_replication_slots" in found["max_replication_slots"]
    assert "CREATE PUBLICATION" in found["publication"]
    assert "pg_create_logical_replication_slot" in found["slots"]
    server.sql("ALTER ROLE wormhole REPLICATION")
    server.sql("CREATE PUBLICATION wormhole_log FOR TABLE keyless", database="shop")
    assert 'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL;' in _problems(server, tmp_path)["replica_identity"]


def test_doctor_finds_nothing_wrong_with_a_prepared_server(server: PostgresServer, tmp_path: Path) -> None:
    assert not _problems(server, tmp_path)


def test_who_reads_the_slot_is_a_problem(server: PostgresServer, source: PostgresSource, tmp_path: Path) -> None:
    _insert(server, 1)
    source.release(source.latest().order)
    with server.connect("shop", replication="database") as reader:
        reader.pgconn.send_query(
            f"START_REPLICATION SLOT {_HELD} LOGICAL 0/0 (proto_version '1', publication_names 'wormhole_log')".encode()
        )
        until(lambda: bool(server.sql("SELECT 1 FROM pg_replication_slots WHERE active")), "nobody reads it")
        assert "pg_terminate_backend" in _problems(server, tmp_path)["slot_taken"]
        source._move_slots()
        assert "pg_terminate_backend" in source.status().problems[0].hint
        assert read_log(source, source.earliest()).keys() == [1], "flows read copies"
        reader.pgconn.finish()


@pytest.mark.skipif(VERSION * 10_000 < MESSAGES_SINCE, reason="this server sends no logical messages")
def test_logical_messages_are_updates_of_a_table_of_their_own(server: PostgresServer, source: PostgresSource) -> None:
    """The outbox without a table. Read again from every place that a reader gave, nothing comes twice or never."""
    start = source.latest()
    server.sql(
        "SELECT pg_logical_emit_message(false, 'alone', 'one')",
        "INSERT INTO t VALUES (1, 'v')",
        "SELECT pg_logical_emit_message(false, 'alone', 'two')",
        "BEGIN",
        "SELECT pg_logical_emit_message(true, 'within', 'three')",
        "INSERT INTO t VALUES (2, 'v')",
        "COMMIT",
        "SELECT pg_logical_emit_message(false, 'alone', 'four')",
        "INSERT INTO t VALUES (3, 'v')",
        database="shop",
    )
    read = read_log(source, start, 1)
    found = [update.after[1] if update.table == "@message" else update.key[0] for update in read.updates]
    assert found == [b"one", 1, b"two", b"three", 2, b"four", 3]
    for marker in read.markers:
        left = [update.id for update in read.updates if int(update.id.split(":")[2]) >= marker.order.offset]
        assert read_log(source, marker).ids() == left


def test_a_server_that_shuts_down_waits_for_no_paused_reader(
    server: PostgresServer, source: PostgresSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pg_ctl stop -m fast` would wait for as long as the reader pauses, whose session is answered for."""
    monkeypatch.setattr(source_module, "_PAUSED_S", 0.5)
    reader = source.open(source.latest())
    server.sql("INSERT INTO t SELECT i, repeat('x', 900) FROM generate_series(1, 40000) i", database="shop")
    sessions = "SELECT sent_lsn < pg_current_wal_lsn() FROM pg_stat_replication WHERE application_name = 'wormhole'"
    until(lambda: server.sql(sessions) == [(True,)], "the server has sent everything")
    server.stop()
    assert "database system is shut down" in server.log.read_text(), "it had to be killed"
    with pytest.raises(SourceUnavailable):
        while True:
            reader.read(1 << 20, 1.0)
    reader.close()


def test_what_is_written_without_the_publication_is_a_loss_with_its_range(
    server: PostgresServer, source: PostgresSource
) -> None:
    """DROP and CREATE PUBLICATION: the server decodes with the catalogues of that time."""
    start = source.latest()
    _insert(server, 1)
    server.sql("DROP PUBLICATION wormhole_log", database="shop")
    _insert(server, 2)
    with (
        pytest.raises(SourceUnavailable, match="has no publication") as error,
        closing(source.open(start)) as reader,
    ):
        read_until(reader, source.latest().order)
    assert "wormholectl objects create" in (error.value.hint or "")
    server.sql(all_tables("wormhole_log"), database="shop")
    source._poll()
    _insert(server, 3)
    reader = source.open(start)
    read = Read()
    with pytest.raises(SourceUnavailable):
        read_until(reader, source.latest().order, into=read)
    reader.close()
    ((first, gap),) = zip(read.markers[:1], read.gaps, strict=True)
    refuses = server.sql("SELECT current_setting('server_version_num')::int < 180000") == [(True,)]
    expected = ([1], first.delivered) if refuses else ([], start.delivered)
    assert (read.keys(), gap.first_missing, gap.last_missing) == (*expected, read.markers[-1].delivered)
    assert read_log(source, read.markers[-1]).keys() == [3]


def test_a_table_that_joins_the_publication_later(
    server: PostgresServer, source: PostgresSource, caplog: pytest.LogCaptureFixture
) -> None:
    server.sql(
        "CREATE TABLE later (k int PRIMARY KEY)",
        "INSERT INTO later VALUES (1)",
        "ALTER PUBLICATION wormhole_log RENAME TO old",
        "CREATE PUBLICATION wormhole_log FOR TABLE t",
        database="shop",
    )
    source._poll()
    start = source.latest()
    server.sql(
        "INSERT INTO later VALUES (2)",
        "ALTER PUBLICATION wormhole_log ADD TABLE later",
        "INSERT INTO later VALUES (3)",
        database="shop",
    )
    assert read_log(source, start).keys() == [3]
    source._looks_again_s = 0.0
    source._look_at_tables()
    assert "public.later changed, and the log does not have them: it is in the publication from now on" in caplog.text


def test_what_a_server_refuses_is_said_with_its_repair_and_who_reads_goes_on(
    new_shop_postgres: NewShop, new_source: NewSource
) -> None:
    """The messages for everything else are in tests/unit/datastores/postgres/test_bad_input.py."""
    server = new_shop_postgres(max_wal_senders="2", max_replication_slots="3")
    source = new_source(server)
    senders = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'walsender'"
    start = replace(source.latest(), anchor=None)  # a proof that is compared takes a walsender for a moment
    until(lambda: not server.sql(senders), "a walsender is left")
    reader = source.open(start)
    until(lambda: len(server.sql(senders)) == 1, "the walsender stays that proved the place")
    with pytest.raises(SourceUnavailable, match="all replication slots are in use") as error:
        source.open(start)
    assert "max_replication_slots" in (error.value.hint or "")
    until(lambda: len(server.sql(senders)) == 1, "the walsender stays")
    with server.connect("shop", replication="database"):
        with pytest.raises(SourceUnavailable, match="max_wal_senders") as error:
            source.open(start)
        assert "lower caravans.max" in (error.value.hint or "")
    until(lambda: len(server.sql(senders)) == 1, "the walsender stays")
    server.sql("ALTER ROLE wormhole NOREPLICATION")
    with pytest.raises(SourceUnavailable) as error:
        source.open(start)
    assert (error.value.hint or "").endswith('ALTER ROLE "wormhole" REPLICATION;')
    _insert(server, 7)
    assert read_until(reader, source.latest().order).keys() == [7]
    reader.close()
    server.sql("ALTER ROLE wormhole REPLICATION")
    assert read_log(source, start).keys() == [7]


def test_a_key_that_the_log_hides_halts_its_table_alone(
    server: PostgresServer, tmp_path: Path, new_source: NewSource
) -> None:
    columns = "id int, a int, twice int GENERATED ALWAYS AS (a * 2) STORED, PRIMARY KEY (id, twice)"
    server.sql(f"CREATE TABLE made ({columns})", database="shop")
    assert "generated_key" in _problems(server, tmp_path)
    source = new_source(server, sharding=Sharding("table"))
    start = source.latest()
    server.sql("INSERT INTO made VALUES (1, 2), (1, 3)", database="shop")
    server.sql(
        "CREATE TABLE hidden (id int PRIMARY KEY)",
        "ALTER TABLE hidden REPLICA IDENTITY FULL",
        "INSERT INTO hidden VALUES (1)",
        "DROP TABLE hidden",
        database="shop",
    )
    _insert(server, 7)
    read = read_log(source, start)
    assert [(update.table, update.key) for update in read.updates] == [("public.t", (7,))]
    generated, unknown = sorted(read.broken, key=lambda error: error.tables, reverse=True)
    assert (generated.tables, unknown.tables) == (("public.made",), ("public.hidden",))
    assert "generated column twice, which the server leaves out of the log" in generated.message
    assert "its REPLICA IDENTITY was FULL" in unknown.message
    assert all("name the table in skip_tables" in (error.hint or "") for error in (generated, unknown))


def test_a_slot_that_the_server_gave_up_is_said_and_made_anew_by_what_is_said(
    server: PostgresServer, source: PostgresSource, tmp_path: Path
) -> None:
    _insert(server, 1)
    marker = read_log(source, source.earliest()).markers[-1]
    with _setting(server, max_slot_wal_keep_size="1MB"):
        source._poll()
        assert all(0 < (slot.left_bytes or 0) < 64 << 20 for slot in source.status().slots)
        for _ in range(3):
            server.sql("CREATE TABLE filled AS SELECT 1", "SELECT pg_switch_wal()", "DROP TABLE filled")
        server.sql("CHECKPOINT")
        until(lambda: all(slot.lost for slot in source.status().slots), "the slots are not lost")
        assert "max_slot_wal_keep_size" in source.status().problems[0].text
        assert "pg_drop_replication_slot" in _problems(server, tmp_path)["slots"]
    with pytest.raises(SourceUnavailable, match="has lost its log") as error:
        source.open(marker)
    server.sql(*(error.value.hint or "").splitlines()[1:], database="shop")
    until(lambda: not source.status().problems, "the slots are still lost")
    with pytest.raises(PositionPurged) as lost:
        source.open(marker)
    assert (lost.value.first_missing, lost.value.last_missing) == (marker.delivered, source.earliest().delivered)
    _insert(server, 2)
    assert read_log(source, source.earliest()).keys() == [2]


def test_what_is_no_text_in_the_databases_encoding_holds_nothing(server: PostgresServer, new_source: NewSource) -> None:
    """Rows, names and prefixes in WIN1252: 0x81 is no character of it, and the server cannot convert it."""
    server.sql("CREATE DATABASE win ENCODING 'WIN1252' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    prepare_database(server, "win", _TABLE)
    source = new_source(server, "win")
    start = source.latest()
    server.sql(
        "SET client_encoding = 'UTF8'",
        "INSERT INTO t VALUES (1, 'ü')",
        r"INSERT INTO t VALUES (2, E'caf\x81')",
        r"""DO $$BEGIN EXECUTE 'CREATE TABLE "caf' || E'\x81' || '" (k text PRIMARY KEY, "€" int)'; END$$""",
        r"""DO $$BEGIN EXECUTE 'INSERT INTO "caf' || E'\x81' || '" VALUES (E''a\x81'', 5)'; END$$""",
        r"SELECT pg_logical_emit_message(true, E'p\x81', 'content')",
        "INSERT INTO t VALUES (3, '€')",
        database="win",
    )
    read = read_log(source, start)
    assert [(update.table, update.after) for update in read.updates] == [
        ("public.t", (1, "ü")),
        ("public.t", (2, b"caf\x81")),
        ("public.caf%81", (b"a\x81", 5)),
        ("@message", ("p%81", b"content", True)),
        ("public.t", (3, "€")),
    ]


@pytest.mark.parametrize("dropped", [("held",), ("lead",), ("held", "lead")])
def test_slots_dropped_by_hand_are_made_as_the_message_says(
    dropped: tuple[str, ...], server: PostgresServer, source: PostgresSource
) -> None:
    """A publisher that reads goes on meanwhile. While one slot is left, no flow loses what that keeps."""
    start = source.latest()
    _insert(server, 1, 2)
    marker = read_log(source, start).markers[-1]
    _insert(server, 3)
    with closing(source.open(marker)) as reader:
        server.sql(*(f"SELECT pg_drop_replication_slot('wormhole_log_{name}')" for name in dropped))
        _insert(server, 4)
        assert read_until(reader, source.latest().order).keys() == [3, 4]
        source._poll()
        (problem,) = source.status().problems
        server.sql(*problem.hint.splitlines()[1:], database="shop")
        source._poll()
        assert source.status().problems == ()
    ordered = "SELECT slot_name FROM pg_replication_slots WHERE NOT temporary ORDER BY confirmed_flush_lsn, slot_name"
    if len(dropped) == 1:
        assert server.sql(ordered) == [("wormhole_log_held",), ("wormhole_log_lead",)]
        assert read_log(source, marker).keys() == [3, 4]
    else:
        with pytest.raises(PositionPurged):
            source.open(marker)
