"""Callbacks within their time: on the loop, in threads, in batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

from subscriber_sdk import (
    Datamarker,
    RetryPolicy,
    Subscriber,
    Update,
)
from subscriber_sdk.testing import Kit, update
from tests.support.eventually import eventually
from tests.support.flows import NewWorld, Recorder


def test_a_handler_over_its_time_is_cancelled_and_tried_again(wormhole_kit: Kit) -> None:
    cancelled: list[str] = []

    async def act(update: Update) -> None:
        if not cancelled:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(update.id)
                raise

    flow = wormhole_kit.attach(subscriber := Recorder(act), handler_timeout=8.0)
    flow.commit(update("t", key=1))
    assert cancelled == ["test:1:0"]
    assert "handler_timeout = 8 s" in subscriber.heard[2]
    assert flow.datamarker == flow.end
    assert 8.0 <= wormhole_kit.now <= 9.2


def test_a_handler_that_swallows_its_cancellation_counts_as_processed(wormhole_kit: Kit) -> None:
    async def act(update: Update) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

    flow = wormhole_kit.attach(subscriber := Recorder(act), handler_timeout=1.0)
    flow.commit(update("t", key=1))
    flow.commit(update("t", key=2))
    assert subscriber.heard == ["assigned", 1, "marker 1", 2, "marker 2"]


def test_cancelled_error_of_the_handlers_own_is_a_failure(wormhole_kit: Kit) -> None:
    raised: list[int] = []

    async def act(update: Update) -> None:
        if not raised:
            raised.append(1)
            raise asyncio.CancelledError

    flow = wormhole_kit.attach(subscriber := Recorder(act))
    flow.commit(update("t", key=1))
    assert "of its own" in subscriber.heard[2]
    assert flow.datamarker == flow.end


def test_batches_come_whole(wormhole_kit: Kit) -> None:
    class Batches(Subscriber):
        def __init__(self) -> None:
            self.batches: list[list[Any]] = []

        async def on_updates(self, batch: Sequence[Update]) -> None:
            self.batches.append([(u.key[0], u.transaction.id, u.ends_transaction) for u in batch])

    flow = wormhole_kit.attach(subscriber := Batches())
    flow.commit(*[update("t", key=n) for n in range(4)], pieces=2)
    assert subscriber.batches == [
        [(0, "test:1", False), (1, "test:1", False)],
        [(2, "test:1", False), (3, "test:1", True)],
    ]


async def test_callbacks_that_never_wait_leave_the_loop_to_others(new_world: NewWorld) -> None:
    class Busy(Subscriber):
        async def on_update(self, update: Update) -> None:
            began = time.perf_counter()
            while time.perf_counter() - began < 0.0002:
                pass

    world, publisher = new_world(Busy())
    await world.open(publisher)
    for number in range(1, 11):
        world.push(publisher, number, *range(100))
    turns = 0
    settled = asyncio.create_task(world.shards.settled())
    while not settled.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


async def test_a_plain_def_runs_in_a_thread_and_keeps_order(new_world: NewWorld) -> None:
    loop_thread = threading.get_ident()

    class Threaded(Subscriber):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def on_update(self, update: Update) -> None:
            assert threading.get_ident() != loop_thread
            self.heard.append(update.key[0])

        def on_datamarker(self, marker: Datamarker) -> None:
            self.heard.append(f"marker {marker.delivered}")

    world, publisher = new_world(subscriber := Threaded())
    await world.open(publisher)
    world.push(publisher, 1, *range(50))
    await world.shards.settled()
    assert subscriber.heard == [*range(50), "marker 1"]


async def test_a_thread_that_outlives_its_time_is_never_joined_by_a_second(new_world: NewWorld) -> None:
    class Stuck(Subscriber):
        def __init__(self) -> None:
            self.release = threading.Event()
            self.inside = self.most = self.calls = 0

        def on_update(self, update: Update) -> None:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.calls == 1:
                self.release.wait()
            self.inside -= 1

    world, publisher = new_world(
        subscriber := Stuck(), handler_timeout=0.2, retry=RetryPolicy(attempts=5, first_wait=0.0)
    )
    await world.open(publisher)
    world.push(publisher, 1, 1)
    await eventually(lambda: subscriber.calls, "begun")
    await asyncio.sleep(0.35)
    assert subscriber.calls == 1
    subscriber.release.set()
    await world.shards.settled()
    assert subscriber.calls > 1, "it was tried again"
    assert subscriber.most == 1
    assert publisher.take("ack")
