"""The source over real servers: what is in the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from publisher.flows.marker_target import by_start
from tests.support.databases import DatabaseServer, purge
from tests.support.server_tail import Tail
from wormhole.model.errors import PositionPurged, UnsupportedLog, WormholeError
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.reading import Read, read_until


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


def test_an_applications_time_is_its_first_transactions(
    database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]
) -> None:
    database_server.sql(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY)")
    one = tail(database_server)
    start = one.source.latest()
    insert = "INSERT INTO {}.t VALUES ({})".format
    database_server.sql(insert(shop, 0), "SELECT SLEEP(1.1)")  # MariaDB logs whole seconds
    database_server.sql(insert(shop, 1), insert(shop, 2))
    before = one.read(start).updates
    written = datetime.fromtimestamp(before[1].committed_at_us / 1e6, UTC).isoformat()
    begin = by_start(one.source, written, time.time())()
    assert [u.key[0] for u in one.read(begin).updates] == [1, 2]
    database_server.sql("FLUSH BINARY LOGS")
    with pytest.raises(PositionPurged, match=r"start = '2001-.* is before what the log holds: .* about 20\d\d-"):
        by_start(one.source, "2001-01-01T00:00:00Z", time.time())()


class TestSchemaChanges:
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
    @pytest.mark.parametrize("flavour", ["mysql"])  # MariaDB always has them
    def test_without_gtids(self, own_shop: DatabaseServer, tail: Callable[..., Tail]) -> None:
        modes = ("ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
        own_shop.sql(*(f"SET GLOBAL gtid_mode = {mode}" for mode in modes))
        try:
            one = tail(own_shop)
            start = one.source.latest()
            for n in range(3):
                own_shop.sql(f"INSERT INTO shop.t VALUES ({n})", "FLUSH BINARY LOGS")
            read = one.read(start)
            assert [u.key[0] for u in read.updates] == [0, 1, 2]
            assert len(set(read.ids())) == 3
            assert one.read(read.markers[-1]).updates == []
            assert one.read(start).ids() == read.ids()
        finally:
            own_shop.sql(*(f"SET GLOBAL gtid_mode = {mode}" for mode in reversed(modes)))

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
        """MySQL's log has the databases that it reaches; MariaDB's does not."""
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
        error: WormholeError
        if database_server.flavour == "mysql":
            read_until(reader, one.source.latest().order, into=read)
            (error,) = read.broken
            assert error.tables == (f"{shop}.t",)
        else:
            with pytest.raises(UnsupportedLog, match="logged as a statement") as raised:
                read_until(reader, one.source.latest().order, into=read)
            error = raised.value
        reader.close()
        assert [u.key[0] for u in read.updates] == [1]
        assert "binlog_format" in (error.hint or "")
        # Other tests read this server's log from its beginning.
        database_server.sql("FLUSH BINARY LOGS")
        purge(database_server)

    def test_a_table_without_names_breaks_its_shard_only(
        self, own_shop: DatabaseServer, tail: Callable[..., Tail]
    ) -> None:
        """A source that leaves it out delivers its shard."""
        own_shop.sql("CREATE DATABASE bad", "CREATE TABLE bad.t (id INT PRIMARY KEY)")
        one = tail(own_shop, Sharding("database"))
        without = tail(own_shop, state="without", skip_tables=frozenset({"bad.t"}))
        start = one.source.latest()
        own_shop.sql("INSERT INTO shop.t VALUES (1)", "INSERT INTO bad.t VALUES (1)")
        own_shop.sql("SET GLOBAL binlog_row_metadata = MINIMAL", "INSERT INTO bad.t VALUES (2)")
        own_shop.sql("SET GLOBAL binlog_row_metadata = FULL", "INSERT INTO shop.t VALUES (2)")
        reader = one.source.open(start)
        read, broken = Read(last_end=start.order), []
        end = one.source.latest().order
        while read.last_end < end:  # type: ignore[operator]
            segment = reader.read(1 << 20, 1.0)
            assert segment is not None
            read.add(segment)
            broken.append(segment.broken)
        reader.close()
        assert [(u.shard, u.key) for u in read.updates] == [("log.shop", (1,)), ("log.bad", (1,)), ("log.shop", (2,))]
        (found,) = [one for one in broken if one]
        assert list(found) == ["log.bad"]
        assert "bad.t" in str(found["log.bad"])
        assert "binlog_row_metadata" in (found["log.bad"].hint or "")
        own_shop.sql("TRUNCATE bad.t")
        assert [(u.shard, u.key) for u in without.read(start).updates] == [("log", (1,)), ("log", (2,))]
        assert "bad.t" in " ".join(map(str, without.source.status().problems))
        own_shop.sql("DROP DATABASE bad")
