"""The port of `wormhole/coordination/port.py` over its three forms.

What needs a service runs over memory and ZooKeeper; what the static form does instead is said in
`tests/unit/wormhole/coordination/test_static.py`.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from kazoo.client import KazooClient

from tests.support.eventually import PATIENCE_S, eventually, patience
from wormhole.config import Config, CoordinatorConfig, parse
from wormhole.coordination.access_tokens import AccessToken
from wormhole.coordination.connect import publish_config
from wormhole.coordination.differences import differences
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import (
    TERMS_KEPT,
    AttachPoint,
    CandidateInfo,
    ConfigChange,
    Contact,
    Coordinator,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    LogClaim,
    LogGroup,
    LogOwners,
    MonitorInfo,
    MoveRequest,
    PublisherInfo,
    SubscriberInfo,
)
from wormhole.coordination.static import StaticCoordinator
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError, CoordinationLost, Retryable, UnknownApplication

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
MONITOR = MonitorInfo("host1", 41, "http://127.0.0.1:7480/", 7.0, {"shop/main/db1": "running"})
ENTRY = HistoryEntry(9.5, "eve@host1", "flows pause", "cache/db1", "", "paused: \u00fc")
DB1 = PublisherInfo("shop", "main", "db1", "host1", 42, "127.0.0.1:7000", 7.0)
WEST = PublisherInfo("shop", "west", "db1", "host2", 43, "", 8.0)
GROUP = LogGroup("shop", "@failover", "db1")
CANDIDATE = CandidateInfo("main", "host1", 42, "127.0.0.1:7000", 7.0, 0, "server-1", since=7.5)
STANDBY = CandidateInfo("west", "host2", 43, "", 8.0, 1, "server-2", "gtid:7", False, "it lags", "wait", 8.5)


def config(text: str) -> Config:
    return parse(text, "test.toml")


async def soon(iterator: AsyncIterator[T], wanted: Callable[[T], bool] = lambda _: True) -> T:
    """The next state for which ``wanted`` holds; states before it may be passed."""
    async with patience():
        async for state in iterator:
            if wanted(state):
                return state
    raise AssertionError("the watch ended")


async def answered(question: Callable[[], Awaitable[tuple[T, ...]]], expected: tuple[T, ...]) -> None:
    """Wait for an answer that no watch reports."""
    async with patience():
        while await question() != expected:  # noqa: ASYNC110 - no watch
            await asyncio.sleep(0.01)


async def silent(iterator: AsyncIterator[T], during: float = 0.05) -> asyncio.Task[T]:
    """Check that nothing is yielded; returns the task that goes on waiting."""
    task = asyncio.ensure_future(anext(iterator))
    done, _ = await asyncio.wait([task], timeout=during)
    assert not done, f"not silent: {task.result()}"
    return task


class Form(Protocol):
    async def client(self) -> Coordinator:
        """One more started client."""

    async def configure(self, text: str) -> None: ...

    async def suspend(self, client: Coordinator) -> None: ...

    async def restore(self, client: Coordinator) -> None: ...

    async def lose_and_restore(self, client: Coordinator) -> None: ...

    async def expire(self, client: Coordinator) -> None:
        """End the client's session; it gets no other one before `reconnect`."""

    async def reconnect(self, client: Coordinator) -> None: ...


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

    async def expire(self, client: Coordinator) -> None:
        assert isinstance(client, MemoryCoordinator)
        client.lose()

    async def reconnect(self, client: Coordinator) -> None:
        await self.restore(client)


class ZooKeeperForm:
    def __init__(self, stack: AsyncExitStack, server: EmbeddedZooKeeper | None, target: str) -> None:
        self.stack, self.server = stack, server
        self.settings = CoordinatorConfig(zookeeper=target, session_timeout=6.0)
        self.may_connect = threading.Event()

    async def client(self) -> Coordinator:
        client = ZooKeeperCoordinator(self.settings)
        await client.start()
        self.stack.push_async_callback(client.stop)
        return client

    async def configure(self, text: str) -> None:
        await publish_config(config(text).model_copy(update={"coordinator": self.settings}))

    async def suspend(self, client: Coordinator) -> None:
        assert self.server is not None
        await asyncio.to_thread(self.server.kill)

    async def restore(self, client: Coordinator) -> None:
        assert self.server is not None
        await asyncio.to_thread(self.server.start)

    async def lose_and_restore(self, client: Coordinator) -> None:
        # Closing a second connection to the same session ends the session for both.
        assert isinstance(client, ZooKeeperCoordinator)
        identity = client._session._client.client_id
        await asyncio.to_thread(self._end_session, identity)

    async def expire(self, client: Coordinator) -> None:
        assert isinstance(client, ZooKeeperCoordinator)
        connection = client._session._client._connection
        connect = connection._connect
        self.may_connect.clear()
        self.stack.callback(self.may_connect.set)  # before the client stops, which waits for its thread

        def held_up(*arguments: object) -> object:
            self.may_connect.wait(PATIENCE_S)
            return connect(*arguments)

        connection._connect = held_up
        await self.lose_and_restore(client)

    async def reconnect(self, client: Coordinator) -> None:
        self.may_connect.set()

    def _end_session(self, identity: object) -> None:
        twin = KazooClient(self.settings.zookeeper.partition("/")[0], client_id=identity)
        twin.start()
        twin.stop()
        twin.close()


# Servers start in plain fixtures: starting one inside the event loop would block it.
Place = tuple[EmbeddedZooKeeper | None, str] | None  # the server only where it may be ended


@pytest.fixture(params=["memory", "zookeeper"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "memory":
        return None
    return None, request.getfixturevalue("zookeeper")


@pytest.fixture(params=["memory", "zookeeper"])
def frail_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "memory":
        return None
    server = request.getfixturevalue("frail_zookeeper")
    return server, f"{server.hosts}/{tmp_path.name}"


@pytest.fixture(params=["memory", "zookeeper", "static"])
def any_place(request: pytest.FixtureRequest) -> Place | str:
    if request.param != "zookeeper":
        return None if request.param == "memory" else "static"
    return None, request.getfixturevalue("zookeeper")


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
async def any_form(any_place: Place | str, tmp_path: Path) -> AsyncIterator[Coordinator]:
    """One client of every form, with the application ``cache`` that may have the subscribers ``a`` and ``b``."""
    async with AsyncExitStack() as stack:
        if isinstance(any_place, str):
            static = StaticCoordinator(config(f"{STATIC}\n[publisher]\nstate_dir = '{tmp_path}'"))
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
    with pytest.raises(Retryable, match="shop/main/db1"):
        await any_form.register_publisher(PublisherInfo("shop", "main", "db1", "host2", 43, "", 8.0))
    await entry.close()
    await entry.close()
    assert await any_form.publishers() == ()


async def test_flows_are_recorded(any_form: Coordinator) -> None:
    one, two = FlowRecord("me", "a", 3, "live"), FlowRecord("me", "b", 4, "held")
    await any_form.write_flows({("cache", "db1"): one, ("cache", "db1.t%2Fx"): one})
    await any_form.write_flows({("cache", "db1"): two})
    assert await any_form.flows() == {("cache", "db1"): two, ("cache", "db1.t%2Fx"): one}
    assert await any_form.flows(["cache", "none"]) == {("cache", "db1"): two, ("cache", "db1.t%2Fx"): one}
    assert await any_form.flows(["cache"], lambda shard: shard == "db1") == {("cache", "db1"): two}
    assert await any_form.flows(["none"]) == {}
    recorded = await any_form.recorded_epochs("cache", ["db1", "db1.t%2Fx", "nobody"])
    static = type(any_form).__name__ == "StaticCoordinator"  # where no other process sees the records
    assert recorded == (None if static else {"db1": two.epoch, "db1.t%2Fx": one.epoch})


async def test_watches_end_when_the_coordinator_stops(any_form: Coordinator) -> None:
    watches: list[AsyncIterator[object]] = [
        any_form.watch_applications(), any_form.watch_datasets(), any_form.watch_subscribers("cache"),
        any_form.watch_contact(), any_form.watch_host("host1"),
    ]  # fmt: skip
    for watch in watches:
        await soon(watch)
    waiting = [asyncio.ensure_future(soon(watch, lambda _: False)) for watch in watches]
    await asyncio.sleep(0)
    await any_form.stop()
    await any_form.stop()
    async with patience():
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(end) for end in ended] == ["the watch ended"] * 5
    assert any_form.contact is Contact.LOST


async def test_datasets_are_seen_at_once(any_form: Coordinator) -> None:
    datasets = await soon(any_form.watch_datasets())
    assert {name: list(dataset.copies) for name, dataset in datasets.items()} == {"shop": ["main"]}
    stored = await any_form.configuration()
    assert stored.datasets == datasets
    assert stored.applications == await soon(any_form.watch_applications())


async def test_one_monitor_per_host(any_form: Coordinator) -> None:
    with pytest.raises(ConfigError, match="not registered here"):
        await any_form.update_monitor(MONITOR)
    entry = await any_form.register_monitor(MONITOR)
    assert await any_form.monitors() == (MONITOR,)
    with pytest.raises(ConfigError, match="a second monitor on this host: host1"):
        await any_form.register_monitor(replace(MONITOR, pid=42))
    other = await any_form.register_monitor(replace(MONITOR, host="host0"))
    assert [info.host for info in await any_form.monitors()] == ["host0", "host1"]
    for one in (entry, entry, other):
        await one.close()
    assert await any_form.monitors() == ()


async def test_a_monitor_reports_its_publishers(any_form: Coordinator) -> None:
    await any_form.register_monitor(MONITOR)
    for phase in ("stopping", "backing_off", "running", "given_up"):
        await any_form.update_monitor(replace(MONITOR, publishers={"shop/main/db1": phase}))
    await answered(any_form.monitors, (replace(MONITOR, publishers={"shop/main/db1": "given_up"}),))


async def test_what_is_wanted_of_a_host_is_seen(any_form: Coordinator) -> None:
    watch = any_form.watch_host("host1")
    assert await soon(watch) == HostRequest()
    await any_form.register_monitor(MONITOR)
    request = HostRequest(True, "eve@host1", 8.0)
    await any_form.set_host("host0", HostRequest(True, "somebody", 7.0))
    await any_form.set_host("host1", request)
    assert await soon(watch) == request
    await any_form.set_host("host1", HostRequest())
    assert await soon(watch) == HostRequest()


async def test_tokens_are_seen_and_changed_only_on_what_was_seen(any_form: Coordinator) -> None:
    watch = any_form.watch_tokens("cache")
    assert await soon(watch) == ()
    first, second = AccessToken("0a" * 32, 5.0), AccessToken("0b" * 32, 6.0, 7.0)
    await any_form.set_tokens("other", (second,), ())
    await any_form.set_tokens("cache", (first, second), ())
    assert await soon(watch) == (first, second)
    with pytest.raises(ConfigError) as refused:
        await any_form.set_tokens("cache", (first,), (first,))
    assert refused.value.code == "config-changed"
    await any_form.set_tokens("cache", (second,), (first, second))
    assert await soon(watch) == (second,)
    assert await any_form.token_holders() == ("cache", "other")  # one of them is not configured
    await any_form.set_tokens("other", (), (second,))
    assert await any_form.token_holders() == ("cache",)


async def test_subscribers_that_dial_find_what_their_application_has(any_form: Coordinator) -> None:
    first = AttachPoint("db1", "main@host1", "127.0.0.1:7490", "127.0.0.1:7491")
    second = AttachPoint("db2", "main@host1")
    entries = [await any_form.register_attach("cache", point) for point in (second, first)]
    other = await any_form.register_attach("other", second)
    assert await any_form.attach_points("cache") == (first, second)
    for one in (*entries, other):
        await one.close()
    assert await any_form.attach_points("cache") == ()


async def test_the_history_gives_the_newest_first(any_form: Coordinator) -> None:
    before = len(await any_form.history())
    entries = [replace(ENTRY, at=float(number)) for number in range(4)]
    for entry in entries:
        await any_form.record(entry)
    assert await any_form.history(3) == tuple(entries[:0:-1])
    assert len(await any_form.history()) == before + 4


async def test_the_history_is_bounded_and_so_is_an_entry(any_form: Coordinator) -> None:
    await any_form.record(replace(ENTRY, before="x" * 100_000))
    (entry,) = await any_form.history(1)
    assert len(entry.before) < 10_000
    assert entry.before.endswith("(92000 characters more)")
    assert entry.after == ENTRY.after


# --- forms with a service -----------------------------------------------------------------------------------------


async def test_what_changes_of_the_configuration_is_seen(form: Form, client: Coordinator) -> None:
    applications, datasets = client.watch_applications(), client.watch_datasets()
    assert list(await soon(applications)) == ["cache"]
    assert (await soon(datasets))["shop"].caravans.max == 4
    capped = MORE.replace("[datasets.shop.copies", "[datasets.shop.caravans]\nmax = 2\n[datasets.shop.copies")
    await form.configure(capped.replace('"latest"', '"earliest"'))
    found = await soon(applications, lambda found: len(found) == 2 and found["cache"].start == "earliest")
    assert found["search"].where == 'op == "delete"'
    assert (await soon(datasets, lambda found: found["shop"].caravans.max == 2)).keys() == {"shop"}


async def test_subscribers_come_and_go(form: Form) -> None:
    watch = (await form.client()).watch_subscribers("cache")
    assert await soon(watch) == ()
    first, second = await form.client(), await form.client()
    entry = await first.register_subscriber(A)
    assert await soon(watch) == (A,)
    await second.register_subscriber(B)
    assert await soon(watch) == (A, B)
    with pytest.raises(ConfigError, match="another live subscriber 'a'"):
        await first.register_subscriber(A)
    await entry.close()
    await entry.close()
    assert await soon(watch) == (B,)
    await second.stop()
    assert await soon(watch) == ()


@pytest.fixture
async def client(form: Form) -> Coordinator:
    return await form.client()


async def test_an_entry_can_be_made_again_after_it_was_closed(form: Form, client: Coordinator) -> None:
    for _ in range(2):
        entry = await client.register_subscriber(A)
        assert await client.subscribers() == (A,)
        await entry.close()
        assert await client.subscribers() == ()


async def test_an_outage_is_reported_and_watches_are_silent_until_it_ends(frail: Form) -> None:
    client = await frail.client()
    applications, contacts = client.watch_applications(), client.watch_contact()
    await soon(applications)
    await soon(contacts)
    await client.register_subscriber(A)
    await client.register_monitor(MONITOR)
    await frail.suspend(client)
    assert await soon(contacts) is Contact.SUSPENDED
    before = client.last_contact()
    waiting = await silent(applications)
    for refused in (
        client.subscribers(),
        client.write_flows({("cache", "db1"): FlowRecord("me", "a", 1, "live")}),
        client.register_publisher(DB1),
        client.record(ENTRY),
        client.configuration(),
    ):
        with pytest.raises(CoordinationLost):
            await refused
    now = replace(MONITOR, publishers={})
    await client.update_monitor(now)
    assert client.last_contact() == before, "contact is confirmed by answers only"
    await frail.restore(client)
    assert await soon(contacts, lambda contact: contact is not Contact.LOST) is Contact.CONNECTED
    await frail.configure(MORE)
    async with patience():
        assert set(await waiting) == {"cache", "search"}
    assert client.last_contact() > before
    # Where the service was away for longer than the session, the entry is made anew.
    assert await soon(client.watch_subscribers("cache"), bool) == (A,)
    await answered(client.monitors, (now,))


async def test_what_was_registered_is_made_again_after_a_lost_session(form: Form) -> None:
    watcher, client = await form.client(), await form.client()
    await client.register_subscriber(A)
    await client.register_publisher(DB1)
    watch = watcher.watch_subscribers("cache")
    assert await soon(watch) == (A,)
    await form.lose_and_restore(client)
    contacts = client.watch_contact()
    await soon(contacts, lambda contact: contact is Contact.CONNECTED)
    await answered(watcher.subscribers, (A,))
    await answered(watcher.publishers, (DB1,))
    assert client.contact is Contact.CONNECTED


async def changed(client: Coordinator, text: str, who: str = "eve", *, prune: bool = False) -> int:
    """Publish what `text` says instead of what is stored now."""
    found = differences(await client.configuration(), config(text), prune=prune)
    return await client.publish(
        found.change, HistoryEntry(1.0, who, "config apply", found.target, found.before, found.after)
    )


async def test_what_is_published_is_in_the_history(form: Form, client: Coordinator) -> None:
    version = (await client.configuration()).version
    assert await changed(client, MORE, "eve@host1") == version + 1
    assert (await client.configuration()).version == version + 1
    (entry,) = await client.history(1)
    assert (entry.who, entry.what, entry.target) == ("eve@host1", "config apply", "applications.search")
    assert 'applications.search.start = "earliest"' in entry.after
    await form.configure(MORE)
    assert await client.history(1) == (entry,), "what is stored alike is not stored again"


async def test_what_a_file_lacks_stays_until_it_is_pruned(form: Form, client: Coordinator) -> None:
    watch = client.watch_applications()
    await changed(client, MORE)
    await soon(watch, lambda found: len(found) == 2)
    await changed(client, PLAIN)
    assert set((await client.configuration()).applications) == {"cache", "search"}
    await client.write_flows({("search", "db1"): FlowRecord("me", "a", 1, "live")})
    await changed(client, PLAIN, prune=True)
    assert set(await soon(watch, lambda found: set(found) == {"cache"})) == {"cache"}
    assert set((await client.configuration()).applications) == {"cache"}
    with pytest.raises(UnknownApplication):
        await client.register_subscriber(SubscriberInfo("search", "a", "127.0.0.1:7001"))
    assert set(await client.flows()) == {("search", "db1")}, "what others keep there is theirs"
    await changed(client, MORE)
    assert await soon(watch, lambda found: set(found) == {"cache", "search"})


@pytest.mark.parametrize("seed", range(8))
async def test_of_two_changes_at_once_one_is_refused_and_none_is_half_written(form: Form, seed: int) -> None:
    """Each change writes the same mark into several tables: whoever wins, all of them carry its mark."""
    chance = random.Random(seed)
    names = [f"app{number}" for number in range(chance.randint(1, 5))]

    def text(mark: str) -> str:
        applications = "".join(
            f"[applications.{name}]\ndataset = 'shop'\nstart = 'latest'\ntables = ['{mark}']\n" for name in names
        )
        return PLAIN.replace("[applications.cache]", f"{applications}[applications.cache]\ntables = ['{mark}']")

    clients = [await form.client() for _ in range(3)]
    stored = await clients[0].configuration()
    changes = {f"t{number}": differences(stored, config(text(f"t{number}"))) for number in range(len(clients))}
    outcomes = await asyncio.gather(
        *(
            client.publish(found.change, HistoryEntry(1.0, mark, "config apply", found.target))
            for client, (mark, found) in zip(clients, changes.items(), strict=True)
        ),
        return_exceptions=True,
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, ConfigError)]
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [stored.version + 1]
    assert len(refused) == 2
    assert all("another process changed the configuration" in str(error) for error in refused)
    after = await clients[0].configuration()
    marks = {application.tables for application in after.applications.values()}
    (entry,) = await clients[0].history(1)
    assert marks == {(entry.who,)}, "all of one change, nothing of the other"
    assert len(await clients[0].history()) == 2, "a refused change leaves no entry"


async def test_a_refused_change_writes_nothing(form: Form, client: Coordinator) -> None:
    before, entries = await client.configuration(), await client.history()
    for seen in (before.version - 1, before.version + 1):
        with pytest.raises(ConfigError, match="nothing was written"):
            await client.publish(ConfigChange(seen, {"shop": None}, {"cache": None}), ENTRY)
    assert await client.configuration() == before
    assert await client.history() == entries


async def test_a_lost_monitor_entry_comes_back_as_it_is_then(form: Form) -> None:
    watcher, client = await form.client(), await form.client()
    await client.register_monitor(MONITOR)
    await form.lose_and_restore(client)
    now = replace(MONITOR, publishers={})
    await client.update_monitor(now)
    await answered(watcher.monitors, (now,))


# --- who owns a log -----------------------------------------------------------------------------------------------


async def owners_of(client: Coordinator) -> LogOwners:
    return (await client.log_owners())[GROUP]


def in_short(owners: LogOwners) -> list[tuple[int, str, str]]:
    return [(term.number, term.copy, term.why) for term in owners.terms]


async def kept(claim: LogClaim, term: int) -> None:
    await eventually(lambda: claim.held and claim.term == term, f"the log is owned in term {term}")


async def test_one_process_at_a_time_owns_a_log(form: Form) -> None:
    first, second, began = await form.client(), await form.client(), time.time()
    claim = await first.own_log(GROUP, DB1, server="server-1", why="it had no owner")
    assert (claim.held, claim.term) == (True, 1)
    for client, named in (
        (second, "process 42 on host1, of the copy main"),
        (first, ""),
    ):  # also a second claim in the same process
        with pytest.raises(Retryable, match="shop/west/db1 is served by another live publisher") as caught:
            await client.own_log(GROUP, WEST, server="server-2", why="")
        assert named in str(caught.value)
        assert not isinstance(caught.value, CoordinationLost)
    await claim.close()
    await claim.close()
    assert not claim.held
    taken = await second.own_log(GROUP, WEST, server="server-2", why="the last owner is gone")
    assert (taken.held, taken.term) == (True, 2)
    owners = await owners_of(first)
    assert (owners.owner, owners.candidates, owners.move) == (WEST, (), None)
    one, two = owners.terms
    assert (one.number, one.copy, one.host, one.pid, one.server) == (1, "main", "host1", 42, "server-1")
    assert (two.number, two.copy, two.host, two.pid, two.server) == (2, "west", "host2", 43, "server-2")
    assert (one.why, two.why) == ("it had no owner", "the last owner is gone")
    assert began <= one.since <= two.since <= time.time()


async def test_of_many_that_try_at_once_one_owns_the_log(form: Form) -> None:
    clients = [await form.client() for _ in range(4)]
    outcomes = await asyncio.gather(
        *(client.own_log(GROUP, replace(WEST, pid=pid), server="", why="") for pid, client in enumerate(clients)),
        return_exceptions=True,
    )
    (winner,) = [pid for pid, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    assert all(isinstance(outcome, Retryable) for pid, outcome in enumerate(outcomes) if pid != winner)
    owners = await owners_of(clients[0])
    assert owners.owner == replace(WEST, pid=winner)
    assert [(term.number, term.pid) for term in owners.terms] == [(1, winner)]


async def test_logs_are_owned_one_by_one(form: Form) -> None:
    first, second = await form.client(), await form.client()
    other = LogGroup("shop", "@failover", "db2")
    alone = LogGroup("shop", "west", "db1")
    await first.own_log(GROUP, DB1, server="", why="")
    await second.own_log(other, replace(WEST, log="db2"), server="", why="")
    await second.own_log(alone, WEST, server="", why="")
    assert {str(group): owners.owner and owners.owner.pid for group, owners in (await first.log_owners()).items()} == {
        "shop/@failover/db1": 42,
        "shop/@failover/db2": 43,
        "shop/west/db1": 43,
    }
    nobodys = LogGroup("shop", "east", "db1")
    found = await first.log_owners([alone, nobodys])
    assert {group: owners.owner and owners.owner.pid for group, owners in found.items()} == {alone: 43, nobodys: None}


async def test_the_last_terms_are_kept(form: Form, client: Coordinator) -> None:
    for number in range(1, TERMS_KEPT + 4):
        claim = await client.own_log(GROUP, DB1, server="", why=f"try {number}")
        assert claim.term == number
        await claim.close()
    terms = (await owners_of(client)).terms
    assert [term.number for term in terms] == list(range(4, TERMS_KEPT + 4))
    assert terms[-1].why == f"try {TERMS_KEPT + 3}"


async def test_an_owner_that_dies_leaves_the_log_to_others(form: Form) -> None:
    first, second = await form.client(), await form.client()
    claim = await first.own_log(GROUP, DB1, server="", why="")
    watch = second.watch_log(GROUP)
    assert (await soon(watch)).owner == DB1
    await first.stop()
    assert (await soon(watch, lambda owners: owners.owner is None)).terms != ()
    assert not claim.held
    assert (await second.own_log(GROUP, WEST, server="", why="")).term == 2


async def test_each_change_of_a_log_is_seen(form: Form) -> None:
    watcher, client = await form.client(), await form.client()
    watch = watcher.watch_log(GROUP)
    assert await soon(watch) == LogOwners(None, (), (), None)
    entry = await client.register_candidate(GROUP, CANDIDATE)
    assert await soon(watch, lambda owners: owners.candidates != ()) == LogOwners(None, (CANDIDATE,), (), None)
    now = replace(CANDIDATE, ready=False, waits="its server is gone")
    entry.update(now)
    await soon(watch, lambda owners: owners.candidates == (now,))
    claim = await client.own_log(GROUP, DB1, server="", why="why not")
    owners = await soon(watch, lambda owners: owners.owner is not None and owners.terms != ())
    assert (owners.owner, in_short(owners)) == (DB1, [(1, "main", "why not")])
    request = MoveRequest("west@host2", "eve", 9.5)
    await watcher.request_move(GROUP, request)
    assert (await soon(watch, lambda owners: owners.move is not None)).move == request
    await claim.close()
    await entry.close()
    owners = await soon(watch, lambda owners: owners.owner is None and owners.candidates == ())
    assert (owners.move, in_short(owners)) == (request, [(1, "main", "why not")])
    waiting = asyncio.ensure_future(soon(watch, lambda _: False))
    await asyncio.sleep(0)
    await watcher.stop()
    with pytest.raises(AssertionError, match="the watch ended"):
        await waiting


async def test_candidates_come_and_go_and_are_listed_by_preference(form: Form) -> None:
    first, second = await form.client(), await form.client()
    assert await first.log_owners() == {}
    standby = await second.register_candidate(GROUP, STANDBY)
    entry = await first.register_candidate(GROUP, CANDIDATE)
    assert (entry.held, entry.exclusive) == (True, True)
    assert (await owners_of(first)).candidates == (CANDIDATE, STANDBY)
    with pytest.raises(Retryable, match="shop/@failover/db1 has another live candidate main@host1"):
        await first.register_candidate(GROUP, replace(CANDIDATE, pid=44))
    last = replace(CANDIDATE, rank=2, hint="\u00fc" * 10)
    entry.update(last)
    watch = second.watch_log(GROUP)
    await soon(watch, lambda owners: owners.candidates == (STANDBY, last))
    await standby.close()
    await standby.close()
    await soon(watch, lambda owners: owners.candidates == (last,))
    await first.stop()
    await soon(watch, lambda owners: owners.candidates == ())


async def test_a_candidate_is_announced_again_after_a_lost_session_as_it_is_then(form: Form) -> None:
    watcher, client = await form.client(), await form.client()
    entry = await client.register_candidate(GROUP, STANDBY)
    watch = watcher.watch_log(GROUP)
    await soon(watch, lambda owners: owners.candidates == (STANDBY,))
    await form.expire(client)
    await soon(watch, lambda owners: owners.candidates == ())
    entry.update(replace(STANDBY, lacking=""))
    await form.reconnect(client)
    await soon(watch, lambda owners: owners.candidates == (replace(STANDBY, lacking=""),))


async def test_taking_a_log_is_what_a_move_asked_for(form: Form) -> None:
    first, second = await form.client(), await form.client()
    request = MoveRequest("west@host2", "eve", 9.5)
    await second.request_move(GROUP, replace(request, to="main@host1"))
    await second.request_move(GROUP, request)
    assert (await owners_of(first)).move == request
    claim = await first.own_log(GROUP, DB1, server="", why="")
    assert (await owners_of(first)).move is None
    await second.request_move(GROUP, request)
    for _ in range(2):  # a request that is not there any more is withdrawn all the same
        await second.request_move(GROUP, None)
        assert (await owners_of(first)).move is None
    await second.request_move(GROUP, request)
    with pytest.raises(Retryable):
        await second.own_log(GROUP, WEST, server="", why="")
    assert (await owners_of(first)).move == request, "a refused attempt clears nothing"
    await claim.close()
    await second.own_log(GROUP, WEST, server="", why="moved")
    assert (await owners_of(first)).move is None


async def test_after_a_lost_session_the_log_is_taken_again(form: Form) -> None:
    watcher, client = await form.client(), await form.client()
    claim = await client.own_log(GROUP, DB1, server="server-1", why="first")
    fence = claim.fence()
    request = MoveRequest("west@host2", "eve", 9.5)
    await watcher.request_move(GROUP, request)
    losing = asyncio.ensure_future(claim.lost())
    await form.expire(client)
    assert await soon(watcher.watch_log(GROUP), lambda owners: owners.owner is None)
    await form.reconnect(client)
    await kept(claim, 2)
    assert not losing.done()
    assert not fence or claim.fence() != fence
    owners = await owners_of(watcher)
    assert (owners.owner, owners.move) == (DB1, request), "what an operator asked for stays"
    assert [(term.number, term.server) for term in owners.terms] == [(1, "server-1"), (2, "server-1")]
    assert "taken again" in owners.terms[-1].why
    await client.write_flows({("cache", "db1"): FlowRecord("me", "a", 1, "live")})
    await claim.close()
    assert (await owners_of(watcher)).owner is None
    losing.cancel()
    await asyncio.wait([losing])


async def test_a_log_that_another_owned_meanwhile_is_lost(form: Form) -> None:
    first, second = await form.client(), await form.client()
    claim = await first.own_log(GROUP, DB1, server="", why="")
    losing = [asyncio.ensure_future(claim.lost()) for _ in range(2)]
    await form.expire(first)
    watch = second.watch_log(GROUP)
    await soon(watch, lambda owners: owners.owner is None)
    taken = await second.own_log(GROUP, WEST, server="", why="")
    losing[1].cancel()
    await form.reconnect(first)
    async with patience():
        assert await losing[0] == "process 43 on host2, of the copy west, took the log in term 2"
        assert await claim.lost() == await losing[0]
    assert (claim.held, taken.held) == (False, True)
    records = {("cache", "db1"): FlowRecord("me", "a", 1, "live")}
    with pytest.raises(CoordinationLost, match="does not own the log any more"):
        await first.write_flows(records)
    await second.write_flows(records)
    await claim.close()
    owners = await owners_of(second)
    assert (owners.owner, taken.held) == (WEST, True), "closing leaves the other one alone"
    await taken.close()
    again = await first.own_log(GROUP, DB1, server="", why="")
    assert again.term == 3
    await first.write_flows(records)


async def test_a_log_that_another_owned_and_left_meanwhile_is_lost_too(form: Form) -> None:
    first, second = await form.client(), await form.client()
    claim = await first.own_log(GROUP, DB1, server="", why="")
    await form.expire(first)
    await soon(second.watch_log(GROUP), lambda owners: owners.owner is None)
    await (await second.own_log(GROUP, WEST, server="", why="")).close()
    await form.reconnect(first)
    async with patience():
        assert "took the log in term 2" in await claim.lost()
    assert (await owners_of(second)).owner is None
    again = await first.own_log(GROUP, DB1, server="", why="")  # also before the lost one is closed
    await claim.close()
    assert (again.held, again.term) == (True, 3)
    with pytest.raises(Retryable):
        await first.own_log(GROUP, DB1, server="", why="")
    assert (await owners_of(second)).owner == DB1


async def test_an_owner_that_closed_writes_no_flows_of_its_log(form: Form, client: Coordinator) -> None:
    ours, others = FlowRecord("me", "a", 1, "live"), FlowRecord("me", "b", 2, "live")
    claim = await client.own_log(GROUP, DB1, server="", why="")
    await client.write_flows({("cache", "db1"): ours, ("cache", "db1.t%2Fx"): ours, ("cache", "db10"): others})
    assert len(await client.flows()) == 3
    await claim.close()
    for shard in ("db1", "db1.t%2Fx"):
        with pytest.raises(CoordinationLost, match="does not own the log any more"):
            await client.write_flows({("cache", shard): others})
    await client.write_flows({("cache", "db10"): ours})
    assert await client.flows() == dict.fromkeys([("cache", "db1"), ("cache", "db1.t%2Fx"), ("cache", "db10")], ours)


async def test_an_owner_notes_that_its_server_is_another_one(form: Form) -> None:
    client, other = await form.client(), await form.client()
    claim = await client.own_log(GROUP, DB1, server="a", why="first")
    await claim.note_server("b")
    [term] = (await owners_of(other)).terms
    assert (term.number, term.server, term.why, claim.held) == (1, "b", "first", True)
    await claim.close()
    taken = await other.own_log(GROUP, WEST, server="w", why="")
    await claim.note_server("c")
    assert [(one.number, one.server) for one in (await owners_of(client)).terms] == [(1, "b"), (2, "w")]
    assert taken.held


async def test_an_owner_keeps_its_log_over_an_outage(frail: Form) -> None:
    client = await frail.client()
    claim = await client.own_log(GROUP, DB1, server="", why="")
    await frail.suspend(client)
    contact = await soon(client.watch_contact(), lambda contact: contact is not Contact.CONNECTED)
    assert claim.held or contact is Contact.LOST, "a connection that breaks ends no session"
    for refused in (
        client.own_log(LogGroup("shop", "main", "db2"), replace(DB1, log="db2"), server="", why=""),
        client.register_candidate(GROUP, CANDIDATE),
        client.log_owners(),
        client.request_move(GROUP, MoveRequest("west@host2", "eve", 9.5)),
    ):
        with pytest.raises(CoordinationLost):
            await refused
    await frail.restore(client)
    await soon(client.watch_contact(), lambda contact: contact is Contact.CONNECTED)
    await eventually(lambda: claim.held, "the log is owned")  # in the same session, or taken again
    assert (await owners_of(client)).owner == DB1
