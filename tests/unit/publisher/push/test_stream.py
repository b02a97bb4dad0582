"""One stream: what happens on a connection that is silent, stalls, lies or ends.

``test_publisher`` has what it carries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from caravan.fleet import Fleet, FleetEvents, Limits
from datastores.memory.source import MemorySource
from publisher.push.attached import AttachedSubscribers
from publisher.push.flow import PublisherFlow
from publisher.push.outgoing import Outgoing
from publisher.push.stream import Dialer, SubscriberStream
from subscriber_sdk import Subscriber, Update, serve
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.coordination.port import SubscriberInfo
from wormhole.filters import Filter
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.push.session import FlowFailed, LetterArrived, Verified
from wormhole.wire.v1 import push_pb2

_SHORT_S = 0.5
"""A heartbeat for tests that wait for silence.

Three of them have to be enough for a stream to open on a slow machine."""


class Owner:
    """What stands around a stream: a running fleet, and a flow that is opened when the subscriber takes it."""

    def __init__(self, info: SubscriberInfo, heartbeat: float) -> None:
        self.source = MemorySource(log="log", sharding=Sharding("log"))
        start = self.source.latest()
        self.fleet = Fleet(self.source, Limits(), FleetEvents(lambda f, e: None, lambda s, m: None), gather=lambda: 0.0)
        self.flow = PublisherFlow("app", "log", Filter.parse(None), start, start.order)
        self.acks: list[tuple[int, Datamarker]] = []
        self.lost: list[tuple[list[PublisherFlow], str]] = []
        self.wanted: list[tuple[PublisherFlow, int, LetterArrived]] = []
        self.rollbacks: list[tuple[PublisherFlow, str]] = []
        self.may_send = True
        self.running: asyncio.Task[None]
        hello = push_pb2.Hello(
            min_version=3,
            max_version=3,
            publisher="me",
            max_frame_bytes=1 << 20,
            heartbeat_ms=round(heartbeat * 1000),
        )
        self.stream = SubscriberStream(
            info, Dialer(hello, None, AttachedSubscribers(1.0)), self.fleet, self, lambda: self.may_send
        )

    def ready(self, stream: SubscriberStream) -> None:
        self.flow.holding.raised(self.flow.holding.epoch + 1)
        stream.assign(self.flow, yields=False)
        self.flow.assign(stream.info.id, 0.0)

    def opened(self, stream: SubscriberStream, flow: PublisherFlow, have: Datamarker | None, move: int) -> None:
        stream.begin(flow, None)

    def parking(self, stream: SubscriberStream, flow: PublisherFlow, epoch: int, wanted: LetterArrived) -> None:
        self.wanted.append((flow, epoch, wanted))

    def acked(self, flow: PublisherFlow, epoch: int, marker: Datamarker) -> None:
        self.acks.append((epoch, marker))

    def released(self, stream: SubscriberStream, flow: PublisherFlow) -> None:
        flow.release("released")

    def undone(self, stream: SubscriberStream, flow: PublisherFlow, transaction: str) -> None:
        self.rollbacks.append((flow, transaction))

    def failed(self, stream: SubscriberStream, flow: PublisherFlow, event: FlowFailed) -> None:
        flow.release(event.message)

    def decided(self, flow: PublisherFlow, proceed: bool) -> None: ...

    def verified(self, flow: PublisherFlow, epoch: int, event: Verified) -> None: ...

    def ended(self, stream: SubscriberStream, lost: list[PublisherFlow], cause: str) -> None:
        for flow in lost:
            flow.release(cause)
        self.lost.append((lost, str(stream.problem)))

    def commit(self, size: int = 1) -> None:
        self.source.commit([(Op.UPSERT, "t", b"k", {"value": bytes(size)})])

    def travelling(self) -> int:
        return sum(len(caravan.flows) for caravan in self.fleet.caravans.values())


@asynccontextmanager
async def owner(info: SubscriberInfo, heartbeat: float = 3.0) -> AsyncIterator[Owner]:
    one = Owner(info, heartbeat)
    one.running = asyncio.create_task(one.stream.run())
    tasks = [asyncio.create_task(one.fleet.run(one.source.latest())), one.running]
    try:
        yield one
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def subscriber() -> AsyncIterator[ScriptedSubscriber]:
    async with scripted_subscriber("app", "s1") as one:
        yield one


async def opened(subscriber: ScriptedSubscriber, credit: int = 1 << 20) -> push_pb2.Assign:
    await subscriber.hears("hello")
    return await subscriber.accepts(await subscriber.hears("assign"), credit=credit)


async def test_hello_names_whom_it_means(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info()) as one:
        hello = (await subscriber.hears("hello")).hello
        assert (hello.application, hello.subscriber, hello.publisher) == ("app", "s1", "me")
        await eventually(lambda: one.stream.connected, "welcomed")


async def test_a_frozen_subscriber_is_given_up_although_a_write_waits_for_it(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info(), heartbeat=_SHORT_S) as one:
        await opened(subscriber, credit=1 << 30)
        subscriber.reads.clear()
        for _ in range(20):
            one.commit(1 << 20)  # far more than the connection holds unread
        await eventually(lambda: one.lost, "given up")
        assert one.lost[0][1].startswith("nothing was heard for ")
        assert one.travelling() == 0
        subscriber.reads.set()
        await eventually(lambda: subscriber.connections == 2, "dialled again")


async def test_credit_holds_back_and_progress_lets_go(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info()) as one:
        await opened(subscriber, credit=1000)
        for _ in range(5):
            one.commit(600)
            await eventually(
                lambda: (lead := one.fleet.lead) and lead.buffer.place == one.source.latest().order, "read"
            )
        first = await subscriber.hears("batch")
        credit, in_flight = one.stream.credit(one.flow)
        assert credit == 1000
        assert in_flight == len(first.batch.body)
        assert subscriber.heard_nothing(but="datamarker")  # one falls due after a second
        numbers = [first.batch.number]
        for _ in range(4):
            await subscriber.processed(first)
            first = await subscriber.hears_later("batch")
            numbers.append(first.batch.number)
        assert numbers == [1, 2, 3, 4, 5]


async def test_progress_wakes_only_a_flow_that_waits_for_credit(
    subscriber: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with owner(subscriber.info()) as one:
        await opened(subscriber, credit=1000)
        woken: list[PublisherFlow] = []
        wake = Outgoing.wake

        def noted(outgoing: Outgoing, flow: PublisherFlow) -> None:
            woken.append(flow)
            wake(outgoing, flow)

        monkeypatch.setattr(Outgoing, "wake", noted)
        one.commit(600)
        first = await subscriber.hears("batch")
        woken.clear()
        await subscriber.processed(first)
        await eventually(lambda: one.stream.credit(one.flow)[1] == 0, "told")
        assert not woken
        one.commit(600)
        second = await subscriber.hears_later("batch")
        one.commit(600)
        await eventually(lambda: one.flow.holding.waiting_credit_since, "it waits")
        woken.clear()
        await subscriber.processed(second)
        await subscriber.hears_later("batch")
        assert woken


async def test_a_slow_callback_within_a_batch_gets_on(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info()) as one:
        flow = await opened(subscriber)
        one.commit()
        await subscriber.hears("batch")

        async def says(update: str, calls: int) -> float:
            at = push_pb2.HandlerReport(running_update=update, busy_s=calls)
            await subscriber.says(report=push_pb2.Report(flow=flow.flow, epoch=flow.epoch, handler=at))
            await eventually(
                lambda: one.flow.holding.handler is not None and one.flow.holding.handler.busy_s == calls, "told"
            )
            return one.flow.holding.progressed_at

        began = await says("mem:1:0", 1)
        assert await says("mem:1:0", 2) == began, "still the same callback"
        assert await says("mem:1:1", 3) > began


async def test_a_body_larger_than_a_frame_goes_in_parts(subscriber: ScriptedSubscriber) -> None:
    subscriber.max_frame = 4096
    async with owner(subscriber.info()) as one:
        await opened(subscriber)
        one.commit(20_000)
        parts = [(await subscriber.hears("part")).part]
        while not parts[-1].last:
            parts.append((await subscriber.hears("part")).part)
        assert sum(len(part.data) for part in parts) == parts[0].total_bytes
        assert subscriber.largest <= 4096


async def test_no_datamarker_is_inside_a_transaction(subscriber: ScriptedSubscriber) -> None:
    """What was sent before a datamarker lies before it, also where a transaction comes in pieces: an archive ends at
    one."""
    async with owner(subscriber.info()) as one:
        await opened(subscriber, credit=1)  # one body at a time
        one.commit()
        small = (await subscriber.hears("batch")).batch
        one.source.commit([(Op.UPSERT, "t", b"k%d" % number, {"value": bytes(300 << 10)}) for number in range(3)])
        await subscriber.says(progress=push_pb2.Progress(flow=small.flow, epoch=1, number=small.number))
        marker = await subscriber.hears("datamarker")
        assert marker.datamarker.marker.delivered == "1"
        await subscriber.hears("batch")
        await subscriber.acks(marker)
        await eventually(lambda: one.acks, "acknowledged")
        one.stream.revoke(one.flow, "moves")
        await eventually(lambda: not subscriber.heard_nothing(), "revoked")
        assert subscriber.heard_nothing(but="revoke")


async def test_without_the_lease_nothing_is_delivered_and_nothing_lost(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info()) as one:
        await opened(subscriber)
        await eventually(one.travelling, "travelling")
        one.may_send = False
        one.commit()
        await eventually(lambda: (lead := one.fleet.lead) and lead.buffer.place == one.source.latest().order, "read")
        await asyncio.sleep(0.05)
        assert subscriber.heard_nothing()
        one.may_send = True
        await subscriber.hears("batch")


async def test_a_hang_up_loses_the_flows_at_once_and_dials_again(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info()) as one:
        await opened(subscriber)
        await eventually(one.travelling, "travelling")
        one.stream.hang_up("enough")
        assert one.lost == [([one.flow], "enough [stream-broken]")]
        assert one.travelling() == 0
        assert not one.stream.connected
        await eventually(lambda: subscriber.connections == 2, "dialled again")
        assert (await opened(subscriber)).epoch == 2


async def test_a_cancelled_stream_leaves_no_flow_behind(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info()) as one:
        await opened(subscriber)
        await eventually(one.travelling, "travelling")
        one.running.cancel()
        with suppress(asyncio.CancelledError):
            await one.running
        assert one.travelling() == 0
        assert one.lost[0][0] == [one.flow]


async def test_who_leaves_has_left_until_it_answers_again(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info()) as one:
        assign = await opened(subscriber)
        await subscriber.releases(assign)
        await subscriber.says(goodbye=push_pb2.Goodbye(reason=push_pb2.Goodbye.LEAVING, message="bye"))
        await eventually(lambda: one.stream.left, "left")
        await eventually(lambda: one.lost, "told")
        assert one.lost[0][1] == "subscriber s1 parted (leaving): bye [in-progress]"
        life = one.stream.life
        subscriber.welcomes = False
        await subscriber.hears("hello")
        await subscriber.welcome()
        await subscriber.hears("assign")
        await eventually(lambda: not one.stream.left, "it came back")
        assert one.stream.life is life, "its registration did not change"


async def test_without_a_start_time_each_connection_may_be_to_a_new_process(subscriber: ScriptedSubscriber) -> None:
    async with owner(subscriber.info(started=0.0)) as one:
        await opened(subscriber)
        life = one.stream.life
        subscriber.hang_up()
        await subscriber.hears("hello")
        await subscriber.hears("assign")
        assert one.stream.life is not life


async def test_another_goodbye_is_dialled_again(subscriber: ScriptedSubscriber) -> None:
    subscriber.welcomes = False
    async with owner(subscriber.info()) as one:
        await subscriber.hears("hello")
        goodbye = push_pb2.Goodbye(reason=push_pb2.Goodbye.WRONG_ADDRESS, message="no", hint="fix it")
        await subscriber.says(goodbye=goodbye)
        await eventually(lambda: subscriber.connections == 2, "dialled again")
        assert one.lost[0][1] == "subscriber s1 parted (wrong_address): no [address-taken]. Next: fix it"


@pytest.mark.parametrize(("theirs", "older"), [((4, 5), "publisher"), ((2, 2), "subscriber")])
async def test_without_a_common_version_both_sides_say_once_which_is_older(
    theirs: tuple[int, int], older: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A real subscriber of a release that is far newer, or older."""

    class Idle(Subscriber):
        async def on_update(self, update: Update) -> None: ...

    monkeypatch.setattr("subscriber_sdk.stream.session.VERSIONS", theirs)
    address = f"127.0.0.1:{free_port()}"
    async with (
        serve(Idle(), application="app", id="s1", listen=address),
        owner(SubscriberInfo("app", "s1", address)) as one,
    ):
        await eventually(lambda: len(one.lost) == 3, "dialled three times")
    problem = (
        f"publisher me speaks protocol versions 3 to 3, subscriber app/s1 {theirs[0]} to {theirs[1]}: they have none "
        f"in common [protocol-broken]. Next: upgrade wormhole-pubsub of the {older}, the older side, first "
        "(docs/upgrade.md)"
    )
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"refused me: {problem}",
        f"stream to s1 at {address} ended: subscriber s1 parted (version): {problem}",
    ]


async def test_an_address_where_nobody_listens_is_reported_with_what_to_check() -> None:
    async with owner(SubscriberInfo("app", "s1", "127.0.0.1:1")) as one:
        await eventually(lambda: one.lost, "told")
        assert "127.0.0.1:1 cannot be reached" in one.stream.problem.text
        assert "`advertise`" in one.stream.problem.hint
