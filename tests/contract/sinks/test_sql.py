"""The contract of sinks over PostgreSQL and SQLite, and what only a SQL mirror does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from sinks.port import Sink
from sinks.testing.contract import RowSinkContract
from sinks.testing.harness import Row, RowHarness
from subscriber_sdk import UNAVAILABLE, HandlerFailed, Op, RetryPolicy
from subscriber_sdk.testing import Change, Kit, KitFlow, marker_at, read, update
from tests.support.sql_targets import SqlTarget
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.model.findings import Severity

# The kit calls plain `def` callbacks on its loop. In production they run in threads.
pytestmark = pytest.mark.allow_blocking

T: Final = "shop.orders"
RETRY: Final = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=0.02)
REFUSED: Final[Mapping[str, Any]] = {
    "postgres": "a\0b",
    "mysql": Decimal("1e60"),
    "mariadb": Decimal("1e60"),
    "sqlite": 1 << 63,
}
"""A value that a column of its own kind does not hold. DuckDB holds each."""


class SqlHarness(RowHarness):
    """A database."""

    def __init__(self, target: SqlTarget) -> None:
        self._target = target
        self.kind = target.kind  # type: ignore[misc]
        if target.name in REFUSED:
            self.refused = update(T, key=7, after={"text": "a", "value": REFUSED[target.name]})

    @property
    def settings(self) -> Mapping[str, object]:
        return {"url": self._target.url}

    def away(self) -> AbstractContextManager[object]:
        found: AbstractContextManager[object] = self._target.away()
        return found

    def open(self) -> Sink:
        return self._target.noted(super().open())

    def rows(self, table: str) -> Mapping[int, Row]:
        name = table.partition(".")[2]
        columns = [column for column in self._target.columns(name) if not column.startswith("_wormhole")]
        found: dict[int, Any] = {}
        for row in self._target.rows(name, *columns) if columns else ():
            named = dict(zip(columns, row, strict=True))
            found[named.pop("id")] = named
        return found

    def remove(self, table: str, key: int) -> None:
        self._target.sql(f"DELETE FROM {table.partition('.')[2]} WHERE id = {key}")


def attached(kit: Kit, target: SqlTarget, shard: str = "shop", parks: bool = False, **settings: object) -> KitFlow:
    """A flow into the target."""
    subscriber = target.open(**settings).subscriber
    return kit.attach(subscriber, shard=shard, retry=RETRY, on_failure="park" if parks else "halt")


def halted(flow: KitFlow, *changes: Any) -> TargetRefused:
    """The error with which the changes halt the flow."""
    with pytest.raises(HandlerFailed) as failed:
        flow.commit(*changes)
    assert isinstance(failed.value.__cause__, TargetRefused)
    return failed.value.__cause__


def attached_in_vain(kit: Kit, target: SqlTarget, **settings: Any) -> TargetRefused:
    """The error that halts a flow when it is assigned."""
    with pytest.raises(HandlerFailed) as failed:
        attached(kit, target, **settings)
    assert isinstance(failed.value.__cause__, TargetRefused)
    return failed.value.__cause__


class TestContract(RowSinkContract):
    """The suite of every sink."""

    @pytest.fixture
    def harness(self, sql_target: SqlTarget) -> SqlHarness:
        return SqlHarness(sql_target)


class TestMirror:
    """What only a SQL mirror does."""

    def test_a_second_sink_on_one_table_is_refused(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        attached(wormhole_kit, sql_target).commit(update(T, key=1, after={"a": 1}))
        other = attached(wormhole_kit, sql_target, shard="other")
        refused = halted(other, update("bar.orders", key=2, after={"a": 1}))
        assert refused.code == "target-refused"
        assert "orders is filled from" in refused.message
        assert sql_target.rows("orders", "id") == [(1,)]

    def test_a_table_that_is_there_is_entered(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        """Nothing has to be created, so only the entry was missing."""
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1}))
        flow.revoke()
        sql_target.sql("DELETE FROM wormhole_sink")
        flow.assign()
        flow.commit(update(T, key=2, after={"a": 1}))
        assert sql_target.rows("wormhole_sink", "name") == [("orders",)]

    def test_tables_of_several_databases_have_targets_of_their_own(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        flow = attached(wormhole_kit, sql_target, table="{database}_{table}")
        flow.commit(update(T, key=1, after={"a": 1}), update("bar.orders", key=1, after={"a": 2}))
        assert (sql_target.rows("shop_orders", "a"), sql_target.rows("bar_orders", "a")) == ([(1,)], [(2,)])

    def test_tables_merge_by_their_source(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        """Every step concerns the rows of its own source only."""
        flow = attached(wormhole_kit, sql_target, merge="by_source")
        bar = "bar.orders"
        flow.commit(*(update(table, key=key, after={"a": key, "b": 0}) for table in (T, bar) for key in (1, 2, 3)))
        flow.commit(
            update(T, key=1, before={"a": 1, "b": 0}), update(T, key=2, before={"a": 2, "b": 0}, after={"a": 7})
        )
        flow.commit(update(T, key=4, old_key=3, before={"a": 3, "b": 0}, after={"a": 8}))
        kept = [(bar, 1, 1), (bar, 2, 2), (bar, 3, 3)]
        assert sql_target.rows("orders", "_wormhole_table", "id", "a") == [*kept, (T, 2, 7), (T, 4, 8)]
        rows = [read(T, key=key, after={"a": value, "b": 0}) for key, value in ((2, 7), (4, 8))]
        assert flow.verify(T, rows).equal
        flow.backfill(T, rows[:1])
        assert sql_target.rows("orders", "_wormhole_table", "id", "a") == [*kept, (T, 2, 7)]
        flow.commit(update(T, key=(), op=Op.TRUNCATE))
        assert sql_target.rows("orders", "_wormhole_table", "id", "a") == kept

    def test_tables_merge_with_keys_of_their_own(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target, merge="global")
        flow.commit(update(T, key=1, after={"a": 1}), update("bar.orders", key=2, after={"a": 2}))
        flow.commit(update(T, key=(), op=Op.TRUNCATE))
        assert sql_target.rows("orders", "id", "_wormhole_table") == [(2, "bar.orders")]

    def test_deleted_rows_stay(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target, soft_delete=True)
        columns = ("id", "a", "_wormhole_deleted")
        flow.commit(*(update(T, key=key, after={"a": key, "b": 0}) for key in (1, 2, 3)))
        flow.commit(
            update(T, key=1, before={"a": 1, "b": 0}),
            update(T, key=4, old_key=2, before={"a": 2, "b": 0}, after={"a": 5, "b": 0}),
        )
        assert sql_target.rows("orders", *columns) == [(1, 1, True), (2, 2, True), (3, 3, False), (4, 5, False)]
        assert flow.verify(T, [read(T, key=key, after={"a": key + (key == 4)}) for key in (3, 4)]).equal
        flow.commit(update(T, key=1, after={"a": 7, "b": 0}))
        flow.backfill(T, [read(T, key=1, after={"a": 7, "b": 0})])
        assert sql_target.rows("orders", *columns) == [(1, 7, False), (2, 2, True), (3, 3, True), (4, 5, True)]
        flow.commit(update(T, key=(), op=Op.TRUNCATE))
        assert {row[2] for row in sql_target.rows("orders", *columns)} == {True}

    def test_columns_that_are_not_in_the_log_move_with_their_row(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1, "b": "long"}), update(T, key=5, after={"a": 1, "b": "x"}))
        flow.commit(update(T, key=2, old_key=1, before={"a": 1, "b": "long"}, after={"a": 2}))
        assert sql_target.rows("orders", "id", "a", "b") == [(2, 2, "long"), (5, 1, "x")]

    def test_a_row_that_is_missing_gets_no_part_of_its_columns(
        self, sql_target: SqlTarget, wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
    ) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1, "b": b"x"}))
        with caplog.at_level(logging.WARNING, "sinks"):
            flow.commit(*(update(T, key=key, before={"a": 1, "b": UNAVAILABLE}, after={"a": 2}) for key in (1, 2, 3)))
        assert sql_target.rows("orders", "id", "a", "b") == [(1, 2, b"x")]
        assert "lacks the rows of 2 updates" in caplog.text

    def test_a_deleted_row_makes_room_for_a_row_that_moves_to_its_key(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        flow = attached(wormhole_kit, sql_target, soft_delete=True)
        row: Row = {"a": 1, "b": b"long"}
        flow.commit(update(T, key=1, after=row), update(T, key=2, after=row))
        flow.commit(update(T, key=2, before=row))
        flow.commit(update(T, key=2, old_key=1, before={**row, "b": UNAVAILABLE}, after={"a": 5}))
        assert sql_target.rows("orders", "id", "a", "b", "_wormhole_deleted") == [(2, 5, b"long", False)]

    @pytest.mark.parametrize("pieces", [1, 2])
    def test_rows_exchange_their_keys_without_values_that_did_not_change(
        self, sql_target: SqlTarget, wormhole_kit: Kit, pieces: int
    ) -> None:
        """As PostgreSQL logs them with REPLICA IDENTITY FULL: a large value is only in the image before."""
        flow = attached(wormhole_kit, sql_target)
        rows: dict[int, Row] = {key: {"a": key, "b": b"long" * key} for key in (1, 2)}
        flow.commit(*(update(T, key=key, after=row) for key, row in rows.items()))
        after: dict[int, Row] = {key: {"a": 10 * key, "b": UNAVAILABLE} for key in rows}
        flow.commit(
            *(update(T, key=3 - key, old_key=key, before=row, after=after[key]) for key, row in rows.items()),
            pieces=pieces,
        )
        assert sql_target.rows("orders", "id", "a", "b") == [(1, 20, b"longlong"), (2, 10, b"long")]

    @pytest.mark.parametrize("pieces", [1, 3, 8])
    def test_rows_exchange_their_keys_in_one_transaction(
        self, sql_target: SqlTarget, wormhole_kit: Kit, pieces: int
    ) -> None:
        """A key that is deferrable is another row's too until the transaction ends."""
        flow = attached(wormhole_kit, sql_target)
        rows = {key: 10 * key for key in range(1, 5)}
        flow.commit(*(update(T, key=key, after={"a": a}) for key, a in rows.items()))

        def moved(*moves: tuple[int, int]) -> list[Change]:
            """Rows get new keys, one after the other. A row that came to a key leaves it after the one before it."""
            there = {key: [a] for key, a in rows.items()}
            changes = []
            for old, new in moves:
                row = {"a": there[old].pop(0)}
                there.setdefault(new, []).append(row["a"])
                changes.append(update(T, key=new, old_key=old, before=row, after=row))
            rows.clear()
            rows.update((key, a) for key, held in there.items() for a in held)
            return changes

        shift = [(key, key + 1) for key in range(1, 5)]
        for moves in (shift, [(2, 5), (5, 2)], [(2, -1), (3, 2), (-1, 3)], [(key + 1, key) for key in range(4, 0, -1)]):
            flow.commit(*moved(*moves), pieces=pieces)
            assert sql_target.rows("orders", "id", "a") == sorted(rows.items(), key=repr)
        twice = moved(*shift, *((key + 1, key + 2) for key in range(1, 5)))
        flow.commit(*twice, update(T, key=6, before={"a": rows[6]}, after={"a": 7}), pieces=pieces)
        flow.commit(update(T, key=3, before={"a": rows[3]}), pieces=pieces)
        assert sql_target.rows("orders", "id", "a") == [(4, rows[4]), (5, rows[5]), (6, 7)]
        there = {"a": rows[5]}
        flow.commit(
            update(T, key=5, old_key=4, before={"a": rows[4]}, after={"a": rows[4]}),
            update(T, key=5, before=there, after={"a": 8}),
            update(T, key=5, before={"a": 8}),
            pieces=pieces,
        )
        assert sql_target.rows("orders", "id", "a") == [(5, rows[4]), (6, 7)]

    @pytest.mark.parametrize("pieces", [1, 4])
    def test_a_table_is_unverified_after_rows_exchange_more_keys_than_are_remembered(
        self,
        sql_target: SqlTarget,
        wormhole_kit: Kit,
        pieces: int,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr("sinks.sql.changes._ENTRY", 64 << 20)
        sink = sql_target.open()
        flow = wormhole_kit.attach(sink.subscriber)
        flow.commit(*(update(T, key=key, after={"a": key}) for key in range(1, 5)))
        assert sink.figures is not None

        def moved(*moves: tuple[int, int, int]) -> list[Change]:
            return [update(T, key=new, old_key=old, before={"a": a}, after={"a": a}) for old, new, a in moves]

        flow.commit(*moved((1, 2, 1), (2, 1, 2)), pieces=min(pieces, 2))
        assert (sink.figures.unverified, sql_target.rows("orders", "id", "a")[:2]) == (set(), [(1, 2), (2, 1)])
        flow.commit(*moved((2, 1, 1), (4, 3, 4), (1, 5, 2), (3, 6, 3)), pieces=pieces)
        assert sink.figures.unverified == {("shop", T)}
        assert caplog.text.count("orders may lack rows, because a transaction changed the keys") == 1
        (found,) = [found for found in wormhole_kit.run(sink.examine()).findings if found.check == "unverified"]
        assert "rows of shop.orders may be missing" in found.what
        rows = {1: 1, 3: 4, 5: 2, 6: 3}
        assert sql_target.rows("orders", "id", "a") != sorted(rows.items())
        flow.backfill(T, [read(T, key=key, after={"a": a}) for key, a in rows.items()])
        assert sql_target.rows("orders", "id", "a") == sorted(rows.items())
        assert sink.figures.unverified == set()

    def test_decimal_keys_are_equal_however_many_digits_they_have(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=Decimal(key), after={"a": 1}) for key in ("1.0", "20.0", "-0.0", "0.50")))
        flow.commit(
            update(T, key=Decimal("1.00"), before={"a": 1}, after={"a": 2}),
            *(update(T, key=Decimal(key), before={"a": 1}) for key in ("20", "0.00", "0.5")),
        )
        assert sql_target.rows("orders", "a") == [(2,)]
        assert flow.verify(T, [read(T, key=Decimal("1.00"), after={"a": 2})]).equal

    @pytest.mark.parametrize("value", [1, 1.5, Decimal("1.5"), True])
    def test_text_of_a_column_that_had_another_type_is_a_difference(
        self, sql_target: SqlTarget, wormhole_kit: Kit, value: Any
    ) -> None:
        """The source dropped the column and added it again, which logs no rows."""
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=key, after={"a": "abc"}) for key in (1, 2)))
        flow.commit(update(T, key=1, before={"a": value}, after={"a": value}))
        rows = [read(T, key=key, after={"a": value}) for key in (1, 2)]
        assert flow.verify(T, rows, repair=True).differs == 1
        assert flow.verify(T, rows).equal

    def test_a_table_that_was_dropped_needs_a_backfill(
        self, sql_target: SqlTarget, wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
    ) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1}))
        assert "backfill" not in caplog.text
        sql_target.sql("DROP TABLE orders")
        with caplog.at_level(logging.WARNING, "sinks"):
            flow.commit(update(T, key=2, after={"a": 2}))
        assert sql_target.rows("orders", "id") == [(2,)]
        assert "orders was dropped in the target" in caplog.text
        assert "wormholectl backfill start test" in caplog.text

    @pytest.mark.parametrize(
        ("moment", "moved"),
        [("released", False), ("running", False), ("running", True), ("restarted", True)],
    )
    def test_an_older_copy_of_the_target_is_filled_from_its_datamarker(
        self, sql_target: SqlTarget, wormhole_kit: Kit, moment: str, moved: bool
    ) -> None:
        """It is put back behind a flow that is ``running``, between two assignments, or before another process begins.
        ``moved``: the copy is older than a move of the datamarker.
        """
        runs = moment == "running"
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=key, after={"a": key}) for key in (1, 2)))
        tables = ("orders", "wormhole_marker")
        for table in tables:
            sql_target.sql(f"CREATE TABLE copy_{table} AS SELECT * FROM {table}")
        flow.commit(update(T, key=1, before={"a": 1}, after={"a": 5}), update(T, key=2, before={"a": 2}))
        flow.commit(update(T, key=3, after={"a": 3}))
        if moved:
            flow.move(marker_at(2))
        if not runs:
            flow.revoke()
        for table in tables:
            sql_target.sql(f"DELETE FROM {table}")
            sql_target.sql(f"INSERT INTO {table} SELECT * FROM copy_{table}")
        if moment == "restarted":
            flow.crash_and_redeliver(0, subscriber=sql_target.open().subscriber)
        elif not runs:
            flow.assign()
        flow.commit(update(T, key=4, after={"a": 4}))
        assert sql_target.rows("orders", "id", "a") == [(1, 5), (3, 3), (4, 4)]
        assert flow.datamarker == flow.end

    @pytest.mark.parametrize(
        "change",
        ["marker = {}", "letters = {}", "open = {}", "epoch = epoch + 5", "version = version - 1", "move = move + 1"],
    )
    @pytest.mark.parametrize("runs", [False, True])
    def test_a_row_of_a_marker_that_was_edited_loses_nothing(
        self, sql_target: SqlTarget, wormhole_kit: Kit, change: str, runs: bool
    ) -> None:
        """The flow continues, or halts with an error that has a next step."""
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1}))
        if not runs:
            flow.revoke()
        data = {"postgres": "'\\x00ff'", "duckdb": "'\\x00\\xff'::BLOB"}.get(sql_target.name, "x'00ff'")
        sql_target.sql(f"UPDATE wormhole_marker SET {change.format(data)}")
        try:
            if not runs:
                flow.assign()
            flow.commit(update(T, key=2, after={"a": 2}))
        except HandlerFailed as failed:
            if not isinstance(failed.__cause__, TargetRefused) or not failed.__cause__.hint:
                raise
        else:
            assert sql_target.rows("orders", "id", "a") == [(1, 1), (2, 2)]

    def test_a_backfill_that_began_before_a_new_column_does_not_verify_it(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        sink = sql_target.open()
        flow = wormhole_kit.attach(sink.subscriber)
        flow.commit(update(T, key=1, after={"a": 1}))
        flow.begin_backfill()
        flow.chunk(T, read(T, key=1, after={"a": 1}))
        flow.commit(update(T, key=2, after={"a": 1, "b": 1}))
        flow.end_scan(T)
        assert sink.figures is not None
        assert sink.figures.unverified == {("shop", T)}
        flow.backfill(T, [read(T, key=key, after={"a": 1, "b": 1}) for key in (1, 2)])
        assert sink.figures.unverified == set()

    def test_an_update_behind_a_new_column_that_is_refused_is_parked(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        """What comes again is of both schemas."""
        flow = attached(wormhole_kit, sql_target, parks=True)
        flow.commit(update(T, key=1, after={"a": 1}))
        wrong = update(T, key=2, after=None, op=Op.MERGE)
        for _ in range(2):
            flow.commit(
                update(T, key=1, after={"a": 1}),
                update(T, key=3, after={"a": 3, "b": 1}),
                wrong,
                update(T, key=4, after={"a": 4}),
            )
        assert sql_target.rows("orders", "id") == [(1,), (3,), (4,)]
        assert len(flow.parked) == 2

    def test_a_target_that_was_made_again_by_hand_is_unverified(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1}))
        sql_target.sql("DROP TABLE orders")
        sql_target.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, a BIGINT)")
        flow.commit(update(T, key=2, after={"a": 2}))
        found = {finding.check for finding in wormhole_kit.run(sql_target.open().examine()).findings}
        assert found == {"target_tables", "unverified"}

    def test_columns_that_differ_in_case_are_one_where_the_database_says_so(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        if sql_target.name == "postgres":
            sql_target.sql('CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, "A" TEXT)')
        else:
            sql_target.sql("CREATE TABLE orders (ID BIGINT NOT NULL PRIMARY KEY, A BIGINT)")
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=key, after={"a": 1, "b": 0}) for key in (1, 2, 3)))
        flow.commit(
            update(T, key=1, before={"a": 1, "b": 0}, after={"a": 2}),
            update(T, key=4, old_key=2, before={"a": 1, "b": 0}, after={"a": 3}),
            update(T, key=3, before={"a": 1, "b": 0}),
        )
        assert sql_target.rows("orders", "id", "a") == [(1, 2), (4, 3)]
        assert flow.verify(T, [read(T, key=key, after={"a": a, "b": 0}) for key, a in ((1, 2), (4, 3))]).equal

    def test_names_of_one_table_have_one_sink(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        """Names differ in case, or say the schema in which the connection is."""
        attached(wormhole_kit, sql_target).commit(update(T, key=1, after={"a": 1}))
        here = {"postgres": "public", "sqlite": "main", "duckdb": "main"}
        schema = here.get(sql_target.name) or sql_target.url.rpartition("/")[2]
        other = attached(wormhole_kit, sql_target, shard="other", table=schema + ".{table}")
        refused = halted(other, update("bar.orders", key=2, after={"a": 1}))
        assert "WHERE name = 'orders'" in str(refused.hint)
        other.revoke()
        flow = attached(wormhole_kit, sql_target, shard="third")
        if sql_target.name in ("sqlite", "duckdb"):
            halted(flow, update("shop.Orders", key=2, after={"a": 1}))
        else:
            flow.commit(update("shop.Orders", key=2, after={"a": 1}))
        assert sql_target.rows("orders", "id") == [(1,)]

    def test_tables_of_the_sinks_own_are_no_targets(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1}))
        after = {"name": "a", "owner": "b", "source": "c"}
        refused = halted(flow, update("shop.wormhole_sink", key={"target": b"1"}, after=after))
        assert "of the sink's own" in refused.message

    @pytest.mark.parametrize("key", ["PRIMARY KEY (a)", "UNIQUE (a)"])
    def test_equal_rows_without_a_key_are_not_merged(self, sql_target: SqlTarget, wormhole_kit: Kit, key: str) -> None:
        sql_target.sql(f"CREATE TABLE orders (a BIGINT NOT NULL, b BIGINT, {key})")
        refused = halted(
            attached(wormhole_kit, sql_target), *(update(T, key=(), after={"a": 1, "b": value}) for value in (1, 2))
        )
        assert "the source's rows have no key" in refused.message
        assert "DROP" in str(refused.hint)

    @pytest.mark.parametrize("sql_target", ["postgres"], indirect=True)
    def test_a_row_that_is_left_is_removed_by_its_uuid(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        sql_target.sql("CREATE TABLE orders (id UUID NOT NULL PRIMARY KEY, a BIGINT)")
        flow = attached(wormhole_kit, sql_target)
        keys = [f"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1{digit}" for digit in range(3)]
        flow.commit(*(update(T, key=key, after={"a": 1}) for key in keys))
        assert flow.verify(T, [read(T, key=keys[0], after={"a": 1})], repair=True).extra == 2
        assert flow.verify(T, [read(T, key=keys[0], after={"a": 1})]).equal

    @pytest.mark.parametrize("sql_target", ["postgres"], indirect=True)
    def test_a_key_whose_type_was_changed_behind_the_sink_is_compared_again(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        flow = attached(wormhole_kit, sql_target, parks=True)
        flow.commit(*(update(T, key=key, after={"a": 1}) for key in (1, 2)))
        sql_target.sql("ALTER TABLE orders ALTER COLUMN id TYPE TEXT")
        flow.commit(update(T, key=1, before={"a": 1}))
        assert flow.parked == []
        assert sql_target.rows("orders", "id") == [("2",)]

    def test_a_row_that_is_inserted_again_is_not_deleted_whatever_is_set(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        flow = attached(wormhole_kit, sql_target, soft_delete=True)
        flow.commit(update(T, key=1, after={"a": 1}))
        flow.commit(update(T, key=1, before={"a": 1}))
        flow.revoke()
        flow = attached(wormhole_kit, sql_target, shard="next")
        flow.commit(update(T, key=1, after={"a": 2}))
        assert sql_target.rows("orders", "id", "a", "_wormhole_deleted") == [(1, 2, False)]

    def test_a_key_of_points_in_time_is_refused(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        """Several texts are one point in time: a verification would remove the row as another one's."""
        sql_target.sql("CREATE TABLE orders (id TIMESTAMP NOT NULL PRIMARY KEY, a BIGINT)")
        change = update(T, key="2020-01-01 00:00:00.250", after={"a": 1})
        assert "two keys of the source can be equal in it" in halted(attached(wormhole_kit, sql_target), change).message

    def test_rows_without_a_key_may_get_one_from_the_database(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        number = {"postgres": "SERIAL", "sqlite": "INTEGER", "duckdb": "UUID DEFAULT uuid()"}
        column = number.get(sql_target.name, "BIGINT AUTO_INCREMENT")
        sql_target.sql(f"CREATE TABLE orders (own {column} PRIMARY KEY, a BIGINT)")
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=(), after={"a": 1}) for _ in range(3)))
        assert sql_target.rows("orders", "a") == [(1,), (1,), (1,)]

    def test_rows_without_a_key_are_appended(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=(), after={"a": value}) for value in (1, 1, 2)))
        assert sql_target.rows("orders", "a") == [(1,), (1,), (2,)]
        flow.commit(update(T, key=(), op=Op.TRUNCATE))
        assert sql_target.rows("orders", "a") == []

    def test_keys_of_every_type_are_found_again(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        """Text keys differ in case, in accents, and in spaces at their end."""
        keys = [
            ("a", b"\0\xff", 1),
            ("A", b"", -5),
            ("á", b"a", 0),
            ("a ", b"\0\xff", 1),
            ("a", b"\0\xff", 2),
            ("%s", b"%", 3),
        ]
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=key, after={"a": at}) for at, key in enumerate(keys)))
        rows = [read(T, key=key, after={"a": at}) for at, key in enumerate(keys)]
        assert flow.verify(T, rows).equal
        flow.commit(update(T, key=keys[3], before={"a": 3}), update(T, key=keys[0], before={"a": 0}, after={"a": 9}))
        assert sorted(row[0] for row in sql_target.rows("orders", "a")) == [1, 2, 4, 5, 9]

    def test_many_rows_arrive_with_every_character(
        self, sql_target: SqlTarget, wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
    ) -> None:
        """They are new, then they are all there, then some are new and some are there."""
        texts = ["", "\\", "\\N", "NULL", '"', "'", "\t", "\n\r", "{a,b}", "%s %% ?", "\b\f\x1a", "é😀", " ", None]
        schema = update(
            T, key=1, after={"text": "", "number": Decimal(1), "data": b"", "real": 0.5, "flag": True}
        ).schema

        def row(key: int, make: Callable[..., Change] = update, real: float = 0.25) -> Change:
            number = Decimal(f"-{key}.50") if key % 3 else None
            data = bytes([key, 0, 92, 39]) if key % 4 else None
            after = {"text": texts[key % 14], "number": number, "data": data, "real": real, "flag": key % 2 == 0}
            return replace(make(T, key=key, after=after), schema=schema)

        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(row(key) for key in range(70)))
        assert flow.verify(T, [row(key, read) for key in range(70)]).equal
        caplog.clear()
        flow.backfill(T, [row(key, read, 2.0) for key in range(70)])
        assert flow.verify(T, [row(key, read, 2.0) for key in range(70)]).equal
        flow.backfill(T, [row(key, read, 4.0) for key in range(140)])
        assert flow.verify(T, [row(key, read, 4.0) for key in range(140)]).equal
        if sql_target.name != "duckdb":  # a transaction of DuckDB ends with the first row that is there
            assert "; flow " not in caplog.text  # nothing failed

    @pytest.mark.parametrize("sql_target", ["postgres"], indirect=True)
    def test_one_of_many_rows_is_parked(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target, parks=True)
        flow.commit(*(update(T, key=key, after={"text": "a\0b" if key == 30 else f"{key}"}) for key in range(60)))
        assert flow.parked == ["test:1:30"]
        assert sorted(sql_target.rows("orders", "id", "text")) == [(key, f"{key}") for key in range(60) if key != 30]

    @pytest.mark.parametrize("sql_target", ["postgres"], indirect=True)
    @pytest.mark.parametrize("others", [0, 60])
    def test_one_of_many_rows_that_the_server_refuses_is_parked(
        self, sql_target: SqlTarget, wormhole_kit: Kit, others: int
    ) -> None:
        """The server finds it while other rows are prepared, or at the datamarker. That is no attempt."""
        sql_target.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, a BIGINT CHECK (a <> 30))")
        flow = wormhole_kit.attach(sql_target.open().subscriber, shard="shop", retry=1, on_failure="park")
        flow.commit(
            *(update(T, key=key, after={"a": key}) for key in range(60)),
            *(update("shop.lines", key=key, after={"a": key}) for key in range(others)),
        )
        flow.commit(update(T, key=60, after={"a": 60}))
        assert flow.parked == ["test:1:30"]
        assert sorted(sql_target.rows("orders", "id", "a")) == [(key, key) for key in range(61) if key != 30]
        if others:
            assert len(sql_target.rows("lines", "id")) == others

    def test_a_single_key_that_was_read_stays(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=key, after={"a": key}) for key in (1, 2, 3)))
        flow.begin_backfill()
        flow.chunk(T, read(T, key=1, after={"a": 5}), keys=[1, 2])
        assert sql_target.rows("orders", "id", "a") == [(1, 5), (3, 3)]

    def test_a_range_of_keys_is_deleted(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update("default", key=key, after={"value": b"v"}) for key in (b"a", b"b", b"b\xff", b"c")))
        flow.commit(update("default", key=b"b", key_end=b"c", after=None, op=Op.DELETE_RANGE))
        assert [bytes(row[0]) for row in sql_target.rows("default", "id")] == [
            b"a",
            b"c",
        ]

    def test_other_shards_keep_their_rows(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        first, second = (attached(wormhole_kit, sql_target, shard=f"shop.{number}of2") for number in (0, 1))
        first.commit(update(T, key=1, after={"a": 1}), update(T, key=3, after={"a": 3}))
        second.commit(update(T, key=2, after={"a": 2}))
        assert first.verify(T, [read(T, key=key, after={"a": key}) for key in (1, 3)]).equal
        first.backfill(T, [read(T, key=1, after={"a": 1})])
        assert sql_target.rows("orders", "id") == [(1,), (2,)]
        first.commit(update(T, key=(), op=Op.TRUNCATE))
        assert sql_target.rows("orders", "id") == [(2,)]

    def test_a_column_that_was_dropped_and_added_again_is_reported(
        self, sql_target: SqlTarget, wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its former values are still there."""
        flow = attached(wormhole_kit, sql_target)
        flow.commit(*(update(T, key=key, after={"a": key, "b": "x"}) for key in (1, 2)))
        flow.commit(update(T, key=2, after={"a": 3}))
        assert "may lack values" not in caplog.text
        flow.commit(update(T, key=3, after={"a": 3, "b": "y"}))
        assert "orders may lack values of what changed" in caplog.text
        assert "Next: `wormholectl backfill start" in caplog.text
        sink = sql_target.open()
        unverified = [found for found in wormhole_kit.run(sink.examine()).findings if found.check == "unverified"]
        assert [(found.severity, "1 shards" in found.what) for found in unverified] == [(Severity.WARN, True)]
        flow.revoke()
        sink = sql_target.open()
        flow = wormhole_kit.attach(sink.subscriber)
        flow.commit(update(T, key=3, before={"a": 3, "b": "x"}, after={"a": 3, "b": "y"}))
        assert sink.figures is not None
        assert sink.figures.unverified == {("shop", T)}
        assert sql_target.rows("orders", "id", "b") == [(1, "x"), (2, "x"), (3, "y")]
        flow.backfill(T, [read(T, key=key, after={"a": key, "b": "z"}) for key in (1, 2, 3)])
        assert sql_target.rows("orders", "id", "b") == [(1, "z"), (2, "z"), (3, "z")]
        assert {found.check for found in wormhole_kit.run(sink.examine()).findings} == {"target_tables"}

    def test_rows_whose_updates_are_parked_outlive_a_scan(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        flow = attached(wormhole_kit, sql_target, parks=True)
        bad = REFUSED.get(sql_target.name, 1 << 40)
        if sql_target.name not in REFUSED:
            sql_target.sql("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, v INTEGER)")
        fine = type(bad)(7)
        flow.commit(*(update(T, key=key, after={"a": key, "v": fine}) for key in (1, 2)))
        flow.commit(update(T, key=1, before={"a": 1, "v": fine}, after={"a": 5, "v": bad}))
        assert len(flow.parked) == 1
        flow.backfill(T, [])
        assert sql_target.rows("orders", "id", "a") == [(1, 1)]

    def test_a_row_that_the_database_refuses_is_parked_without_its_values(
        self, sql_target: SqlTarget, wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A table that an operator made has a rule of its own."""
        kind = "TEXT" if sql_target.name in {"postgres", "sqlite", "duckdb"} else "LONGTEXT"
        sql_target.sql(f"CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, a {kind}, CHECK (a <> 'a secret'))")
        flow = attached(wormhole_kit, sql_target, parks=True)
        flow.commit(*(update(T, key=key, after={"a": "a secret" if key == 2 else "b"}) for key in (1, 2, 3)))
        assert sql_target.rows("orders", "id", "a") == [(1, "b"), (3, "b")]
        assert flow.parked == ["test:1:1"]
        assert "the database refuses a row of" in caplog.text
        assert "secret" not in caplog.text

    def test_a_table_that_was_altered_behind_the_sink_is_compared_again(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1, "b": 1}))
        sql_target.sql("ALTER TABLE orders DROP COLUMN b")
        flow.commit(update(T, key=2, after={"a": 2, "b": 2}))
        assert sql_target.rows("orders", "id", "a", "b") == [(1, 1, None), (2, 2, 2)]

    def test_a_table_that_cannot_hold_the_rows_halts_with_what_helps(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        sql_target.sql("CREATE TABLE orders (other BIGINT NOT NULL PRIMARY KEY)")
        refused = halted(attached(wormhole_kit, sql_target), update(T, key=1, after={"a": 1}))
        assert "orders cannot hold shop.orders" in refused.message
        assert refused.hint
        assert sql_target.columns("orders").keys() == {"other"}

    @pytest.mark.parametrize("sql_target", ["postgres"], indirect=True)
    def test_rights_that_are_missing_are_named(self, sql_target: SqlTarget, wormhole_kit: Kit, tmp_path: Path) -> None:
        flow = attached(wormhole_kit, sql_target)
        flow.commit(update(T, key=1, after={"a": 1}))
        sql_target.sql("CREATE ROLE reader LOGIN PASSWORD 'of the reader'")
        (password := tmp_path / "password").write_text("of the reader\n")
        sql_target.sql("GRANT ALL ON wormhole_marker, wormhole_sink TO reader")
        sql_target.sql("GRANT SELECT ON orders TO reader")
        flow.revoke()
        sql_target.url = sql_target.url.replace("postgres@", "reader@")
        flow = attached(wormhole_kit, sql_target, password_file=password)
        refused = halted(flow, update(T, key=1, before={"a": 1}, after={"a": 2}))
        assert refused.code == "account-lacks-rights"
        flow.revoke()
        other = attached(wormhole_kit, sql_target, shard="other", password_file=password)
        assert halted(other, update("shop.lines", key=1, after={"a": 1})).code == "account-lacks-rights"
        other.revoke()
        sql_target.sql("DROP OWNED BY reader")
        sql_target.sql("DROP ROLE reader")

    @pytest.mark.parametrize("sql_target", ["postgres"], indirect=True)
    def test_a_login_that_is_refused_halts(self, sql_target: SqlTarget, wormhole_kit: Kit, tmp_path: Path) -> None:
        """A password that was changed, an account without one, and one that may not make the tables of the sink."""
        make = (
            "CREATE ROLE {} LOGIN PASSWORD 'right'"
            if sql_target.name == "postgres"
            else ("CREATE USER {} IDENTIFIED BY 'right'")
        )
        name = f"login_{sql_target.url.rpartition('_')[2][:12]}"
        sql_target.sql(make.format(name))
        (password := tmp_path / "password").write_text("right\n")
        user = "postgres" if sql_target.name == "postgres" else "root"
        sql_target.url = sql_target.url.replace(f"//{user}@", f"//{name}@")
        lacking = attached_in_vain(wormhole_kit, sql_target, password_file=password)
        assert lacking.code == "account-lacks-rights"
        for given in ({"password_file": password}, {}):
            password.write_text("wrong\n")
            refused = attached_in_vain(wormhole_kit, sql_target, **given)
            assert (refused.code, "wrong" in f"{refused}") == ("login-refused", False)
            with pytest.raises(TargetRefused) as found:
                wormhole_kit.run(sql_target.open(**given).examine())
            assert found.value.code == "login-refused"
        sql_target.sql(f"DROP {'ROLE' if sql_target.name == 'postgres' else 'USER'} {name}")

    def test_an_examination_lists_the_targets(self, sql_target: SqlTarget, wormhole_kit: Kit) -> None:
        sink = sql_target.open()
        assert wormhole_kit.run(sink.examine()).findings == []
        attached(wormhole_kit, sql_target).commit(update(T, key=1, after={"a": 1}))
        (found,) = wormhole_kit.run(sink.examine()).findings
        assert found.what.startswith("orders is filled from ")

    def test_shards_that_begin_together_make_the_target_once(
        self, sql_target: SqlTarget, wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The second one finds the table that was missing when it looked."""
        sink = sql_target.open()
        handler = sink.subscriber._handler  # type: ignore[attr-defined]
        flows = [wormhole_kit.attach(sink.subscriber, shard=shard, retry=2) for shard in ("one", "two")]
        define = handler._define

        def twice(*arguments: Any) -> None:
            define(*arguments)
            define(*arguments)

        handler._define = twice
        for key, flow in enumerate(flows):
            flow.commit(update(T, key=key, after={"a": key}))
        assert sql_target.rows("orders", "id") == [(0,), (1,)]
        assert not [record for record in caplog.records if "could not be defined" in record.getMessage()]

    def test_a_definition_that_fails_is_reported_and_tried_again(
        self, sql_target: SqlTarget, wormhole_kit: Kit
    ) -> None:
        """Nothing can be created where a view of the owner's table is."""
        sql_target.sql("CREATE VIEW wormhole_sink AS SELECT 1 AS a")
        flow = attached(wormhole_kit, sql_target)
        with pytest.raises(HandlerFailed) as failed:
            flow.commit(update(T, key=1, after={"a": 1}))
        assert isinstance(failed.value.__cause__, (TargetRefused, TargetUnavailable))
        flow.revoke()
        sql_target.sql("DROP VIEW wormhole_sink")
        flow.assign()
        assert sql_target.rows("orders", "id") == [(1,)]
