"""The port of `wormhole/coordination/port.py` over its three forms.

What needs a service runs over memory and ZooKeeper; what the static form does instead is said in
`tests/unit/wormhole/coordination/test_static.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Protocol, TypeVar

import pytest
from kazoo.client import KazooClient

from wormhole.config import Config, CoordinatorConfig, parse
from wormhole.coordination import (
    Contact,
    Coordinator,
    FlowRecord,
    MemoryCoordinator,
    MemoryWorld,
    PublisherInfo,
    StaticCoordinator,
    SubscriberInfo,
    ZooKeeperCoordinator,
    publish_config,
)
from wormhole.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.errors import ConfigError, CoordinationLost, UnknownApplication

T = TypeVar("T")

PLAIN = """
version = 1
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///var/lib/shop"
[applications.cache]
dataset = "shop"
start = "latest"
allow = ["a", "b"]
"""
MORE = f"""{PLAIN}
[applications.search]
dataset = "shop"
start = "earliest"
where = 'op == "delete"'
"""
STATIC = f"""{PLAIN}
[applications.cache.subscribers]
a = "127.0.0.1:7001"
b = "127.0.0.1:7002"
"""
A = SubscriberInfo("cache", "a", "127.0.0.1:7001", 1.0, 5.0)
B = SubscriberInfo("cache", "b", "127.0.0.1:7002", 2.5, 6.0)
DB1 = PublisherInfo("shop", "main", "db1", "host1", 42, "127.0.0.1:7000", 7.0)


def config(text: str) -> Config:
    return parse(text, "test.toml")


async def soon(iterator: AsyncIterator[T], wanted: Callable[[T], bool] = lambda _: True) -> T:
    """The next state for which ``wanted`` holds; states before it may be passed."""
    async with asyncio.timeout(20):
        async for state in iterator:
            if wanted(state):
                return state
    raise AssertionError("the watch ended")


async def silent(iterator: AsyncIterator[T], during: float = 0.05) -> asyncio.Task[T]:
    """Check that nothing is yielded; returns the task that goes on waiting."""
    task = asyncio.ensure_future(anext(iterator))
    done, _ = await asyncio.wait([task], timeout=during)
    assert not done, f"not silent: {task.result()}"
    return task


class Form(Protocol):
    async def client(self) -> Coordinator:
        """One more started client."""
        ...

    async def configure(self, text: str) -> None: ...

    async def suspend(self, client: Coordinator) -> None: ...

    async def restore(self, client: Coordinator) -> None: ...

    async def lose_and_restore(self, client: Coordinator) -> None: ...


class MemoryForm:
    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack, self.world = stack, MemoryWorld()

    async def client(self) -> Coordinator:
        client = MemoryCoordinator(self.world, session_timeout=6.0)
        await client.start()
        self.stack.push_async_callback(client.stop)
        return client

    async def configure(self, text: str) -> None:
        client = MemoryCoordinator(self.world)
        await client.start()
        await publish_config(config(text), client)

    async def suspend(self, client: Coordinator) -> None:
        assert isinstance(client, MemoryCoordinator)
        client.suspend()

    async def restore(self, client: Coordinator) -> None:
        assert isinstance(client, MemoryCoordinator)
        client.restore()

    async def lose_and_restore(self, client: Coordinator) -> None:
        assert isinstance(client, MemoryCoordinator)
        client.lose()
        await asyncio.sleep(0)
        client.restore()


class ZooKeeperForm:
    def __init__(self, stack: AsyncExitStack, server: EmbeddedZooKeeper, target: str) -> None:
        self.stack, self.server = stack, server
        self.settings = CoordinatorConfig(zookeeper=target, session_timeout=6.0)

    async def client(self) -> Coordinator:
        client = ZooKeeperCoordinator(self.settings)
        await client.start()
        self.stack.push_async_callback(client.stop)
        return client

    async def configure(self, text: str) -> None:
        await publish_config(config(text).model_copy(update={"coordinator": self.settings}))

    async def suspend(self, client: Coordinator) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restore(self, client: Coordinator) -> None:
        await asyncio.to_thread(self.server.start)

    async def lose_and_restore(self, client: Coordinator) -> None:
        # Closing a second connection to the same session ends the session for both.
        assert isinstance(client, ZooKeeperCoordinator)
        identity = client._session._client.client_id
        await asyncio.to_thread(self._end_session, identity)

    def _end_session(self, identity: object) -> None:
        twin = KazooClient(self.server.hosts, client_id=identity)
        twin.start()
        twin.stop()
        twin.close()


# Servers start in plain fixtures: starting one inside the event loop would block it.
Place = tuple[EmbeddedZooKeeper, str] | None


@pytest.fixture(params=["memory", "zookeeper"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return None
    return request.getfixturevalue("zookeeper_server"), request.getfixturevalue("zookeeper")


@pytest.fixture(params=["memory", "zookeeper"])
def frail_place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return None
    server = request.getfixturevalue("own_zookeeper")
    return server, f"{server.hosts}/frail"


@pytest.fixture(params=["memory", "zookeeper", "static"])
def any_place(request: pytest.FixtureRequest) -> Place | str:
    if request.param != "zookeeper":
        return None if request.param == "memory" else "static"
    return request.getfixturevalue("zookeeper_server"), request.getfixturevalue("zookeeper")


async def made_form(stack: AsyncExitStack, place: Place) -> Form:
    made: Form = MemoryForm(stack) if place is None else ZooKeeperForm(stack, *place)
    await made.configure(PLAIN)
    return made


@pytest.fixture
async def form(place: Place) -> AsyncIterator[Form]:
    async with AsyncExitStack() as stack:
        yield await made_form(stack, place)


@pytest.fixture
async def frail(frail_place: Place) -> AsyncIterator[Form]:
    """A form whose service the test may take away."""
    async with AsyncExitStack() as stack:
        yield await made_form(stack, frail_place)


@pytest.fixture
async def any_form(any_place: Place | str) -> AsyncIterator[Coordinator]:
    """One client of every form, with the application ``cache`` that may have the subscribers ``a`` and ``b``."""
    async with AsyncExitStack() as stack:
        if isinstance(any_place, str):
            static = StaticCoordinator(config(STATIC))
            await static.start()
            stack.push_async_callback(static.stop)
            yield static
        else:
            yield await (await made_form(stack, any_place)).client()


# --- every form --------------------------------------------------------------------------------------------------


async def test_a_started_client_has_contact(any_form: Coordinator) -> None:
    assert any_form.contact is Contact.CONNECTED
    assert await soon(any_form.watch_contact()) is Contact.CONNECTED
    assert math.isfinite(any_form.last_contact())
    assert any_form.lease_s() in (pytest.approx(4.0), math.inf)


async def test_applications_are_seen_at_once(any_form: Coordinator) -> None:
    applications = await soon(any_form.watch_applications())
    assert {name: (app.dataset, app.start, app.allow) for name, app in applications.items()} == {
        "cache": ("shop", "latest", ("a", "b"))
    }


async def test_registered_subscribers_are_seen(any_form: Coordinator) -> None:
    await any_form.register_subscriber(A)
    await any_form.register_subscriber(B)
    seen = await soon(any_form.watch_subscribers("cache"), lambda infos: len(infos) == 2)
    assert [(info.id, info.address) for info in seen] == [("a", A.address), ("b", B.address)]
    assert await any_form.subscribers() == seen


async def test_an_unknown_application_has_no_subscribers(any_form: Coordinator) -> None:
    assert await soon(any_form.watch_subscribers("nobody")) == ()


async def test_an_unknown_application_is_answered_with_the_toml_to_add(any_form: Coordinator) -> None:
    with pytest.raises(UnknownApplication, match="cash") as caught:
        await any_form.register_subscriber(SubscriberInfo("cash", "a", "127.0.0.1:7001"))
    assert "[applications.cash]" in str(caught.value.hint)
    assert 'did you mean "cache"' in str(caught.value)


async def test_a_subscriber_that_is_not_allowed_is_refused(any_form: Coordinator) -> None:
    with pytest.raises(ConfigError, match=r"stranger.*allow") as caught:
        await any_form.register_subscriber(SubscriberInfo("cache", "stranger", "127.0.0.1:7001"))
    assert "applications.cache.allow" in str(caught.value.hint)


async def test_one_publisher_per_log(any_form: Coordinator) -> None:
    entry = await any_form.register_publisher(DB1)
    assert await any_form.publishers() == (DB1,)
    with pytest.raises(ConfigError, match="shop/main/db1"):
        await any_form.register_publisher(PublisherInfo("shop", "main", "db1", "host2", 43, "", 8.0))
    await entry.close()
    await entry.close()
    assert await any_form.publishers() == ()


async def test_flows_are_told(any_form: Coordinator) -> None:
    one, two = FlowRecord("me", "a", 3, "live"), FlowRecord("me", "b", 4, "held")
    await any_form.write_flows({("cache", "db1"): one, ("cache", "db1.t%2Fx"): one})
    await any_form.write_flows({("cache", "db1"): two})
    assert await any_form.flows() == {("cache", "db1"): two, ("cache", "db1.t%2Fx"): one}


async def test_watches_end_when_the_coordinator_stops(any_form: Coordinator) -> None:
    watches: list[AsyncIterator[object]] = [
        any_form.watch_applications(), any_form.watch_subscribers("cache"), any_form.watch_contact()
    ]  # fmt: skip
    for watch in watches:
        await soon(watch)
    waiting = [asyncio.ensure_future(soon(watch, lambda _: False)) for watch in watches]
    await asyncio.sleep(0)
    await any_form.stop()
    await any_form.stop()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(end) for end in ended] == ["the watch ended"] * 3
    assert any_form.contact is Contact.LOST


# --- forms with a service -----------------------------------------------------------------------------------------


async def test_a_new_application_is_seen(form: Form) -> None:
    watch = (await form.client()).watch_applications()
    assert list(await soon(watch)) == ["cache"]
    await form.configure(MORE)
    applications = await soon(watch, lambda found: len(found) == 2)
    assert applications["search"].where == 'op == "delete"'


async def test_a_changed_application_is_seen(form: Form) -> None:
    watch = (await form.client()).watch_applications()
    await soon(watch)
    await form.configure(PLAIN.replace('"latest"', '"earliest"'))
    await soon(watch, lambda found: found["cache"].start == "earliest")


async def test_subscribers_come_and_go(form: Form) -> None:
    watch = (await form.client()).watch_subscribers("cache")
    assert await soon(watch) == ()
    first, second = await form.client(), await form.client()
    entry = await first.register_subscriber(A)
    assert await soon(watch) == (A,)
    await second.register_subscriber(B)
    assert await soon(watch) == (A, B)
    await entry.close()
    await entry.close()
    assert await soon(watch) == (B,)
    await second.stop()
    assert await soon(watch) == ()


async def test_an_id_is_used_once(form: Form) -> None:
    client = await form.client()
    await client.register_subscriber(A)
    with pytest.raises(ConfigError, match="another live subscriber 'a'"):
        await client.register_subscriber(A)


async def test_an_entry_can_be_made_again_after_it_was_closed(form: Form) -> None:
    client = await form.client()
    for _ in range(2):
        entry = await client.register_subscriber(A)
        assert await client.subscribers() == (A,)
        await entry.close()
        assert await client.subscribers() == ()


async def test_an_outage_is_told_and_watches_are_silent_until_it_ends(frail: Form) -> None:
    client = await frail.client()
    applications, contacts = client.watch_applications(), client.watch_contact()
    await soon(applications)
    await soon(contacts)
    await client.register_subscriber(A)
    await frail.suspend(client)
    assert await soon(contacts) is Contact.SUSPENDED
    before = client.last_contact()
    waiting = await silent(applications)
    with pytest.raises(CoordinationLost):
        await client.subscribers()
    with pytest.raises(CoordinationLost):
        await client.write_flows({("cache", "db1"): FlowRecord("me", "a", 1, "live")})
    with pytest.raises(CoordinationLost):
        await client.register_publisher(DB1)
    assert client.last_contact() == before, "contact is confirmed by answers only"
    await frail.restore(client)
    assert await soon(contacts, lambda contact: contact is not Contact.LOST) is Contact.CONNECTED
    await frail.configure(MORE)
    async with asyncio.timeout(20):
        assert set(await waiting) == {"cache", "search"}
    assert client.last_contact() > before
    # Where the service was away for longer than the session, the entry is made anew.
    assert await soon(client.watch_subscribers("cache"), bool) == (A,)


async def test_what_was_registered_is_made_again_after_a_lost_session(frail: Form) -> None:
    watcher, client = await frail.client(), await frail.client()
    await client.register_subscriber(A)
    await client.register_publisher(DB1)
    watch = watcher.watch_subscribers("cache")
    assert await soon(watch) == (A,)
    await frail.lose_and_restore(client)
    contacts = client.watch_contact()
    await soon(contacts, lambda contact: contact is Contact.CONNECTED)
    async with asyncio.timeout(20):
        while await watcher.subscribers() != (A,) or await watcher.publishers() != (DB1,):  # noqa: ASYNC110 - no watch
            await asyncio.sleep(0.02)
    assert client.contact is Contact.CONNECTED
