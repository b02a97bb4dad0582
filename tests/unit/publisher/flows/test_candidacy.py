"""A process that waits for a log, over memory coordination."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from publisher.flows.candidacy import Candidacy, Candidate
from publisher.flows.ownership import LogHandedOver, Ownership
from tests.support.clocks import fast_clock
from tests.support.eventually import eventually
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import LogGroup, MoveRequest, PublisherInfo
from wormhole.model.errors import SourceUnavailable
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.datastore import Standing

GROUP = LogGroup("shop", "@failover", "db1")


class Process:
    """A candidate with a session of its own."""

    def __init__(self, world: MemoryWorld, name: str, rank: int) -> None:
        self.copy, _, self.host = name.partition("@")
        self.coordinator = MemoryCoordinator(world)
        self.standing: Standing | SourceUnavailable = Standing("server of " + self.copy)
        candidate = Candidate(GROUP, self.copy, self.host, rank, 30.0, self._look)
        self.candidacy = Candidacy(self.coordinator, candidate)
        self.ownership = Ownership(self.coordinator, fenced=True, candidacy=self.candidacy)
        self.info = PublisherInfo("shop", self.copy, "db1", self.host, rank + 1, f"{self.host}:7000", 1.0)

    async def _look(self) -> Standing:
        if isinstance(self.standing, SourceUnavailable):
            raise self.standing
        return self.standing

    def takes(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.ownership.take(self.info))

    @property
    def waits(self) -> str:
        return self.ownership.waits


@pytest.fixture
async def three() -> AsyncIterator[list[Process]]:
    world = MemoryWorld()
    processes = [Process(world, name, rank) for rank, name in enumerate(("main@a", "main@b", "west@c"))]
    async with AsyncExitStack() as stack:
        for one in processes:
            await one.coordinator.start()
            stack.push_async_callback(one.coordinator.stop)
        yield processes


async def test_one_owns_the_log_and_the_others_stand_by_and_say_for_whom(three: list[Process]) -> None:
    a, b, c = three
    await a.takes()
    waiting = [b.takes(), c.takes()]
    said = "main@a (process 1) owns the log, in term 1"
    await eventually(lambda: said in b.waits and said in c.waits, "they say for whom")
    assert (a.ownership.term, a.ownership.standby, a.waits) == (1, NO_PROBLEM, "")
    [owners] = (await c.coordinator.log_owners()).values()
    assert [one.name for one in owners.candidates] == ["main@b", "west@c"]
    assert [one.server for one in owners.candidates] == ["server of main", "server of west"]
    await a.ownership.give_up()
    await waiting[0]
    assert b.ownership.term == 2
    assert not waiting[1].done()
    waiting[1].cancel()


async def test_a_candidate_that_cannot_read_its_datastore_is_passed_over(three: list[Process]) -> None:
    a, b, c = three
    b.standing = SourceUnavailable("nobody listens at db1:3306", hint="start it")
    c.standing = Standing("W", ready=False, problem=Problem("it is a standby", "promote it"))
    await a.takes()
    waiting = [b.takes(), c.takes()]
    await eventually(lambda: "it could not take over: nobody listens at db1:3306" in b.waits, "the reason is known")
    await a.ownership.give_up()
    await eventually(lambda: "it is a standby. Next: promote it" in c.waits, "it says why it does not serve")
    assert not any(task.done() for task in waiting)
    c.standing = Standing("W")
    await waiting[1]
    waiting[0].cancel()


async def test_a_lost_session_in_which_nobody_else_came_is_nothing(three: list[Process]) -> None:
    a, *_ = three
    await a.takes()
    until = asyncio.create_task(a.ownership.until_another())
    a.coordinator.lose()
    assert not a.ownership.may_assign()
    a.coordinator.restore()
    await eventually(a.ownership.may_assign, "it has its log again")
    assert not until.done()
    until.cancel()


async def test_a_lost_session_in_which_another_one_came_ends_the_ownership(three: list[Process]) -> None:
    a, b, _ = three
    await a.takes()
    until = asyncio.create_task(a.ownership.until_another())
    a.coordinator.lose()
    await b.takes()
    assert not a.ownership.ours() or not a.ownership.may_assign()
    a.coordinator.restore()
    with pytest.raises(LogHandedOver) as caught:
        await until
    assert caught.value.gone
    assert not a.ownership.ours()
    assert b.ownership.may_send()


async def test_a_log_is_moved_to_the_one_that_was_asked_for(three: list[Process]) -> None:
    a, b, c = three
    await a.takes()
    waiting = [b.takes(), c.takes()]
    await eventually(lambda: all("owns the log" in one.waits for one in (b, c)), "both stand by")
    until = asyncio.create_task(a.ownership.until_another())
    await a.coordinator.request_move(GROUP, MoveRequest("nobody@there", "maria", 1.0))
    await a.coordinator.request_move(GROUP, MoveRequest("west@c", "maria", 2.0))
    with pytest.raises(LogHandedOver, match=r"west@c \(by maria\)") as caught:
        await until
    assert not caught.value.gone
    await a.ownership.give_up()
    await waiting[1]
    [owners] = (await b.coordinator.log_owners()).values()
    assert owners.owner is not None
    assert (owners.owner.copy, owners.move) == ("west", None)
    assert owners.terms[-1].why == "moved by maria"
    assert not waiting[0].done()
    waiting[0].cancel()


async def test_a_candidate_that_is_stopped_leaves_no_entry(three: list[Process]) -> None:
    a, b, _ = three
    await a.takes()
    waiting = b.takes()
    await eventually(lambda: "owns the log" in b.waits, "it stands by")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    [owners] = (await a.coordinator.log_owners()).values()
    assert owners.candidates == ()


async def test_a_log_that_cannot_be_read_is_left_to_one_that_is_ready(
    three: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = three
    ownership = Ownership(a.coordinator, fenced=True, candidacy=a.candidacy, clock=fast_clock())
    await ownership.take(a.info)
    monkeypatch.setattr(a.coordinator, "lease_s", lambda: 2.0)
    why, asked = "", 0

    def unread() -> str:
        nonlocal asked
        asked += 1
        return why

    until = asyncio.create_task(ownership.until_another(unread))
    b.standing = Standing("server of main", ready=False)
    waiting = [b.takes()]
    await eventually(lambda: "could not take over" in b.waits, "it stands by")
    await eventually(lambda: asked > 10, "it can be read")
    why = "the server is gone"
    before = asked
    await eventually(lambda: asked > before + 10, "nobody else could read it")
    assert not until.done()
    waiting.append(c.takes())
    with pytest.raises(LogHandedOver, match=r"west@c is ready for it, and here .*: the server is gone") as caught:
        await until
    assert not caught.value.gone
    await ownership.give_up()
    await waiting[1]
    assert c.ownership.term == 2
    waiting[0].cancel()
