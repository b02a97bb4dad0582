"""Writes a log step by step, and checks that a store holds the expected records or rows after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from sinks.port import Guarantee
from sinks.testing.harness import TABLES, RecordHarness, Row, RowHarness, SinkHarness
from subscriber_sdk import HandlerFailed, RetryPolicy
from subscriber_sdk.testing import Change, Kit, KitFlow, read, update
from wormhole.model.errors import TargetUnavailable
from wormhole.model.values import Op

__all__ = ["ORDERS", "Step", "Story", "deleted", "existing", "inserted", "moved", "truncated", "updated"]

ORDERS: Final = TABLES[0]
_RETRY: Final = RetryPolicy(attempts=2, first_wait=0.01, longest_wait=0.02)


@dataclass(frozen=True, slots=True)
class Step:
    """One update. ``after``: the columns that it writes; ``None``: the row ``key`` is deleted. ``old_key``: the row's
    key before the update. ``key=None``: every row is deleted.
    """

    change: Change
    table: str
    key: int | None
    after: Row | None
    old_key: int | None = None


def inserted(key: int, table: str = ORDERS, **row: str | int | None) -> Step:
    """A new row."""
    return Step(update(table, key=key, after=row), table, key, row)


def updated(key: int, before: Row, after: Row, table: str = ORDERS) -> Step:
    """A change of a row to the columns ``after``. Columns of ``before`` that ``after`` lacks are unavailable."""
    return Step(update(table, key=key, before=before, after=after), table, key, after)


def moved(old_key: int, key: int, row: Row, table: str = ORDERS) -> Step:
    """A row whose key changes."""
    return Step(update(table, key=key, old_key=old_key, before=row, after=row), table, key, row, old_key)


def deleted(key: int, before: Row, table: str = ORDERS) -> Step:
    """A row that is gone."""
    return Step(update(table, key=key, before=before), table, key, None)


def truncated(table: str = ORDERS) -> Step:
    """Every row of the table is gone."""
    return Step(update(table, key=(), op=Op.TRUNCATE), table, None, None)


def existing(rows: Mapping[int, Row], table: str = ORDERS) -> list[Change]:
    """Existing rows, as a backfill reads them."""
    return [read(table, key=key, after=row) for key, row in rows.items()]


class Story:
    """One shard of a log, and one sink that receives it as ``application``. ``parks``: whether the application parks
    what is refused.
    """

    def __init__(
        self,
        kit: Kit,
        harness: SinkHarness,
        *,
        shard: str = "shop",
        parks: bool = False,
        application: str = "test",
    ) -> None:
        self.harness = harness
        self.sink = harness.open()
        self.flow: KitFlow = kit.attach(
            self.sink.subscriber,
            shard=shard,
            on_failure="park" if parks else "halt",
            application=application,
            retry=_RETRY,
        )
        self.ids: list[str] = []
        self.rows: dict[str, dict[int, Row]] = {table: {} for table in TABLES}

    def commit(self, *steps: Step, pieces: int = 1) -> None:
        """Commit one transaction. The store has to hold its effects from now on."""
        number = int(self.flow.end.delivered) + 1
        for index, step in enumerate(steps):
            self.ids.append(f"test:{number}:{index}")
            self._apply(step)
        self.flow.commit(*(step.change for step in steps), pieces=pieces)

    def crash(self, transactions: int) -> None:
        """The sink's process dies before the last ``transactions`` were acknowledged, and another one starts."""
        self.sink = self.harness.open()
        self.flow.crash_and_redeliver(transactions, subscriber=self.sink.subscriber)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Make the store unreachable within the block. Commits of :meth:`commit_in_vain` arrive afterwards."""
        with self.harness.away():
            yield
        self.flow.assign()

    def commit_in_vain(self, *steps: Step) -> None:
        """Commit one transaction while the store is unreachable. The sink has to report that it is unavailable."""
        with pytest.raises(HandlerFailed) as failed:
            self.commit(*steps)
        cause = failed.value.__cause__
        assert isinstance(cause, TargetUnavailable), f"{cause!r} is no TargetUnavailable"

    def check(self) -> None:
        """Check that the store holds the expected content, and that every update is acknowledged."""
        assert self.flow.datamarker == self.flow.end, f"{self.flow!r}: acknowledged is not everything"
        if isinstance(self.harness, RecordHarness):
            found = list(self.harness.ids())
            if self.harness.kind.guarantee is Guarantee.AT_LEAST_ONCE:
                found = list(dict.fromkeys(found))
            assert found == self.ids, "the records are not those of the log, in its order"
        if isinstance(self.harness, RowHarness):
            for table, rows in self.rows.items():
                assert _plain(self.harness.rows(table)) == _plain(rows), f"the rows of {table} differ"

    def _apply(self, step: Step) -> None:
        rows = self.rows[step.table]
        if step.key is None:
            rows.clear()
            return
        was = rows.pop(step.key if step.old_key is None else step.old_key, {})
        if step.after is not None:
            rows[step.key] = {**was, **step.after}


def _plain(rows: Mapping[int, Row]) -> dict[int, dict[str, object]]:
    return {key: {name: value for name, value in row.items() if value is not None} for key, row in sorted(rows.items())}
