"""What ``wormholectl sink check`` says of a table is what the sink does with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from subscriber_sdk.testing import Kit, read, update
from tests.support.sql_targets import SqlTarget
from wormhole.model.findings import Finding, Severity
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.model.values import Value

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

VALUES: Final[dict[Content, Value]] = {
    Content.INTEGER: -7,
    Content.FLOAT: 0.5,
    Content.TEXT: "a",
    Content.BYTES: b"\x00\xff",
    Content.DATE: "2026-11-29",
    Content.DATETIME: "2026-11-29 10:00:00.250000",
    Content.MOMENT: "2026-11-29 10:00:00.250000",
    Content.DURATION: "12:00:00",
    Content.JSON: '{"a": 1}',
    Content.ENUM: "new",
}
ORDERS: Final = TableDefinition(
    "shop.orders",
    ("id",),
    (
        ColumnDefinition("id", Content.INTEGER, nullable=False),
        *(ColumnDefinition(f"_{content.value}", content, nullable=True) for content in VALUES),
    ),
)


def compared(kit: Kit, target: SqlTarget, table: TableDefinition = ORDERS) -> list[Finding]:
    return kit.run(target.open().compare("db1", [table]))


def severities(findings: Sequence[Finding]) -> set[Severity]:
    return {finding.severity for finding in findings}


def test_the_statement_that_is_shown_is_the_one_that_runs(sql_target: SqlTarget, wormhole_kit: Kit) -> None:
    first, *_ = compared(wormhole_kit, sql_target)
    assert "CREATE TABLE" in first.what
    assert compared(wormhole_kit, sql_target)[0] == first  # it changed nothing
    flow = wormhole_kit.attach(sql_target.open().subscriber, shard="db1", retry=2)
    row = {f"_{content.value}": value for content, value in VALUES.items()}
    flow.commit(update("shop.orders", key=1, after=row))
    assert compared(wormhole_kit, sql_target)[0].what == "shop.orders fills orders"
    assert all(f"{column} " in first.what or f'{column}"' in first.what for column in sql_target.columns("orders"))


def test_a_table_with_types_of_the_database_takes_the_rows(sql_target: SqlTarget, wormhole_kit: Kit) -> None:
    hints = [found.next_step for found in compared(wormhole_kit, sql_target) if "made as text" in found.what]
    if sql_target.name == "sqlite":
        assert hints == []  # it has no such types
        return
    (hint,) = hints
    sql_target.sql(hint.partition(": ")[2])
    found = compared(wormhole_kit, sql_target)
    assert severities(found) <= {Severity.OK, Severity.WARN}
    types = {type_.lower() for type_ in sql_target.columns("orders").values()}
    assert {"date", "json"} <= {type_.replace("jsonb", "json").replace("longtext", "json") for type_ in types}
    flow = wormhole_kit.attach(sql_target.open().subscriber, shard="db1", retry=2)
    row = {f"_{content.value}": value for content, value in VALUES.items()}
    flow.commit(update("shop.orders", key=1, after=row))
    assert flow.verify("shop.orders", [read("shop.orders", key=1, after=row)]).equal


def test_a_table_that_does_not_fit_is_a_problem(sql_target: SqlTarget, wormhole_kit: Kit) -> None:
    sql_target.sql("CREATE TABLE orders (other INT PRIMARY KEY)")
    (found,) = compared(wormhole_kit, sql_target)
    assert (found.severity, found.code) == (Severity.PROBLEM, "target-refused")
    assert "orders" in found.next_step


def test_columns_are_added_and_what_is_lost_is_said(sql_target: SqlTarget, wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(sql_target.open().subscriber, shard="db1", retry=2)
    flow.commit(update("shop.orders", key=1, after={"gone": "a"}))
    found = compared(wormhole_kit, sql_target)
    assert severities(found) == {Severity.OK, Severity.WARN}
    assert "ALTER TABLE" in found[0].what
    assert any("gone" in one.what for one in found)
    assert any("backfill start" in one.next_step for one in found)
