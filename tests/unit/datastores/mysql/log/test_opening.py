"""What a dump begins with, and what is given up when that fails; over servers:
``tests/integration/test_mysql_servers.py``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from datastores.mysql.history.confirmation import Confirmation, Unconfirmed
from datastores.mysql.history.incarnations import Incarnations
from datastores.mysql.log import opening as module
from datastores.mysql.log.dump import FromFile, FromGtids, Start
from datastores.mysql.log.folder import BinlogFolder
from datastores.mysql.log.folder_log import FolderLog
from datastores.mysql.log.opening import Opening
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.id_claims import ServerIds
from datastores.mysql.server.state import ServerState, StateQueries
from tests.support import mysql_events as build
from tests.support.mysql_dump import ScriptedDump, format_description, insert, rotate, table
from wormhole.host.state_file import FolderState
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions


class Connection:
    """Stands for the driver's."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True

    _force_close = close


class Claims:
    """Claims on a server that no other reader has."""

    def __init__(self, ids: ServerIds) -> None:
        self._ids = ids
        self.give_back = ids.give_back

    def take(self, connection: object, avoid: int) -> int:
        assert isinstance(connection, Connection)
        return self._ids.take(avoid)


class World:
    """A server at ``view``, whose dumps send ``stream``; notes what each began with."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view = ServerState("a", 1, "binlog", ((7, 900), (8, 5000)), (8, 5000), f"{build.UUID_TEXT}:1-9")
        self.stream = build.Stream()
        self.starts: list[Start] = []
        self.connections: list[Connection] = []
        self.dumps: list[ScriptedDump] = []
        self.ids = ServerIds(41, 42)
        self.confirmation = Confirmation()
        self.incarnations = Incarnations(FolderState(folder))
        monkeypatch.setattr(module, "connect", self._connect)
        monkeypatch.setattr(module, "Dump", self._dump)
        queries = StateQueries(mariadb=False, version=(8, 4, 0))
        monkeypatch.setattr(queries, "view", lambda connection: self.view)
        monkeypatch.setattr(queries, "end", lambda connection: self.view.end)
        self.opening = Opening(
            cast(Any, None),
            queries,
            self.incarnations,
            cast(Any, Claims(self.ids)),
            self.confirmation,
            SourceOptions("log", folder, Sharding("log"), max_update_bytes=1 << 20, disk_budget=1 << 20),
            catalog=Catalog(folder / "tables.jsonl"),
            look=lambda connection, catalog: None,
            folder=folder,
            folder_log=FolderLog(BinlogFolder(None, mariadb=False), queries),
        )

    def _connect(self, address: object) -> Connection:
        self.connections.append(Connection())
        return self.connections[-1]

    def _dump(self, connection: Connection, start: Start, *, server_id: int, mariadb: bool) -> ScriptedDump:
        self.starts.append(start)
        self.dumps.append(ScriptedDump([self.stream.packets()]))
        return self.dumps[-1]

    def open(self, marker: Datamarker) -> Any:
        return self.opening.open(marker, lambda marker: None, lambda reader: None)

    def free_ids(self) -> int:
        taken = []
        with pytest.raises(SourceUnavailable):
            while True:
                taken.append(self.ids.take())
        for one in taken:
            self.ids.give_back(one)
        return len(taken)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, monkeypatch)
    rotate(made.stream, "binlog.000008", 4)
    format_description(made.stream)
    return made


def marker(file: int, offset: int, *, delivered: str = "", incarnation: int = 1) -> Datamarker:
    place = LogPosition(incarnation, file, offset)
    return Datamarker(place, delivered, place)


def with_anchor(world: World) -> Datamarker:
    begin = world.stream.offset
    world.stream.transaction(4, table(), insert(1))
    anchor = Anchor(f"{build.UUID_TEXT}:4", 0, LogPosition(1, 8, begin))
    return replace(marker(8, world.stream.offset, delivered=f"{build.UUID_TEXT}:1-4"), anchor=anchor)


def test_by_place_it_begins_with_the_anchor_and_compares(world: World) -> None:
    wanted = with_anchor(world)
    assert wanted.anchor is not None
    with pytest.raises(Diverged, match=r"was .* and is") as error:
        world.open(wanted)
    assert world.starts == [FromFile("binlog.000008", wanted.anchor.begin.offset)]
    assert error.value.position == str(wanted.order)
    assert all(dump.closed for dump in world.dumps)
    assert world.free_ids() == 2


def test_a_reader_keeps_its_id_until_it_is_closed(world: World) -> None:
    world.stream.transaction(4, table(), insert(1))
    reader = world.open(marker(8, 4))
    assert world.free_ids() == 1
    reader.close()
    assert world.free_ids() == 2


def test_what_is_prepared_is_read_from_its_beginning(world: World) -> None:
    place = world.stream.offset
    world.stream.transaction(4, table(), insert(1))
    wanted = replace(marker(8, world.stream.offset), read_from=LogPosition(1, 8, place))
    world.open(wanted).close()
    assert world.starts == [FromFile("binlog.000008", place)]


def test_ahead_of_the_log(world: World) -> None:
    for ahead in (marker(8, 5001), marker(9, 4), marker(7, 901)):
        with pytest.raises(Diverged, match="is not in this log") as error:
            world.open(ahead)
        assert str(ahead.order) in str(error.value)
    assert all(connection.closed for connection in world.connections)
    assert not world.starts


def test_behind_4_gib_the_file_is_passed_from_its_beginning(world: World) -> None:
    far = (1 << 32) + 700
    world.view = replace(world.view, files=((8, far),), end=(8, far))
    for offset in (1 << 31, (1 << 32) - 100, (1 << 32) + 200):
        world.stream.offset = offset
        world.stream.transaction(4, table(), insert(1))
    begin = (1 << 32) + 200
    anchor = Anchor(f"{build.UUID_TEXT}:4", 0, LogPosition(1, 8, begin))
    with pytest.raises(Diverged, match=r"was .* and is") as error:
        world.open(replace(marker(8, world.stream.offset, delivered=f"{build.UUID_TEXT}:1-4"), anchor=anchor))
    assert world.starts == [FromFile("binlog.000008", 4)]
    assert error.value.position == f"1/8/{world.stream.offset}"


def test_before_what_is_kept_it_goes_by_gtids_if_nothing_is_missing(world: World) -> None:
    world.view = replace(world.view, purged=f"{build.UUID_TEXT}:1-5")
    delivered = f"{build.UUID_TEXT}:1-5"
    world.open(marker(6, 700, delivered=delivered)).close()
    assert world.starts == [FromGtids(delivered)]
    with pytest.raises(PositionPurged) as error:
        world.open(marker(6, 700, delivered=f"{build.UUID_TEXT}:1-3"))
    assert error.value.first_missing == f"{build.UUID_TEXT}:4-5"


def test_on_another_server_it_goes_by_gtids(world: World) -> None:
    world.incarnations.observe(replace(world.view, identity="first"))
    delivered = f"{build.UUID_TEXT}:1-5"
    with pytest.raises(Unconfirmed):  # one answer does not make it another server
        world.open(marker(3, 77, delivered=delivered))
    assert world.incarnations.current == 1
    world.open(marker(3, 77, delivered=delivered)).close()
    assert world.starts == [FromGtids(delivered)]
    with pytest.raises(Diverged, match="not executed"):
        world.open(marker(3, 77, delivered=f"{build.UUID_TEXT}:1-10"))


def test_an_anchor_that_is_purged_is_replaced_by_what_was_executed(world: World) -> None:
    anchor = Anchor(f"{build.UUID_TEXT}:4", 0, LogPosition(1, 6, 500))
    good = replace(marker(8, 4, delivered=f"{build.UUID_TEXT}:1-4"), anchor=anchor)
    world.open(good).close()
    with pytest.raises(Diverged):
        world.open(replace(good, delivered=f"{build.UUID_TEXT}:1-44"))


@pytest.mark.parametrize("fail", ["connect", "dump"])
def test_a_failure_gives_everything_back(world: World, monkeypatch: pytest.MonkeyPatch, fail: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SourceUnavailable("no")

    monkeypatch.setattr(module, "connect" if fail == "connect" else "Dump", refuse)
    with pytest.raises(SourceUnavailable):
        world.open(marker(8, 4))
    assert world.free_ids() == 2
    assert all(connection.closed for connection in world.connections)
