"""What statements in the log come to: barriers, and shards that lack one because a name cannot be read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from datastores.mysql.decode import events
from datastores.mysql.log.walk import Step
from tests.support import mysql_events as build
from tests.support.mysql_dump import Scripted, beginning, go, insert, table, walked
from wormhole.model.errors import UnsupportedLog
from wormhole.model.sharding import Sharding


def ddl(stream: build.Stream, number: int, sql: bytes, database: str = "shop", status: bytes = b"") -> None:
    stream.add(build.GTID, build.gtid(build.UUID, number))
    stream.add(build.QUERY, build.query("", database, status) + sql)


def lost(scripted: Scripted) -> list[str]:
    return [scripted.tables.schemas[i].table for i in scripted.encoder.take().schema_of]


def test_a_dropped_database_has_barriers_for_tables_that_this_reader_never_met(tmp_path: Path) -> None:
    stream = beginning()
    ddl(stream, 1, b"CREATE TABLE made (id INT)")
    stream.transaction(2, table("shop.met"), insert(1))
    ddl(stream, 3, b"DROP DATABASE shop")
    scripted = Scripted(tmp_path, stream, sharding=Sharding("table"))
    scripted.tables.catalog.present([("shop", "there", True), ("other", "one", True)], folds=False)
    go(scripted)
    assert lost(scripted) == ["shop.met", "shop.there", "shop.made", "shop.met"]


def test_the_barrier_of_a_statement_survives_the_rollback_of_its_transaction(tmp_path: Path) -> None:
    # MariaDB: CREATE OR REPLACE TABLE t SELECT ..., which failed after the old table was gone.
    stream = beginning()
    stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, 1, events.FL_TRANSACTIONAL))
    drop = "DROP TABLE IF EXISTS `shop`.`größe`/* Generated to handle failed CREATE OR REPLACE */"
    stream.add(build.QUERY, build.query(drop))
    stream.add(*table())
    stream.add(*insert(1))
    stream.add(build.QUERY, build.query("ROLLBACK"))
    stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, 2, events.FL_TRANSACTIONAL))
    stream.add(build.QUERY, build.query("ROLLBACK"))
    scripted = walked(tmp_path, stream, mariadb=True)
    piece = scripted.encoder.take()
    assert [scripted.tables.schemas[i].table for i in piece.schema_of] == ["shop.größe"]
    assert list(piece.tx_number) == [1]


@pytest.mark.parametrize("shard_by", ["database", "table"])
def test_a_name_that_cannot_be_read_breaks_the_shards_that_it_may_mean(tmp_path: Path, shard_by: str) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.t"), insert(1))
    ddl(stream, 2, b"TRUNCATE TABLE other.\xff\xfe")
    ddl(stream, 3, b"DROP TABLE \xff")
    scripted = Scripted(tmp_path, stream, sharding=Sharding(shard_by))  # type: ignore[arg-type]
    scripted.tables.catalog.present([("other", "a", True), ("other", "b", True)], folds=False)
    walk, steps = scripted.walk, []
    while (step := walk.step(1 << 20, 0.0)) != Step.END:
        if step == Step.CUT:
            steps.append((sorted(walk.broken), scripted.encoder.in_transaction))
            error = next(iter(walk.broken.values()))
            if not scripted.encoder.in_transaction:
                walk.broken.clear()
    other = ["log.other"] if shard_by == "database" else ["log.other.a", "log.other.b"]
    mine = ["log.shop"] if shard_by == "database" else ["log.shop.t"]
    # Before the transaction and behind it, so that it comes in a segment of its own.
    assert steps == [(other, True), (other, False), (mine, True), (mine, False)]
    assert error.tables == ("shop.t",)
    assert error.update_id == f"{build.UUID_TEXT}:3:0"
    assert error.update_id in (error.hint or "")
    assert "skip_tables" in (error.hint or "")
    assert r"DROP TABLE \xff" in error.message
    assert error.position is not None
    assert list(scripted.encoder.transactions.take_passed()[1]) == [1, 2, 3]


def test_nobody_is_held_where_no_table_can_be_meant(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.t"), insert(1))
    ddl(stream, 2, b"TRUNCATE TABLE \xff", "junk")
    ddl(stream, 3, b"CREATE TABLE \xff (id INT)")
    scripted = Scripted(tmp_path, stream)
    with caplog.at_level(logging.WARNING):
        assert Step.CUT not in go(scripted)[1:]
    assert not scripted.walk.broken
    assert any(r"in the database junk: TRUNCATE TABLE \xff" in message for message in caplog.messages)


@pytest.mark.parametrize("skipped", [{"shop.t", "shop.made"}, {"shop.*"}])
def test_skip_tables_passes_a_statement_that_may_mean_only_skipped_tables(tmp_path: Path, skipped: set[str]) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.t"), insert(1))
    ddl(stream, 2, b"CREATE TABLE made (id INT)")
    ddl(stream, 3, b"TRUNCATE TABLE \xff")
    ddl(stream, 4, b"XA COMMIT \xff")
    scripted = Scripted(tmp_path, stream, skipped=frozenset(skipped))
    assert Step.CUT not in go(scripted)[1:]
    assert not scripted.walk.broken
    assert list(scripted.encoder.transactions.take_passed()[1]) == [1, 2, 3, 4]


def test_skip_tables_does_not_pass_a_statement_that_may_mean_another_table(tmp_path: Path) -> None:
    stream = beginning()
    ddl(stream, 1, b"CREATE TABLE other.made (id INT)")
    ddl(stream, 2, b"CREATE TABLE made (id INT)")
    ddl(stream, 3, b"XA COMMIT \xff")
    scripted = walked(tmp_path, stream, skipped=frozenset({"shop.*"}), sharding=Sharding("table"))
    assert {shard: error.tables for shard, error in scripted.walk.broken.items()} == {"log.other.made": ("other.made",)}


def changing(sql: str, *databases: str) -> tuple[int, bytes]:
    """A statement that a session logged as such; ``databases``: what the server lists."""
    status = bytes([12, len(databases)]) + b"".join(f"{name}\0".encode() for name in databases)
    return build.QUERY, build.query(sql, status=status)


def loading(sql: str, *databases: str) -> tuple[int, bytes]:
    body = changing(sql, *databases)[1]
    return 18, body[:13] + bytes(13) + body[13:]


def faults(scripted: Scripted) -> list[tuple[list[str], list[int], str]]:
    """The shards, the transactions and the update of each segment that lacks something."""
    found, encoder, walk = [], scripted.encoder, scripted.walk
    while (step := walk.step(1 << 20, 0.0)) != Step.END:
        if step == Step.CUT and not encoder.in_transaction:
            passed = list(encoder.transactions.take_passed()[1])
            if walk.broken:
                error = next(iter(walk.broken.values()))
                found.append((sorted(walk.broken), passed[-1:], error.update_id))
                walk.broken.clear()
    return found


@pytest.mark.parametrize("piece", [1 << 20, 7])
def test_a_change_logged_as_a_statement_breaks_the_shards_of_what_it_can_reach(tmp_path: Path, piece: int) -> None:
    """Triggers, functions and views: the server's list has their databases. Each in a segment of its own, so that
    who passes one passes no other."""
    stream = beginning()
    stream.transaction(1, changing("INSERT INTO t VALUES (1)", "shop"))
    stream.transaction(2, table("other.t"), insert(1), changing("DELETE FROM junk.t", "junk"), insert(2))
    stream.transaction(3, changing("SELECT `shop`.`f`()", "junk", "other"))
    stream.transaction(4, (17, bytes(30)), loading("LOAD DATA INFILE 'x' INTO TABLE t", "junk"))
    stream.add_all((build.GTID, build.gtid(build.UUID, 5)), changing("CREATE TABLE made SELECT 1", "shop"))
    stream.transaction(6, changing("INSERT INTO mysql.x VALUES (1)", "mysql"))
    stream.transaction(7, table("other.t"), insert(3))
    scripted = Scripted(tmp_path, stream, sharding=Sharding("database"), piece=piece)
    scripted.tables.catalog.present([(name, "t", True) for name in ("shop", "other", "junk")], folds=False)
    name = build.UUID_TEXT
    assert faults(scripted) == [
        (["log.shop"], [1], f"{name}:1:0"),
        (["log.junk"], [2], f"{name}:2:1"),
        (["log.junk", "log.other"], [3], f"{name}:3:0"),
        (["log.junk"], [4], f"{name}:4:0"),
        (["log.shop"], [5], f"{name}:5:0"),
    ]
    assert ("shop", "made") in scripted.tables.catalog.all()
    assert list(scripted.encoder.transactions.take_passed()[1]) == [6, 7]
    assert list(scripted.encoder.take().tx_number) == [2, 7]


def test_a_change_logged_as_a_statement_is_passed_with_skip_tables(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, changing("INSERT INTO junk.t VALUES (1)", "junk"))
    stream.transaction(2, changing("INSERT INTO junk.t SELECT * FROM shop.t", "junk", "shop"))
    scripted = Scripted(tmp_path, stream, skipped=frozenset({"junk.*"}))
    scripted.tables.catalog.present([("junk", "t", True), ("shop", "t", True)], folds=False)
    go(scripted)
    assert {shard: error.tables for shard, error in scripted.walk.broken.items()} == {"log": ("shop.t",)}


@pytest.mark.parametrize("databases", [(), ("shop", "")])
@pytest.mark.parametrize("sql", ["INSERT INTO t VALUES (1)", "CREATE TABLE u SELECT 1", "ANALYZE UPDATE t SET a = 1"])
def test_a_change_that_nothing_bounds_is_an_error_of_the_whole(
    tmp_path: Path, sql: str, databases: tuple[str, ...]
) -> None:
    stream = beginning()
    stream.transaction(1, changing(sql, *databases) if databases else (build.QUERY, build.query(sql)))
    with pytest.raises(UnsupportedLog, match="not as rows"):
        walked(tmp_path, stream)
    prepared = beginning()
    prepared.transaction(1, (build.QUERY, build.query("XA START X'78',X'',1")), changing("INSERT INTO t", "shop"))
    with pytest.raises(UnsupportedLog, match="not as rows"):
        walked(tmp_path, prepared)


def test_a_delete_of_everything_is_a_barrier_only_if_the_server_made_it_up(tmp_path: Path) -> None:
    """It empties a MEMORY table after a restart. A session's runs triggers."""
    emptied = (build.QUERY, build.query("DELETE FROM `shop`.`t`"))
    stream = beginning()
    stream.transaction(1, emptied)
    stream.transaction(2, changing("DELETE FROM `shop`.`t`", "shop"))
    scripted = Scripted(tmp_path, stream)
    scripted.tables.catalog.present([("shop", "t", True)], folds=False)
    assert [transactions for _, transactions, _ in faults(scripted)] == [[2]]
    assert lost(scripted) == ["shop.t"]
    mariadb = beginning()
    mariadb.add_all((build.MARIADB_GTID, build.mariadb_gtid(0, 1, events.FL_STANDALONE)), emptied)
    assert lost(walked(tmp_path, mariadb, mariadb=True)) == ["shop.t"]
    mariadb.add_all((build.MARIADB_GTID, build.mariadb_gtid(0, 2)), emptied, (build.XID, bytes(8)))
    with pytest.raises(UnsupportedLog, match="DELETE FROM"):
        walked(tmp_path, mariadb, mariadb=True)


def test_a_later_start_passes_what_cannot_be_read(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.t"), insert(1))
    ddl(stream, 2, b"TRUNCATE TABLE \xff")
    ddl(stream, 3, b"XA COMMIT nonsense")
    ddl(stream, 4, b"XA ROLLBACK nonsense")
    scripted = Scripted(tmp_path, stream)
    scripted.encoder.suppress = scripted.encoder.single = True
    while scripted.walk.place.offset < stream.offset:
        scripted.walk.one_packet()
    assert not scripted.walk.broken
    assert not scripted.encoder.in_transaction


def test_the_commit_of_an_xa_transaction_without_a_name_breaks_every_known_table(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.t"), insert(1))
    ddl(stream, 2, b"XA COMMIT \xff")
    ddl(stream, 3, b"XA ROLLBACK \xff")
    scripted = walked(tmp_path, stream, sharding=Sharding("database"))
    error = scripted.walk.broken["log.shop"]
    assert "XA transaction" in str(error)
    assert error.update_id == f"{build.UUID_TEXT}:2:0"
    assert list(scripted.encoder.transactions.take_passed()[1]) == [1, 2, 3]


def test_sql_mode_and_charset_come_with_the_statement(tmp_path: Path) -> None:
    stream = beginning()
    mode = b"\x01" + (4).to_bytes(8, "little")
    latin1 = b"\x04" + (8).to_bytes(2, "little") * 3
    ddl(stream, 1, b'TRUNCATE "a\\"', status=mode)
    ddl(stream, 2, b"TRUNCATE\xa0TABLE\xa0gr\xf6\xdfe", status=mode + latin1)
    scripted = walked(tmp_path, stream)
    assert lost(scripted) == ["shop.a\\", "shop.größe"]


def test_case_follows_the_name_that_subscribers_know(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.Users"), insert(1))
    ddl(stream, 2, b"TRUNCATE USERS", "SHOP")
    scripted = Scripted(tmp_path, stream)
    scripted.tables.catalog.present([], folds=True)
    go(scripted)
    assert lost(scripted) == ["shop.Users", "shop.Users"]
