"""Whatever happens to two owners of a shard, and in whatever order: the effects are those of the transactions up to the
stored datamarker, each once, and no later datamarker is acknowledged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subscriber_sdk import EpochRefused
from subscriber_sdk.transactional.sqlalchemy import SqlAlchemyStore
from tests.support.seed import examples
from tests.support.shard_owner import Owner
from wormhole.model.errors import TargetUnavailable
from wormhole.wire.markers import marker_from_bytes

pytestmark = pytest.mark.allow_blocking


class Process:
    """An owner, and the transactions that its publisher pushes to it. ``at``: the last one delivered; ``None``: the
    publisher has to assign the shard again."""

    def __init__(self, path: Path) -> None:
        self.owner = Owner(SqlAlchemyStore(f"sqlite:///{path}", timeout=0.005))
        self.at: int | None = None
        self.acknowledged = 0

    def assign(self, epoch: int) -> None:
        self.at = None
        have = self.owner.assigned(epoch)
        self.at = self.acknowledged = int(have.marker.delivered or 0) if have else 0

    def deliver(self) -> None:
        if self.at is not None:
            self.owner.run(f"INSERT INTO ledger VALUES ({self.at + 1})")
            self.at += 1

    def commit(self) -> None:
        if self.at is not None:
            self.owner.commit(self.at)
            self.acknowledged = self.at

    def commit_unanswered(self, executed: bool) -> None:
        if self.at is not None:
            self.owner.lose_an_answer(executed=executed)
            self.commit()

    def fail(self) -> None:
        if self.at is not None:
            self.owner.fail(self.acknowledged)
            self.at = self.acknowledged


def happens(process: Process, what: str, epoch: int) -> None:
    match what:
        case "assign":
            process.assign(epoch)
        case "late assign":
            process.assign(epoch - 1)
        case "executed" | "not executed":
            process.commit_unanswered(what == "executed")
        case "disconnect":
            process.owner.disconnect()
        case _:
            getattr(process, what)()


EVENTS = ("assign", "late assign", "deliver", "commit", "executed", "not executed", "disconnect", "fail")


@examples(50)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(EVENTS)), min_size=20, max_size=30))
def test_effects_are_those_before_the_datamarker(events: list[tuple[int, str]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "target.db"

        def sql(statement: str) -> list[tuple[object, ...]]:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                return connection.execute(statement).fetchall()

        def compare() -> None:
            ((raw,),) = sql("SELECT marker FROM wormhole_marker")
            assert isinstance(raw, bytes)
            stored = int(marker_from_bytes(raw).delivered or 0)
            assert stored >= max(process.acknowledged for process in processes)
            assert sql("SELECT number FROM ledger ORDER BY 1") == [(number,) for number in range(1, stored + 1)]

        sql("CREATE TABLE ledger (number INT)")
        processes = [Process(path), Process(path)]
        epoch = 0
        for who, what in [(0, "assign"), (1, "assign"), *events]:
            epoch += what == "assign"
            try:
                happens(processes[who], what, epoch)
            except (TargetUnavailable, EpochRefused):
                processes[who].at = None
            compare()
        for process in processes:
            process.owner.revoked()
        last = Process(path)
        last.assign(epoch + 1)
        for step in (last.deliver, last.commit, last.owner.revoked):
            step()
        compare()
