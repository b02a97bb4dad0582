"""Any sequence of deliveries, failures and deaths: the duplicates that a publisher counts happened, and it counts all
of them unless a process died before it reported.

A publisher's counts and session, and the SDK as an application has it, joined by messages that are lost when a process
dies. The truth is what callbacks noted as they returned.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from caravan.flow import CaravanFlow
from publisher.flows.delivery_counter import DeliveryCounter
from publisher.push.flow import PublisherFlow
from publisher.stores.markers.memory import MemoryMarkerStore
from subscriber_sdk import AckLater, Datamarker, RetryPolicy, Subscriber, Update
from subscriber_sdk.options.admission import Admission
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.server.connection import PublisherConnection
from subscriber_sdk.stream.session import Session
from subscriber_sdk.work.shards import Shards
from tests.support.markers import CACHE, marker
from tests.support.present import present
from tests.unit.publisher.flows.test_delivery_counter import WINDOW, body
from wormhole.filters import Filter
from wormhole.ports.marker_store import MarkerWrite
from wormhole.push.session import Acked, FlowFailed, FlowPhase, Opened, Progressed, PushFlow, PushSession, Released
from wormhole.wire.body import Body
from wormhole.wire.tally import WINDOW_S, total
from wormhole.wire.v1 import admin_pb2, push_pb2

LOG = [body(number, 1, (WINDOW - number % 2) * WINDOW_S * 1_000_000) for number in range(40)]
"""Transactions of two updates, in two windows; number ``n`` ends at ``marker(n + 1)``."""

NAMES = ("one", "two")


def window_of(update: Update) -> int:
    return WINDOW - int(update.id.split(":")[-2]) % 2


class Application(Subscriber):
    """Runs so many callbacks as it is allowed, and notes each."""

    def __init__(self, truth: Counter[tuple[int, str]]) -> None:
        self.truth = truth
        self.allowed = 0
        self.fails = False
        self.later = False
        self.more = asyncio.Event()

    async def on_update(self, update: Update) -> None:
        while not self.allowed:
            self.more.clear()
            await self.more.wait()
        self.allowed -= 1
        if self.fails:
            self.fails = False
            raise ValueError("once")
        self.truth[window_of(update), update.id] += 1

    async def on_datamarker(self, marker: Datamarker) -> AckLater | None:
        return AckLater(3600.0) if self.later else None


class Process:
    """A subscriber's. ``said``: what it wrote and nobody read yet."""

    def __init__(self, name: str, truth: Counter[tuple[int, str]], concurrency: int) -> None:
        self.application = Application(truth)
        retry = RetryPolicy(attempts=1000, first_wait=0.0)
        self.options = Options("cache", id=name, listen="127.0.0.1:1", retry=retry, concurrency=concurrency)
        self.shards = Shards(self.application, self.options, lambda: 0.0)
        self.connection: PublisherConnection | None = None
        self.said: list[bytes] = []

    def connect(self) -> None:
        session = Session(Admission("cache", self.options.id), max_frame_bytes=1 << 20, max_body_bytes=1 << 20, now=0.0)
        self.said = []
        self.connection = PublisherConnection(session, self.shards, lambda: None)

    def speak(self) -> None:
        """Write what is to be said."""
        while self.connection is not None and (data := self.connection.take_output(0.0)) is not None:
            self.said.append(data)

    def hang_up(self) -> None:
        if self.connection is not None:
            self.connection.lost("cut")
            self.connection = None

    async def end(self) -> None:
        self.hang_up()
        for worker in self.shards.workers():
            worker.kill()
        await self.shards.close()


class World:
    """One flow."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.truth: Counter[tuple[int, str]] = Counter()
        self.store = MemoryMarkerStore()
        self.store.open()
        self.store.register(CACHE, marker(0), "latest")
        self.counter = DeliveryCounter(self.store)
        self.flow = self.new_flow()
        self.waiting: MarkerWrite | None = None
        self.processes = {name: self.process(name) for name in NAMES}
        self.at = 0
        self.session: PushSession | None = None
        self.push: PushFlow | None = None
        self.who = ""
        self.unsure = False
        """Whether a process died before it reported."""
        self.moved_past = False

    def process(self, name: str) -> Process:
        return Process(name, self.truth, self.concurrency)

    def new_flow(self) -> PublisherFlow:
        return PublisherFlow(*CACHE, Filter.parse(None), self.store.load()[CACHE].marker, marker(len(LOG)).order)

    # -- the publisher

    def put(self, pages: Any) -> None:
        counts = dict(self.waiting.counts) if self.waiting is not None else {}
        self.waiting = MarkerWrite(CACHE, self.flow.holding.epoch, self.flow.delivery.marker, "", {**counts, **pages})

    def stored(self) -> None:
        if self.waiting is not None:
            assert not self.store.store([self.waiting])
            self.flow.delivery.stored(self.waiting.marker, self.waiting.epoch)
            self.waiting = None

    async def assign(self, name: str) -> None:
        if self.session is not None:
            return
        process = self.processes[name]
        process.hang_up()
        await self.settle()
        self.stored()
        self.flow.holding.raised(self.store.raise_epoch(CACHE))
        self.flow.assign(name, 0.0)
        await self.counter.load((self.flow,))
        process.connect()
        hello = push_pb2.Hello(
            min_version=3, max_version=3, publisher="p", application="cache", subscriber=name, heartbeat_ms=1000, max_frame_bytes=1 << 20  # noqa: E501
        )  # fmt: skip
        self.session, self.who, self.push = PushSession(hello), name, None
        self.say(self.session.start())
        await self.hear()
        self.push, frame = self.session.assign(*CACHE, self.flow.holding.epoch, self.flow.delivery.marker, None, 0.0)
        self.say(frame)
        await self.hear()

    def say(self, data: bytes) -> None:
        connection = present(self.processes[self.who].connection)
        connection.receive(data, 0.0)

    def send(self, transactions: int, *, offers: bool) -> None:
        if self.push is None or self.push.phase is not FlowPhase.OPEN:
            return
        assert self.session is not None
        for _ in range(min(transactions, len(LOG) - self.at)):
            one: Body = LOG[self.at]
            for frame in self.session.schemas(one.schemas):
                self.say(frame)
            for frames in self.session.batch(self.push, one.pieces, marker(self.at).order):
                self.say(b"".join(frames))
            self.flow.delivery.sent_counts.sent(one)
            self.at += 1
            if offers:
                self.offer()
        self.offer()
        assert self.flow.delivery.caravan_flow is not None
        self.flow.delivery.caravan_flow.place = marker(self.at).order

    def offer(self) -> None:
        assert self.session is not None
        assert self.push is not None
        frame = self.session.datamarker(self.push, marker(self.at), 0.0)
        if frame is not None:
            self.say(frame)
            self.flow.delivery.sent_counts.offered(marker(self.at))

    async def hear(self) -> None:
        """Everything that was said so far."""
        process = self.processes.get(self.who)
        if self.session is None or process is None:
            return
        await self.settle()
        process.speak()
        said, process.said = process.said, []
        for data in said:
            for event in self.session.receive(data):
                self.happened(event)

    def happened(self, event: object) -> None:
        flow = self.flow
        match event:
            case Opened(_, _, life, processed, epochs):
                self.counter.open(flow)
                flow.delivery.sent_counts.opened(life, processed, epochs)
                self.at = flow.delivery.marker.order.offset
                flow.begin(CaravanFlow(*CACHE, flow.filter, flow.delivery.marker, flow.holding.epoch, lambda: None))
            case Progressed(_, processed):
                flow.delivery.sent_counts.reported(processed)
            case Acked(_, acked, processed):
                flow.delivery.sent_counts.reported(processed)
                if self.push is not None and self.push.epoch == flow.holding.epoch:  # else a rewind ended it
                    flow.acked(acked)
                    self.put(self.counter.acknowledged(flow, acked))
            case Released(_, processed):
                flow.delivery.sent_counts.reported(processed)
                self.closed()
            case FlowFailed():
                self.closed()

    def closed(self) -> None:
        if self.session is not None:
            self.put(self.counter.closed(self.flow))
            self.flow.release("over")
            self.session = self.push = None

    # -- what may happen

    async def revoke(self) -> None:
        if self.session is not None and self.push is not None:
            self.say(self.session.revoke(self.push, "elsewhere"))
            self.processes[self.who].application.allowed += 100  # what runs may finish
            self.processes[self.who].application.more.set()
            await self.hear()
            self.processes[self.who].application.allowed = 0

    async def cut(self) -> None:
        """The stream breaks; what was on its way is lost."""
        if self.session is not None:
            self.processes[self.who].hang_up()
            self.closed()

    async def kill_subscriber(self, name: str) -> None:
        await self.settle()
        if self.who == name:
            await self.cut()
        await self.processes[name].end()
        self.processes[name] = self.process(name)
        self.unsure = True

    async def kill_publisher(self) -> None:
        await self.settle()
        if self.session is not None:
            self.processes[self.who].hang_up()
        self.session = self.push = self.waiting = None
        self.counter = DeliveryCounter(self.store)
        self.flow = self.new_flow()

    async def rewind(self, by: int) -> None:
        to = marker(max(0, self.flow.delivery.marker.order.offset + (by if by < 3 else -by)))
        self.moved_past |= to.order > self.flow.delivery.durable.order
        self.waiting = None
        past = to.order > self.flow.delivery.durable.order
        epoch = self.store.rewind(CACHE, to)
        self.flow.moved(epoch, to, epoch)
        if past:
            self.put(self.counter.moved_past(self.flow))
            self.stored()
        await self.revoke()
        await self.cut()

    async def settle(self) -> None:
        """Until nothing goes on but what waits to be allowed."""
        quiet, seen = 0, None
        while quiet < 12:
            await asyncio.sleep(0)
            now = (self.truth.total(), [process.application.allowed for process in self.processes.values()])
            quiet, seen = (quiet + 1, seen) if now == seen else (0, now)

    async def step(self, what: str, name: str, number: int) -> None:
        process = self.processes[name]
        match what:
            case "assign":
                await self.assign(name)
            case "send":
                self.send(number, offers=number % 2 == 0)
            case "work":
                process.application.allowed += number
                process.application.more.set()
                await self.settle()
                process.application.allowed = 0
            case "speak":
                await self.settle()
                process.speak()
            case "hear":
                await self.hear()
            case "fail":
                process.application.fails = True
            case "later":
                process.application.later = not process.application.later
            case "store":
                self.stored()
            case "revoke":
                await self.revoke()
            case "cut":
                await self.cut()
            case "kill":
                await self.kill_subscriber(name)
            case "crash":
                await self.kill_publisher()
            case "both":
                await self.kill_publisher()
                await self.kill_subscriber(name)
            case "rewind":
                await self.rewind(number)

    # -- what is counted

    def duplicates(self) -> dict[int, int]:
        """By window, as they are counted."""
        reply = self.counter.report(admin_pb2.AuditRequest(), [self.flow])
        assert not any(one.missing for one in reply.windows)
        return {one.window: max(0, one.processed + one.set_aside - one.delivered - one.ahead) for one in reply.windows}

    def repeats(self, window: int) -> int:
        return sum(times - 1 for (of, _), times in self.truth.items() if of == window)

    async def drain(self) -> None:
        """All that is left is delivered, and whoever lives tells what it did."""
        for process in self.processes.values():
            process.application.later = process.application.fails = False
        await self.cut()
        for name in (*NAMES, *NAMES):
            await self.assign(name)
            self.send(len(LOG), offers=True)
            application = self.processes[name].application
            application.allowed += 1000
            application.more.set()
            await self.hear()
            application.allowed = 0
            await self.revoke()
            await self.cut()
        self.stored()


USUAL = ["assign"] * 3 + ["send"] * 5 + ["work"] * 6 + ["hear"] * 5 + ["store"] * 2
STEPS = st.tuples(
    st.sampled_from([*USUAL, "speak", "fail", "later", "revoke", "cut", "kill", "crash", "both", "rewind"]),
    st.sampled_from(NAMES),
    st.integers(1, 6),
)


async def play(concurrency: int, steps: list[tuple[str, str, int]]) -> None:
    world = World(concurrency)
    try:
        for step in steps:
            await world.step(*step)
            for window, counted in world.duplicates().items():
                assert counted <= world.repeats(window), f"after {step}: duplicates that did not happen"
        await world.drain()
        duplicates = world.duplicates()
        for window in (WINDOW - 1, WINDOW):
            true = world.repeats(window)
            assert duplicates[window] <= true
            assert world.unsure or world.moved_past or duplicates[window] == true, "everything was reported"
        delivered = sum(one.delivered for one in world.counter.report(admin_pb2.AuditRequest(), [world.flow]).windows)
        assert world.moved_past or delivered == sum(total(one.tallies).updates for one in LOG)
    finally:
        for process in world.processes.values():
            await process.end()


@given(st.sampled_from([1, 1, 3]), st.lists(STEPS, max_size=40))
def test_counted_duplicates_happened_and_all_are_counted_unless_a_process_died(
    concurrency: int, steps: list[tuple[str, str, int]]
) -> None:
    assert abs(time.time() - WINDOW * WINDOW_S) < 7 * 86_400  # or the counts would be deleted
    asyncio.run(play(concurrency, steps))
