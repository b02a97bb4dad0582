"""One flow at work: order of callbacks, failures, time limits, endings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest

from subscriber_sdk import (
    DataLoss,
    Datamarker,
    FlowHalted,
    LossDecision,
    NoticeKind,
    RetryPolicy,
    ShardNotice,
    Subscriber,
    Update,
)
from subscriber_sdk.options import Options
from subscriber_sdk.shards import Shards
from subscriber_sdk.testing import Kit, ScriptedPublisher, body_of, frames, marker_at, update
from tests.support.eventually import eventually
from wormhole.errors import HandlerFailed
from wormhole.wire.v1 import push_pb2


class Recorder(Subscriber):
    """Notes every callback in one list; ``act`` may fail or wait."""

    def __init__(self, act: Callable[[Update], Coroutine[Any, Any, None]] | None = None) -> None:
        self.heard: list[Any] = []
        self.act = act

    async def on_update(self, update: Update) -> None:
        self.heard.append(update.key[0])
        if self.act is not None:
            await self.act(update)

    async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
        self.heard.append(notice.kind.value)
        return None

    async def on_datamarker(self, marker: Datamarker) -> None:
        self.heard.append(f"marker {marker.delivered}")

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self.heard.append(f"rollback {to.delivered} {cause}")

    async def on_error(self, error: FlowHalted) -> None:
        self.heard.append(f"halted {error.update_id}")


def failing(times: int, key: int = 1) -> Callable[[Update], Coroutine[Any, Any, None]]:
    left = [times]

    async def act(update: Update) -> None:
        if update.key == (key,) and left[0]:
            left[0] -= 1
            raise ValueError("no")

    return act


# --- with the kit: the fake clock ---


def test_callbacks_come_in_order(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder())
    flow.commit(update("t", key=1), update("t", key=2))
    flow.commit(update("t", key=3))
    flow.revoke()
    assert subscriber.heard == ["assigned", 1, 2, "marker 1", 3, "marker 2", "revoked"]


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


def test_a_marker_that_the_application_kept_replaces_ours(wormhole_kit: Kit) -> None:
    class Keeper(Recorder):
        kept: Datamarker | None = None

        async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
            return self.kept if notice.kind is NoticeKind.ASSIGNED else None

        async def on_datamarker(self, marker: Datamarker) -> None:
            self.kept = marker

    flow = wormhole_kit.attach(keeper := Keeper())
    flow.commit(update("t", key=1))
    flow.commit(update("t", key=2))
    flow.crash_and_redeliver(transactions=2)
    assert keeper.heard == [1, 2]


def test_a_wrong_answer_to_assigned_is_a_failure(wormhole_kit: Kit) -> None:
    class Wrong(Recorder):
        async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
            return "1/2/3"  # type: ignore[return-value]

    with pytest.raises(HandlerFailed, match="a Datamarker or None is expected"):
        wormhole_kit.attach(Wrong(), retry=RetryPolicy(attempts=1))


@pytest.mark.parametrize("decision", LossDecision)
def test_data_loss_is_decided_by_the_application(wormhole_kit: Kit, decision: LossDecision) -> None:
    class Deciding(Recorder):
        async def on_data_loss(self, loss: DataLoss) -> LossDecision:
            self.heard.append((loss.first_missing, loss.last_missing, loss.resume))
            return decision

    flow = wormhole_kit.attach(subscriber := Deciding())
    assert flow.lose("7", "9") is decision
    assert ("7", "9", flow.end) in subscriber.heard
    assert (flow.datamarker == flow.end) == (decision is LossDecision.CONTINUE)


def test_data_loss_halts_by_default(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Recorder())
    assert flow.lose() is LossDecision.HALT
    flow.commit(update("t", key=1))
    assert flow.datamarker == marker_at(0)


def test_a_replay_is_framed_by_notices(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder())
    flow.commit(update("t", key=1))
    subscriber.heard.clear()
    flow.replay(1)
    assert subscriber.heard == ["revoked", "assigned", "replay_begin", 1, "marker 1", "replay_end"]


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


# --- on a real loop: endings while callbacks run ---


class Gate(Recorder):
    """Each update waits until the test lets it through."""

    def __init__(self) -> None:
        super().__init__(self.wait)
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def wait(self, update: Update) -> None:
        self.entered.set()
        await self.open.wait()


class World:
    def __init__(self, subscriber: Subscriber, **options: Any) -> None:
        self.options = Options(application="app", id="one", listen="127.0.0.1:1", **options)
        self.shards = Shards(subscriber, self.options, chance=lambda: 0.0)

    def dial(self) -> ScriptedPublisher:
        publisher = ScriptedPublisher(self.shards, self.options)
        publisher.send(frames.hello("app", "one"))
        return publisher

    async def open(self, publisher: ScriptedPublisher, epoch: int = 1, flow: int = 1, shard: str = "s") -> None:
        publisher.send(frames.assign(flow, epoch, "app", shard, marker_at(0)))
        await self.shards.settled()

    def push(self, publisher: ScriptedPublisher, number: int, *keys: int, epoch: int = 1, flow: int = 1) -> None:
        changes = [update("t", key=key) for key in keys]
        publisher.teach(change.schema for change in changes)
        publisher.send(
            frames.batch(flow, epoch, number, body_of(changes, number=number)),
            frames.datamarker(flow, epoch, marker_at(number)),
        )


@pytest.fixture
async def gated() -> AsyncIterator[tuple[World, Gate, ScriptedPublisher]]:
    gate = Gate()
    world = World(gate)
    publisher = world.dial()
    await world.open(publisher)
    world.push(publisher, 1, 1, 2)
    world.push(publisher, 2, 3)
    await gate.entered.wait()
    yield world, gate, publisher
    gate.open.set()
    await world.shards.close()


def kinds(publisher: ScriptedPublisher) -> list[str | None]:
    return [frame.WhichOneof("kind") for frame in publisher.received]


async def test_a_revocation_waits_for_the_running_callback_only(gated: tuple[World, Gate, ScriptedPublisher]) -> None:
    world, gate, publisher = gated
    publisher.send(frames.revoke(1, 1))
    await asyncio.sleep(0)
    assert "released" not in kinds(publisher)
    gate.open.set()
    await world.shards.settled()
    assert gate.heard == ["assigned", 1, "revoked"]
    (released,) = publisher.take("released")
    assert not released.released.HasField("marker"), "update 2 of the first batch was not begun"
    assert "ack" not in kinds(publisher)


async def test_a_datamarker_behind_finished_work_counts_although_the_flow_goes() -> None:
    world = World(gate := Gate())
    publisher = world.dial()
    await world.open(publisher)
    world.push(publisher, 1, 1)
    world.push(publisher, 2, 2)
    await gate.entered.wait()
    publisher.send(frames.revoke(1, 1))
    gate.open.set()
    await world.shards.settled()
    assert gate.heard == ["assigned", 1, "marker 1", "revoked"], "the second batch was not begun"
    assert "ack" in kinds(publisher)
    await world.shards.close()


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_no_datamarker_passes_what_did_not_finish_when_the_flow_went(
    concurrency: int, error: ValueError | None
) -> None:
    """The last update of a batch fails, or its first is the last that is begun: the datamarker behind must not be acknowledged."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def act(update: Update) -> None:
        entered.set()
        await go_on.wait()
        if error is not None:
            raise error

    world = World(gate := Recorder(act), concurrency=concurrency)
    publisher = world.dial()
    await world.open(publisher)
    world.push(publisher, 1, *([7] if error else [7, 7]))  # one key: also with several at a time the second waits
    await entered.wait()
    publisher.send(frames.revoke(1, 1))
    go_on.set()
    await world.shards.settled()
    assert gate.heard == ["assigned", 7, "revoked"]
    assert "ack" not in kinds(publisher)
    assert "released" in kinds(publisher)
    await world.shards.close()


async def test_a_lost_stream_drops_what_waits(gated: tuple[World, Gate, ScriptedPublisher]) -> None:
    world, gate, publisher = gated
    publisher.vanish()
    gate.open.set()
    await world.shards.settled()
    assert gate.heard == ["assigned", 1, "revoked"]


async def test_a_newer_epoch_waits_until_the_older_has_ended(gated: tuple[World, Gate, ScriptedPublisher]) -> None:
    world, gate, old = gated
    new = world.dial()
    new.send(frames.assign(7, 2, "app", "s", marker_at(0)))
    await asyncio.sleep(0.01)
    assert "accepted" not in kinds(new)
    gate.open.set()
    await world.shards.settled()
    assert "accepted" in kinds(new)
    world.push(new, 1, 5, epoch=2, flow=7)
    await world.shards.settled()
    assert gate.heard == ["assigned", 1, "revoked", "assigned", 5, "marker 1"]
    assert "ack" not in kinds(old)
    world.push(old, 3, 6)  # the old owner does not know yet
    await world.shards.settled()
    assert 6 not in gate.heard


async def test_an_older_epoch_is_refused(gated: tuple[World, Gate, ScriptedPublisher]) -> None:
    world, _, _ = gated
    world.dial().send(frames.assign(1, 4, "app", "t", marker_at(0)))
    stale = world.dial()
    stale.send(frames.assign(1, 3, "app", "t", marker_at(0)))
    (failed,) = stale.take("failed")
    assert failed.failed.reason == push_pb2.Failed.STALE_EPOCH
    assert "older than 4" in failed.failed.message


async def test_leaving_finishes_what_runs_and_releases(gated: tuple[World, Gate, ScriptedPublisher]) -> None:
    world, gate, publisher = gated
    leaving = asyncio.create_task(world.shards.leave(5.0))
    await asyncio.sleep(0)
    gate.open.set()
    assert await leaving
    publisher.connection.leave()
    assert kinds(publisher)[-2:] == ["released", "goodbye"]
    assert gate.heard == ["assigned", 1, "revoked"]


async def test_leaving_is_bounded(gated: tuple[World, Gate, ScriptedPublisher]) -> None:
    world, _, publisher = gated
    assert not await world.shards.leave(0.05)
    assert "ack" not in kinds(publisher)


async def test_a_flow_assigned_while_leaving_is_given_back(gated: tuple[World, Gate, ScriptedPublisher]) -> None:
    world, gate, publisher = gated
    gate.open.set()
    await world.shards.leave(5.0)
    publisher.send(frames.assign(2, 1, "app", "other", marker_at(0)))
    assert [frame.released.flow for frame in publisher.take("released")] == [1, 2]


async def test_one_flow_that_stands_does_not_hold_up_another() -> None:
    subscriber = Recorder(failing(99))
    world = World(subscriber, retry=RetryPolicy(attempts=1))
    publisher = world.dial()
    await world.open(publisher)
    await world.open(publisher, flow=2, shard="healthy")
    world.push(publisher, 1, 1)
    await world.shards.settled()
    world.push(publisher, 1, 5, flow=2)
    await world.shards.settled()
    (failed,) = publisher.take("failed")
    assert failed.failed.reason == push_pb2.Failed.HANDLER
    assert failed.failed.update_id == "test:1:0"
    assert [frame.ack.flow for frame in publisher.take("ack")] == [2]
    await world.shards.close()


async def test_a_schema_that_was_never_sent_ends_the_stream() -> None:
    world = World(Recorder())
    publisher = world.dial()
    await world.open(publisher)
    publisher.send(frames.batch(1, 1, 1, body_of([update("t", key=1)])))
    await world.shards.settled()
    (goodbye,) = publisher.take("goodbye")
    assert goodbye.goodbye.reason == push_pb2.Goodbye.PROTOCOL
    assert "batch.body.schema_ids" in goodbye.goodbye.message
    await world.shards.close()


async def test_a_body_that_is_no_body_ends_the_stream() -> None:
    world = World(Recorder())
    publisher = world.dial()
    await world.open(publisher)
    publisher.send(frames.batch(1, 1, 1, b"\xff\xff"))
    await world.shards.settled()
    assert "batch body" in publisher.take("goodbye")[0].goodbye.message
    await world.shards.close()


async def test_callbacks_that_never_wait_leave_the_loop_to_others() -> None:
    class Busy(Subscriber):
        async def on_update(self, update: Update) -> None:
            began = time.perf_counter()
            while time.perf_counter() - began < 0.0002:
                pass

    world = World(Busy())
    publisher = world.dial()
    await world.open(publisher)
    for number in range(1, 11):
        world.push(publisher, number, *range(100))
    turns = 0
    settled = asyncio.create_task(world.shards.settled())
    while not settled.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    await world.shards.close()


# --- plain def: threads ---


async def test_a_plain_def_runs_in_a_thread_and_keeps_order() -> None:
    loop_thread = __import__("threading").get_ident()

    class Threaded(Subscriber):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def on_update(self, update: Update) -> None:
            assert __import__("threading").get_ident() != loop_thread
            self.heard.append(update.key[0])

        def on_datamarker(self, marker: Datamarker) -> None:
            self.heard.append(f"marker {marker.delivered}")

    world = World(subscriber := Threaded())
    publisher = world.dial()
    await world.open(publisher)
    world.push(publisher, 1, *range(50))
    await world.shards.settled()
    assert subscriber.heard == [*range(50), "marker 1"]
    await world.shards.close()


async def test_a_thread_that_outlives_its_time_is_never_joined_by_a_second() -> None:
    class Stuck(Subscriber):
        def __init__(self) -> None:
            self.release = __import__("threading").Event()
            self.inside = self.most = self.calls = 0

        def on_update(self, update: Update) -> None:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.calls == 1:
                self.release.wait()
            self.inside -= 1

    world = World(subscriber := Stuck(), handler_timeout=0.2, retry=RetryPolicy(attempts=5, first_wait=0.0))
    publisher = world.dial()
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
    await world.shards.close()


# --- what a worker reports ---


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_report_tells_what_was_done_and_which_was_slowest(wormhole_kit: Kit, concurrency: int) -> None:
    async def act(update: Update) -> None:
        await asyncio.sleep(2.0 if update.table == "slow" else 0.5)

    flow = wormhole_kit.attach(Recorder(act), concurrency=concurrency)
    flow.commit(update("fast", key=1), update("slow", key=2), update("fast", key=3))
    assert flow._worker is not None
    report = flow._worker.report(wormhole_kit.now)
    assert (report.updates, report.slowest_table, report.slowest_s) == (3, "slow", 2.0)
    assert (report.busy_s, report.failures, report.queued_bytes, report.running_update) == (3.0, 0, 0, "")
    again = flow._worker.report(wormhole_kit.now)
    assert (again.updates, again.slowest_table, again.slowest_s) == (3, "", 0.0)


def test_a_report_counts_failures_and_skipped_updates(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Recorder(failing(2)))
    flow.commit(update("t", key=1))
    assert flow._worker is not None
    assert flow._worker.report(wormhole_kit.now).failures == 2
    flow.skip("test:2:0")
    flow.commit(update("t", key=1))
    report = flow._worker.report(wormhole_kit.now)
    assert (report.skipped, report.failures) == (1, 0)
