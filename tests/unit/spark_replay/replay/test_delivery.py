from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_replay.replay.delivery import Delivery, Offer, Park, Route, SentPiece
from spark_replay.replay.pieces import Selector, log_pieces
from spark_replay.replay.rate import RateShare
from tests.support.archives import marker_at, put, tx, write_archive
from tests.support.eventually import PATIENCE_S
from tests.support.letters import USERS, letter
from tests.support.scripted_replay import takes_all
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.audit.sent_counts import Settled
from wormhole.formats import ValueFormats
from wormhole.model.errors import EpochRefused, HandlerFailed, ReplayError, StreamBroken
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker
from wormhole.ports.dead_letters import DeadLetter, Parcel, rows_from_messages
from wormhole.push.parking import park_frames
from wormhole.wire.tally import total
from wormhole.wire.v1 import push_pb2

END = marker_at(3)


class StoredOffers:
    def __init__(self) -> None:
        self.offers: list[tuple[Datamarker | None, int]] = []
        self.settled: list[Settled] = []

    def __call__(self, offer: Offer, updates: int, size: int, settled: Settled | None) -> None:
        assert settled is not None
        self.offers.append((offer.store, updates))
        self.settled.append(settled)


def delivery(
    subscriber: ScriptedSubscriber,
    pieces: object,
    store: object = None,
    *,
    heartbeat_ms: int = 10_000,
    until: Datamarker = END,
    park: Park = lambda letter, parcel: "",
    **route: Any,
) -> Delivery:
    hello = push_pb2.Hello(
        min_version=3,
        max_version=3,
        application="cache",
        subscriber="s1",
        heartbeat_ms=heartbeat_ms,
        max_frame_bytes=4096,
    )
    to = Route(hello, subscriber.address, 7, marker_at(0), **route)
    share, asks = RateShare(limited=False, now=0.0), MagicMock()
    made = Delivery(to, "cache", "a", until, pieces, store or StoredOffers(), park, share, asks)  # type: ignore[arg-type]
    made._session.schemas((USERS,))
    return made


@pytest.fixture
def archived(tmp_path: object) -> object:
    store = write_archive(
        f"{tmp_path}/archive",
        {"a": [[tx(put(b"k1", b"v1"), put(b"k2", b"v2")), tx(put(b"k3", b"x" * 10_000))], [tx(put(b"k1", b"v3"))]]},
    )
    selector = Selector("", "", ValueFormats())
    return lambda start: log_pieces(store, "a", start, END, selector)


@pytest.fixture
async def subscriber() -> AsyncIterator[ScriptedSubscriber]:
    async with scripted_subscriber("cache", "s1") as one:
        yield one


async def accepted(
    subscriber: ScriptedSubscriber, one: Delivery, **fields: Any
) -> tuple[asyncio.Task[None], push_pb2.Assign]:
    """The running delivery, of which the subscriber accepted the flow."""
    run = asyncio.create_task(one.run())
    await subscriber.hears("hello")
    return run, await subscriber.accepts(await subscriber.hears("assign"), **fields)


async def finishes(subscriber: ScriptedSubscriber, flow: push_pb2.Assign) -> None:
    """Acknowledge the end of the range, and release the flow when it is asked for."""
    await subscriber.acks(await subscriber.hears("datamarker"))
    await subscriber.hears("notice")
    await subscriber.hears("revoke")
    await subscriber.releases(flow)


async def test_everything_is_pushed_acknowledged_and_stored(archived: object) -> None:
    async with scripted_subscriber("cache", "s1", max_frame=4096) as subscriber:
        stored, kinds, seen = StoredOffers(), [], []

        def see(frame: push_pb2.PublisherFrame) -> None:
            kinds.append(frame.WhichOneof("kind"))
            seen.append(frame)

        run = asyncio.create_task(delivery(subscriber, archived, stored).run())
        await takes_all(subscriber, see=see)
        await run
    notices = [frame.notice.kind for frame in seen if frame.WhichOneof("kind") == "notice"]
    assert notices == [push_pb2.ShardNotice.REPLAY_BEGIN, push_pb2.ShardNotice.REPLAY_END]
    assert kinds[-2:] == ["notice", "revoke"]
    assert kinds.count("part") >= 3, "what is larger than a frame goes in parts"
    batches = [frame.batch for frame in seen if frame.WhichOneof("kind") == "batch"]
    assert batches
    assert all(batch.replayed for batch in batches)
    assert stored.offers[-1][0] == END
    assert sum(updates for _, updates in stored.offers) == 4
    assert stored.settled[0].begin == marker_at(0).order
    assert sum(total(one.counted).updates for one in stored.settled) == 4, (
        "what is acknowledged is handed over to be counted"
    )


@pytest.mark.parametrize("due", [True, False])
async def test_an_offer_that_is_due_is_made_though_nothing_was_pushed(due: bool) -> None:
    async with scripted_subscriber("cache", "s1", max_frame=4096) as subscriber:
        stored, kinds = StoredOffers(), []

        def nothing(start: Datamarker) -> Generator[SentPiece, None, None]:
            for number in (1, 2):
                marker = marker_at(number)
                yield SentPiece(None, marker.order, Offer(marker, marker, due=due))

        run = asyncio.create_task(delivery(subscriber, nothing, stored).run())
        await takes_all(subscriber, see=lambda frame: kinds.append(frame.WhichOneof("kind")))
        await run
    assert kinds.count("datamarker") == (3 if due else 1)


async def test_nothing_goes_beyond_the_credit(archived: object, subscriber: ScriptedSubscriber) -> None:
    run, flow = await accepted(subscriber, delivery(subscriber, archived), credit=1)
    while not (part := (await subscriber.hears_later("part")).part).last:
        pass
    assert subscriber.heard_nothing("datamarker"), "one body at a time, when none fits"
    await subscriber.says(progress=push_pb2.Progress(flow=flow.flow, epoch=7, number=part.number))
    assert (await subscriber.hears_later("batch")).batch.number == part.number + 1
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


def nothing(start: Datamarker) -> Generator[SentPiece, None, None]:
    yield from ()


async def test_what_the_application_has_itself_is_where_it_begins(subscriber: ScriptedSubscriber) -> None:
    asked = []

    def pieces(start: Datamarker) -> Generator[SentPiece, None, None]:
        asked.append(start)
        yield from ()

    stored = StoredOffers()
    run, flow = await accepted(subscriber, delivery(subscriber, pieces, stored), have=marker_at(9))
    await subscriber.hears("notice")
    await finishes(subscriber, flow)
    await run
    assert stored.offers[-1][0] == marker_at(9), "further than the range: handed over there"
    assert asked == [marker_at(9)]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (push_pb2.Failed.RESEND, StreamBroken),
        (push_pb2.Failed.HANDLER, HandlerFailed),
        (push_pb2.Failed.STALE_EPOCH, EpochRefused),
    ],
)
async def test_what_the_subscriber_cannot_go_on_with(
    reason: push_pb2.Failed.Reason, kind: type[Exception], subscriber: ScriptedSubscriber
) -> None:
    run, flow = await accepted(subscriber, delivery(subscriber, nothing))
    await subscriber.says(failed=push_pb2.Failed(flow=flow.flow, epoch=7, reason=reason, update_id="u", message="m"))
    with pytest.raises(kind):
        await run


async def test_a_subscriber_that_hangs_up_leaves_or_is_not_there(subscriber: ScriptedSubscriber) -> None:
    run = asyncio.create_task(delivery(subscriber, nothing).run())
    await subscriber.hears("hello")
    subscriber.hang_up()
    with pytest.raises(StreamBroken):
        await run
    run, flow = await accepted(subscriber, delivery(subscriber, nothing))
    await subscriber.releases(flow)
    with pytest.raises(StreamBroken, match="leaves"):
        await run
    subscriber.address = "127.0.0.1:1"
    with pytest.raises(StreamBroken, match="cannot be reached"):
        await delivery(subscriber, nothing).run()


async def test_what_cannot_be_stored_ends_it(archived: object, subscriber: ScriptedSubscriber) -> None:
    def refuse(offer: Offer, updates: int, size: int, settled: Settled | None) -> None:
        raise EpochRefused("a newer one is there")

    run = asyncio.create_task(delivery(subscriber, archived, refuse).run())
    taking = asyncio.create_task(takes_all(subscriber))
    with pytest.raises(EpochRefused):
        await run
    taking.cancel()


@pytest.mark.parametrize("proceed", [True, False])
async def test_what_the_archive_lacks_too_is_reported_before_it_goes_on(
    proceed: bool, subscriber: ScriptedSubscriber
) -> None:
    def pieces(start: Datamarker) -> Generator[SentPiece, None, None]:
        gap = LogGap(LossKind.PURGED, "3", "4", "gone")
        yield SentPiece(None, marker_at(1).order, None, (gap, marker_at(2)))

    run, flow = await accepted(subscriber, delivery(subscriber, pieces))
    await subscriber.hears("notice")
    loss = (await subscriber.hears("data_loss")).data_loss
    assert (loss.first_missing, loss.last_missing) == ("3", "4")
    await subscriber.says(loss_decision=push_pb2.LossDecision(flow=flow.flow, epoch=7, proceed=proceed))
    if not proceed:
        with pytest.raises(ReplayError, match="does not go on"):
            await run
        return
    await finishes(subscriber, flow)
    await run


@pytest.mark.parametrize("refused", ["", "1000 are parked"])
async def test_what_is_to_be_parked_is_stored_before_it_is_reported(
    refused: str, subscriber: ScriptedSubscriber
) -> None:
    stored, go_on = threading.Event(), threading.Event()
    parked: list[DeadLetter] = []

    def park(told: DeadLetter, parcel: Parcel) -> str:
        stored.set()
        assert go_on.wait(PATIENCE_S)
        parked.append(told)
        return refused

    told, parcel = letter(5)
    rows = ((told.rows[0], told.place),)
    run = asyncio.create_task(delivery(subscriber, nothing, park=park, parked=rows).run())
    await subscriber.hears("hello")
    assign = (await subscriber.hears("assign")).assign
    assert rows_from_messages(assign.parked) == rows
    flow = await subscriber.accepts(push_pb2.PublisherFrame(assign=assign))
    (frame,) = park_frames(told.id, parcel, told.place, "no", 1 << 20)
    frame.flow, frame.epoch = flow.flow, 7
    await subscriber.says(park=frame)
    await asyncio.to_thread(stored.wait, 30)
    await subscriber.hears("notice")
    await subscriber.acks(await subscriber.hears("datamarker"))
    await subscriber.hears("notice")
    await subscriber.hears("revoke")  # all that it says without having stored it
    go_on.set()
    answer = (await subscriber.hears("parked")).parked
    assert (answer.update_id, answer.refused, parked[0].error) == (told.id, refused, "no")
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


async def test_what_cannot_be_parked_ends_it(subscriber: ScriptedSubscriber) -> None:
    def park(told: DeadLetter, parcel: Parcel) -> str:
        raise EpochRefused("a newer one is there")

    told, parcel = letter(5)
    run, flow = await accepted(subscriber, delivery(subscriber, nothing, park=park))
    (frame,) = park_frames(told.id, parcel, told.place, "no", 1 << 20)
    frame.flow, frame.epoch = flow.flow, 7
    await subscriber.says(park=frame)
    with pytest.raises(EpochRefused):
        await run


async def test_who_may_not_push_is_reported_at_once(subscriber: ScriptedSubscriber) -> None:
    """Another attempt would be refused as well, for as long as the patience lasts."""
    run = asyncio.create_task(delivery(subscriber, nothing).run())
    await subscriber.hears("hello")
    goodbye = push_pb2.Goodbye(reason=push_pb2.Goodbye.NOT_ALLOWED, message="maria may not push here")
    await subscriber.says(goodbye=goodbye)
    with pytest.raises(ReplayError, match="maria may not push here"):
        await run
