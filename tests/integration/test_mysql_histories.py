"""Whether the log is still the one that was read, over real servers: restored copies, purges, resets, replicas."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from publisher.source import open_source
from tests.support.databases import DatabaseServer, NewServer, purge
from tests.support.log_reading import Read, read_until
from wormhole.errors import Diverged
from wormhole.log_source import LogSource
from wormhole.position import Datamarker
from wormhole.sharding import Sharding

REPLICA = {"server_id": "2", "log_slave_updates": "ON"}


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
        password_file=server.password_file,
    )
    source.start()
    try:
        yield source
    finally:
        source.stop()


def read(source: LogSource, start: Datamarker) -> Read:
    """From a marker to the present end."""
    reader = source.open(start)
    try:
        return read_until(reader, source.latest().order, into=Read(last_end=start.order))
    finally:
        reader.close()


def insert(server: DatabaseServer, *ids: int, note: str = "") -> None:
    for n in ids:
        server.sql(f"INSERT INTO shop.t VALUES ({n}, '{note}')")


def shop(server: DatabaseServer) -> None:
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, note TEXT)")


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


def test_a_restored_copy_is_not_taken_for_a_server_that_purged(new_server: NewServer, tmp_path: Path) -> None:
    """Same identity, same GTIDs with other content, higher file numbers, and no file left that was seen."""
    server, state, backup = new_server(), tmp_path / "state", tmp_path / "backup"
    shop(server)
    insert(server, 1, 2)
    back_up(server, backup)
    with tailing(server, state) as source:
        start = source.latest()
        insert(server, 3, 4)
        marker = read(source, start).markers[-1]
        assert marker.anchor is not None
    # Honest, and nobody is there: the marker's file is purged, one that was seen is not, the next transaction is there.
    with tailing(server, state) as source:
        turn(server)
        read(source, marker)
    turn(server)
    insert(server, 5)
    server.sql(f"PURGE BINARY LOGS TO '{server.binlogs[-2].name}'")
    with tailing(server, state) as source:
        assert read(source, marker).keys() == [5]
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
        assert read(source, source.locate(marker.delivered)).keys() == list(range(11, 20))
        assert read(source, source.earliest()).keys() == list(range(10, 20))
        # Later markers are of the new history, and stay so after a restart.
        later = read(source, source.earliest()).markers[-1]
    with tailing(server, state) as source:
        assert read(source, later).keys() == []
        with pytest.raises(Diverged):
            source.open(marker)
