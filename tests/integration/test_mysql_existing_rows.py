"""Existing rows of real MariaDB and MySQL servers: what a chunk shows, and where it lies in the log."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping

import hypothesis
import pytest

from datastores.mysql.existing_rows import snapshot
from tests.support.databases import DatabaseServer
from tests.support.table_scene import TableScene, held_commits
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.wire.rows import decode_row

SNAPSHOTS = 10_000 if hypothesis.settings.get_current_profile_name() == "soak" else 200
_STOCK = "CREATE TABLE shop.stock (id INT PRIMARY KEY, amount INT)"
_CREATE = ("CREATE DATABASE shop", _STOCK)
_PREPARED = ("XA START 'one'", "UPDATE shop.stock SET amount = 2", "XA END 'one'", "XA PREPARE 'one'")


@pytest.fixture
def scene(database_server: DatabaseServer) -> Iterator[TableScene]:
    database_server.sql("DROP DATABASE IF EXISTS shop")
    with TableScene(database_server) as scene:
        yield scene


def amounts(chunk: Chunk) -> dict[int, int]:
    """The amounts in `shop.stock`, by id."""
    return amounts_of(chunk.rows)


def amounts_of(rows: Mapping[bytes, bytes]) -> dict[int, int]:
    found = map(decode_row, rows.values())
    return {row.after[0].int: row.after[1].int for row in found}


def place(marker: Datamarker) -> tuple[int, int]:
    return marker.order.file, marker.order.offset


@pytest.mark.parametrize("prepared", [False, True], ids=["plain", "XA COMMIT"])
def test_a_commit_in_the_log_that_no_select_shows_yet(
    own_shop: DatabaseServer, prepared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(snapshot, "_PREPARED_S", 0.1)
    server = own_shop
    with TableScene(server) as scene:
        scene.run(_STOCK, "INSERT INTO shop.stock VALUES (1, 1)")
        if prepared:
            with server.connect() as connection, connection.cursor() as cursor:
                for statement in _PREPARED:
                    cursor.execute(statement)
        before = scene.follow()
        with held_commits(server, "XA COMMIT 'one'" if prepared else "UPDATE shop.stock SET amount = 2"):
            # The reader delivers the change, and a SELECT shows the row as it was before.
            delivered = scene.follow()
            assert decode_row(next(iter(scene.rows["shop.stock"].values()))).after[1].int == 2
            status = "SHOW MASTER STATUS" if server.flavour == "mariadb" else "SHOW BINARY LOG STATUS"
            low = server.sql(status)[0]
            assert server.sql("SELECT * FROM shop.stock") == [(1, 1)]
            high = server.sql(status)[0]
            # Places asked for around the SELECT would say that it shows everything that was delivered.
            assert low[:2] == high[:2]
            assert (int(low[0].rpartition(".")[2]), low[1]) == place(delivered)
            # It is right as of an earlier place, and refused as of this one.
            chunk = scene.tables.chunk("shop.stock", None, None, ChunkLimits(), before)
            assert amounts(chunk) == {1: 1}
            if server.flavour == "mariadb":
                assert scene.tables.reached(chunk.high, before)
            with pytest.raises(SourceUnavailable, match="does not show everything before"):
                scene.chunk("shop.stock")
        chunk = scene.chunk("shop.stock")
        assert amounts(chunk) == {1: 2}
        assert scene.tables.reached(chunk.high, delivered)


def test_rows_are_those_of_the_log_in_the_order_of_the_key(scene: TableScene) -> None:
    scene.run(
        *_CREATE,
        "INSERT INTO shop.stock VALUES (3, 30), (-7, NULL), (2147483647, 0), (0, -1), (-2147483648, 5), (12, 12)",
    )
    chunks = list(scene.chunks("shop.stock"))
    assert [len(chunk.rows) for chunk in chunks] == [3, 3, 0]
    assert [chunk.done for chunk in chunks] == [False, False, True]
    found = {key: update for chunk in chunks for key, update in chunk.rows.items()}
    assert found == scene.rows["shop.stock"]
    assert [decode_row(update).key[0].int for update in found.values()] == [-2147483648, -7, 0, 3, 12, 2147483647]
    assert {chunk.schema.id for chunk in chunks} == {scene.schemas["shop.stock"].id}


def test_no_transaction_is_open_between_chunks(scene: TableScene) -> None:
    """An ALTER waits for open transactions that read the table, and every query waits for that ALTER."""
    scene.run(*_CREATE, "INSERT INTO shop.stock VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    first = scene.chunk("shop.stock")
    scene.run("SET SESSION lock_wait_timeout = 1", "ALTER TABLE shop.stock ADD COLUMN place INT FIRST")
    assert scene.server.sql("SELECT COUNT(*) FROM information_schema.INNODB_TRX") == [(0,)]
    second = scene.chunk("shop.stock", first.last)
    assert [column.name for column in second.schema.columns] == ["place", "id", "amount"]
    assert [row.after[1].int for row in map(decode_row, second.rows.values())] == [4]
    with pytest.raises(SourceUnavailable):
        scene.tables.chunk("shop.stock", None, None, ChunkLimits(), ahead(scene.marker))
    scene.run("SET SESSION lock_wait_timeout = 1", "ALTER TABLE shop.stock DROP COLUMN place")


def ahead(marker: Datamarker) -> Datamarker:
    """A place that the server's log has not reached."""
    order = type(marker.order)(marker.order.incarnation, marker.order.file + 1, marker.order.offset)
    return Datamarker(order, marker.delivered, order)


def test_xa_commits_beside_chunks(scene: TableScene) -> None:
    """MariaDB's are in the log a moment before they are visible, and the snapshot's place is behind them already."""
    scene.run(*_CREATE, "INSERT INTO shop.stock VALUES (1, 0)")
    stop = threading.Event()

    def write() -> None:
        with scene.server.connect() as connection, connection.cursor() as cursor:
            for n in itertools.count(1):
                change = f"UPDATE shop.stock SET amount = {n}"
                for statement in ("XA START '{}'", change, "XA END '{}'", "XA PREPARE '{}'", "XA COMMIT '{}'"):
                    cursor.execute(statement.format(f"x{n}"))
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(SNAPSHOTS):
            scene.step()
            delivered = amounts_of(scene.rows["shop.stock"])[1]
            assert amounts(scene.chunk("shop.stock"))[1] >= delivered
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize(
    ("statements", "replaced"),
    [
        (("RENAME TABLE shop.a TO shop.old, shop.b TO shop.a",), {"shop.old", "shop.a"}),
        (("DROP TABLE shop.a", "ALTER TABLE shop.b RENAME TO shop.a"), {"shop.a"}),
        (("DROP TABLE shop.a", "CREATE TABLE shop.a LIKE shop.b", "TRUNCATE shop.b"), set()),
        (("ALTER TABLE shop.a ADD b INT, ADD UNIQUE (v)",), set()),
        (("ALTER TABLE shop.a ADD b INT, RENAME COLUMN v TO w",), {"shop.a"}),
        (("ALTER TABLE shop.a MODIFY v TINYINT",), {"shop.a"}),
    ],
)
def test_the_log_says_which_names_other_tables_took(
    scene: TableScene, statements: tuple[str, ...], replaced: set[str]
) -> None:
    """The flow gets none of their rows. Only a new generation finds out which rows of the former table are gone."""
    scene.run(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE shop.b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO shop.a VALUES (1, 1)",
    )
    scene.replaced.clear()
    begin = scene.marker.order
    scene.run(*statements)
    assert set(scene.replaced) == replaced
    assert scene.marker.order > begin
