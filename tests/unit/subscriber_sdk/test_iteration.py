"""Transactions for a loop (over a real connection: tests/integration/test_sdk_grpc.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from subscriber_sdk import HandlerFailed, Update, UsageError, iteration, transactions
from subscriber_sdk.iteration import WaitingTransactions
from subscriber_sdk.testing import Kit, KitFlow, body_of, frames, marker_at, update
from tests.support.flows import NewWorld, kinds
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch

MIB = 1 << 20


class Loop:
    """Takes what is handed over. While ``held`` it does not ask for the next one."""

    def __init__(self, kit: Kit, *, part: int = MIB, total: int = MIB) -> None:
        self.over = WaitingTransactions(part, total)
        self.taken: list[list[int]] = []
        self.ends: list[bool] = []
        self.free = asyncio.Event()
        self.free.set()
        self._kit = kit
        kit.run(self._begin())

    async def _begin(self) -> None:
        self._task = asyncio.create_task(self._take())

    async def _take(self) -> None:
        async for taken in self.over.items():
            assert len({(one.shard, one.transaction.id) for one in taken}) == 1
            self.taken.append([one.key[0] for one in taken])  # type: ignore[misc]  # the tests' keys are numbers
            self.ends.append(taken[-1].ends_transaction)
            await self.free.wait()

    def leave_soon(self) -> None:
        self._task.cancel()

    def leave(self) -> None:
        self.leave_soon()
        self._kit.run(asyncio.sleep(0))


async def in_seconds(seconds: float, callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, callback)


def change(key: int, size: int = 1) -> Any:
    return update("t", key=key, after={"v": "x" * size})


def commit(flow: KitFlow, *keys: int, size: int = 1, pieces: int = 1) -> None:
    flow.commit(*(change(key, size) for key in keys), pieces=pieces)


def test_the_updates_of_a_transaction_come_together_whatever_it_came_in(wormhole_kit: Kit) -> None:
    loop = Loop(wormhole_kit)
    flow = wormhole_kit.attach(loop.over)
    commit(flow, 1)
    commit(flow, 2, 3, 4, 5, pieces=3)
    commit(flow, 6, 7)
    assert loop.taken == [[1], [2, 3, 4, 5], [6, 7]]
    assert loop.ends == [True, True, True]
    assert flow.datamarker == flow.end
    loop.leave()


def test_a_transaction_larger_than_the_credit_is_gathered(wormhole_kit: Kit) -> None:
    loop = Loop(wormhole_kit)
    flow = wormhole_kit.attach(loop.over, credit=4096)
    commit(flow, *range(40), size=1000, pieces=20)
    assert loop.taken == [[*range(40)]]
    loop.leave()


def test_what_is_gathered_is_bounded_for_a_shard_and_for_all(wormhole_kit: Kit) -> None:
    loop = Loop(wormhole_kit, part=4000, total=6000)
    one, two = (wormhole_kit.attach(loop.over, shard=shard) for shard in ("one", "two"))
    commit(one, *range(7), size=1000, pieces=7)
    assert loop.taken == [[0, 1, 2, 3], [4, 5, 6]]
    assert loop.ends == [False, True]
    assert loop.over._size == 0
    assert one.datamarker == one.end
    del loop.taken[:]
    loop.over._size = 5000  # other shards take this
    commit(two, *range(3), size=1000, pieces=3)
    assert loop.taken == [[0], [1], [2]]
    loop.leave()


def test_asking_for_the_next_one_acknowledges_the_last(wormhole_kit: Kit) -> None:
    loop = Loop(wormhole_kit)
    flow = wormhole_kit.attach(loop.over, handler_timeout=5.0, retry=1)
    commit(flow, 1, 2)
    good = flow.datamarker
    loop.free.clear()
    with pytest.raises(HandlerFailed, match=r"handler_timeout = 5 s"):
        commit(flow, 3, 4, pieces=2)
    assert loop.taken == [[1, 2], [3, 4]]
    assert flow.datamarker == good
    loop.leave()


def test_after_a_failure_the_transaction_comes_again_whole(wormhole_kit: Kit) -> None:
    loop = Loop(wormhole_kit, part=2400)
    flow = wormhole_kit.attach(loop.over, handler_timeout=5.0)
    loop.free.clear()
    wormhole_kit.run(in_seconds(8.0, loop.free.set))
    commit(flow, 1, 2, 3, size=1000, pieces=3)
    assert loop.taken == [[1, 2], [1, 2], [3]]
    assert flow.datamarker == flow.end
    loop.leave()


@pytest.mark.parametrize("lost", ["revoked", "connection"])
async def test_what_was_gathered_goes_with_its_epoch(new_world: NewWorld, lost: str) -> None:
    world, publisher = new_world(over := WaitingTransactions(MIB, MIB))
    await world.open(publisher)
    changes = [change(1), change(2)]
    publisher.teach(one.schema for one in changes)
    publisher.send(frames.batch(1, 1, 1, body_of(changes, number=1, ends=False)))
    await world.shards.settled()
    assert over._size
    if lost == "revoked":
        publisher.send(frames.revoke(1, 1, "the test takes it"))
    else:
        publisher.vanish()
        publisher = world.dial()
    await world.shards.settled()
    assert (over._size, over._gathered) == (0, {})
    await world.open(publisher, epoch=2, flow=2)
    publisher.teach(one.schema for one in changes)
    publisher.send(frames.batch(2, 2, 1, body_of(changes, number=1)))
    async with aclosing(over.items()) as items:
        assert [one.key[0] for one in await anext(items)] == [1, 2]


def test_a_transaction_whose_last_update_is_skipped_does_not_wait_for_the_next(wormhole_kit: Kit) -> None:
    loop = Loop(wormhole_kit)
    flow = wormhole_kit.attach(loop.over)
    flow.skip("test:1:1")
    commit(flow, 1, 2)
    assert loop.taken == [[1]]
    assert flow.datamarker == flow.end
    loop.leave()


def unended(number: int, *keys: int) -> list[Update]:
    """Updates of a transaction without its last one."""
    changes = [change(key) for key in keys]
    body = parse_body(body_of(changes, number=number, ends=False))
    return Batch(body, "s", 1, False, lambda _: changes[0].schema).updates()


async def test_without_its_last_update_it_ends_where_the_next_one_begins() -> None:
    over = WaitingTransactions(MIB, MIB)
    for one in unended(1, 1, 2):
        await over.on_update(one)
    (following,) = unended(2, 3)
    next_one = asyncio.create_task(over.on_update(following))
    async with aclosing(over.items()) as items:
        assert [one.key[0] for one in await anext(items)] == [1, 2]
        last = asyncio.create_task(anext(items))
        await next_one
        last.cancel()
        await asyncio.wait([last])


async def test_a_rollback_forgets_what_was_gathered() -> None:
    over = WaitingTransactions(MIB, MIB)
    for one in unended(1, 1, 2):
        await over.on_update(one)
    await over.on_rollback(replace(marker_at(0), shard="other"), ValueError())
    assert over._size
    await over.on_rollback(replace(marker_at(0), shard="s"), ValueError())
    assert (over._size, over._gathered) == (0, {})


@pytest.mark.parametrize("when", ["in its last item", "before"])
def test_nobody_waits_for_a_loop_that_was_left_and_it_is_no_failure(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    caplog.set_level(logging.INFO)
    loop = Loop(wormhole_kit)
    flow = wormhole_kit.attach(loop.over, retry=1)
    commit(flow, 1)
    good = flow.datamarker
    if when == "before":
        loop.leave()
    else:
        loop.free.clear()
        wormhole_kit.run(in_seconds(0.5, loop.leave_soon))
    commit(flow, 2)
    commit(flow, 3)
    assert loop.taken == ([[1]] if when == "before" else [[1], [2]])
    assert flow.datamarker == good
    assert wormhole_kit.now < 1.0
    logged = [one for one in caplog.records if one.levelno > logging.INFO or "loop" in one.message]
    assert [(one.levelno, one.exc_info) for one in logged] == [(logging.INFO, None)] * (when != "before")


async def test_a_shard_that_goes_with_the_loop_hands_over_nothing_and_logs_no_failure(
    new_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world, publisher = new_world(over := WaitingTransactions(MIB, MIB))
    await world.open(publisher)
    (one,) = changes = [change(1)]
    publisher.teach([one.schema])
    publisher.send(frames.batch(1, 1, 1, body_of(changes, number=1, ends=False)))
    await world.shards.settled()
    waiting = asyncio.create_task(anext(over.items()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    publisher.send(frames.datamarker(1, 1, marker_at(1)), frames.revoke(1, 1, "the test takes it"))
    await world.shards.settled()
    assert "ack" not in kinds(publisher)
    assert "released" in kinds(publisher)
    assert [one.message for one in caplog.records if one.levelno > logging.INFO] == []


async def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match='did you mean "credit"'):
        await anext(transactions(application="app", credits=7))  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="no publisher could learn the port"):
        await anext(transactions(application="app"))


async def test_transactions_of_a_shard_never_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    class ServedError(Exception):
        """Instead of serving."""

    def serve(subscriber: object, **options: object) -> None:
        raise ServedError(options["concurrency"])

    monkeypatch.setattr(iteration, "serve", serve)
    with pytest.raises(ServedError, match="1"):
        await anext(transactions(application="app", listen="127.0.0.1:7000", concurrency=4))
