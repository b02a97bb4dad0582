"""One connection: how it opens, what it carries, and each way in which it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

import pytest

from subscriber_sdk.testing import marker_at
from tests.support.eventually import eventually, patience
from tests.support.letters import USERS, letter
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import ProtocolError, ReplayError, StreamBroken
from wormhole.ports.dead_letters import DeadLetter, Parcel
from wormhole.push import connection as module
from wormhole.push.allowance import Reading, arrival_work
from wormhole.push.connection import Connection, Refusal, Traffic
from wormhole.push.dial import DialledLine, Peer, is_refused
from wormhole.push.parking import Arrived, open_letter, park_frames
from wormhole.push.peer_threads import PeerThreads
from wormhole.push.session import Event, LetterArrived, Parted, PushSession, Welcomed
from wormhole.wire.v1 import push_pb2


class Owner:
    """A connection and what it reports. ``out``: the messages to write next. ``fails``: raised at the first event."""

    def __init__(self, heartbeat_s: float = 30.0, clock: Clock = SYSTEM_CLOCK) -> None:
        hello = push_pb2.Hello(
            min_version=3,
            max_version=3,
            application="app",
            subscriber="s1",
            heartbeat_ms=round(heartbeat_s * 1000),
            max_frame_bytes=1 << 20,
        )
        self.traffic = Traffic()
        self.connection = Connection(
            PushSession(hello), self, Reading().allowance(0.0), self.traffic, PeerThreads("letters", clock=clock), clock
        )
        self.events: list[Event] = []
        self.ends: list[StreamBroken | None] = []
        self.out: list[bytes] = []
        self.fails: Exception | None = None
        self.asked = 0

    def messages(self, now: float) -> Iterable[bytes]:
        self.asked += 1
        out, self.out = self.out, []
        return out

    def received(self, event: Event) -> None:
        self.events.append(event)
        if self.fails is not None:
            raise self.fails

    def closed(self, error: StreamBroken | None) -> None:
        self.ends.append(error)

    async def run(self, address: str, *works: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with patience():
            await self.connection.run(DialledLine(Peer(address, here="the test"), "s1"), *works)


@pytest.fixture
async def subscriber() -> AsyncIterator[ScriptedSubscriber]:
    async with scripted_subscriber("app", "s1") as one:
        yield one


async def welcomed(owner: Owner, subscriber: ScriptedSubscriber) -> asyncio.Task[None]:
    """The running connection, after its welcome."""
    run = asyncio.create_task(owner.run(subscriber.address))
    await subscriber.hears("hello")
    await eventually(lambda: run.done() or owner.events, "its welcome")
    return run


@pytest.fixture
def owner() -> Owner:
    return Owner()


async def test_messages_go_out_and_events_come_in(subscriber: ScriptedSubscriber, owner: Owner) -> None:
    run = await welcomed(owner, subscriber)
    assert owner.events == [Welcomed("s1")]
    assert 0 < owner.connection.welcomed_at <= owner.connection.heard_at
    owner.out = [owner.connection.session.goodbye(push_pb2.Goodbye.LEAVING, "bye")]
    owner.connection.wake()
    assert (await subscriber.hears("goodbye")).goodbye.message == "bye"
    await eventually(lambda: owner.traffic.messages == 2, "it is counted")
    owner.connection.close()
    assert await run is None  # type: ignore[func-returns-value]
    assert owner.ends == [None]


async def test_the_owner_is_asked_once_for_each_wake(
    subscriber: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TICK_S", 3600.0)
    owner = Owner(heartbeat_s=3600.0)
    run = await welcomed(owner, subscriber)
    asked = owner.asked
    for number in range(1, 6):
        owner.out = [owner.connection.session.heartbeat()]
        owner.connection.wake()
        await eventually(lambda number=number: subscriber.heartbeats == number, "it came")  # type: ignore[misc]
        await eventually(lambda number=number: owner.traffic.messages == number + 1, "it is counted")  # type: ignore[misc]
    await asyncio.sleep(0)
    assert owner.asked == asked + 5
    owner.connection.close()
    await run


async def test_what_the_subscriber_sent_is_accounted_apart_from_all_other_work(
    subscriber: ScriptedSubscriber,
) -> None:
    used = 0.0

    class Busy(Owner):
        def received(self, event: Event) -> None:
            nonlocal used
            used += 0.001
            super().received(event)

    owner = Busy(clock=Clock(processor=lambda: used))
    run = await welcomed(owner, subscriber)
    await eventually(lambda: owner.traffic.reading_s == 0.001, "the welcome")
    used += 5.0  # what it sends, for example
    heard_at = owner.connection.heard_at
    await subscriber.says(heartbeat=push_pb2.Heartbeat(number=1))
    await eventually(lambda: owner.connection.heard_at > heard_at, "it was read")
    assert owner.traffic.reading_s == 0.001
    assert owner.traffic.charged >= 1000.0
    owner.connection.close()
    await run


@pytest.mark.parametrize("size", [0, 2_000_000])
async def test_what_arrives_is_charged_before_anything_is_made_of_it(subscriber: ScriptedSubscriber, size: int) -> None:
    """gRPC takes 50 to 260 microseconds for the smallest message, and about one for each KiB."""
    owner, rests = Owner(clock=Clock(processor=lambda: 0.0)), list[int]()
    run = await welcomed(owner, subscriber)
    before, heard_at = owner.traffic.charged, owner.connection.heard_at
    real = owner.connection._rest

    async def rest() -> None:
        rests.append(owner.connection.session.work)
        await real()

    owner.connection._rest = rest  # type: ignore[method-assign]
    park = push_pb2.Park(flow=0, update_id="s:1:0", body=bytes(size), more=True)
    work = owner.connection.session.work
    await subscriber.says(**{"park": park} if size else {"heartbeat": push_pb2.Heartbeat(number=1)})
    await eventually(lambda: owner.connection.heard_at > heard_at and owner.traffic.charged > before, "it was read")
    assert arrival_work(size) <= owner.traffic.charged - before < 1.5 * arrival_work(size)
    assert (rests[0] == work) is (size > 0)
    owner.connection.close()
    await asyncio.gather(run, return_exceptions=True)


@pytest.mark.parametrize("frozen", [True, False])
async def test_silence_for_three_heartbeats_ends_it(subscriber: ScriptedSubscriber, frozen: bool) -> None:
    """Also when a write waits for a subscriber that does not read."""
    owner = Owner(heartbeat_s=0.2)
    owner.out = [bytes(1 << 20)] * 20 * frozen  # far more than the connection holds unread
    subscriber.reads.clear()
    with pytest.raises(StreamBroken, match=r"^nothing was heard for 0\.6 s \[stream-broken\]$"):
        await owner.run(subscriber.address)
    subscriber.reads.set()


async def test_before_its_welcome_a_subscriber_is_not_listened_to_for_long(subscriber: ScriptedSubscriber) -> None:
    subscriber.welcomes = False
    owner = Owner(heartbeat_s=0.2)
    run = asyncio.create_task(owner.run(subscriber.address))
    await subscriber.hears("hello")

    async def talk() -> None:
        while True:
            await subscriber.says_bytes(b"")
            await asyncio.sleep(0.02)

    talking = asyncio.create_task(talk())
    with pytest.raises(StreamBroken, match=r"welcome: it did not come within 0\.6 s"):
        await run
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)  # its last word may have met the end of the stream
    assert owner.traffic.refused == {Refusal.SILENT: 1}


async def test_a_subscriber_that_talks_all_the_time_hears_something_too(subscriber: ScriptedSubscriber) -> None:
    owner = Owner(heartbeat_s=0.5)
    run = await welcomed(owner, subscriber)
    async with patience():
        while subscriber.heartbeats < 2:
            await subscriber.says(heartbeat=push_pb2.Heartbeat())
            await asyncio.sleep(0.02)
    assert not run.done()
    owner.connection.close()
    await run


async def test_what_breaks_the_protocol_is_answered_with_what_is_wrong(
    subscriber: ScriptedSubscriber, owner: Owner
) -> None:
    run = await welcomed(owner, subscriber)
    await subscriber.says_bytes(b"\xff\xff\xff")
    goodbye = (await subscriber.hears_later("goodbye")).goodbye
    assert goodbye.reason == push_pb2.Goodbye.PROTOCOL
    assert "is no valid message" in goodbye.message
    with pytest.raises(StreamBroken, match="is no valid message") as caught:
        await run
    assert owner.ends == [caught.value]
    assert owner.connection.refused
    assert owner.traffic.refused == {Refusal.PROTOCOL: 1}


async def test_after_it_was_closed_nothing_is_received(subscriber: ScriptedSubscriber, owner: Owner) -> None:
    run = await welcomed(owner, subscriber)
    error = StreamBroken("enough")
    owner.connection.close(error)
    owner.connection.close(StreamBroken("twice"))
    owner.connection.refuse(ProtocolError("late"))
    await subscriber.says(goodbye=push_pb2.Goodbye(message="bye"))
    with pytest.raises(StreamBroken, match=r"^enough \["):
        await run
    assert (owner.ends, owner.events, owner.connection.refused) == ([error], [Welcomed("s1")], False)


async def test_a_connection_that_was_never_dialled_is_not_refused(owner: Owner) -> None:
    owner.connection.refuse(ProtocolError("early"))
    assert (owner.ends, owner.traffic.refused) == ([], {})


@pytest.mark.parametrize(("reason", "name"), [(push_pb2.Goodbye.WRONG_ADDRESS, "wrong_address"), (77, "reason 77")])
async def test_a_goodbye_is_received_and_ends_it(
    subscriber: ScriptedSubscriber, reason: int, name: str, owner: Owner
) -> None:
    run = await welcomed(owner, subscriber)
    goodbye = push_pb2.Goodbye(reason=reason, message="no", hint="fix it")  # type: ignore[arg-type]
    await subscriber.says(goodbye=goodbye)
    with pytest.raises(StreamBroken, match=rf"^subscriber s1 parted \({name}\): no ") as caught:
        await run
    assert caught.value.hint == "fix it"
    assert owner.events[-1] == Parted(reason, "no", "fix it")


async def _hangs_up(owner: Owner, subscriber: ScriptedSubscriber) -> None:
    subscriber.hang_up()


async def _owner_fails(owner: Owner, subscriber: ScriptedSubscriber) -> None:
    owner.fails = ReplayError("not here")
    await subscriber.says(goodbye=push_pb2.Goodbye())


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [(_hangs_up, StreamBroken, "the subscriber closed the stream"), (_owner_fails, ReplayError, "not here")],
)
async def test_how_it_ends(
    act: Callable[[Owner, ScriptedSubscriber], Awaitable[None]],
    error: type[Exception],
    message: str,
    subscriber: ScriptedSubscriber,
    owner: Owner,
) -> None:
    run = await welcomed(owner, subscriber)
    await act(owner, subscriber)
    with pytest.raises(error, match=message):
        await run


@pytest.mark.parametrize("fails", [True, False])
async def test_work_beside_it_ends_it(subscriber: ScriptedSubscriber, fails: bool, owner: Owner) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        await eventually(lambda: owner.events, "its welcome")
        if fails:
            raise ReplayError("failed")

    run = asyncio.create_task(owner.run(subscriber.address, never, work))
    if fails:
        with pytest.raises(ReplayError, match="failed"):
            await run
    else:
        await run


async def test_an_address_where_no_process_listens() -> None:
    with pytest.raises(StreamBroken, match=r"^127\.0\.0\.1:1 cannot be reached .* dialled from the test$") as caught:
        await Owner().run("127.0.0.1:1")
    assert is_refused(caught.value)


async def test_a_server_that_is_no_subscriber() -> None:
    async with scripted_subscriber("app", "s1", service="elsewhere.Service") as other:
        message = ""
        while "is no Wormhole subscriber" not in message:
            # When the refusal meets a write, gRPC knows of an "internal error" only; the next connection tells.
            with pytest.raises((ProtocolError, StreamBroken)) as caught:
                await Owner().run(other.address)
            message = str(caught.value)
        assert not is_refused(caught.value)


async def test_an_update_to_be_parked_is_opened_elsewhere_and_charged_what_it_takes(
    subscriber: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else of the subscriber is read meanwhile, and then not before it has paid."""
    used, opened, rested = 0.0, list[str](), list[float]()
    real = open_letter

    def costly(arrived: Arrived, flow: str) -> tuple[DeadLetter, Parcel]:
        nonlocal used
        opened.append(threading.current_thread().name)
        used += 0.25
        return real(arrived, flow)

    async def rest(seconds: float) -> None:
        rested.append(seconds)
        await asyncio.sleep(0.001)

    monkeypatch.setattr(module, "open_letter", costly)
    owner = Owner(clock=Clock(monotonic=lambda: 0.0, sleep=rest, processor=lambda: used))
    session = owner.connection.session
    session.schemas((USERS,))
    flow, frame = session.assign("app", "log", 7, marker_at(0), None, 0.0, park=True)
    run = asyncio.create_task(owner.connection.run(DialledLine(Peer(subscriber.address, here="the test"), "s1")))
    await subscriber.hears("hello")
    await eventually(lambda: owner.events, "its welcome")
    owner.out = [frame]
    owner.connection.wake()
    await subscriber.accepts(await subscriber.hears("assign"))
    told, parcel = letter(5)
    [park] = park_frames(told.id, parcel, told.place, "no", 1 << 20)
    park.flow, park.epoch = flow.number, 7
    await subscriber.says(park=park)
    await eventually(lambda: isinstance(owner.events[-1], LetterArrived), "it is opened")
    await eventually(lambda: any(seconds > 1 for seconds in rested), "it has to pay")
    arrived = owner.events[-1]
    assert isinstance(arrived, LetterArrived)
    assert (arrived.letter.id, arrived.parcel) == (told.id, parcel)
    assert [name.rpartition("_")[0] for name in opened] == ["letters"]
    assert owner.traffic.threads_s == 0.25
    assert 250_000 <= owner.traffic.charged < 260_000
    arrived.done()
    owner.connection.close()
    await run
