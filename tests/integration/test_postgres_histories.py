"""Failovers and restored copies of a PostgreSQL server: which datamarkers go on, and what is told where they cannot."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.sources.postgres.source import PostgresSource
from tests.support.eventually import until
from tests.support.postgres_harness import drop_slots, prepare_database, source_of
from tests.support.postgres_server import NewPostgres, PostgresServer
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.ports.testing.reading import read_log, read_until

_TABLE = "CREATE TABLE t (k int PRIMARY KEY, v text)"


@pytest.fixture
def primary(new_postgres: NewPostgres) -> PostgresServer:
    server = new_postgres()
    prepare_database(server, "shop", _TABLE)
    return server


@pytest.fixture
def source(primary: PostgresServer, tmp_path: Path) -> Iterator[PostgresSource]:
    source = source_of(primary, "shop", tmp_path / "state")
    yield source
    source.stop()


class Standby:
    """Of ``primary``, from a copy of its data with the slots, as a server keeps them that synchronizes slots."""

    def __init__(self, primary: PostgresServer, folder: Path) -> None:
        self._primary = primary
        copy = folder / "base"
        primary.stop()
        shutil.copytree(primary.data, copy)
        primary.start()
        (copy / "standby.signal").touch()
        options = {"primary_conninfo": f"host=127.0.0.1 port={primary.port} user=postgres"}
        self.server = PostgresServer(options=options, template=copy)
        self.server.start()

    def catch_up(self) -> None:
        """Wait until it holds what the primary has."""
        ((end,),) = self._primary.sql("SELECT pg_current_wal_flush_lsn()")
        until(lambda: self.server.sql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == [(True,)], "it is behind")

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
    _insert(standby.server, *range(10, 20))
    with pytest.raises(Diverged) as error:
        source.open(marker)
    assert error.value.hint


def test_a_restored_copy_whose_history_went_on_has_diverged(primary: PostgresServer, source: PostgresSource) -> None:
    """System, timeline and slots are the same, and the log is longer than the datamarker's place."""
    copy = primary.folder / "copy"
    primary.stop()
    shutil.copytree(primary.data, copy)
    primary.start()
    start = source.latest()
    _insert(primary, 1, 2, 3)
    marker = read_log(source, start).markers[-1]
    primary.stop()
    shutil.rmtree(primary.data)
    shutil.copytree(copy, primary.data)
    primary.own_data()
    primary.start()
    _insert(primary, *range(10, 20))
    assert source.latest().order.offset > marker.order.offset
    with pytest.raises(Diverged):
        source.open(marker)
    assert read_log(source, source.earliest()).keys() == list(range(10, 20))
