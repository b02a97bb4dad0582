"""What renews the lease of an owner: answers of ZooKeeper's leader, dated by what it has heard of the session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kazoo.protocol.states import KazooState, KeeperState

from tests.support.eventually import eventually
from wormhole.config import CoordinatorConfig
from wormhole.coordination import kazoo_session
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.port import Contact
from wormhole.model.errors import CoordinationLost

TIMEOUT_S = 60.0
"""So long that no probe is sent but those of the tests."""
REPORTED_S = TIMEOUT_S * 9 / 32
CREDITED_S = TIMEOUT_S * 2 / 9


class Answer:
    """Takes the place of kazoo's ``AsyncResult``."""

    exception: Exception | None = None

    def __init__(self) -> None:
        self.links: list[Callable[[Answer], object]] = []
        self.ready = False

    def rawlink(self, link: Callable[[Answer], object]) -> None:
        self.links.append(link)
        if self.ready:
            link(self)

    def get_nowait(self) -> str:
        return "/"

    def settle(self) -> None:
        self.ready = True
        for link in self.links:
            link(self)


class Client:
    """Takes the place of kazoo's client. What is asked waits where ``answers`` does not name it."""

    def __init__(self) -> None:
        self.connected = True
        self.client_state = KeeperState.CONNECTED
        self.answers = {"sync", "exists"}
        self.asked: list[tuple[str, Answer]] = []
        self.listener: Callable[[str], object] = lambda state: None

    def add_listener(self, listener: Callable[[str], object]) -> None:
        self.listener = listener

    def remove_listener(self, listener: object) -> None: ...

    def ask(self, kind: str) -> Answer:
        answer = Answer()
        self.asked.append((kind, answer))
        if kind in self.answers:
            answer.settle()
        return answer

    def sync_async(self, path: str) -> Answer:
        return self.ask("sync")

    def exists_async(self, path: str) -> Answer:
        return self.ask("exists")

    def syncs(self) -> list[Answer]:
        return [answer for kind, answer in self.asked if kind == "sync"]


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
async def session(monkeypatch: pytest.MonkeyPatch, client: Client, time: Time) -> AsyncIterator[ZooKeeperSession]:
    monkeypatch.setattr(kazoo_session, "new_client", lambda *_: client)
    monkeypatch.setattr(kazoo_session, "connect_blocking", lambda *_: None)
    monkeypatch.setattr(kazoo_session, "disconnect_blocking", lambda *_: None)
    made = ZooKeeperSession(CoordinatorConfig(zookeeper="zk:2181", session_timeout=TIMEOUT_S), time)
    await made.start()
    await admitted(made, time.now)
    yield made
    client.answers = {"sync", "exists"}
    for _, answer in client.asked:
        answer.settle()
    await made.stop()


async def admitted(session: ZooKeeperSession, asked: float) -> None:
    """A server let the client in, which asked for it then."""
    await asyncio.to_thread(session._on_granted, TIMEOUT_S, asked)
    await asyncio.sleep(0)


def look(client: Any) -> Any:
    return client.exists_async("/")


async def probe(session: ZooKeeperSession, client: Client) -> None:
    """Contact comes back, and what is asked then is answered."""
    before = len(client.syncs())
    client.listener(KazooState.CONNECTED)
    await eventually(lambda: len(client.syncs()) > before, "the leader is asked")
    if "sync" in client.answers:
        await eventually(lambda: not session._probes, "its answer was heard")


async def test_the_lease_begins_when_the_session_was_asked_for(session: ZooKeeperSession) -> None:
    assert session.last_contact() == 100.0


async def test_an_answered_read_does_not_renew_the_lease(session: ZooKeeperSession, time: Time) -> None:
    """A follower that is cut off from the leader answers it, while the leader ends the session."""
    time.now += 40
    await session.call("look", look)
    assert session.last_contact() == 100.0


async def test_the_leader_is_asked_as_soon_as_contact_is_back(
    session: ZooKeeperSession, client: Client, time: Time
) -> None:
    client.listener(KazooState.SUSPENDED)
    await eventually(lambda: session.contact is Contact.SUSPENDED, "contact is lost")
    time.now += 10
    before = len(client.syncs())
    client.listener(KazooState.CONNECTED)
    await eventually(lambda: len(client.syncs()) == before + 1, "the leader is asked")


async def test_a_continued_session_begins_anew(session: ZooKeeperSession, client: Client, time: Time) -> None:
    """The leader continues it, so it lives for a whole timeout, whatever another server had reported."""
    client.listener(KazooState.SUSPENDED)
    time.now = 150.0
    await admitted(session, 148.0)
    assert session.last_contact() == 148.0
    await probe(session, client)
    assert session.last_contact() == 148.0, "this server may not have reported yet"
    time.now = 150.0 + REPORTED_S
    await probe(session, client)
    assert session.last_contact() == 150.0 + CREDITED_S


async def test_an_answer_proves_what_the_follower_has_reported(
    session: ZooKeeperSession, client: Client, time: Time
) -> None:
    """The leader ends a session a whole timeout after a report, whatever the follower passed on since."""
    time.now = 100.0 + REPORTED_S - 1
    await probe(session, client)
    assert session.last_contact() == 100.0, "the follower may not have reported yet"
    time.now = second = 100.0 + REPORTED_S + 20
    await probe(session, client)
    assert session.last_contact() == 100.0 + REPORTED_S - 1 + CREDITED_S, "the lease ends before the session"
    time.now = second + 1
    await probe(session, client)
    assert session.last_contact() == 100.0 + REPORTED_S - 1 + CREDITED_S
    time.now = second + REPORTED_S
    await probe(session, client)
    assert session.last_contact() == second + CREDITED_S
    assert session.last_contact() + TIMEOUT_S * 2 / 3 <= second + TIMEOUT_S * 8 / 9 + 0.001


async def test_a_probe_counts_from_its_answer_on(session: ZooKeeperSession, client: Client, time: Time) -> None:
    client.answers = set()
    time.now = 120.0
    await probe(session, client)
    time.now = 130.0
    client.syncs()[-1].settle()
    await eventually(lambda: not session._probes, "its answer was heard")
    assert session.last_contact() == 100.0 + CREDITED_S
    client.answers = {"sync"}
    time.now = 130.0 + REPORTED_S - 1
    await probe(session, client)
    assert session.last_contact() == 100.0 + CREDITED_S, "the first may have arrived just before it was answered"
    time.now = 130.0 + REPORTED_S
    await probe(session, client)
    assert session.last_contact() == 120.0 + CREDITED_S


async def test_a_probe_waits_for_no_other_call(session: ZooKeeperSession, client: Client, time: Time) -> None:
    client.answers = set()
    calls = [asyncio.ensure_future(session.call("look", look)) for _ in range(200)]
    await eventually(lambda: len(client.asked) == 64, "no further calls are sent")
    time.now += 40
    await probe(session, client)
    client.answers = {"sync", "exists"}
    for _, answer in client.asked:
        answer.settle()
    await asyncio.gather(*calls)


async def test_no_more_than_two_probes_wait(
    session: ZooKeeperSession, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo looks only between requests whether the server still answers."""
    client.answers = set()
    for _ in range(2):
        await probe(session, client)
    rounds: list[None] = []

    def timeout_s() -> float:
        rounds.append(None)
        return 0.001

    monkeypatch.setattr(session, "timeout_s", timeout_s)
    looking = asyncio.ensure_future(session._probe())
    await eventually(lambda: len(rounds) > 10, "it had the time to send more")
    looking.cancel()
    assert len(client.syncs()) == 2


async def test_a_refused_probe_proves_nothing(session: ZooKeeperSession, client: Client, time: Time) -> None:
    client.answers = set()
    time.now += 40
    await probe(session, client)
    client.syncs()[-1].exception = RuntimeError("refused")
    client.syncs()[-1].settle()
    await eventually(lambda: not session._probes, "its answer was heard")
    assert session.last_contact() == 100.0


async def test_an_answer_that_kazoo_did_not_expect_is_lost_contact(session: ZooKeeperSession, client: Client) -> None:
    """kazoo fails the oldest question, and its connection ends."""
    client.answers = {"sync"}
    call = asyncio.ensure_future(session.call("look", look))
    await eventually(lambda: "exists" in (kind for kind, _ in client.asked), "it is asked")
    (answer,) = [answer for kind, answer in client.asked if kind == "exists"]
    answer.exception = RuntimeError("xids do not match, expected 3 received 4")
    answer.settle()
    with pytest.raises(CoordinationLost, match=r"\(RuntimeError\): look"):
        await call
