"""Every store of ``subscriber_sdk.transactional`` over real databases: each effect is counted exactly once."""

from __future__ import annotations

import pytest

from subscriber_sdk import HandlerFailed, RetryPolicy, Update
from subscriber_sdk.testing import Kit, read, update
from subscriber_sdk.testing.changes import Change
from subscriber_sdk.transactional import Transactional
from tests.support.transactional import Run, Target, add, totals

# The kit calls plain `def` callbacks on its loop. In production they run in threads.
pytestmark = pytest.mark.allow_blocking


@pytest.fixture
def target(transactional_target: Target) -> Target:
    return transactional_target


def paid(customer: int, amount: int) -> Change:
    """A change that adds ``amount``."""
    return update("shop.orders", key=customer, after={"amount": amount})


def test_effects_and_datamarker_are_committed_together(target: Target, wormhole_kit: Kit) -> None:
    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store), store))
    flow.commit(paid(1, 5), paid(2, 7))
    flow.commit(paid(1, 1))
    assert target.totals == {1: 6, 2: 7}
    assert flow.datamarker == flow.end
    epoch, version, move = target.row
    assert (epoch, version, move) == (1, 2, 0)


def test_what_was_committed_is_not_delivered_again(target: Target, wormhole_kit: Kit) -> None:
    """The process dies before its acknowledgements were stored."""
    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store), store))
    flow.commit(paid(1, 5))
    flow.commit(paid(1, 1))
    again = target.new()
    flow.crash_and_redeliver(2, subscriber=Transactional(totals(again), again))
    flow.commit(paid(1, 10))
    assert target.totals == {1: 16}
    assert target.row[0] == 2


def test_a_failure_rolls_the_whole_transaction_back(target: Target, wormhole_kit: Kit) -> None:
    left = 2

    async def failing(change: Update, sql: Run) -> None:
        nonlocal left
        await add(change, sql)
        if change.key == (2,) and left:
            left -= 1
            raise ValueError("no")

    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store, failing), store))
    flow.commit(paid(1, 5), paid(2, 7), pieces=2)
    assert target.totals == {1: 5, 2: 7}
    assert flow.datamarker == flow.end


def test_a_database_error_that_the_handler_hides_is_no_success(target: Target, wormhole_kit: Kit) -> None:
    async def hiding(change: Update, sql: Run) -> None:
        await add(change, sql)
        try:
            await sql("INSERT INTO missing VALUES (1)")
        except Exception:
            pass

    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store, hiding), store), retry=RetryPolicy(attempts=2))
    with pytest.raises(HandlerFailed, match="a statement of its transaction failed"):
        flow.commit(paid(1, 5))
    assert target.totals == {}


def test_a_failure_of_a_savepoint_that_the_handler_undoes_is_none(target: Target, wormhole_kit: Kit) -> None:
    async def trying(change: Update, sql: Run) -> None:
        await add(change, sql)
        await sql("SAVEPOINT mine")
        await sql("ROLLBACK TO SAVEPOINT mine")

    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store, trying), store))
    flow.commit(paid(1, 5))
    assert target.totals == {1: 5}


def test_a_row_of_a_later_epoch_fences(target: Target, wormhole_kit: Kit) -> None:
    """Another owner took the shard meanwhile: nothing of this transaction is stored."""
    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store), store))
    flow.commit(paid(1, 5))
    target.sql("UPDATE wormhole_marker SET epoch = 9")
    flow.commit(paid(1, 1))
    assert target.totals == {1: 6}
    assert flow.epoch > 9
    assert target.row[0] == flow.epoch


def test_a_transaction_that_the_handler_ends_halts_the_flow(target: Target, wormhole_kit: Kit) -> None:
    """Its effects are stored without the datamarker, and would be repeated."""

    async def ending(change: Update, sql: Run) -> None:
        await add(change, sql)
        await sql("COMMIT")

    store = target.new()
    with pytest.raises(HandlerFailed, match=r"transaction-ended|failed"):
        flow = wormhole_kit.attach(Transactional(totals(store, ending), store), retry=2)
        flow.commit(paid(1, 5))
    assert target.totals == {1: 5}
    assert target.row[1] == 0


def test_a_marker_is_left_open_with_ack_later(target: Target, wormhole_kit: Kit) -> None:
    store = target.new()
    handler = totals(store)
    handler.later = 1
    flow = wormhole_kit.attach(Transactional(handler, store))
    flow.commit(paid(1, 5))
    assert target.totals == {}
    wormhole_kit.advance(1.5)
    assert target.totals == {1: 5}
    assert flow.datamarker == flow.end


def test_existing_rows_and_their_ranges_are_in_the_transaction(target: Target, wormhole_kit: Kit) -> None:
    target.sql("INSERT INTO totals VALUES (99, 1)")
    store = target.new()
    handler = totals(store)
    flow = wormhole_kit.attach(Transactional(handler, store))
    flow.backfill("shop.orders", [read("shop.orders", key=1, after={"amount": 5})])
    assert target.totals == {1: 5}
    assert len(handler.ranges) == 1


def test_a_dead_letter_is_applied_once(target: Target, wormhole_kit: Kit) -> None:
    """The process dies after its effect was stored, and before the publisher deleted it."""
    bad = True

    async def refusing(change: Update, sql: Run) -> None:
        await add(change, sql)
        if bad and change.key == (1,):
            raise ValueError("no")

    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store, refusing), store), on_failure="park", retry=2)
    flow.commit(paid(1, 5), paid(2, 7))
    assert (target.totals, flow.parked) == ({2: 7}, ["test:1:0"])
    bad = False
    kept = dict(flow._letters._kept)
    flow.retry()
    assert target.totals == {1: 5, 2: 7}
    flow._letters._kept.update(kept)
    flow.retry()
    flow.commit(paid(2, 1))
    assert target.totals == {1: 5, 2: 8}
