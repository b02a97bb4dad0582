"""One shard's transactions over real databases: two owners, and a COMMIT that is not answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from subscriber_sdk import EpochRefused, NoticeKind, ShardNotice
from subscriber_sdk.subscriber import KeptMarker
from subscriber_sdk.testing import marker_at
from subscriber_sdk.transactional.shard import ShardTransactions
from subscriber_sdk.transactional.store import Session, finish
from tests.support.transactional import Target, run
from wormhole.model.errors import TargetUnavailable

ASSIGNED = ShardNotice(NoticeKind.ASSIGNED, "s", 1, marker_at(0), application="a")


class Owner:
    """A process that has the shard, and a connection of its own. ``waits``: seconds for a lock."""

    def __init__(self, target: Target, waits: float = 20.0) -> None:
        store = target.new(timeout=waits)
        connect = store.connect

        async def noted() -> Session[Any]:
            self.session: Any = await connect()
            return self.session

        store.connect = noted  # type: ignore[method-assign]
        self.shard: ShardTransactions[Any] = ShardTransactions(store, "s")

    def assigned(self, epoch: int) -> KeptMarker | None:
        """An epoch begins."""
        return finish(self.shard.assigned(replace(ASSIGNED, epoch=epoch)))

    def add(self, customer: int) -> None:
        """An effect in the transaction, which a repetition would violate a key with."""

        def effect(connection: Any) -> None:
            finish(run(connection, f"INSERT INTO totals VALUES ({customer}, 1)"))

        finish(self.shard.call(effect))

    def commit(self, number: int) -> None:
        """The datamarker after this transaction."""
        finish(self.shard.commit(marker_at(number)))

    def lose_an_answer(self, *, executed: bool) -> None:
        """The next COMMIT has its effect or not, and its answer does not come."""
        session = self.session
        commit = session.commit

        async def unanswered() -> None:
            session.commit = commit
            await (commit if executed else session.rollback)()
            raise ConnectionError("no answer")

        session.commit = unanswered


@pytest.fixture
def owner(transactional_target: Target) -> Owner:
    """It has stored one transaction."""
    made = Owner(transactional_target)
    made.assigned(1)
    made.add(1)
    made.commit(1)
    return made


def test_an_assignment_alone_fences_the_owner_before(transactional_target: Target, owner: Owner) -> None:
    """Neither its transactions nor its own assignment, if that is late, change anything."""
    new = Owner(transactional_target)
    assert new.assigned(2) == KeptMarker(marker_at(1), 0)
    with pytest.raises(TargetUnavailable, match="is in epoch 2"):
        owner.add(2)
    with pytest.raises(EpochRefused):
        owner.assigned(1)
    assert transactional_target.totals == {1: 1}
    new.add(2)
    new.commit(2)
    assert transactional_target.totals == {1: 1, 2: 1}


def test_an_assignment_waits_for_the_transaction_of_the_owner_before(
    transactional_target: Target, owner: Owner
) -> None:
    """Already to read the row: what is read without the lock may be older than what is stored then."""
    new = Owner(transactional_target, waits=0.5)
    owner.add(2)
    with pytest.raises(TargetUnavailable, match="cannot be read"):
        new.assigned(2)
    owner.commit(2)
    assert new.assigned(2) == KeptMarker(marker_at(2), 0)


def test_a_commit_without_answer_and_without_effect_is_delivered_again(
    transactional_target: Target, owner: Owner
) -> None:
    owner.add(2)
    owner.lose_an_answer(executed=False)
    with pytest.raises(TargetUnavailable, match="had no effect"):
        owner.commit(2)
    assert transactional_target.totals == {1: 1}
    assert owner.assigned(2) == KeptMarker(marker_at(1), 0)
    owner.add(2)
    owner.commit(2)
    assert transactional_target.totals == {1: 1, 2: 1}


def test_a_commit_without_answer_and_with_effect_is_not(transactional_target: Target, owner: Owner) -> None:
    owner.add(2)
    owner.lose_an_answer(executed=True)
    owner.commit(2)
    owner.add(3)
    owner.commit(3)
    assert transactional_target.totals == {1: 1, 2: 1, 3: 1}
    epoch, version, _ = transactional_target.row
    assert (epoch, version) == (1, 3)


def test_a_connection_that_is_lost_before_the_commit_is_no_failure_of_an_update(
    transactional_target: Target, owner: Owner
) -> None:
    """As if it had been lost within the callback: the shard is assigned again, and no attempt is counted."""
    owner.add(2)
    finish(owner.session.close())
    with pytest.raises(TargetUnavailable, match="the connection was lost"):
        owner.commit(2)
    assert owner.assigned(2) == KeptMarker(marker_at(1), 0)
    assert transactional_target.totals == {1: 1}
