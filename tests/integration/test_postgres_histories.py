"""Failovers and restored copies of a PostgreSQL server: which datamarkers go on, and what is told where they cannot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.log import slots
from datastores.postgres.server.versions import FAILOVER_SINCE
from datastores.postgres.source import PostgresSource
from tests.support.eventually import until
from tests.support.hosts_state import HostsState
from tests.support.postgres_harness import drop_slots
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_tail import NewShop, NewSource
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import Login, Standing
from wormhole.ports.testing.reading import read_log, read_until


@pytest.fixture
def primary(new_shop_postgres: NewShop) -> PostgresServer:
    return new_shop_postgres()


@pytest.fixture
def source(primary: PostgresServer, new_source: NewSource) -> PostgresSource:
    return new_source(primary)


class Standby:
    """A standby of ``primary``: a copy of its data with the slots, as on a server that synchronizes slots."""

    def __init__(self, primary: PostgresServer, folder: Path, *, with_slots: bool = True, **options: str) -> None:
        self._primary = primary
        copy = folder / "base"
        primary.stop()
        shutil.copytree(primary.data, copy)
        primary.start()
        (copy / "standby.signal").touch()
        for one in () if with_slots else (copy / "pg_replslot").iterdir():
            shutil.rmtree(one)
        primary_at = f"host=127.0.0.1 port={primary.port} user=postgres dbname=shop"
        self.server = PostgresServer(options={"primary_conninfo": primary_at, **options}, template=copy)
        self.server.start()

    def catch_up(self) -> None:
        """Wait until it holds what the primary has."""
        ((end,),) = self._primary.sql("SELECT pg_current_wal_flush_lsn()")
        until(lambda: self.server.sql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [(True,)], "it is behind")

    def history(self) -> str:
        """Where its timeline left the primary's."""
        return (self.server.data / "pg_wal" / "00000002.history").read_text().split()[1]

    def take_over(self) -> None:
        """The primary is gone, and this is the server at its address."""
        self._primary.kill()
        self.server.sql("SELECT pg_promote()")
        self.server.stop()
        self.server.port = self._primary.port
        self.server.start()


@pytest.fixture
def standby(primary: PostgresServer, tmp_path: Path) -> Iterator[Standby]:
    made = Standby(primary, tmp_path)
    yield made
    made.server.close()


def copied(server: PostgresServer) -> Path:
    """A copy of the server's data as they are now."""
    copy = server.folder / "copy"
    server.stop()
    shutil.copytree(server.data, copy)
    server.start()
    return copy


def restore(server: PostgresServer, copy: Path) -> None:
    """The server has the data of a copy again."""
    server.stop()
    shutil.rmtree(server.data)
    shutil.copytree(copy, server.data)
    server.own_data()
    server.start()


def _insert(server: PostgresServer, *keys: int) -> None:
    server.sql(*(f"INSERT INTO t VALUES ({key}, 'v')" for key in keys), database="shop")


def test_a_promoted_standby_goes_on_with_the_slots_and_without_them_reports_a_loss(
    primary: PostgresServer, standby: Standby, source: PostgresSource
) -> None:
    start = source.latest()
    _insert(primary, 1, 2)
    marker = read_log(source, start).markers[-1]
    _insert(primary, 3)
    standby.catch_up()
    standby.take_over()
    _insert(standby.server, 4)
    read = read_until(source.open(marker), source.latest().order)
    assert read.keys() == [3, 4]
    assert [one.split(":")[1] for one in read.ids()] == ["1", "2"], "the timelines in which they were committed"
    assert read.markers[-1].delivered.startswith("2:")
    drop_slots(standby.server)
    with pytest.raises(SourceUnavailable, match="has no replication slot") as error:
        source.open(marker)
    standby.server.sql(*(error.value.hint or "").splitlines()[1:], database="shop")
    with pytest.raises(PositionPurged) as lost:
        source.open(marker)
    assert (lost.value.first_missing, lost.value.last_missing) == (marker.delivered, source.earliest().delivered)
    _insert(standby.server, 5)
    assert read_log(source, source.earliest()).keys() == [5]


@pytest.mark.soak  # Debian 12 has 15; WORMHOLE_POSTGRES names another server
def test_a_standby_that_synchronizes_slots_goes_on_with_them(
    primary: PostgresServer, source: PostgresSource, tmp_path: Path
) -> None:
    ((version,),) = primary.sql("SHOW server_version_num")
    if int(version) < FAILOVER_SINCE:
        pytest.skip("this server gives its standbys no logical slots")
    source.stop()
    drop_slots(primary)
    primary.sql("SELECT pg_create_physical_replication_slot('standby')", "ALTER SYSTEM SET "
                "synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()")  # fmt: skip
    primary.sql(*slots.create_statements("wormhole_log", int(version)), database="shop")
    synchronizes = {"primary_slot_name": "standby", "hot_standby_feedback": "on", "sync_replication_slots": "on"}
    standby = Standby(primary, tmp_path, with_slots=False, **synchronizes)
    try:
        source.start()
        start = source.latest()
        _insert(primary, 1, 2)
        marker = read_log(source, start).markers[-1]
        source.release(marker.read_from)
        synced = "SELECT 1 FROM pg_replication_slots WHERE synced AND NOT temporary"
        until(lambda: len(standby.server.sql(synced)) == 2, "the slots are not synchronized")
        assert [one.unsynced for one in source.status().slots] == [False, False]
        _insert(primary, 3)
        standby.catch_up()
        standby.take_over()
        _insert(standby.server, 4)
        assert read_until(source.open(marker), source.latest().order).keys() == [3, 4]
    finally:
        standby.server.close()


def test_another_host_goes_on_at_a_promoted_standby(
    primary: PostgresServer, standby: Standby, new_source: NewSource
) -> None:
    """The copy of another host, which shares the log's state, and what it says of itself meanwhile."""
    shared = HostsState()
    one = new_source(primary, state="a", shared=shared)
    start = one.latest()
    _insert(primary, 1)
    marker = read_log(one, start).markers[-1]
    primary.sql("ALTER TABLE t ALTER k TYPE bigint", database="shop")
    one._look_at_tables()
    one.stop()
    _insert(primary, 2)
    standby.catch_up()
    found = standing(standby.server, marker)
    assert (found.server, found.ready) == (standing(primary, marker).server, False)
    assert "it is a standby" in found.problem.text
    standby.take_over()
    found = standing(standby.server, marker)
    assert (found.ready, found.lacking) == (True, "")
    _insert(standby.server, 3)
    other = new_source(standby.server, state="b", shared=shared)
    read = read_until(other.open(marker), other.latest().order)
    assert read.keys() == [2, 3]
    assert read.markers[-1].order.incarnation == marker.order.incarnation + 1
    assert read.replaced == {"public.t"}, "the one before noticed it, and the flow had not come there"


def standing(server: PostgresServer, marker: Datamarker) -> Standing:
    url = DATASTORE.url_of_log(server.url("shop"), "log")
    return DATASTORE.standing(url, Login(server.password_file), [marker.delivered], failover=True)


def test_a_promoted_standby_that_lacks_what_was_delivered_has_diverged(
    primary: PostgresServer, standby: Standby, source: PostgresSource
) -> None:
    """Also when its own history has gone beyond the datamarker's place meanwhile."""
    _insert(primary, 1)
    standby.catch_up()
    standby.server.stop()
    start = source.latest()
    _insert(primary, 2)
    marker = read_log(source, start).markers[-1]
    primary.kill()
    standby.server.start()
    standby.take_over()
    assert standing(standby.server, marker).lacking == marker.delivered
    _insert(standby.server, *range(10, 20))
    with pytest.raises(Diverged) as error:
        source.open(marker)
    assert error.value.hint
    end = standby.history()
    assert (error.value.first_missing, error.value.last_missing) == (f"1:{end}", marker.delivered)
    assert f"has timeline 1 up to {end}" in error.value.message


def test_what_was_read_and_a_promoted_standby_lacks_is_reported(
    primary: PostgresServer, standby: Standby, new_source: NewSource
) -> None:
    """Delivered and not acknowledged: the datamarker lies before it, and is in the standby's history."""
    shared = HostsState()
    one = new_source(primary, state="a", shared=shared)
    start = one.latest()
    _insert(primary, 1)
    marker = read_log(one, start).markers[-1]
    standby.catch_up()
    standby.server.stop()
    _insert(primary, 2)
    read = read_log(one, marker)
    assert read.keys() == [2]  # nothing of it was stored
    one.stop()
    primary.kill()
    standby.server.start()
    standby.take_over()
    _insert(standby.server, 3)
    other = new_source(standby.server, state="b", shared=shared)
    with pytest.raises(Diverged, match="may have been delivered") as error:
        other.open(marker)
    assert "wormholectl flows accept-loss" in str(error.value)
    assert (error.value.first_missing, error.value.last_missing) == (
        f"1:{standby.history()}",
        read.markers[-1].delivered,
    )
    with pytest.raises(Diverged):  # until it is accepted, and then not again
        other.open(read.markers[-1])
    accepted = other.locate(error.value.resume)
    assert read_log(other, accepted).keys() == [3]
    again = new_source(standby.server, state="b", shared=shared)
    with pytest.raises(Diverged):
        again.open(marker)
    assert read_log(again, accepted).keys() == [3]


def test_what_was_read_and_a_restored_copy_lacks_is_reported(primary: PostgresServer, source: PostgresSource) -> None:
    """Behind a datamarker that the copy has, in the same timeline."""
    start = source.latest()
    _insert(primary, 1)
    marker = read_log(source, start).markers[-1]
    copy = copied(primary)
    _insert(primary, 2)
    last = read_log(source, marker).markers[-1]
    restore(primary, copy)
    _insert(primary, *range(10, 20))
    with pytest.raises(Diverged, match="may have been delivered") as error:
        source.open(marker)
    assert (error.value.first_missing, error.value.last_missing) == (marker.delivered, last.delivered)
    assert read_log(source, source.locate(error.value.resume)).keys() == list(range(10, 20))


def test_a_restored_copy_whose_history_went_on_has_diverged(
    primary: PostgresServer, source: PostgresSource, new_source: NewSource
) -> None:
    """System, timeline and slots are the same, and the log is longer than the datamarker's place; also where nothing
    was delivered yet."""
    copy = copied(primary)
    _insert(primary, 0)
    start = source.latest()
    idle = new_source(primary, state="idle")
    idle.open(start).close()
    idle.stop()
    _insert(primary, 1, 2, 3)
    marker = read_log(source, start).markers[-1]
    restore(primary, copy)
    _insert(primary, *range(10, 20))
    assert source.latest().order.offset > marker.order.offset
    with pytest.raises(Diverged):
        source.open(marker)
    assert read_log(source, source.earliest()).keys() == list(range(10, 20))
    idle.start()
    with pytest.raises(Diverged):
        idle.open(start)
    anew = new_source(primary, state="anew")  # the state folder is lost, too
    assert start.order.incarnation == anew.latest().order.incarnation
    with pytest.raises(Diverged, match="is not the one that was read"):
        anew.open(start)
