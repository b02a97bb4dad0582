"""The tests of ``test_sql`` over MariaDB, MySQL and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sinks.sql import rows
from sinks.sql.kind import MYSQL
from sinks.sql.rows import MySql
from subscriber_sdk.testing import Kit, update
from subscriber_sdk.transactional.store import finish
from tests.contract.sinks import test_sql, test_sql_values
from tests.contract.sinks.test_sql import T
from tests.support.databases import start_server
from tests.support.sql_targets import SqlTarget, empty_target

pytestmark = pytest.mark.allow_blocking


@pytest.fixture(params=("mariadb", "mysql", "duckdb"))
def sql_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlTarget]:
    """Each in turn."""
    with empty_target(request, request.param, tmp_path) as target:
        yield target


class TestContract(test_sql.TestContract):
    pass


class TestKeys(test_sql_values.TestKeys):
    pass


class TestMirror(test_sql.TestMirror):
    test_rights_that_are_missing_are_named = None  # type: ignore[assignment]  # of PostgreSQL
    test_one_of_many_rows_is_parked = None  # type: ignore[assignment]

    @pytest.mark.parametrize("sql_target", ["mariadb", "mysql"], indirect=True)
    def test_a_login_that_is_refused_halts(self, sql_target: SqlTarget, wormhole_kit: Kit, tmp_path: Path) -> None:
        super().test_a_login_that_is_refused_halts(sql_target, wormhole_kit, tmp_path)

    def test_names_that_differ_in_case_are_one_target_where_the_server_folds_them(self, wormhole_kit: Kit) -> None:
        with start_server("mariadb", lower_case_table_names="1") as server:
            server.sql("CREATE DATABASE Folded")
            url = f"mariadb://root@{server.host}:{server.port}/folded"
            target = SqlTarget("mariadb", MYSQL, url, lambda sql: list(server.sql(sql, database="folded")), server.stop)
            test_sql.attached(wormhole_kit, target).commit(update("shop.Orders", key=1, after={"a": 1}))
            other = test_sql.attached(wormhole_kit, target, shard="other")
            refused = test_sql.halted(other, update(T, key=2, after={"a": 1}))
            assert "is filled from" in refused.message
            assert target.rows("orders", "id") == [(1,)]
            for session in target.sessions:
                finish(session.close())

    @pytest.mark.parametrize("sql_target", ["mariadb", "mysql"], indirect=True)
    def test_rows_are_written_in_statements_of_a_bounded_size(
        self, sql_target: SqlTarget, wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []
        run = MySql.run

        def noted(self: MySql, connection: Any, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
            if sql.startswith("INSERT INTO `orders`"):
                sizes.append(len(sql))
            return run(self, connection, sql, values)

        monkeypatch.setattr(MySql, "run", noted)
        monkeypatch.setattr(rows, "_STATEMENT", 1000)
        flow = test_sql.attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=key, after={"text": "x" * (3000 if key == 20 else 100)}) for key in range(40)))
        assert len(sql_target.rows("orders", "id")) == 40
        assert max(size for size in sizes if size < 3000) < 1500
        assert len([size for size in sizes if size > 3000]) == 1

    @pytest.mark.parametrize("sql_target", ["mariadb", "mysql"], indirect=True)
    def test_a_row_that_no_packet_holds_is_parked(
        self, sql_target: SqlTarget, wormhole_kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server would close the connection, as if it were away."""
        connected = MySql._connected

        def small(self: MySql, connection: Any) -> None:
            connected(self, connection)
            self.largest = 5000

        monkeypatch.setattr(MySql, "_connected", small)
        flow = test_sql.attached(wormhole_kit, sql_target, parks=True)
        flow.commit(*(update(T, key=key, after={"text": "x" * (6000 if key == 2 else 10)}) for key in (1, 2, 3)))
        assert flow.parked == ["test:1:1"]
        assert sql_target.rows("orders", "id") == [(1,), (3,)]
