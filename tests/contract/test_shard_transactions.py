"""One shard's transactions over real databases: two owners, and a COMMIT that is not answered."""

from __future__ import annotations

import pytest

from subscriber_sdk import EpochRefused
from subscriber_sdk.subscriber import KeptMarker
from subscriber_sdk.testing import marker_at
from tests.support.shard_owner import Owner
from tests.support.transactional import Target
from wormhole.model.errors import TargetRefused, TargetUnavailable


def add(owner: Owner, customer: int) -> None:
    """An effect that violates a key when it is repeated."""
    owner.run(f"INSERT INTO totals VALUES ({customer}, 1)")


@pytest.fixture
def owner(transactional_target: Target) -> Owner:
    """It has stored one transaction."""
    made = Owner(transactional_target.new())
    made.assigned(1)
    add(made, 1)
    made.commit(1)
    return made


def test_an_assignment_alone_fences_the_owner_before(transactional_target: Target, owner: Owner) -> None:
    """Neither its transactions nor its own assignment, if that is late, change anything."""
    new = Owner(transactional_target.new())
    assert new.assigned(2) == KeptMarker(marker_at(1), 0)
    with pytest.raises(TargetUnavailable, match="is in epoch 2"):
        add(owner, 2)
    with pytest.raises(EpochRefused):
        owner.assigned(1)
    assert transactional_target.totals == {1: 1}
    add(new, 2)
    new.commit(2)
    assert transactional_target.totals == {1: 1, 2: 1}


def test_an_assignment_waits_for_the_transaction_of_the_owner_before(
    transactional_target: Target, owner: Owner
) -> None:
    """Already to read the row: what is read without the lock may be older than what is stored then."""
    new = Owner(transactional_target.new(timeout=0.5))
    add(owner, 2)
    with pytest.raises(TargetUnavailable, match="cannot be read"):
        new.assigned(2)
    owner.commit(2)
    assert new.assigned(2) == KeptMarker(marker_at(2), 0)


def test_a_commit_without_answer_and_without_effect_is_delivered_again(
    transactional_target: Target, owner: Owner
) -> None:
    add(owner, 2)
    owner.lose_an_answer(executed=False)
    with pytest.raises(TargetUnavailable, match="had no effect"):
        owner.commit(2)
    assert transactional_target.totals == {1: 1}
    assert owner.assigned(2) == KeptMarker(marker_at(1), 0)
    add(owner, 2)
    owner.commit(2)
    assert transactional_target.totals == {1: 1, 2: 1}


def test_a_commit_without_answer_and_with_effect_is_not(transactional_target: Target, owner: Owner) -> None:
    add(owner, 2)
    owner.lose_an_answer(executed=True)
    owner.commit(2)
    add(owner, 3)
    owner.commit(3)
    assert transactional_target.totals == {1: 1, 2: 1, 3: 1}
    epoch, version, _ = transactional_target.row
    assert (epoch, version) == (1, 3)


def test_a_connection_that_is_lost_before_the_commit_is_no_failure_of_an_update(
    transactional_target: Target, owner: Owner
) -> None:
    """As if it had been lost within the callback: the shard is assigned again, and no attempt is counted."""
    add(owner, 2)
    owner.disconnect()
    with pytest.raises(TargetUnavailable, match="the connection was lost"):
        owner.commit(2)
    assert owner.assigned(2) == KeptMarker(marker_at(1), 0)
    assert transactional_target.totals == {1: 1}


DATABASES = pytest.mark.parametrize(
    "transactional_target", ["psycopg", "sqlalchemy-mariadb", "sqlalchemy-sqlite"], indirect=True
)


@DATABASES
def test_of_two_owners_in_one_epoch_the_last_one_has_the_shard(transactional_target: Target, owner: Owner) -> None:
    """A clone of the process, or of its publisher."""
    clone = Owner(transactional_target.new())
    assert clone.assigned(1) == KeptMarker(marker_at(1), 0)
    with pytest.raises(TargetUnavailable):
        add(owner, 2)
    add(clone, 2)
    clone.commit(2)
    assert owner.assigned(1) == KeptMarker(marker_at(2), 0)
    with pytest.raises(TargetUnavailable):
        add(clone, 3)
    assert transactional_target.totals == {1: 1, 2: 1}


@DATABASES
def test_an_older_copy_is_gone_on_from(transactional_target: Target, owner: Owner) -> None:
    """It is put back between two transactions: what is not in it comes again."""
    sql = transactional_target.sql
    sql("CREATE TABLE kept AS SELECT * FROM wormhole_marker")
    add(owner, 2)
    owner.commit(2)
    for statement in ("DELETE FROM wormhole_marker", "INSERT INTO wormhole_marker SELECT * FROM kept"):
        sql(statement)
    sql("DELETE FROM totals WHERE customer = 2")
    with pytest.raises(TargetUnavailable):
        add(owner, 3)
    assert owner.assigned(2) == KeptMarker(marker_at(1), 0)
    add(owner, 2)
    owner.commit(2)
    assert transactional_target.totals == {1: 1, 2: 1}


@pytest.mark.parametrize("transactional_target", ["sqlalchemy-sqlite"], indirect=True)
@pytest.mark.parametrize("edit", ["marker = 'not a datamarker'", "move = 7", "version = -1"])
def test_a_row_that_something_else_wrote_halts(transactional_target: Target, owner: Owner, edit: str) -> None:
    transactional_target.sql(f"UPDATE wormhole_marker SET {edit}")
    with pytest.raises(TargetRefused) as refused:
        owner.assigned(2)
    assert refused.value.code == "target-refused"
    owner.revoked()
    transactional_target.sql("DELETE FROM wormhole_marker")
