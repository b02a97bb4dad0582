"""A process that waits for a log, over memory coordination."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from publisher.flows import candidacy, owner_watch
from publisher.flows.candidacy import Candidacy, Candidate
from publisher.flows.ownership import LogHandedOver, Ownership
from tests.support.clocks import fast_clock
from tests.support.eventually import eventually
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import LogClaim, LogGroup, LogOwners, MoveRequest, PublisherInfo
from wormhole.model.errors import ConfigError, SourceUnavailable
from wormhole.model.problem import NO_PROBLEM
from wormhole.ports.datastore import Standing

GROUP = LogGroup("shop", "@failover", "db1")


class Process:
    """A candidate with a session of its own."""

    def __init__(self, world: MemoryWorld, name: str, rank: int, former: tuple[LogGroup, ...] = ()) -> None:
        self.copy, _, self.host = name.partition("@")
        self.coordinator = MemoryCoordinator(world)
        self.standing: Standing | SourceUnavailable = Standing("server of " + self.copy)
        self.answers = asyncio.Event()
        self.answers.set()
        self.looks = 0
        self.tasks: list[asyncio.Task[None]] = []

        async def groups() -> tuple[LogGroup, ...]:
            return former

        candidate = Candidate(GROUP, self.copy, self.host, rank, 30.0, self._look, groups)
        self.candidacy = Candidacy(self.coordinator, candidate, fast_clock())
        self.ownership = Ownership(self.coordinator, fenced=True, candidacy=self.candidacy)
        self.info = PublisherInfo("shop", self.copy, "db1", self.host, rank + 1, f"{self.host}:7000", 1.0)

    async def _look(self) -> Standing:
        self.looks += 1
        await self.answers.wait()
        if isinstance(self.standing, SourceUnavailable):
            raise self.standing
        return self.standing

    def takes(self) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(self.ownership.take(self.info)))
        return self.tasks[-1]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.coordinator.stop()

    @property
    def waits(self) -> str:
        return self.ownership.waits


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate looks again soon."""
    monkeypatch.setattr(candidacy, "_WAITING_S", 0.1)
    monkeypatch.setattr(candidacy, "_RESTING_S", 2.0)
    monkeypatch.setattr(owner_watch, "_RESTING_S", 2.0)


@pytest.fixture
async def three() -> AsyncIterator[list[Process]]:
    world = MemoryWorld()
    processes = [Process(world, name, rank) for rank, name in enumerate(("main@a", "main@b", "west@c"))]
    async with AsyncExitStack() as stack:
        for one in processes:
            await one.coordinator.start()
            stack.push_async_callback(one.close)
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
    await a.takes()
    waiting = [b.takes(), c.takes()]
    await eventually(lambda: "it could not take over: nobody listens at db1:3306" in b.waits, "the reason is known")
    await a.ownership.give_up()
    await waiting[1]
    assert c.ownership.term == 2
    assert not waiting[0].done()
    waiting[0].cancel()


async def test_an_owner_that_cannot_read_its_log_leaves_it_to_one_that_can(three: list[Process]) -> None:
    a, _, c = three
    await a.takes()
    waiting = c.takes()
    await eventually(lambda: "owns the log" in c.waits, "it stands by")
    a.standing = SourceUnavailable("nobody listens at db1:3306")
    reads = True
    until = asyncio.create_task(a.ownership.until_another(lambda: not reads))
    reads = False
    with pytest.raises(LogHandedOver, match=r"nobody listens at db1:3306\), and west@c can serve") as caught:
        await until
    assert not caught.value.gone
    await a.ownership.give_up()
    await waiting


async def test_an_owner_that_cannot_read_its_log_keeps_it_while_nobody_else_can(three: list[Process]) -> None:
    a, b, _ = three
    await a.takes()
    waiting = b.takes()
    b.standing = a.standing = SourceUnavailable("nobody listens at db1:3306")
    looks = 0

    def troubled() -> bool:
        nonlocal looks
        looks += 1
        return True

    until = asyncio.create_task(a.ownership.until_another(troubled))
    await eventually(lambda: looks > 5, "it looked often enough")
    assert not until.done()
    until.cancel()
    waiting.cancel()
    await asyncio.gather(until, waiting, return_exceptions=True)


async def test_an_owner_whose_datastore_does_not_answer_leaves_the_log_to_another(three: list[Process]) -> None:
    """A network that loses every packet: the question itself would be waited for much longer."""
    a, _, c = three
    await a.takes()
    waiting = c.takes()
    await eventually(lambda: "owns the log" in c.waits, "it stands by")
    a.answers.clear()
    with pytest.raises(LogHandedOver, match=r"no answer within 5 s.*west@c can serve"):
        await a.ownership.until_another(lambda: True)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_lost_session_in_which_nobody_else_came_is_nothing(three: list[Process]) -> None:
    a, *_ = three
    await a.takes()
    until = asyncio.create_task(a.ownership.until_another(lambda: False))
    a.coordinator.lose()
    assert not a.ownership.may_assign()
    assert not a.ownership.may_send()
    a.coordinator.restore()
    await eventually(a.ownership.may_assign, "it has its log again")
    assert not until.done()
    until.cancel()


async def test_a_lost_session_in_which_another_one_came_ends_the_ownership(three: list[Process]) -> None:
    a, b, _ = three
    await a.takes()
    until = asyncio.create_task(a.ownership.until_another(lambda: False))
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
    until = asyncio.create_task(a.ownership.until_another(lambda: False))
    await a.coordinator.request_move(GROUP, MoveRequest("nobody@there", "maria", 1.0))
    await a.coordinator.request_move(GROUP, MoveRequest("west@c", "maria", 2.0))
    with pytest.raises(LogHandedOver, match=r"west@c \(by maria\)") as caught:
        await until
    assert not caught.value.gone
    looks = b.looks, c.looks
    await a.ownership.give_up()
    await waiting[1]
    assert (b.looks, c.looks) == looks  # each look would delay the updates
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


async def test_a_failover_waits_for_the_publisher_of_the_configuration_before() -> None:
    world, former = MemoryWorld(), LogGroup("shop", "main", "db1")
    before, after = MemoryCoordinator(world), Process(world, "west@c", 1, (former, LogGroup("shop", "west", "db1")))
    await before.start()
    await after.coordinator.start()
    claim = await before.own_log(former, PublisherInfo("shop", "main", "db1", "a", 7, "", 1.0), server="A", why="")
    taking = after.takes()
    said = "process 7 on a still serves shop/main/db1, as configured before"
    await eventually(lambda: said in after.waits, "it says for whom it waits")
    assert not taking.done()
    await claim.close()
    await taking
    await before.stop()
    await after.coordinator.stop()


async def test_a_publisher_of_another_configuration_that_comes_meanwhile_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both look for the other one first, and then own their logs: one of them has to look again."""
    world, former = MemoryWorld(), LogGroup("shop", "main", "db1")
    before, after = MemoryCoordinator(world), Process(world, "west@c", 1, (former,))
    await before.start()
    await after.coordinator.start()
    own, claims = after.coordinator.own_log, list[LogClaim]()

    async def late(*arguments: Any, **more: Any) -> LogClaim:
        if not claims:
            owner = PublisherInfo("shop", "main", "db1", "a", 7, "", 1.0)
            claims.append(await before.own_log(former, owner, server="A", why=""))
        return await own(*arguments, **more)

    monkeypatch.setattr(after.coordinator, "own_log", late)
    taking = after.takes()
    await eventually(lambda: "process 7 on a still serves" in after.waits, "it gave the log up again")
    assert not taking.done()
    assert (await after.coordinator.log_owners())[GROUP].owner is None
    await claims[0].close()
    await taking
    await after.close()
    await before.stop()


async def test_a_datastore_that_does_not_answer_is_asked_one_question_at_a_time(three: list[Process]) -> None:
    a, _, _ = three
    a.answers.clear()
    waiting = a.takes()
    await eventually(lambda: "no answer within 5 s" in a.waits, "it does not wait for the answer")
    await waiting
    assert a.looks == 1
    assert a.ownership.term == 1, "somebody has to own the log"
    a.answers.set()


async def test_an_address_that_leads_to_another_server_is_noted(three: list[Process]) -> None:
    a, b, _ = three
    await a.takes()
    waiting = b.takes()
    until = asyncio.create_task(a.ownership.until_another(lambda: False))
    b.standing = Standing("server that took over")
    await eventually(lambda: "main@b reads the server server that took over" in b.waits, "it does not read that one")
    a.standing = Standing("server that took over")
    await eventually(lambda: "could not take over" not in b.waits, "the owner reads it too")
    [owners] = (await b.coordinator.log_owners()).values()
    assert [(term.number, term.server) for term in owners.terms] == [(1, "server that took over")]
    until.cancel()
    await asyncio.gather(until, return_exceptions=True)
    assert not waiting.done()


async def test_an_owner_whose_stored_state_is_older_than_what_it_knows_begins_anew(three: list[Process]) -> None:
    a, _, _ = three
    await a.takes()
    until = asyncio.create_task(a.ownership.until_another(lambda: False))
    a.ownership.distrust("a record is in version 3, and was in 7")
    with pytest.raises(LogHandedOver, match="older than it was: a record is in version 3") as caught:
        await until
    assert caught.value.gone, "no subscriber is waited for"


async def test_a_standby_may_do_nothing(three: list[Process]) -> None:
    a, b, _ = three
    assert not a.ownership.ours()
    await a.takes()
    waiting = b.takes()
    await eventually(lambda: "owns the log" in b.waits, "it stands by")
    assert (a.ownership.ours(), a.ownership.may_send()) == (True, True)
    assert (b.ownership.ours(), b.ownership.may_send(), b.ownership.sole()) == (False, False, False)
    await a.ownership.give_up()
    assert not a.ownership.ours()
    await waiting


async def test_owners_that_cannot_be_seen_are_looked_for_again(
    three: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, _ = three
    watch, refusals = a.coordinator.watch_log, [ConfigError("not allowed")]

    def refused_first(group: LogGroup) -> AsyncIterator[LogOwners]:
        if refusals:
            raise refusals.pop()
        return watch(group)

    monkeypatch.setattr(a.coordinator, "watch_log", refused_first)
    await a.takes()
    assert a.ownership.term == 1
    assert not refusals
