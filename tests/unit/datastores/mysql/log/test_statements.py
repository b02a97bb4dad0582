"""What statements in the log do to tables: barriers, shards that lack one, and definitions."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from datastores.common.encode.piece import ALL_SHARDS, HASHED
from datastores.mysql.decode import events
from datastores.mysql.decode.table_map import Layout
from datastores.mysql.log.tables import Tables, shard_name
from datastores.mysql.log.walk import Step
from datastores.mysql.server.catalog import Catalog
from tests.support import mysql_events as build
from tests.support.mysql_dump import Scripted, beginning, go, insert, table, walked
from tests.support.mysql_events import integer, table_map
from wormhole.model.errors import UnsupportedLog
from wormhole.model.position import LogPosition
from wormhole.model.sharding import Sharding

# --- statements ---


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
    assert lost(walked(tmp_path, stream)) == ["shop.a\\", "shop.größe"]


def test_case_follows_the_name_that_subscribers_know(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.Users"), insert(1))
    ddl(stream, 2, b"TRUNCATE USERS", "SHOP")
    scripted = Scripted(tmp_path, stream)
    scripted.tables.catalog.present([], folds=True)
    go(scripted)
    assert lost(scripted) == ["shop.Users", "shop.Users"]


def test_a_new_name_that_differs_in_a_letter_that_only_newer_servers_fold_is_another_table(tmp_path: Path) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.Ȼa"), insert(1))
    ddl(stream, 2, "CREATE TABLE ȼa (id INT)".encode())
    ddl(stream, 3, b"DROP DATABASE shop")
    scripted = Scripted(tmp_path, stream)
    scripted.tables.catalog.present([], folds=True)
    go(scripted)
    assert lost(scripted) == ["shop.Ȼa", "shop.Ȼa", "shop.ȼa"]


# --- tables ---


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """One that knows nothing."""
    return Catalog(tmp_path / "tables.jsonl")


class Sink:
    """Notes what is made known."""

    def __init__(self) -> None:
        self.known: list[tuple[int, bool, int, int]] = []

    def add_table(
        self,
        table_id: int,
        body: bytes,
        layout: Layout | None,
        schema: int,
        shard: int,
        row_end: int = -1,
        maybe: tuple[int, ...] = (),
    ) -> None:
        self.known.append((table_id, layout is not None, schema, shard))


def learned(tables: Tables, name: str, key: tuple[int, ...] = (0,), names: bool = True) -> tuple[int, bool, int, int]:
    sink = Sink()
    tables.learn(table_map(len(name), name, [integer("id", 4)], key, names=names), sink, 0)
    return sink.known[0]


def test_by_log_database_and_table() -> None:
    assert shard_name("db1", Sharding("log"), "shop", "users") == "db1"
    assert shard_name("db1", Sharding("database"), "shop", "users") == "db1.shop"
    assert shard_name("db1", Sharding("table"), "shop", "users") == "db1.shop.users"
    assert shard_name("db1", Sharding("table"), "a.b", "c") != shard_name("db1", Sharding("table"), "a", "b.c")


@pytest.mark.parametrize("by", ["log", "database", "table"])
def test_a_table_map_gives_schema_and_shard(by: str, catalog: Catalog) -> None:
    tables = Tables("db1", Sharding(by), mariadb=False, catalog=catalog)  # type: ignore[arg-type]
    table_id, decodable, schema, shard = learned(tables, "shop.users")
    assert (table_id, decodable) == (10, True)
    assert tables.schemas[schema].table == "shop.users"
    assert tables.shards[shard] == shard_name("db1", Sharding(by), "shop", "users")  # type: ignore[arg-type]
    assert learned(tables, "shop.users")[2:] == (schema, shard)
    assert tables.barrier("shop", "users")[1] == shard


def test_hashed_unless_there_is_no_key(catalog: Catalog) -> None:
    tables = Tables("db1", Sharding("hash", 2), mariadb=False, catalog=catalog)
    assert [tables.shards[k] for k in (0, 1)] == ["db1.0of2", "db1.1of2"]
    assert learned(tables, "shop.users")[3] == HASHED
    assert tables.barrier("shop", "users")[1] == ALL_SHARDS
    shard = learned(tables, "shop.log", ())[3]
    assert tables.shards[shard] == "db1.shop.log"
    assert tables.barrier("shop", "log")[1] == shard
    assert tables.names_of(HASHED) == ["db1.0of2", "db1.1of2"]
    assert tables.names_of(shard) == ["db1.shop.log"]


def test_a_table_without_names_is_broken_alone_until_it_has_some(catalog: Catalog) -> None:
    tables = Tables("db1", Sharding("table"), mariadb=False, catalog=catalog)
    table_id, decodable, _, shard = learned(tables, "shop.users", names=False)
    assert not decodable
    shards, error = tables.broken[table_id]
    assert list(shards) == [tables.shards[shard]] == ["db1.shop.users"]
    assert "shop.users" in str(error)
    assert "binlog_row_metadata" in (error.hint or "")
    assert learned(tables, "shop.users")[1]
    assert not tables.broken


def test_a_barrier_of_a_table_without_key_that_was_not_met_yet(catalog: Catalog) -> None:
    catalog.present([("shop", "log", False)], folds=False)
    tables = Tables("db1", Sharding("hash", 2), mariadb=False, catalog=catalog)
    assert tables.names_of(tables.barrier("shop", "log")[1]) == ["db1.shop.log"]
    assert tables.barrier("shop", "users")[1] == ALL_SHARDS
    learned(tables, "shop.log")  # it has got one since, and its rows of before are in its own shard
    assert tables.barrier("shop", "log")[1] == ALL_SHARDS
    assert "db1.shop.log" in tables.shards.values()
    assert tables.shards_of("shop", "log") == ["db1.0of2", "db1.1of2", "db1.shop.log"]


def test_a_skipped_table_breaks_nothing_and_is_not_decoded(catalog: Catalog) -> None:
    tables = Tables("db1", Sharding("table"), frozenset({"shop.users"}), mariadb=False, catalog=catalog)
    for names in (True, False):
        table_id, decodable, _, _ = learned(tables, "shop.users", names=names)
        assert not decodable
        assert tables.broken[table_id][0] == ()
    assert learned(tables, "shop.orders")[1]
    assert tables.skips("shop", "users")
    assert not tables.skips("shop", "orders")


def test_a_table_without_names_may_have_rows_in_every_hash_shard(catalog: Catalog) -> None:
    tables = Tables("db1", Sharding("hash", 2), mariadb=False, catalog=catalog)
    shards, _ = tables.broken[learned(tables, "shop.users", names=False)[0]]
    assert sorted(shards) == ["db1.0of2", "db1.1of2", "db1.shop.users"]


def test_what_loses_rows_with_a_statement(catalog: Catalog) -> None:
    tables = Tables("db1", Sharding("log"), frozenset({"shop.c", "left.*"}), mariadb=False, catalog=catalog)
    for name in ("shop.b", "shop.a", "shop.c", "other.d", "left.e"):
        learned(tables, name)
    assert tables.losing("shop", "") == [("shop", "b"), ("shop", "a")]
    assert tables.losing("shop", "new") == [("shop", "new")]
    assert tables.losing("never", "") == tables.losing("left", "") == tables.losing("left", "new") == []
    assert tables.possible([("shop", None)]) == [("shop", "b"), ("shop", "a")]
    assert tables.possible([(None, "a"), (None, "d")]) == [("shop", "a"), ("other", "d")]
    assert tables.possible([(None, None)]) == [("shop", "b"), ("shop", "a"), ("other", "d")]


def test_names_without_case(catalog: Catalog) -> None:
    catalog.present([], folds=True)
    tables = Tables("db1", Sharding("log"), frozenset({"Shop.Audit"}), mariadb=False, catalog=catalog)
    learned(tables, "Shop.Users")  # as with lower_case_table_names = 2
    assert tables.losing("shop", "users") == tables.losing("shop", "") == [("Shop", "Users")]
    assert tables.skips("SHOP", "audit")


@pytest.mark.parametrize(
    ("statements", "replaced"),
    [
        ((b"ALTER TABLE t DROP name",), False),
        ((b"ALTER TABLE t DROP ID",), True),
        ((b"CREATE TABLE t (a INT)", b"ALTER TABLE t DROP name"), True),
        ((b"ALTER TABLE u DROP name",), True),
    ],
)
def test_a_dropped_column_may_be_of_a_key_that_was_not_read_since_the_table_was_made(
    tmp_path: Path, statements: tuple[bytes, ...], replaced: bool
) -> None:
    stream = beginning()
    stream.transaction(1, table("shop.t"), insert(1))
    for number, statement in enumerate(statements, 2):
        ddl(stream, number, statement)
    scripted = Scripted(tmp_path, stream)
    go(scripted)
    assert bool(scripted.walk.take_replaced()) is replaced


@pytest.mark.parametrize(
    ("listed_at", "statements", "replaced"),
    [
        (0, (b"ALTER TABLE t DROP name",), False),
        (0, (b"ALTER TABLE t DROP ID",), True),
        (0, (b"ALTER TABLE u DROP name",), True),
        (0, (b"CREATE TABLE t (a INT)", b"ALTER TABLE t DROP name"), True),
        (0, (b"ALTER TABLE t DROP PRIMARY KEY", b"ALTER TABLE t DROP name"), True),
        (1 << 20, (b"ALTER TABLE t DROP name",), True),
    ],
)
def test_a_key_that_the_server_listed_holds_from_the_end_of_its_log_on(
    tmp_path: Path, listed_at: int, statements: tuple[bytes, ...], replaced: bool
) -> None:
    stream = beginning()
    for number, statement in enumerate(statements, 1):
        last = stream.offset
        ddl(stream, number, statement)
    scripted = Scripted(tmp_path, stream)
    scripted.tables.know_keys({("shop", "t"): ("id",)}, LogPosition(1, 3, listed_at))
    go(scripted)
    assert list(scripted.walk.take_replaced().values()) == [LogPosition(1, 3, last)] * replaced
