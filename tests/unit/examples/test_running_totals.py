"""Each change is counted once, also when the process dies before its acknowledgement was stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.running_totals import RunningTotals
from subscriber_sdk.testing import Kit, update


@pytest.mark.allow_blocking("SQLite, in place of the thread that it has in production")
def test_totals_count_each_change_once(wormhole_kit: Kit, tmp_path: Path) -> None:
    path = str(tmp_path / "totals.db")
    flow = wormhole_kit.attach(first := RunningTotals(path))
    for amount in (5, 7):
        flow.commit(update("shop.orders", key=amount, after={"customer": 1, "amount": amount}))
    first.database.close()
    flow.crash_and_redeliver(transactions=2, subscriber=(second := RunningTotals(path)))
    flow.commit(update("shop.orders", key=3, after={"customer": 1, "amount": 3}))
    assert second.database.execute("SELECT * FROM totals").fetchall() == [(1, 15)]
    second.database.close()
