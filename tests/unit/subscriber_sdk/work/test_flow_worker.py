"""One flow at work: order of callbacks, endings, what its publisher does wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from subscriber_sdk import (
    AckLater,
    DataLoss,
    Datamarker,
    EpochRefused,
    KeptMarker,
    LossDecision,
    NoticeKind,
    RetryPolicy,
    ShardNotice,
    Subscriber,
    Update,
)
from subscriber_sdk.testing import Kit, ScriptedPublisher, body_of, frames, marker_at, update
from subscriber_sdk.work import flow_worker
from tests.support.flows import Gate, NewWorld, Recorder, World, failing, kinds
from wormhole.model.errors import HandlerFailed
from wormhole.wire.body import parse_body
from wormhole.wire.markers import marker_from_message
from wormhole.wire.v1 import push_pb2

# --- with the kit: the fake clock ---


def test_callbacks_come_in_order(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder())
    flow.commit(update("t", key=1), update("t", key=2))
    flow.commit(update("t", key=3))
    flow.revoke()
    assert subscriber.heard == ["assigned", 1, 2, "marker 1", 3, "marker 2", "revoked"]


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


@pytest.mark.parametrize(("rewound", "kept", "begins"), [(False, 5, 5), (True, 5, None), (True, 2, 2), (True, 3, 3)])
async def test_a_shard_that_was_set_back_begins_there_whatever_was_kept(
    rewound: bool, kept: int, begins: int | None, new_world: NewWorld
) -> None:
    class Keeper(Recorder):
        notices: ClassVar[list[ShardNotice]] = []

        async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
            self.notices.append(notice)
            return marker_at(kept) if notice.kind is NoticeKind.ASSIGNED else None

    world, publisher = new_world(keeper := Keeper())
    publisher.send(frames.assign(1, 1, "app", "s", marker_at(3), rewound=rewound))
    await world.shards.settled()
    (accepted,) = (frame.accepted for frame in publisher.take("accepted"))
    assert (marker_from_message(accepted.have) if accepted.HasField("have") else None) == (
        None if begins is None else marker_at(begins)
    )
    assert keeper.notices[-1].rewound is rewound


@pytest.mark.parametrize(
    ("kept", "begins"),
    [
        (KeptMarker(marker_at(5), 4), marker_at(5)),  # the move is reported again
        (KeptMarker(marker_at(2), 4), marker_at(2)),
        (KeptMarker(marker_at(5), 3), None),
        (KeptMarker(marker_at(2), 3), None),  # a move forwards is not undone either
        (marker_at(2), marker_at(2)),
        (None, None),
    ],
)
async def test_a_move_is_made_once_by_an_application_that_stores_its_number(
    kept: KeptMarker | Datamarker | None, begins: Datamarker | None, new_world: NewWorld
) -> None:
    class Keeper(Recorder):
        notices: ClassVar[list[ShardNotice]] = []

        async def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | Datamarker | None:
            self.notices.append(notice)
            return kept if notice.kind is NoticeKind.ASSIGNED else None

    world, publisher = new_world(keeper := Keeper())
    publisher.send(frames.assign(1, 4, "app", "s", marker_at(3), rewound=True, move=4, acknowledged=True))
    await world.shards.settled()
    (accepted,) = (frame.accepted for frame in publisher.take("accepted"))
    assert (marker_from_message(accepted.have) if accepted.HasField("have") else None) == begins
    assert accepted.move == (kept.move if isinstance(kept, KeptMarker) and begins else 0)
    assert (keeper.notices[-1].move, keeper.notices[-1].acknowledged) == (4, True)


def test_a_wrong_answer_to_assigned_is_a_failure(wormhole_kit: Kit) -> None:
    class Wrong(Recorder):
        async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
            return "1/2/3"  # type: ignore[return-value]

    with pytest.raises(HandlerFailed, match="a Datamarker, KeptMarker or None is expected"):
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


def test_data_loss_halts_by_default(wormhole_kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    flow = wormhole_kit.attach(Recorder())
    assert flow.lose() is LossDecision.HALT
    assert "on_data_loss halts the flow. Next: `wormholectl repair " in caplog.text
    flow.commit(update("t", key=1))
    assert flow.datamarker == marker_at(0)


def test_a_callback_that_only_takes_note_of_a_loss_halts_the_flow(wormhole_kit: Kit) -> None:
    class Noting(Recorder):
        async def on_data_loss(self, loss: DataLoss) -> None:
            self.heard.append(loss.kind)

    assert wormhole_kit.attach(Noting()).lose() is LossDecision.HALT


def test_a_replay_is_framed_by_notices(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Recorder())
    flow.commit(update("t", key=1))
    subscriber.heard.clear()
    flow.replay(1)
    assert subscriber.heard == ["revoked", "assigned", "replay_begin", 1, "marker 1", "replay_end"]


# --- a datamarker that is left for later ---


class Batching(Recorder):
    """Makes its work durable at every ``every``-th datamarker, and when none came for ten seconds."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self.pending: list[str] = []
        self.durable: list[str] = []

    async def on_datamarker(self, marker: Datamarker) -> AckLater | None:  # type: ignore[override]
        self.heard.append(f"marker {marker.delivered}")
        again = marker.delivered in self.pending
        if not again:
            self.pending.append(marker.delivered)
        if len(self.pending) < self.every and not again:
            return AckLater(10)
        self.durable += self.pending
        self.pending.clear()
        return None

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self.pending.clear()
        await super().on_rollback(to, cause)


def test_a_later_marker_covers_those_that_were_left(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Batching(every=3))
    for key in (1, 2):
        flow.commit(update("t", key=key))
        assert flow.datamarker == marker_at(0)
    flow.commit(update("t", key=3))
    assert flow.datamarker == marker_at(3)


def test_a_marker_is_asked_about_again_ten_seconds_after_what_follows_it(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Batching(every=9))
    flow.commit(update("t", key=1))
    wormhole_kit.advance(8)
    flow.commit(update("t", key=2))
    wormhole_kit.advance(8)
    assert flow.datamarker == marker_at(0)
    wormhole_kit.advance(3)
    assert flow.datamarker == flow.end
    assert subscriber.durable == ["1", "2"]
    assert subscriber.heard == ["assigned", 1, "marker 1", 2, "marker 2", "marker 2"]


def test_a_failure_leads_back_to_the_last_marker_that_was_acknowledged(wormhole_kit: Kit) -> None:
    subscriber = Batching(every=3)
    subscriber.act = failing(1, key=2)
    flow = wormhole_kit.attach(subscriber)
    for key in (1, 2, 3):
        flow.commit(update("t", key=key))
    assert subscriber.heard == [
        "assigned", 1, "marker 1", 2, "rollback 0 no", 1, "marker 1", 2, "marker 2", 3, "marker 3",
    ]  # fmt: skip
    assert flow.datamarker == flow.end


def test_the_next_subscriber_of_the_shard_gets_what_was_left(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Batching(every=3))
    flow.commit(update("t", key=1))
    flow.revoke()
    flow.assign()
    assert subscriber.heard == ["assigned", 1, "marker 1", "revoked", "assigned", 1, "marker 1"]


def test_a_wrong_answer_to_a_datamarker_is_a_failure(wormhole_kit: Kit) -> None:
    class Wrong(Recorder):
        async def on_datamarker(self, marker: Datamarker) -> None:
            return False  # type: ignore[return-value]

    flow = wormhole_kit.attach(Wrong(), retry=RetryPolicy(attempts=1))
    with pytest.raises(HandlerFailed, match="an AckLater or None is expected"):
        flow.commit(update("t", key=1))


# --- on a real loop: endings while callbacks run ---


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


class Together(Gate):
    """Takes several updates at once."""

    on_update = Subscriber.on_update  # type: ignore[assignment]

    async def on_updates(self, batch: Sequence[Update]) -> None:
        self.heard.append([update.key[0] for update in batch])
        await self.wait(batch[0])


@pytest.mark.parametrize("apart_s", [math.inf, 0.0])
async def test_what_waits_comes_together_and_is_acknowledged_once(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch, apart_s: float
) -> None:
    """A subscriber that is slower than its publisher for a while. Datamarkers that come seldom are all handled."""
    monkeypatch.setattr(flow_worker, "_MARKERS_APART_S", apart_s)
    world, publisher = new_world(gate := Together())
    await world.open(publisher)
    world.push(publisher, 1, 1)
    await gate.entered.wait()
    for number in range(2, 4):
        world.push(publisher, number, number, number)
    gate.open.set()
    await world.shards.settled()
    if apart_s:
        assert gate.heard == ["assigned", [1], [2, 2, 3, 3], "marker 3"]
    else:
        assert gate.heard == ["assigned", [1], "marker 1", [2, 2], "marker 2", [3, 3], "marker 3"]
    acks = [marker_from_message(frame.ack.marker).delivered for frame in publisher.take("ack")]
    assert acks == (["3"] if apart_s else ["1", "2", "3"])


async def test_pieces_of_a_transaction_come_one_by_one(new_world: NewWorld) -> None:
    world, publisher = new_world(gate := Together())
    await world.open(publisher)
    world.push(publisher, 1, 1)
    await gate.entered.wait()
    begin, end = [update("t", key=key) for key in (2, 3)], [update("t", key=4)]
    publisher.send(frames.batch(1, 1, 2, body_of(begin, number=2, ends=False), unfinished=True))
    publisher.send(frames.batch(1, 1, 3, body_of(end, number=2, first_index=2)))
    world.push(publisher, 4, 5)
    gate.open.set()
    await world.shards.settled()
    assert gate.heard == ["assigned", [1], "marker 1", [2], [3, 4], [5], "marker 4"]


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


async def test_a_datamarker_behind_finished_work_counts_although_the_flow_goes(new_world: NewWorld) -> None:
    world, publisher = new_world(gate := Gate())
    await world.open(publisher)
    world.push(publisher, 1, 1)
    world.push(publisher, 2, 2)
    await gate.entered.wait()
    publisher.send(frames.revoke(1, 1))
    gate.open.set()
    await world.shards.settled()
    assert gate.heard == ["assigned", 1, "marker 1", "revoked"], "the second batch was not begun"
    assert "ack" in kinds(publisher)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_no_datamarker_passes_what_did_not_finish_when_the_flow_went(
    concurrency: int, error: ValueError | None, new_world: NewWorld
) -> None:
    """The last update of a batch fails, or its first is the last that is begun: the datamarker behind must not be
    acknowledged."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def act(update: Update) -> None:
        entered.set()
        await go_on.wait()
        if error is not None:
            raise error

    world, publisher = new_world(gate := Recorder(act), concurrency=concurrency)
    await world.open(publisher)
    world.push(publisher, 1, *([7] if error else [7, 7]))  # one key: also with several at a time the second waits
    await entered.wait()
    publisher.send(frames.revoke(1, 1))
    go_on.set()
    await world.shards.settled()
    assert gate.heard == ["assigned", 7, "revoked"]
    assert "ack" not in kinds(publisher)
    assert "released" in kinds(publisher)


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
    assert failed.failed.held_epoch == 4


class Fenced(Recorder):
    """Stores epochs with its state, and holds epoch 5."""

    def __init__(self, held: int = 5) -> None:
        super().__init__()
        self.held = held

    async def on_shard_notice(self, notice: ShardNotice) -> Datamarker | KeptMarker | None:
        if notice.kind is NoticeKind.ASSIGNED and notice.epoch < 6:
            raise EpochRefused("the table has another one", held_epoch=self.held)
        return await super().on_shard_notice(notice)


@pytest.mark.parametrize("epoch", [2, 5])
async def test_an_epoch_below_that_of_the_application_s_own_store_is_refused(epoch: int) -> None:
    world = World(fenced := Fenced())
    publisher = world.dial()
    publisher.send(frames.assign(1, epoch, "app", "s", marker_at(0)))
    await world.shards.settled()
    (failed,) = publisher.take("failed")
    assert (failed.failed.reason, failed.failed.held_epoch, failed.failed.contested) == (
        push_pb2.Failed.STALE_EPOCH,
        5,
        False,
    )
    assert not publisher.take("accepted")
    publisher.send(frames.assign(2, 6, "app", "s", marker_at(0)))
    await world.shards.settled()
    assert len(publisher.take("accepted")) == 1
    await world.shards.close()
    assert fenced.heard == ["revoked", "assigned"]


@pytest.mark.parametrize("held", [0, 1, -1, 1 << 64])
async def test_an_epoch_that_cannot_be_meant_is_a_failure_like_any_other(held: int, new_world: NewWorld) -> None:
    world, publisher = new_world(Fenced(held), retry=RetryPolicy(attempts=1))
    publisher.send(frames.assign(1, 2, "app", "s", marker_at(0)))
    await world.shards.settled()
    (failed,) = publisher.take("failed")
    assert (failed.failed.reason, failed.failed.held_epoch) == (push_pb2.Failed.HANDLER, 0)


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


async def test_one_halted_flow_does_not_hold_up_another(new_world: NewWorld) -> None:
    subscriber = Recorder(failing(99))
    world, publisher = new_world(subscriber, retry=RetryPolicy(attempts=1))
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


@pytest.mark.parametrize(
    ("body", "named"),
    [(body_of([update("t", key=1)]), "batch.body.schema_ids"), (b"\xff\xff", "batch body")],
    ids=["a schema that was never sent", "no body"],
)
async def test_a_body_that_cannot_be_read_ends_the_stream(body: bytes, named: str, new_world: NewWorld) -> None:
    world, publisher = new_world(Recorder())
    await world.open(publisher)
    publisher.send(frames.batch(1, 1, 1, body))
    await world.shards.settled()
    (goodbye,) = publisher.take("goodbye")
    assert goodbye.goodbye.reason == push_pb2.Goodbye.PROTOCOL
    assert named in goodbye.goodbye.message


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


# --- transactions in pieces, and those that the database rolled back ---


async def test_the_end_of_a_transaction_in_pieces_is_reported_with_its_last_update(new_world: NewWorld) -> None:
    ends: list[tuple[object, bool]] = []

    async def act(update: Update) -> None:
        ends.append((update.key[0], update.ends_transaction))

    world, publisher = new_world(Recorder(act))
    await world.open(publisher)
    changes = [update("t", key=key) for key in (1, 2)]
    publisher.teach(change.schema for change in changes)
    whole = parse_body(body_of(changes, number=7))
    open_body = replace(whole, tx_end=()).to_bytes()
    only_the_end = replace(whole, updates=(), tx_end=(0,), update_index=(), schema_index=()).to_bytes()
    publisher.send(frames.batch(1, 1, 1, open_body, unfinished=True))
    await world.shards.settled()
    assert ends == [(1, False)]
    publisher.send(frames.batch(1, 1, 2, only_the_end), frames.datamarker(1, 1, marker_at(7)))
    await world.shards.settled()
    assert ends == [(1, False), (2, True)]


async def test_a_transaction_that_was_rolled_back_is_reported_before_anything_comes(new_world: NewWorld) -> None:
    world, publisher = new_world(subscriber := Recorder())
    publisher.send(frames.assign(1, 1, "app", "s", marker_at(0), rolled_back="0-1:4"))
    await world.shards.settled()
    world.push(publisher, 1, 5)
    await world.shards.settled()
    assert subscriber.heard[0] == "assigned"
    assert subscriber.heard[1].startswith("rollback 0 the database rolled back transaction 0-1:4")
    assert subscriber.heard[2:] == [5, "marker 1"]


async def test_a_rollback_that_fails_is_tried_again_and_then_halts_the_flow(new_world: NewWorld) -> None:
    class Failing(Recorder):
        async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
            await super().on_rollback(to, cause)
            raise ValueError("no")

    world, publisher = new_world(subscriber := Failing(), retry=RetryPolicy(attempts=2))
    publisher.send(frames.assign(1, 1, "app", "s", marker_at(0), rolled_back="0-1:4"))
    await world.shards.settled()
    assert [str(one).split()[0] for one in subscriber.heard] == ["assigned", "rollback", "rollback", "halted"]
    assert "failed" in kinds(publisher)
    assert "accepted" not in kinds(publisher)
