"""Whether the log is still the one that was read, over real servers: restored copies, purges, resets, replicas."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from publisher.sources import open_source
from tests.support.databases import DatabaseServer, NewServer, purge
from tests.support.replicas import REPLICA, promote, replicate, wait_for_rows
from wormhole.model.errors import Diverged
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import read_log

NOTED = "ALTER TABLE shop.t ADD note TEXT"


@contextmanager
def tailing(server: DatabaseServer, state: Path) -> Iterator[LogSource]:
    """A source over the server, started; as after each start of a publisher."""
    source = open_source(
        server.url,
        log="log",
        state_dir=state,
        sharding=Sharding("log"),
        server_ids="",
        skip_tables=frozenset(),
        login=Login(server.password_file),
    )
    source.start()
    try:
        yield source
    finally:
        source.stop()


def insert(server: DatabaseServer, *ids: int, note: str = "") -> None:
    for n in ids:
        server.sql(f"INSERT INTO shop.t VALUES ({n}, '{note}')")


def shop(server: DatabaseServer) -> None:
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", NOTED)


def turn(server: DatabaseServer, times: int = 1) -> None:
    server.sql(*["FLUSH BINARY LOGS"] * times)


def back_up(server: DatabaseServer, to: Path) -> None:
    """A copy of everything, its binlogs too, of the server at rest."""
    server.stop()
    shutil.copytree(server.data, to)
    server.start()


def restore(server: DatabaseServer, backup: Path) -> None:
    server.kill()
    shutil.rmtree(server.data)
    shutil.copytree(backup, server.data)
    server.start()


def test_a_restored_copy_is_not_taken_for_a_server_that_purged(own_shop: DatabaseServer, tmp_path: Path) -> None:
    """Same identity, same GTIDs with other content, higher file numbers, and no file left that was seen."""
    server, state, backup = own_shop, tmp_path / "state", tmp_path / "backup"
    server.sql(NOTED)
    insert(server, 1, 2)
    back_up(server, backup)
    with tailing(server, state) as source:
        start = source.latest()
        insert(server, 3, 4)
        marker = read_log(source, start).markers[-1]
        assert marker.anchor is not None
    # Honest, and nobody is there: the marker's file is purged, one that was seen is not, the next transaction is there.
    with tailing(server, state) as source:
        turn(server)
        read_log(source, marker)
    turn(server)
    insert(server, 5)
    server.sql(f"PURGE BINARY LOGS TO '{server.binlogs[-2].name}'")
    with tailing(server, state) as source:
        assert read_log(source, marker).keys() == [5]
        assert source.latest().order.incarnation == marker.order.incarnation
    # Restored, and nobody is there: files of the same numbers and further ones, the numbers of GTIDs too.
    restore(server, backup)
    insert(server, 3, note="other")
    turn(server, 4)
    insert(server, *range(10, 20), note="other")
    purge(server)
    with tailing(server, state) as source:
        with pytest.raises(Diverged, match="restored copy") as error:
            source.open(marker)
        assert "wormholectl flows accept-loss" in str(error.value)
        assert f"wormholectl markers set APP/SHARD {marker.delivered}" in str(error.value)
        # What both commands do: the place that the error names, and the earliest.
        assert read_log(source, source.locate(marker.delivered)).keys() == list(range(11, 20))
        assert read_log(source, source.earliest()).keys() == list(range(10, 20))
        # Later markers are of the new history, and stay so after a restart.
        later = read_log(source, source.earliest()).markers[-1]
    with tailing(server, state) as source:
        assert read_log(source, later).keys() == []
        with pytest.raises(Diverged):
            source.open(marker)


def test_what_was_read_and_is_in_no_log_any_more_is_reported(new_server: NewServer, tmp_path: Path) -> None:
    """Failover to a replica, updates delivered and not acknowledged, and back to the old primary."""
    first, second, state = new_server(), new_server(**REPLICA), tmp_path / "state"
    shop(first)
    replicate(first, second)
    with tailing(first, state) as source:
        start = source.latest()
        insert(first, 1)
        marker = read_log(source, start).markers[-1]
    wait_for_rows(second, 1)
    promote(second)
    with tailing(second, state) as source:
        insert(second, 2, 3)
        delivered = read_log(source, marker)
        assert delivered.keys() == [2, 3]  # nothing of it was stored
    with tailing(first, state) as source:
        with pytest.raises(Diverged, match="may have been delivered") as error:
            source.open(marker)
        assert "wormholectl flows accept-loss" in str(error.value)
        maria = first.flavour == "mariadb"
        before = last_number(marker.delivered) if maria else 0  # MySQL counts for each server
        missing = (before + 1 if maria else before + 2, before + 2)  # there the whole set is named twice
        assert (last_number(error.value.first_missing), last_number(error.value.last_missing)) == missing
        # It is reported until it is accepted, and then not again.
        with pytest.raises(Diverged):
            source.open(marker)
        insert(first, 4)
        accepted = source.locate(error.value.resume)
        assert read_log(source, accepted).keys() == [4]
        # A flow that acknowledged it lacks the same, whatever number the first one gave to its own transaction.
        with pytest.raises(Diverged, match="has not executed") as error:
            source.open(delivered.markers[-1])
        assert (last_number(error.value.first_missing), last_number(error.value.last_missing)) == missing
    with tailing(first, state) as source:
        assert read_log(source, accepted).keys() == [4]


def test_what_was_read_elsewhere_and_came_back_is_not_reported(new_server: NewServer, tmp_path: Path) -> None:
    """The honest half: the old primary has all that the replica wrote when it is served again."""
    first, second, state = new_server(log_slave_updates="ON"), new_server(**REPLICA), tmp_path / "state"
    shop(first)
    replicate(first, second)
    with tailing(first, state) as source:
        start = source.latest()
        insert(first, 1)
        marker = read_log(source, start).markers[-1]
    wait_for_rows(second, 1)
    promote(second)
    with tailing(second, state) as source:
        insert(second, 2, 3)
        read_log(source, marker)
    if first.flavour == "mariadb":
        first.sql(f"SET GLOBAL gtid_slave_pos = '{marker.delivered}'")
    replicate(second, first)
    wait_for_rows(first, 3)
    promote(first)
    with tailing(first, state) as source:
        assert read_log(source, marker).keys() == [2, 3]


@pytest.mark.parametrize("flavour", ["mariadb"])
@pytest.mark.parametrize("anchored_in", ["the marker's file", "a purged file"])
def test_a_domain_that_was_deleted_is_no_lost_end(own_shop: DatabaseServer, tmp_path: Path, anchored_in: str) -> None:
    """Its files were purged, as the server asks for; it does not list the domain any more."""
    server, state = own_shop, tmp_path / "state"
    server.sql(NOTED)
    with tailing(server, state) as source:
        start = source.latest()
        server.sql("SET SESSION gtid_domain_id = 7", "INSERT INTO shop.t VALUES (1, '')")
        turn(server)
        if anchored_in == "the marker's file":
            insert(server, 2)
        marker = read_log(source, start).markers[-1]
        assert ",7-" in f",{marker.delivered}"
    purge(server)
    server.sql("FLUSH BINARY LOGS DELETE_DOMAIN_ID=(7)")
    insert(server, 3)
    assert "7-" not in str(server.sql("SELECT @@gtid_binlog_state"))
    with tailing(server, state) as source:
        assert source.latest().order.incarnation == marker.order.incarnation
        read = read_log(source, marker)
        assert read.keys() == [3]
    purge(server)
    with tailing(server, state) as source:
        insert(server, 4)
        assert read_log(source, read.markers[-1]).keys() == [4]


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_a_domain_whose_transaction_was_lost_is_no_deleted_one(own_shop: DatabaseServer, tmp_path: Path) -> None:
    """The server lists nothing of it either; the log has another transaction at its place."""
    server, state, disk = own_shop, tmp_path / "state", tmp_path / "disk"
    server.sql(NOTED)
    with tailing(server, state) as source:
        start = source.latest()
        insert(server, 1)
        back_up(server, disk)
        server.sql("SET SESSION gtid_domain_id = 7", "INSERT INTO shop.t VALUES (2, '')")
        marker = read_log(source, start).markers[-1]
    restore(server, disk)
    insert(server, *range(10, 15), note="other")
    with tailing(server, state) as source, pytest.raises(Diverged, match="7-"):
        source.open(marker)


def test_a_server_that_lost_the_end_of_its_log(own_shop: DatabaseServer, tmp_path: Path) -> None:
    """A disk of a moment ago, as after a power cut without ``sync_binlog``; and one that only crashed."""
    server, state, disk = own_shop, tmp_path / "state", tmp_path / "disk"
    server.sql(NOTED)
    with tailing(server, state) as source:
        start = source.latest()
        insert(server, 1)
        marker = read_log(source, start).markers[-1]
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            shutil.copytree(server.data, disk)
        insert(server, 2)
        assert read_log(source, marker).keys() == [2]
    restore(server, disk)
    insert(server, 3)
    with tailing(server, state) as source:
        with pytest.raises(Diverged, match="may have been delivered") as error:
            source.open(marker)
        accepted = source.locate(error.value.resume)
        assert read_log(source, accepted).keys() == [3]
    server.kill()
    server.start()
    with tailing(server, state) as source:
        assert read_log(source, accepted).keys() == [3]


def last_number(gtids: str) -> int:
    return int(gtids.rpartition("-")[2].rpartition(":")[2])
