"""Each change is counted once, also when the process dies before its acknowledgement was stored, and once more after a
rewind."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.running_totals import RunningTotals
from subscriber_sdk import HandlerFailed, RetryPolicy
from subscriber_sdk.testing import Change, Kit, update

pytestmark = pytest.mark.allow_blocking("SQLite, in place of the thread that it has in production")


def order(amount: int) -> Change:
    return update("shop.orders", key=amount, after={"customer": 1, "amount": amount})


def test_totals_count_each_change_once(wormhole_kit: Kit, tmp_path: Path) -> None:
    path = str(tmp_path / "totals.db")
    flow = wormhole_kit.attach(first := RunningTotals(path))
    for amount in (5, 7):
        flow.commit(order(amount))
    first.database.close()
    flow.crash_and_redeliver(transactions=2, subscriber=(second := RunningTotals(path)))
    flow.commit(order(3))
    assert second.database.execute("SELECT * FROM totals").fetchall() == [(1, 15)]
    second.database.close()


def test_a_move_is_made_once(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(program := RunningTotals(":memory:"))
    flow.commit(order(5))
    before = flow.datamarker
    flow.commit(order(7))
    flow.move(before)
    flow.crash_and_redeliver(transactions=2)  # the rewind is reported again
    flow.cut()
    flow.commit(order(100))
    flow.move(flow.end)
    flow.crash_and_redeliver()
    flow.commit(order(3))
    assert program.database.execute("SELECT amount FROM totals").fetchall() == [(5 + 7 + 7 + 3,)]
    program.database.close()


def test_lost_sums_are_not_begun_anew_unnoticed(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(first := RunningTotals(":memory:"), retry=RetryPolicy(attempts=1))
    for amount in (5, 7):
        flow.commit(order(amount))
    first.database.close()
    second = RunningTotals(":memory:")
    with pytest.raises(HandlerFailed, match="the sums of shop are lost"):
        flow.crash_and_redeliver(subscriber=second)
    second.database.close()
