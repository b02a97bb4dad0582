from __future__ import annotations

from pathlib import Path

import pytest

from datastores.common.encode.piece import ALL_SHARDS, HASHED
from datastores.mysql.decode.table_map import Layout
from datastores.mysql.log.tables import Tables, shard_name
from datastores.mysql.server.catalog import Catalog
from tests.support.mysql_events import integer, table_map
from wormhole.model.sharding import Sharding


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
