"""The source over real servers: what a replica's way through the log must survive."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from publisher.sources import open_source
from tests.support.databases import DatabaseServer, purge
from tests.support.eventually import until
from tests.support.replicas import REPLICA, promote, replicate, wait_for_rows
from wormhole.model.errors import Diverged, PositionError, PositionPurged, SourceUnavailable, UnsupportedLog
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogReader, LogSource
from wormhole.ports.testing.reading import Read, read_log, read_until

NewServer = Callable[..., DatabaseServer]


@dataclass
class Tail:
    """A source over a server, and what was read with it."""

    server: DatabaseServer
    state: Path
    sharding: Sharding = field(default_factory=lambda: Sharding("log"))
    server_ids: str = ""
    skip_tables: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.source: LogSource = open_source(
            self.server.url,
            log="log",
            state_dir=self.state,
            sharding=self.sharding,
            server_ids=self.server_ids,
            skip_tables=self.skip_tables,
            login=Login(self.server.password_file),
        )
        self.source.start()

    def read(self, start: Datamarker, max_bytes: int = 1 << 20) -> Read:
        return read_log(self.source, start, max_bytes)

    def stop(self) -> None:
        self.source.stop()


@pytest.fixture
def tail(tmp_path: Path) -> Iterator[Callable[..., Tail]]:
    made: list[Tail] = []

    def make(server: DatabaseServer, sharding: Sharding | None = None, state: str = "state", **more: Any) -> Tail:
        made.append(Tail(server, tmp_path / state, sharding or Sharding("log"), **more))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def shop(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own on the shared server."""
    name = f"shop_{zlib.crc32(request.node.name.encode())}"
    database_server.sql(f"CREATE DATABASE {name}")
    yield name
    database_server.sql(f"DROP DATABASE IF EXISTS {name}")


def seen(read: Read) -> list[tuple[str, tuple[object, ...], tuple[object, ...]]]:
    return [(u.op, u.key, u.after) for u in read.updates]


def xa(server: DatabaseServer, name: str, *statements: str) -> None:
    server.sql(f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'")


class TestXa:
    def test_comes_with_its_commit_and_under_its_id(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server)
        start = one.source.latest()
        xa(database_server, "first", f"INSERT INTO {shop}.t VALUES (1), (2)")
        xa(database_server, "second", f"INSERT INTO {shop}.t VALUES (3)")
        database_server.sql(f"INSERT INTO {shop}.t VALUES (4)")
        before = one.read(start)
        assert [u.key[0] for u in before.updates] == [4]
        marker = before.markers[-1]
        assert marker.read_from < marker.order
        one.stop()
        again = tail(database_server)
        database_server.sql("XA COMMIT 'first'")
        database_server.sql("XA ROLLBACK 'second'")
        database_server.sql(f"INSERT INTO {shop}.t VALUES (5)")
        after = again.read(marker)
        assert [u.key[0] for u in after.updates] == [1, 2, 5]
        assert after.markers[-1].read_from == after.markers[-1].order
        assert again.read(start).ids() == before.ids() + after.ids()

    def test_a_commit_in_one_phase(self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server)
        start = one.source.latest()
        database_server.sql(
            "XA START 'one'", f"INSERT INTO {shop}.t VALUES (1)", "XA END 'one'", "XA COMMIT 'one' ONE PHASE"
        )
        assert [u.key[0] for u in one.read(start).updates] == [1]

    def test_a_commit_of_what_was_prepared_before_the_start_is_told_as_missing(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        xa(database_server, "early", f"INSERT INTO {shop}.t VALUES (1)")
        one = tail(database_server)
        start = one.source.latest()
        database_server.sql(f"INSERT INTO {shop}.t VALUES (2)")
        database_server.sql("XA COMMIT 'early'")
        database_server.sql(f"INSERT INTO {shop}.t VALUES (3)")
        read = one.read(start)
        assert [u.key[0] for u in read.updates] == [2, 3]
        (gap,) = read.gaps
        assert b"early".hex() in gap.message
        assert gap.first_missing


class TestOtherHistories:
    def test_reset_is_divergence_and_never_taken_for_the_old_log(
        self, new_server: NewServer, tail: Callable[..., Tail]
    ) -> None:
        server = new_server()
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        one = tail(server)
        start = one.source.latest()
        server.sql("INSERT INTO shop.t VALUES (1)")
        marker = one.read(start).markers[-1]
        time.sleep(
            1.0 - time.time() % 1.0
        )  # a file says in which second it was begun, and these two have the same number
        reset = "RESET MASTER" if server.flavour == "mariadb" else "RESET BINARY LOGS AND GTIDS"
        server.sql(reset)
        for n in range(2, 20):
            server.sql(f"INSERT INTO shop.t VALUES ({n})")
        for old in (start, marker):
            with pytest.raises(Diverged) as error:
                one.source.open(old)
            assert error.value.hint
        read = one.read(one.source.earliest())
        assert [u.key[0] for u in read.updates] == list(range(2, 20))
        one.stop()
        again = tail(server)
        for old in (start, marker):
            with pytest.raises(Diverged):
                again.source.open(old)

    def test_a_reader_does_not_wait_in_a_log_that_began_anew(
        self, new_server: NewServer, tail: Callable[..., Tail]
    ) -> None:
        server = new_server()
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
        one = tail(server)
        reader = one.source.open(one.source.latest())
        server.sql("RESET MASTER" if server.flavour == "mariadb" else "RESET BINARY LOGS AND GTIDS")
        with pytest.raises(SourceUnavailable, match="incarnation"):
            until(lambda: reader.read(1 << 20, 0.2), "the reader waits in the log that was")
        reader.close()

    def test_a_log_that_turns_often_stays_the_same(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        server = new_server()
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        one = tail(server)
        start = one.source.latest()
        reader = one.source.open(start)
        read = Read(last_end=start.order)
        turning = [
            statement for n in range(60) for statement in (f"INSERT INTO shop.t VALUES ({n})", "FLUSH BINARY LOGS")
        ]
        with ThreadPoolExecutor() as pool:
            written = pool.submit(server.sql, *turning)

            def look() -> None:
                while not written.done():
                    one.source.latest()

            looked = [pool.submit(look) for _ in range(2)]
            while len(read.updates) < 60:
                segment = reader.read(1 << 20, 0.2)
                if segment is not None:
                    read.add(segment)
            written.result()
            for done in looked:
                done.result()
        reader.close()
        assert read.keys() == list(range(60))
        assert one.source.latest().order.incarnation == start.order.incarnation
        assert one.read(start).ids() == read.ids()

    def test_failover_to_a_replica_goes_on_by_gtid(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        first, second = new_server(), new_server(**REPLICA)
        first.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        replicate(first, second)
        one = tail(first)
        start = one.source.latest()
        for n in range(5):
            first.sql(f"INSERT INTO shop.t VALUES ({n})")
        before = one.read(start)
        marker = before.markers[-1]
        first.sql("INSERT INTO shop.t VALUES (5)")
        wait_for_rows(second, 6)
        one.stop()
        first.stop()
        promote(second)
        second.sql("INSERT INTO shop.t VALUES (6)")
        other = tail(second)
        assert other.source.latest().order.incarnation == marker.order.incarnation + 1
        after = other.read(marker)
        assert [u.key[0] for u in after.updates] == [5, 6]
        # From then on by place again, with an anchor.
        assert other.read(after.markers[-1]).updates == []
        assert after.markers[-1].anchor is not None

    def test_a_replica_that_lags_is_divergence(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        first, second = new_server(), new_server(**REPLICA)
        first.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        replicate(first, second)
        first.sql("INSERT INTO shop.t VALUES (1)")
        wait_for_rows(second, 1)
        promote(second)
        one = tail(first)
        start = one.source.latest()
        first.sql("INSERT INTO shop.t VALUES (2)")
        marker = one.read(start).markers[-1]
        one.stop()
        other = tail(second)
        with pytest.raises(Diverged, match="not executed"):
            other.source.open(marker)

    def test_purged_is_told_with_the_range(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        server = new_server()
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        one = tail(server)
        start = one.source.latest()
        server.sql("INSERT INTO shop.t VALUES (1)")
        marker = one.read(start).markers[-1]
        server.sql("INSERT INTO shop.t VALUES (2)", "INSERT INTO shop.t VALUES (3)", "FLUSH BINARY LOGS")
        purge(server)
        with pytest.raises(PositionPurged) as error:
            one.source.open(marker)
        last = 5 if server.flavour == "mariadb" else int(one.source.latest().delivered.rpartition("-")[2])
        assert str(last) in error.value.last_missing
        assert str(last - 1) in error.value.first_missing

    def test_all_delivered_before_the_purge_is_no_loss(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        server = new_server()
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
        one = tail(server)
        marker = one.source.latest()
        server.sql("FLUSH BINARY LOGS")
        purge(server)
        server.sql("INSERT INTO shop.t VALUES (2)")
        assert [u.key[0] for u in one.read(marker).updates] == [2]


class TestSchemaChanges:
    def test_each_row_is_read_with_the_columns_of_its_time(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        one = tail(database_server)
        start = one.source.latest()
        database_server.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10))",
            "INSERT INTO t VALUES (1, 'x')",
            "ALTER TABLE t ADD COLUMN b INT FIRST",
            "INSERT INTO t VALUES (7, 2, 'y')",
            "ALTER TABLE t DROP COLUMN a",
            "INSERT INTO t VALUES (8, 3)",
            "ALTER TABLE t MODIFY COLUMN b VARCHAR(5)",
            "INSERT INTO t VALUES ('nine', 4)",
            "RENAME TABLE t TO u",
            "INSERT INTO u VALUES ('ten', 5)",
            "ALTER TABLE u DROP PRIMARY KEY",
            "DELETE FROM u WHERE id = 5",
            database=shop,
        )
        read = one.read(start)
        assert [(u.op, u.table.rpartition(".")[2], u.key, u.after) for u in read.updates] == [
            ("insert", "t", (1,), (1, "x")),
            ("insert", "t", (2,), (7, 2, "y")),
            ("insert", "t", (3,), (8, 3)),
            ("insert", "t", (4,), ("nine", 4)),
            ("truncate", "t", (), ()),  # no table is called t any more
            ("insert", "u", (5,), ("ten", 5)),
            ("delete", "u", (), ()),
        ]

    def test_truncate_and_drop_are_barriers(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        one = tail(database_server, Sharding("table"))
        start = one.source.latest()
        database_server.sql(
            "CREATE TABLE a (id INT PRIMARY KEY)",
            "CREATE TABLE b (id INT PRIMARY KEY)",
            "INSERT INTO a VALUES (1)",
            "INSERT INTO b VALUES (1)",
            "TRUNCATE TABLE a",
            "INSERT INTO a VALUES (2)",
            "DROP TABLE a, b",
            "CREATE TABLE a (id INT PRIMARY KEY)",
            "INSERT INTO a VALUES (3)",
            f"DROP DATABASE {shop}",
            database=shop,
        )
        read = one.read(start)
        assert all(u.shard == f"log.{u.table}" for u in read.updates)
        told = [(u.op, u.table.rpartition(".")[2]) for u in read.updates]
        assert told[:5] == [
            ("insert", "a"),
            ("insert", "b"),
            ("truncate", "a"),
            ("insert", "a"),
            ("truncate", "a"),
        ]
        assert told.count(("truncate", "b")) == 2
        assert told.count(("truncate", "a")) == 3

    def test_create_select(self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]) -> None:
        one = tail(database_server)
        start = one.source.latest()
        database_server.sql("CREATE TABLE c AS SELECT 1 AS x UNION SELECT 2", "CREATE TABLE d (x INT)", database=shop)
        database_server.sql("INSERT INTO d VALUES (3)", database=shop)
        assert [u.after for u in one.read(start).updates] == [(1,), (2,), (3,)]


class TestShards:
    def test_a_database_made_while_reading_loses_no_row(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        one = tail(database_server, Sharding("database"))
        start = one.source.latest()
        database_server.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=shop)
        read = one.read(start)
        assert [(u.shard, u.key) for u in read.updates] == [(f"log.{shop}", (1,))]

    def test_a_key_that_moves_between_hash_shards(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        one = tail(database_server, Sharding("hash", 4))
        start = one.source.latest()
        database_server.sql(
            "CREATE TABLE t (k VARCHAR(9) PRIMARY KEY, v INT)",
            "CREATE TABLE keyless (v INT)",
            *(f"INSERT INTO t VALUES ('k{n}', {n})" for n in range(8)),
            *(f"UPDATE t SET k = 'moved{n}' WHERE k = 'k{n}'" for n in range(8)),
            "INSERT INTO keyless VALUES (1)",
            database=shop,
        )
        read = one.read(start)
        of_key: dict[object, set[str]] = {}
        for u in read.updates[:-1]:
            of_key.setdefault(u.key[0], set()).add(u.shard)
        assert all(len(shards) == 1 for shards in of_key.values())
        moved = [u for u in read.updates if u.op == "delete"]
        assert moved
        assert all(u.shard in of_key[u.key[0]] for u in moved)
        assert read.updates[-1].shard == f"log.{shop}.keyless"


class TestLogForms:
    def test_minimal_images_and_no_key(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        one = tail(database_server)
        start = one.source.latest()
        database_server.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
            "CREATE TABLE n (a INT, b INT)",
            "SET SESSION binlog_row_image = MINIMAL",
            "INSERT INTO t VALUES (1, 2, 3)",
            "UPDATE t SET b = 4",
            "DELETE FROM t",
            "INSERT INTO n VALUES (1, 2)",
            "UPDATE n SET b = 3",
            database=shop,
        )
        read = one.read(start)
        assert [(u.op, u.key) for u in read.updates] == [
            ("insert", (1,)),
            ("update", (1,)),
            ("delete", (1,)),
            ("insert", ()),
            ("update", ()),
        ]
        assert read.updates[1].after[2] == 4

    def test_compressed_transactions(
        self, database_server: DatabaseServer, new_server: NewServer, tail: Callable[..., Tail], flavour: str
    ) -> None:
        options = {"log_bin_compress": "ON", "log_bin_compress_min_len": "10"}
        server = new_server(**(options if flavour == "mariadb" else {"binlog_transaction_compression": "ON"}))
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)")
        one = tail(server)
        start = one.source.latest()
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for n in range(50):
                cursor.execute("INSERT INTO shop.t VALUES (%s, %s)", (n, "word " * 2000))
            connection.commit()
        server.sql("UPDATE shop.t SET v = CONCAT(v, 'x') WHERE id = 7", "TRUNCATE TABLE shop.t")
        read = one.read(start, 100_000)
        assert [u.key for u in read.updates] == [*((n,) for n in range(50)), (7,), ()]
        assert read.pieces
        assert read.updates[3].after == (3, "word " * 2000)
        for marker in read.markers:
            assert one.read(marker).ids() == read.ids()[len(read.ids()) - len(one.read(marker).ids()) :]

    def test_without_gtids(self, new_server: NewServer, tail: Callable[..., Tail], flavour: str) -> None:
        if flavour == "mariadb":
            return  # it always has them
        server = new_server(gtid_mode="OFF", enforce_gtid_consistency="OFF")
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        one = tail(server)
        start = one.source.latest()
        for n in range(3):
            server.sql(f"INSERT INTO shop.t VALUES ({n})", "FLUSH BINARY LOGS")
        read = one.read(start)
        assert [u.key[0] for u in read.updates] == [0, 1, 2]
        assert len(set(read.ids())) == 3
        assert one.read(read.markers[-1]).updates == []
        assert one.read(start).ids() == read.ids()

    def test_what_was_undone_is_not_handed_on(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        """MariaDB logs what it undid, and that it did, of a transaction that also makes a temporary table."""
        database_server.sql("CREATE TABLE t (id INT PRIMARY KEY)", database=shop)
        one = tail(database_server)
        start = one.source.latest()
        insert, temporary = "INSERT INTO t VALUES ({})", "CREATE TEMPORARY TABLE u{} (a INT)"
        database_server.sql(
            *("BEGIN", insert.format(1), "SAVEPOINT a", temporary.format(1), insert.format(2), "ROLLBACK TO a"),
            *(insert.format(3), "COMMIT"),
            *("BEGIN", insert.format(4), temporary.format(2), insert.format(5), "ROLLBACK"),
            *("XA START 'x'", insert.format(6), "SAVEPOINT a", insert.format(7), "ROLLBACK TO a", "XA END 'x'"),
            *("XA PREPARE 'x'", "XA COMMIT 'x'"),
            database=shop,
        )
        assert one.read(start).keys() == [1, 3, 6]

    def test_a_statement_is_refused(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server)
        start = one.source.latest()
        database_server.sql(
            f"INSERT INTO {shop}.t VALUES (1)",
            "SET SESSION binlog_format = STATEMENT",
            f"INSERT INTO {shop}.t VALUES (2)",
        )
        reader = one.source.open(start)
        read = Read(last_end=start.order)
        with pytest.raises(UnsupportedLog, match="logged as a statement") as error:
            read_until(reader, one.source.latest().order, into=read)
        reader.close()
        assert [u.key[0] for u in read.updates] == [1]
        assert "binlog_format" in (error.value.hint or "")

    def test_a_table_without_names_breaks_its_shard_only(
        self, new_server: NewServer, tail: Callable[..., Tail]
    ) -> None:
        server = new_server()
        server.sql(*(f"CREATE DATABASE {name}" for name in ("good", "bad")))
        server.sql(*(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)" for name in ("good", "bad")))
        one = tail(server, Sharding("database"))
        start = one.source.latest()
        server.sql("INSERT INTO good.t VALUES (1)", "INSERT INTO bad.t VALUES (1)")
        server.sql("SET GLOBAL binlog_row_metadata = MINIMAL", "INSERT INTO bad.t VALUES (2)")
        server.sql("SET GLOBAL binlog_row_metadata = FULL", "INSERT INTO good.t VALUES (2)")
        reader = one.source.open(start)
        read, broken = Read(last_end=start.order), []
        end = one.source.latest().order
        while read.last_end < end:  # type: ignore[operator]
            segment = reader.read(1 << 20, 1.0)
            assert segment is not None
            read.add(segment)
            broken.append(segment.broken)
        reader.close()
        assert [(u.shard, u.key) for u in read.updates] == [("log.good", (1,)), ("log.bad", (1,)), ("log.good", (2,))]
        (found,) = [one for one in broken if one]
        assert list(found) == ["log.bad"]
        assert "bad.t" in str(found["log.bad"])
        assert "binlog_row_metadata" in (found["log.bad"].hint or "")

    def test_a_table_that_breaks_its_shard_can_be_left_out(
        self, new_server: NewServer, tail: Callable[..., Tail]
    ) -> None:
        server = new_server()
        server.sql("CREATE DATABASE shop", *(f"CREATE TABLE shop.{t} (id INT PRIMARY KEY)" for t in ("good", "bad")))
        one = tail(server, skip_tables=frozenset({"shop.bad"}))
        start = one.source.latest()
        server.sql("SET GLOBAL binlog_row_metadata = MINIMAL", "INSERT INTO shop.bad VALUES (1)")
        server.sql("SET GLOBAL binlog_row_metadata = FULL", "INSERT INTO shop.good VALUES (2)", "TRUNCATE shop.bad")
        read = one.read(start)
        assert [(u.shard, u.key) for u in read.updates] == [("log", (2,))]
        assert "shop.bad" in " ".join(map(str, one.source.status().problems))


class TestConnections:
    def test_a_killed_dump_is_retryable_and_nothing_is_lost(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server)
        start = one.source.latest()
        reader = one.source.open(start)
        read = Read(last_end=start.order)
        database_server.sql(f"INSERT INTO {shop}.t VALUES (1)")
        read_until(reader, one.source.latest().order, into=read)
        for number, *_ in database_server.sql(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"
        ):
            database_server.sql(f"KILL {number}")
        database_server.sql(f"INSERT INTO {shop}.t VALUES (2)")
        with pytest.raises(SourceUnavailable):
            read_until(reader, one.source.latest().order, into=read)
        reader.close()
        assert [u.key[0] for u in one.read(read.markers[-1]).updates] == [2]

    def test_the_server_may_go_and_come_back(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        server = new_server()
        server.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        one = tail(server)
        start = one.source.latest()
        server.sql("INSERT INTO shop.t VALUES (1)")
        marker = one.read(start).markers[-1]
        server.kill()
        with pytest.raises(SourceUnavailable):
            one.source.open(marker)
        with pytest.raises(SourceUnavailable):
            one.source.latest()
        server.start()
        server.sql("INSERT INTO shop.t VALUES (2)")
        assert [u.key[0] for u in one.read(marker).updates] == [2]

    def test_one_id_per_reader(self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]) -> None:
        one = tail(database_server, server_ids="4101-4102")
        start = one.source.latest()
        readers: list[LogReader] = [one.source.open(start), one.source.open(start)]
        with pytest.raises(SourceUnavailable, match="4101-4102"):
            one.source.open(start)
        readers.pop().close()
        readers.append(one.source.open(start))
        for reader in readers:
            reader.close()


class TestAnotherReader:
    """Two publishers of one log in the static form, each with a state folder of its own and the same ``server_ids``."""

    def test_is_not_thrown_out_and_is_named(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one, other = (tail(database_server, state=name, server_ids="4201-4202") for name in ("one", "other"))
        start = one.source.latest()
        readers = [one.source.open(start), one.source.open(start)]
        with pytest.raises(SourceUnavailable, match=r"4201: connection \d+ \(wormhole@127.0.0.1") as error:
            other.source.open(start)
        assert "stop one of the two publishers" in str(error.value.hint)
        assert "server_ids" in str(error.value.hint)
        database_server.sql(f"INSERT INTO {shop}.t VALUES (1)")
        for reader in readers:  # on MariaDB a dump with the same id would have ended theirs
            assert len(read_until(reader, one.source.latest().order).updates) == 1

        def problems() -> list[str]:
            return [text for text in map(str, other.source.status().problems) if "4202: connection" in text]

        until(problems, "the second publisher names the first one")
        assert not one.source.status().problems
        one.stop()
        until(lambda: not problems(), "the first one is gone")
        assert [u.key[0] for u in other.read(start).updates] == [1]

    def test_leaves_the_other_ids_of_the_range(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        one, other = (tail(database_server, state=name, server_ids="4211-4212") for name in ("one", "other"))
        start = one.source.latest()
        readers = [one.source.open(start), other.source.open(start)]
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)", f"INSERT INTO {shop}.t VALUES (1)")
        end = one.source.latest().order
        assert [len(read_until(reader, end).updates) for reader in readers] == [1, 1]
        until(lambda: "4211: connection" in str(other.source.status().problems), "the second publisher names the first")
        for reader in readers:
            reader.close()

    def test_a_replica_of_the_server_keeps_its_id(self, new_server: NewServer, tail: Callable[..., Tail]) -> None:
        primary, replica = new_server(), new_server(server_id="4221")
        if primary.flavour == "mariadb":  # else the account may not see it: docs/mysql.md
            primary.sql(f"GRANT REPLICATION MASTER ADMIN ON *.* TO '{primary.user}'@'{primary.host}'")
        replicate(primary, replica)
        one = tail(primary, server_ids="4221-4221")

        def refused() -> str:
            try:
                one.source.open(one.source.latest()).close()
            except SourceUnavailable as error:
                return str(error)
            return ""

        until(lambda: "4221: registered as" in refused(), "the replica is seen")


class TestStart:
    def test_from_what_a_dump_records(
        self, database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
    ) -> None:
        database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
        one = tail(database_server)
        database_server.sql(f"INSERT INTO {shop}.t VALUES (1)")
        marker = one.source.latest()
        name = database_server.binlogs[-1].name
        database_server.sql(f"INSERT INTO {shop}.t VALUES (2)")
        for text in (marker.delivered, f"{name}:{marker.order.offset}", f" {marker.delivered}\n", str(marker.order)):
            found = one.source.locate(text)
            assert found.order == marker.order, text
            assert [u.key[0] for u in one.read(found).updates] == [2]

    @pytest.mark.parametrize(
        "text", ["0-99-1", "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1", "other.000001:4", "binlog.999999:4", "binlog.x:4"]
    )
    def test_what_is_not_there(self, database_server: DatabaseServer, tail: Callable[..., Tail], text: str) -> None:
        one = tail(database_server)
        with pytest.raises(PositionError) as error:
            one.source.locate(text)
        assert error.value.hint
