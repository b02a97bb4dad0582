"""What the parts of one epoch share: how it ends, and how it waits."""

from __future__ import annotations

import asyncio

import pytest

from subscriber_sdk.calls.epoch import Ending, Epoch
from subscriber_sdk.subscriber import FlowHalted
from subscriber_sdk.testing import marker_at
from tests.support.eventually import PATIENCE_S


@pytest.fixture
def epoch() -> Epoch:
    return Epoch("shop", 3, marker_at(0))


def test_the_first_reason_to_end_stays(epoch: Epoch) -> None:
    assert epoch.end(Ending.REVOKED)
    assert not epoch.end(Ending.LOST, "the stream broke")
    assert (epoch.ending, epoch.cause, epoch.state) == (Ending.REVOKED, "revoked", "ending")


def test_the_state_says_the_gravest(epoch: Epoch) -> None:
    states = [epoch.state]
    epoch.resting = True
    states.append(epoch.state)
    epoch.stopped = True
    states.append(epoch.state)
    epoch.halted = FlowHalted("shop", 3, "a:1", 8, marker_at(0), ValueError("no"))
    states.append(epoch.state)
    epoch.end(Ending.CUT, "epoch 4 was assigned")
    assert [*states, epoch.state] == ["working", "resting", "stopped", "halted", "ending"]
    assert epoch.cause == "epoch 4 was assigned"


def test_an_acknowledged_place_is_where_a_rollback_leads(epoch: Epoch) -> None:
    assert (epoch.marker, epoch.acked) == (marker_at(0), None)
    epoch.acknowledged(marker_at(1))
    assert (epoch.marker, epoch.acked) == (marker_at(1), marker_at(1))


def test_rest_is_reported() -> None:
    told: list[bool] = []
    resting = Epoch("shop", 3, marker_at(0), lambda: told.append(resting.resting))
    resting.rest()
    assert told == [True]


async def test_a_pause_ends_with_the_epoch(epoch: Epoch) -> None:
    await epoch.pause(0.0)
    waiting = asyncio.create_task(epoch.pause(3600.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    epoch.end(Ending.LOST)
    await asyncio.wait_for(waiting, PATIENCE_S)
