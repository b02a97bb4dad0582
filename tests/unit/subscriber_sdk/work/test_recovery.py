"""What follows when a callback fails: rollback, another try, a resend, standing still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from subscriber_sdk import (
    FlowHalted,
    RetryPolicy,
    Subscriber,
    Update,
)
from subscriber_sdk.testing import Kit, marker_at, update
from tests.support.flows import Recorder, failing
from wormhole.model.errors import HandlerFailed


def test_a_failure_rolls_back_to_the_last_acknowledged_place(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder(failing(2, key=3)))
    flow.commit(update("t", key=1))
    flow.commit(update("t", key=2), update("t", key=3))
    again = ["rollback 1 no", 2, 3]
    assert subscriber.heard == ["assigned", 1, "marker 1", 2, 3, *again, *again, "marker 2"]
    assert flow.datamarker == flow.end
    assert wormhole_kit.now == pytest.approx(0.1 + 0.2)


def test_retries_exhausted_halt_the_flow(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder(failing(99)), retry=RetryPolicy(attempts=3))
    with pytest.raises(HandlerFailed, match="test:1:0 after 3 attempts") as raised:
        flow.commit(update("t", key=1))
    assert isinstance(raised.value.__cause__, ValueError)
    assert flow.halted is not None
    assert (flow.halted.update_id, flow.halted.attempts) == ("test:1:0", 3)
    assert subscriber.heard[-1] == "halted test:1:0"
    assert flow.datamarker == marker_at(0)


def test_a_halted_flow_begins_again_when_it_is_assigned_anew(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Recorder(failing(2)), retry=RetryPolicy(attempts=2))
    with pytest.raises(HandlerFailed):
        flow.commit(update("t", key=1))
    flow.crash_and_redeliver()
    assert flow.datamarker == flow.end


def test_a_batch_that_repeats_too_much_is_asked_for_again(wormhole_kit: Kit) -> None:
    """A transaction larger than what is held: RESEND, a new epoch, and the attempts still count."""
    flow = wormhole_kit.attach(subscriber := Recorder(failing(2, key=9)), credit=300, retry=RetryPolicy(attempts=3))
    rows = [update("t", key=n, after={"v": bytes(100)}) for n in range(10)]
    flow.commit(*rows, pieces=10)
    assert flow.datamarker == flow.end
    assert flow.epoch == 3
    assert [h for h in subscriber.heard if h == 9] == [9, 9, 9]


def test_attempts_are_counted_over_resends(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Recorder(failing(99, key=9)), credit=300, retry=RetryPolicy(attempts=3))
    with pytest.raises(HandlerFailed, match="after 3 attempts"):
        flow.commit(*[update("t", key=n, after={"v": bytes(100)}) for n in range(10)], pieces=10)


@pytest.mark.parametrize("name", ["on_datamarker", "on_rollback", "on_shard_notice"])
def test_other_callbacks_are_retried_too(wormhole_kit: Kit, name: str) -> None:
    class Flaky(Recorder):
        left = 2

    async def flaky(self: Flaky, *arguments: Any) -> None:
        if self.left:
            self.left -= 1
            raise OSError(name)

    setattr(Flaky, name, flaky)
    flow = wormhole_kit.attach(Flaky(failing(1)))
    flow.commit(update("t", key=1))
    assert flow.datamarker == flow.end


def test_a_failed_batch_names_its_first_update(wormhole_kit: Kit) -> None:
    class Batches(Subscriber):
        def on_updates(self, batch: Sequence[Update]) -> None:
            raise OSError

    flow = wormhole_kit.attach(Batches(), retry=RetryPolicy(attempts=1))
    with pytest.raises(HandlerFailed, match="test:1:0"):
        flow.commit(update("t", key=1), update("t", key=2))


def test_what_on_error_raises_is_logged_only(wormhole_kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    class Sore(Recorder):
        async def on_error(self, error: FlowHalted) -> None:
            raise RuntimeError("alarm is down")

    flow = wormhole_kit.attach(Sore(failing(9)), retry=RetryPolicy(attempts=1))
    with pytest.raises(HandlerFailed):
        flow.commit(update("t", key=1))
    assert "on_error of shard shop failed" in caplog.text
