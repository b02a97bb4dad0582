"""What follows a refusal for an epoch that a subscriber holds."""

from __future__ import annotations

import pytest

from publisher.push.epoch_conflict import EpochConflict, after_refusal, explained, store_was_lost
from tests.support.present import present
from wormhole.model.position import Datamarker, LogPosition
from wormhole.push.epochs import FIRST_NO_EPOCH
from wormhole.push.session import FailedReason, FlowFailed, PushFlow

PLACE = LogPosition(1, 2, 3)
MARKER = Datamarker(PLACE, "17", PLACE)


def refusal(held: int = 9, *, contested: bool = False) -> FlowFailed:
    flow = PushFlow(1, "app", "s", 4, None)
    return FlowFailed(flow, FailedReason.STALE_EPOCH, "", "", held, "p-b", contested)


@pytest.mark.parametrize(
    ("contested", "sole", "before", "expected"),
    [
        (False, False, None, (False, 0.0)),  # nobody else is there: above it, at once
        (False, True, None, (False, 0.0)),
        (True, True, None, (False, 0.0)),  # the registered one takes it
        (True, True, -10.0, (True, 2.0)),  # and not a second time within a minute
        (True, True, -61.0, (False, 0.0)),
        (True, False, None, (True, 2.0)),  # nobody knows who is right: the one that is there stays
        (True, False, -10.0, (True, 2.0)),
        (False, False, -10.0, (False, 2.0)),  # refused again and again: not without a pause
    ],
)
def test_who_yields_and_how_long(
    contested: bool, sole: bool, before: float | None, expected: tuple[bool, float]
) -> None:
    earlier = None if before is None else EpochConflict(5, "p-b", False, 0.0, 100.0 + before)
    conflict = present(after_refusal(refusal(contested=contested), earlier, sole=sole, now=100.0))
    assert (conflict.contested, conflict.until - 100.0) == expected
    assert (conflict.held_epoch, conflict.by) == (9, "p-b")


@pytest.mark.parametrize("held", [0, FIRST_NO_EPOCH - 1, 2**64 - 1])
def test_an_epoch_that_no_flow_can_have_is_not_believed(held: int) -> None:
    """0 is what a subscriber of an earlier release says; more than the highest no store could count on from."""
    assert after_refusal(refusal(held), None, sole=True, now=0.0) is None


def test_operators_read_who_has_it_and_what_to_do() -> None:
    text = explained(EpochConflict(9, "p-b", True, 0.0, 0.0), 4, MARKER, "s1")
    assert "p-b" in str(text)
    assert "Next: stop the one" in str(text)
    text = explained(EpochConflict(9, "", False, 0.0, 0.0), 4, MARKER, "s1")
    assert "s1 has seen epoch 9" in str(text)
    assert f"{MARKER}: what was delivered after that datamarker comes again" in str(text)


@pytest.mark.parametrize(
    ("before", "contested", "acknowledged", "expected"),
    [
        (None, False, False, True),  # the store is new, and the subscriber has had the flow
        (None, False, True, False),  # the store was set back: it knows a place
        (None, True, False, False),  # another publisher serves it
        (True, False, False, False),  # another publisher served it until now, and this one was there
        (False, False, False, True),
    ],
)
def test_what_proves_that_the_store_was_lost(
    before: bool | None, contested: bool, acknowledged: bool, expected: bool
) -> None:
    earlier = None if before is None else EpochConflict(5, "p-b", before, 0.0, 0.0)
    assert store_was_lost(earlier, EpochConflict(9, "p-b", contested, 0.0, 1.0), acknowledged=acknowledged) is expected
