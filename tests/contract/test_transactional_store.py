"""Every store of ``subscriber_sdk.transactional`` over real databases: each effect is counted exactly once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from subscriber_sdk import HandlerFailed, RetryPolicy, Update
from subscriber_sdk.testing import Kit, read, update
from subscriber_sdk.testing.changes import Change
from subscriber_sdk.transactional import Transactional, TransactionalHandler
from subscriber_sdk.transactional.store import finish
from tests.support.transactional import STORES, Run, Target, add, run, totals
from wormhole.model.errors import TargetRefused

# The kit calls plain `def` callbacks on its loop. In production they run in threads.
pytestmark = pytest.mark.allow_blocking


def on_all_and_on_sqlite(argument: str, each: object, *others: object) -> pytest.MarkDecorator:
    """``each`` over every store. ``others`` differ in what is above the stores, so over one."""
    cases = [(store, each) for store in STORES] + [("sqlalchemy-sqlite", other) for other in others]
    return pytest.mark.parametrize(("transactional_target", argument), cases, indirect=["transactional_target"])


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


def test_a_move_is_made_once(target: Target, wormhole_kit: Kit) -> None:
    """Backwards and forwards, each with a death before an acknowledgement of it was stored."""
    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store), store))
    flow.commit(paid(1, 5))
    before = flow.datamarker
    flow.commit(paid(1, 7))
    flow.move(before)
    flow.crash_and_redeliver(2)
    flow.cut()
    flow.commit(paid(1, 1000))
    flow.move(flow.end)
    moved_in = flow.epoch
    again = target.new()
    flow.crash_and_redeliver(subscriber=Transactional(totals(again), again))
    flow.commit(paid(1, 100))
    assert target.totals == {1: 5 + 7 + 7 + 100}
    assert target.row[2] == moved_in


@on_all_and_on_sqlite("cause", ValueError, TargetRefused)
def test_a_halted_flow_holds_no_lock(target: Target, wormhole_kit: Kit, cause: type[Exception]) -> None:
    async def refuse(update: Update, sql: Run) -> None:
        await add(update, sql)
        raise cause("not so")

    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store), store))
    flow.commit(paid(1, 5))
    flow = wormhole_kit.attach(Transactional(totals(store, refuse), store), retry=1)
    with pytest.raises(HandlerFailed):
        flow.commit(paid(1, 7))
    target.sql("UPDATE totals SET amount = 9 WHERE customer = 1")
    assert target.totals == {1: 9}


def test_an_emptied_target_halts_until_its_datamarker_is_moved(target: Target, wormhole_kit: Kit) -> None:
    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store), store))
    flow.commit(paid(1, 5))
    flow.commit(paid(1, 7))
    target.sql("DELETE FROM wormhole_marker")
    for _ in range(2):
        with pytest.raises(HandlerFailed) as halted:
            flow.assign()
        assert isinstance(halted.value.__cause__, TargetRefused)
        assert halted.value.__cause__.code == "target-empty"
    flow.move(flow.end)
    flow.commit(paid(1, 100))
    assert target.totals == {1: 112}


@on_all_and_on_sqlite("delivers", "on_updates", "on_arrow")
def test_several_updates_are_delivered_at_once(target: Target, wormhole_kit: Kit, delivers: str) -> None:
    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store, delivers=delivers), store))
    flow.commit(paid(1, 5), paid(2, 7), paid(1, 1))
    again = target.new()
    flow.crash_and_redeliver(1, subscriber=Transactional(totals(again, delivers=delivers), again))
    flow.commit(paid(2, 1))
    assert target.totals == {1: 6, 2: 8}
    assert flow.datamarker == flow.end


def test_rows_are_compared_and_repaired_through_the_connection(target: Target, wormhole_kit: Kit) -> None:
    target.sql("INSERT INTO totals VALUES (3, 1)")
    store = target.new()
    flow = wormhole_kit.attach(Transactional(totals(store), store))
    flow.commit(paid(1, 5), paid(2, 7))
    found = flow.verify("shop.orders", [read("shop.orders", key=key, after={"amount": 5}) for key in (1, 2)])
    assert (found.compared, found.missing, found.differs, found.extra) == (2, 0, 1, 1)
    flow.commit(paid(1, 1))
    assert target.totals == {1: 6, 2: 7, 3: 1}


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


MYSQL = pytest.mark.parametrize("transactional_target", ["sqlalchemy-mysql", "sqlalchemy-mariadb"], indirect=True)


def test_a_transaction_that_the_handler_ends_halts_the_flow(target: Target, wormhole_kit: Kit) -> None:
    assert_ended_by("COMMIT", target, wormhole_kit)


@MYSQL
@pytest.mark.parametrize("statement", ["SET autocommit = 1", "CREATE TABLE other (id INT)"])
def test_a_statement_that_commits_by_itself_halts_the_flow(target: Target, wormhole_kit: Kit, statement: str) -> None:
    assert_ended_by(statement, target, wormhole_kit)


def assert_ended_by(statement: str, target: Target, kit: Kit) -> None:
    """Its effects are stored without the datamarker, and would be repeated."""

    async def ending(change: Update, sql: Run) -> None:
        await add(change, sql)
        await sql(statement)

    store = target.new()
    flow = kit.attach(Transactional(totals(store, ending), store), retry=2)
    for _ in range(2):
        with pytest.raises(HandlerFailed) as halted:
            flow.commit(paid(1, 5)) if flow.halted is None else flow.assign()
        assert isinstance(halted.value.__cause__, TargetRefused)
        assert halted.value.__cause__.code == "transaction-ended"
    assert target.totals == {1: 5}
    assert target.row[1] == 0


@MYSQL
def test_a_table_without_transactions_is_refused(target: Target, wormhole_kit: Kit) -> None:
    store = target.new()
    (create,) = store.create_statements()
    target.sql(create.replace("InnoDB", "MyISAM"))
    with pytest.raises(HandlerFailed, match="MyISAM") as halted:
        wormhole_kit.attach(Transactional(totals(store), store))
    assert isinstance(halted.value.__cause__, TargetRefused)
    assert halted.value.__cause__.code == "target-refused"


@MYSQL
@pytest.mark.parametrize("hidden", ["by the handler", "in a savepoint", "from SQLAlchemy"])
def test_a_deadlock_that_the_handler_hides_loses_nothing(target: Target, wormhole_kit: Kit, hidden: str) -> None:
    """The server rolls the whole transaction back, and the next statement begins another one."""
    target.sql("CREATE TABLE ballast (id INT PRIMARY KEY)")
    target.sql("INSERT INTO totals VALUES (1, 0), (2, 0)")
    deadlocks = 0

    class Adds(TransactionalHandler[Connection]):
        def on_update(self, update: Update, connection: Connection) -> None:
            nonlocal deadlocks
            with contextlib.suppress(Exception):
                if deadlocks == 0 and update.key == (2,):
                    deadlocks += 1
                    with deadlock(target, holds=2, wants=1) as loses:
                        if hidden == "from SQLAlchemy":
                            connection.connection.cursor().execute(loses)
                        elif hidden == "in a savepoint":
                            with connection.begin_nested():
                                connection.execute(text(loses))
                        else:
                            connection.execute(text(loses))
            finish(add(update, lambda statement: run(connection, statement)))

    store = target.new()
    flow = wormhole_kit.attach(Transactional(Adds(), store))
    flow.commit(paid(1, 5), paid(2, 7), paid(1, 1))
    assert deadlocks == 1
    assert target.totals == {1: 6, 2: 7}
    assert flow.datamarker == flow.end


@contextlib.contextmanager
def deadlock(target: Target, *, holds: int, wants: int) -> Iterator[str]:
    """Another transaction holds one row and wants the other. The given statement makes a deadlock, which the caller's
    transaction loses, because the other one wrote more."""
    locks = "UPDATE totals SET amount = amount WHERE customer = {}"
    other: Connection = finish(target.new().connect()).connection
    other.execute(text(f"INSERT INTO ballast VALUES {', '.join(f'({number})' for number in range(1000))}"))
    other.execute(text(locks.format(holds)))
    waiting = threading.Thread(target=other.execute, args=(text(locks.format(wants)),))
    waiting.start()
    try:
        yield locks.format(holds)
    finally:
        waiting.join()
        other.rollback()


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


@on_all_and_on_sqlite("delivers", "on_update", "on_updates", "on_arrow")
def test_a_dead_letter_is_applied_once(target: Target, wormhole_kit: Kit, delivers: str) -> None:
    """The process dies after its effect was stored, and before the publisher deleted it."""
    bad = True

    async def refusing(change: Update, sql: Run) -> None:
        await add(change, sql)
        if bad and change.key == (1,):
            raise ValueError("no")

    store = target.new()
    handler = totals(store, refusing, delivers)
    flow = wormhole_kit.attach(Transactional(handler, store), on_failure="park", retry=2)
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


@pytest.mark.parametrize("transactional_target", ["sqlalchemy-sqlite"], indirect=True)
def test_a_replay_of_last_changes_needs_a_handler_whose_effects_are_states(target: Target, wormhole_kit: Kit) -> None:
    store = target.new()
    handler = totals(store)
    flow = wormhole_kit.attach(Transactional(handler, store))
    flow.commit(paid(1, 5))
    with pytest.raises(HandlerFailed) as halted:
        flow.replay(1, latest=True)
    assert isinstance(halted.value.__cause__, TargetRefused)
    assert halted.value.__cause__.code == "latest-refused"
    assert target.totals == {1: 5}
    handler.state_only = True
    flow.assign()
    flow.replay(1, latest=True)
    assert target.totals == {1: 10}
