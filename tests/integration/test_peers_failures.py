"""What snapshots of other tools are known to do wrong, each with the test that shows that ours does not.

- A snapshot that is interrupted begins again, or is lost with a restart (Debezium dbz#2055, dbz#2325):
  ``tests/system/test_existing_rows.py: test_the_copy_equals_the_table_whatever_was_killed`` and
  ``tests/integration/publisher/test_existing_rows.py: test_rows_go_on_where_they_were_after_a_publisher_died``.
- It is abandoned when its connection breaks (dbz#2105): `test_dbz_2105_a_server_that_dies_abandons_nothing`.
- It stops the stream of an idle server that restarted (DBZ-4502): `test_dbz_4502_an_idle_log_after_a_restart`, and
  in general: `test_dbz_4502_changes_go_on_while_rows_cannot_be_read`.
- Rows are skipped where the client sends keys in another order than the index has (DBZ-7359):
  ``test_mysql_existing_keys.py: test_every_collation_of_the_server``.
- The client compares keys otherwise than the server, so that changes beside the snapshot are lost (Flink
  FLINK-39749): `test_flink_39749_keys_that_the_collation_holds_for_equal`.
- A key with an ENUM fails in a circle (Sequin #2149): `test_sequin_2149_an_enum_in_the_key`, and
  ``test_mysql_existing_keys.py: test_an_enum_before_other_columns``.
- DDL in the middle of a chunk puts values into the wrong columns (DBZ-4878): `test_dbz_4878_ddl_in_the_window`.
- A snapshot ends for ever with its connection (PeerDB #2408): `test_peerdb_2408_connections_that_are_killed`.
- Deletes that were missed stay: ``tests/system/test_existing_rows.py:
  test_deletes_that_an_application_missed_converge``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from caravan.backfill.boundaries import MemoryBoundaries
from caravan.backfill.progress import BackfillRequest
from caravan.fleet import Fleet, FleetEvents, Limits
from caravan.scan.scanner import Scanner, ScanSettings
from tests.support.databases import DatabaseServer, NewServer
from tests.support.eventually import patience, until
from tests.support.rows_received import Receiver
from tests.support.table_scene import TableScene
from wormhole.filters import Filter
from wormhole.ports.table_source import ChunkLimits

ROWS = 24


class Backfill:
    """One application that begins with the rows of ``peers.rows_``; chunks of four.

    ``before``, ``after``: called around each chunk with its number from 1, in the thread that reads it.
    """

    def __init__(self, server: DatabaseServer) -> None:
        self.server = server
        self.scene = TableScene(server)
        self.before: Callable[[int], None] = lambda _: None
        self.after: Callable[[int], None] = lambda _: None
        self.chunks = 0
        self.failed: list[Exception] = []
        self._chunk = self.scene.tables.chunk
        self.scene.tables.chunk = self._hooked  # type: ignore[method-assign,assignment]

    def _hooked(self, *arguments: Any) -> Any:
        self.chunks += 1
        self.before(self.chunks)
        chunk = self._chunk(*arguments)
        self.after(self.chunks)
        return chunk

    @asynccontextmanager
    async def running(self, **request: Any) -> AsyncIterator[Receiver]:
        scene = await asyncio.to_thread(self.scene.__enter__)
        try:
            fleet = self.fleet = Fleet(
                scene.source, Limits(), FleetEvents(lambda *_: None, lambda *_: None), lambda: 0.0
            )
            settings = ScanSettings(limits=ChunkLimits(rows=4))
            self.scanner = Scanner(fleet, scene.tables, MemoryBoundaries(), settings)
            wanted = BackfillRequest(1, **{"tables": ("peers.rows_",), **request})
            receiver = Receiver("db", scene.marker, lambda key: key, Filter.parse(None), wanted)
            loop = asyncio.get_running_loop()

            def take() -> None:
                try:
                    if receiver.take():
                        fleet.moved(receiver.flow)
                except Exception as error:  # the callback of a loop has nobody to raise to
                    self.failed.append(error)

            receiver.flow.wake = lambda: loop.call_soon(take)  # type: ignore[assignment]
            fleet.add(receiver.flow)
            reads_log = asyncio.create_task(fleet.run(scene.marker))
            reads_rows = asyncio.create_task(self.scanner.run())
            try:
                yield receiver
            finally:
                self.scanner.stop()
                await reads_rows
                reads_log.cancel()
                with suppress(asyncio.CancelledError):
                    await reads_log
        finally:
            await asyncio.to_thread(self.scene.__exit__, None, None, None)

    async def sql(self, *statements: str) -> None:
        """Write as root."""
        await asyncio.to_thread(self.server.sql, *statements)

    def write(self, *statements: str) -> None:
        """Write as root, and wait until the lead has read it: for a chunk that is being read it is in the window."""
        self.server.sql(*statements)
        status = "SHOW MASTER STATUS" if self.server.flavour == "mariadb" else "SHOW BINARY LOG STATUS"
        file, offset, *_ = self.server.sql(status)[0]
        end = int(file.rpartition(".")[2]), offset

        def read() -> bool:
            lead = self.fleet.lead
            return lead is not None and (lead.marker.order.file, lead.marker.order.offset) >= end

        until(read, f"the lead does not reach {end}")

    def there(self, table: str = "peers.rows_") -> list[dict[str, Any]]:
        """What a SELECT shows."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description or ()]
            return sorted((dict(zip(names, row, strict=True)) for row in cursor.fetchall()), key=repr)

    def came(self, receiver: Receiver, table: str = "peers.rows_") -> list[dict[str, Any]]:
        """What the application holds."""
        return sorted((row for (name, _), (row, _) in receiver.copy.rows.items() if name == table), key=repr)

    async def until(self, done: Callable[[], object], what: str) -> None:
        try:
            async with patience():
                while not await asyncio.to_thread(done):
                    assert not self.failed, self.failed
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"not {what}: {self.scanner.status}") from None

    async def converges(self, receiver: Receiver) -> None:
        """All rows came, and what the application holds is what the table holds."""
        await self.until(lambda: receiver.backfill.finished, "finished")
        await self.until(lambda: self.came(receiver) == self.there(), "equal")
        assert receiver.copy.finished == ["peers.rows_"]
        assert not receiver.backfill.refused


@pytest.fixture
def server(database_server: DatabaseServer) -> Iterator[DatabaseServer]:
    database_server.sql("DROP DATABASE IF EXISTS peers", "CREATE DATABASE peers")
    yield database_server
    database_server.sql("DROP DATABASE peers")


def fill(server: DatabaseServer) -> None:
    rows = ", ".join(f"({n}, 'row {n}')" for n in range(ROWS))
    server.sql(
        "CREATE DATABASE IF NOT EXISTS peers",
        "CREATE TABLE peers.rows_ (id INT PRIMARY KEY, v VARCHAR(40))",
        "CREATE TABLE peers.other (id INT PRIMARY KEY, v VARCHAR(40))",
        f"INSERT INTO peers.rows_ VALUES {rows}",
    )


async def test_dbz_2105_a_server_that_dies_abandons_nothing(new_server: NewServer) -> None:
    server = await asyncio.to_thread(new_server)
    await asyncio.to_thread(fill, server)
    backfill = await asyncio.to_thread(Backfill, server)

    died = threading.Event()

    def dies(number: int) -> None:
        if number == 2:
            server.kill()
            died.set()

    backfill.before = dies
    async with backfill.running() as receiver:
        await backfill.until(died.is_set, "killed")
        await backfill.until(lambda: backfill.scanner.status.waits.text, "why nothing comes is said")
        assert not receiver.backfill.finished
        await asyncio.to_thread(server.start)
        await backfill.converges(receiver)
        # What came before is not read again.
        assert len(receiver.copy.reads) == ROWS


async def test_dbz_4502_an_idle_log_after_a_restart(new_server: NewServer) -> None:
    """The log has no transaction behind which a window could close, and no GTID of the present file."""
    server = await asyncio.to_thread(new_server)
    await asyncio.to_thread(fill, server)
    await asyncio.to_thread(server.restart)
    backfill = await asyncio.to_thread(Backfill, server)
    async with backfill.running() as receiver:
        await backfill.converges(receiver)
        await backfill.sql("INSERT INTO peers.other VALUES (1, 'a change')")
        await backfill.until(lambda: backfill.came(receiver, "peers.other"), "a change after the rows")


async def test_dbz_4502_changes_go_on_while_rows_cannot_be_read(server: DatabaseServer) -> None:
    await asyncio.to_thread(fill, server)
    backfill = await asyncio.to_thread(Backfill, server)
    async with backfill.running() as receiver:
        await backfill.converges(receiver)
    backfill = await asyncio.to_thread(Backfill, server)
    with await asyncio.to_thread(server.connect) as connection, connection.cursor() as cursor:
        await asyncio.to_thread(cursor.execute, "LOCK TABLES peers.rows_ WRITE")
        async with backfill.running() as receiver:
            await backfill.until(lambda: backfill.chunks > 0, "reading")
            for n in range(20):
                await backfill.sql(f"INSERT INTO peers.other VALUES ({n}, 'a change')")
            await backfill.until(lambda: len(backfill.came(receiver, "peers.other")) == 20, "changes go on")
            assert not receiver.copy.reads
            await backfill.until(lambda: "lock on the table" in backfill.scanner.status.waits.hint, "why is said")
            await asyncio.to_thread(cursor.execute, "UNLOCK TABLES")
            await backfill.converges(receiver)


_WORDS = ("abc", "b", "Straße", "é", "x ", "zz", "Z1", "y")


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin"])
async def test_flink_39749_keys_that_the_collation_holds_for_equal(server: DatabaseServer, collation: str) -> None:
    """Keys change to others that are equal for the index only, while the chunk with them waits to enter the log."""
    values = ", ".join(f"('{word}', {n})" for n, word in enumerate(_WORDS))
    await asyncio.to_thread(
        server.sql,
        f"CREATE TABLE peers.rows_ (id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {collation} PRIMARY KEY, n INT)",
        f"INSERT INTO peers.rows_ VALUES {values}",
    )
    backfill = await asyncio.to_thread(Backfill, server)

    def change(number: int) -> None:
        if number > 2:
            return
        for word in _WORDS:
            backfill.write(f"UPDATE peers.rows_ SET id = UPPER(id), n = n + 100 WHERE id = '{word}'")
        backfill.write("UPDATE peers.rows_ SET id = 'x', n = 7 WHERE id LIKE 'X%'")
        backfill.write("DELETE FROM peers.rows_ WHERE id IN ('zz', 'ZZ')", "REPLACE INTO peers.rows_ VALUES ('E', 55)")

    backfill.after = change
    async with backfill.running() as receiver:
        await backfill.converges(receiver)


async def test_sequin_2149_an_enum_in_the_key(server: DatabaseServer) -> None:
    """Its members are in an order of their own, and a key that was read is the next query's beginning."""
    kinds = ("zeta", "it''s", "alpha", "10", "9")
    members = ", ".join(f"'{kind}'" for kind in kinds)
    values = ", ".join(f"('{kind}', {n}, {n})" for kind in kinds for n in range(5))
    await asyncio.to_thread(
        server.sql,
        f"CREATE TABLE peers.rows_ (kind ENUM({members}), id INT, n INT, PRIMARY KEY (kind, id))",
        f"INSERT INTO peers.rows_ VALUES {values}",
    )
    backfill = await asyncio.to_thread(Backfill, server)

    def change(number: int) -> None:
        backfill.write(f"UPDATE peers.rows_ SET kind = 'alpha', id = id + {number}00 WHERE kind = 'zeta' AND id < 2")
        backfill.write(f"UPDATE peers.rows_ SET n = n + {number} WHERE kind IN ('9', 'it''s')")

    backfill.after = change
    async with backfill.running() as receiver:
        await backfill.converges(receiver)


@pytest.mark.parametrize(
    ("statement", "changes_rows"),
    [
        ("ALTER TABLE peers.rows_ ADD COLUMN w VARCHAR(40) DEFAULT 'new' AFTER id", True),
        ("ALTER TABLE peers.rows_ ADD COLUMN w VARCHAR(40)", False),
        ("ALTER TABLE peers.rows_ DROP COLUMN v", False),  # the server listed the key when the reader began
        ("ALTER TABLE peers.rows_ MODIFY COLUMN v VARCHAR(40) FIRST", True),
        ("ALTER TABLE peers.rows_ MODIFY COLUMN v VARBINARY(40)", True),
    ],
)
@pytest.mark.parametrize("when", ["before the rows", "after the rows"])
async def test_dbz_4878_ddl_in_the_window(
    server: DatabaseServer, statement: str, changes_rows: bool, when: str
) -> None:
    """Around the rows of the second chunk, before it enters the log; with changes of the new columns. Where the
    statement changes rows, what was sent is of before: the backfill is to begin anew.
    """
    await asyncio.to_thread(fill, server)
    backfill = await asyncio.to_thread(Backfill, server)

    def alter(number: int) -> None:
        if number == 2:
            changes = "DELETE FROM peers.rows_ WHERE id = 5", "INSERT INTO peers.rows_ (id) VALUES (1000)"
            backfill.write(statement, *changes)

    setattr(backfill, when.partition(" ")[0], alter)
    async with backfill.running() as receiver:
        if changes_rows:
            await backfill.until(lambda: receiver.backfill.renewal is not None, "to begin anew")
            return
        await backfill.until(lambda: receiver.backfill.finished, "finished")
        rows = {row["id"]: row for row in await asyncio.to_thread(backfill.there)}
        await backfill.until(lambda: {row["id"] for row in backfill.came(receiver)} == set(rows), "the same keys")
        for row in backfill.came(receiver):
            # The first chunk came before the change, with the columns of then.
            assert all(row[name] == rows[row["id"]][name] for name in row.keys() & rows[row["id"]].keys()), row
            if row["id"] >= 4:
                assert list(row) == list(rows[row["id"]])
        assert backfill.scanner.status.discards == (when == "after the rows")


async def test_peerdb_2408_connections_that_are_killed(server: DatabaseServer) -> None:
    """Every second read begins on a connection that was killed: a chunk is in one snapshot, and the scan in many."""
    await asyncio.to_thread(fill, server)
    backfill = await asyncio.to_thread(Backfill, server)
    killed = []

    def kill(number: int) -> None:
        if number % 2:
            return
        own = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'wormhole' AND COMMAND = 'Sleep'"
        for (connection,) in server.sql(own):
            with suppress(Exception):  # it ended by itself
                server.sql(f"KILL {connection}")
                killed.append(connection)
        server.sql(f"UPDATE peers.rows_ SET v = 'changed {number}' WHERE id % 3 = 0")

    backfill.before = kill
    async with backfill.running() as receiver:
        await backfill.converges(receiver)
        assert len(receiver.copy.reads) == ROWS
    assert killed
