"""A log is owned by one process: with lost answers, lost sessions, lost data, and nodes that somebody edits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.contract.test_coordinator import CANDIDATE, DB1, GROUP, WEST, kept, owners_of, soon
from tests.support.eventually import eventually, patience
from tests.support.present import present
from tests.support.zookeeper_nodes import delete_together
from wormhole.config import CoordinatorConfig
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.log_claim import ZooKeeperClaim
from wormhole.coordination.port import FlowRecord, LogOwners, MoveRequest
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError, CoordinationLost, Retryable

Action = Callable[[], Awaitable[object]]
RECORDS = {("cache", "db1"): FlowRecord("me", "a", 1, "live")}


@pytest.fixture
async def other(client: ZooKeeperCoordinator, zookeeper: str) -> AsyncIterator[ZooKeeperCoordinator]:
    made = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0))
    await made.start()
    yield made
    await made.stop()


async def owned(client: ZooKeeperCoordinator, why: str = "") -> ZooKeeperClaim:
    claim = await client.own_log(GROUP, DB1, server="server-1", why=why)
    assert isinstance(claim, ZooKeeperClaim)
    return claim


async def delete(client: ZooKeeperCoordinator, path: str) -> None:
    for name in await client._nodes.children(path):
        await delete(client, f"{path}/{name}")
    await client._session.call(f"delete {path}", lambda zookeeper: zookeeper.delete_async(path))


async def wipe(client: ZooKeeperCoordinator, path: str) -> None:
    """Delete the node and all below it at once."""

    async def tree(path: str) -> list[str]:
        below = [await tree(f"{path}/{name}") for name in await client._nodes.children(path)]
        return [*(one for some in below for one in some), path]

    await delete_together(client, *await tree(path))


async def make(client: ZooKeeperCoordinator, path: str, data: bytes) -> None:
    """A node that goes with the session of ``client``."""
    await client._session.call(
        f"make {path}", lambda zookeeper: zookeeper.create_async(path, data, ephemeral=True, makepath=True)
    )


async def claims(client: ZooKeeperCoordinator) -> list[str]:
    folder = client._paths.claims(GROUP)
    return [f"{folder}/{name}" for name in await client._nodes.children(folder)]


async def vacant(client: ZooKeeperCoordinator) -> LogOwners:
    return await soon(client.watch_log(GROUP), lambda owners: owners.owner is None)


class Answers:
    """Calls of a session whose answers are lost: those whose text begins with ``what``, of which ``sent`` have their
    effect; and all after them as long as ``away``.
    """

    def __init__(self, session: ZooKeeperSession, what: str, *, away: bool, sent: bool = True) -> None:
        self._session, self._what, self._sent = session, what, sent
        self.away = False
        self.lost = 0
        self._away_then = away
        self._call, self._together = session.call, session.call_together

    async def call(self, what: str, ask: Callable[[Any], Any]) -> Any:
        if what.startswith(self._what) and not self.lost:
            self.lost += 1
            if self._sent:
                await self._call(what, ask)
            self.away = self._away_then
            raise CoordinationLost("the answer is lost")
        self._check()
        return await self._call(what, ask)

    async def together(self, what: str, asks: list[Callable[[Any], Any]]) -> list[Any]:
        self._check()
        return await self._together(what, asks)

    def _check(self) -> None:
        if self.away:
            raise CoordinationLost("nobody answers")


@pytest.fixture
def losing(client: ZooKeeperCoordinator, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    """Lets an answer be lost on its way to ``client``."""

    def lose(what: str, *, away: bool = False, sent: bool = True) -> Answers:
        answers = Answers(client._session, what, away=away, sent=sent)
        monkeypatch.setattr(client._session, "call", answers.call)
        monkeypatch.setattr(client._session, "call_together", answers.together)
        return answers

    return lose


@pytest.fixture
def before_taking(client: ZooKeeperCoordinator, monkeypatch: pytest.MonkeyPatch) -> Callable[[Action], None]:
    """Does something once, just before ``client`` takes the log."""
    call, done = client._session.call, list[Action]()

    def interpose(action: Action) -> None:
        async def interposed(what: str, ask: Callable[[Any], Any]) -> Any:
            if what.startswith("own ") and not done:
                done.append(action)
                await action()
            return await call(what, ask)

        monkeypatch.setattr(client._session, "call", interposed)

    return interpose


@pytest.fixture
async def claim(client: ZooKeeperCoordinator) -> ZooKeeperClaim:
    return await owned(client)


async def test_a_claim_is_there_as_long_as_its_session(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    claim: ZooKeeperClaim,
) -> None:
    assert await claims(other) == [claim.fence()]
    stat = await other._session.call("look", lambda zookeeper: zookeeper.exists_async(claim.fence()))
    assert stat.ephemeralOwner == client._session.session_id
    await client.write_flows(RECORDS)
    await client.stop()
    await vacant(other)
    assert await claims(other) == []
    with pytest.raises(CoordinationLost, match="does not own the log any more"):
        await other._nodes.put_all({f"{other._paths.root}/x": b""}, claim.fence())


@pytest.mark.parametrize("sent", [True, False])
async def test_a_lost_answer_is_looked_for_before_the_log_is_taken_again(
    client: ZooKeeperCoordinator, losing: Callable[..., Answers], sent: bool
) -> None:
    answers = losing("own ", sent=sent)
    claim = await owned(client, "first")
    assert answers.lost == 1
    assert (claim.held, claim.term) == (True, 1)
    assert await claims(client) == [claim.fence()]
    assert len((await owners_of(client)).terms) == 1
    await client.write_flows(RECORDS)


async def test_what_a_call_took_that_failed_is_given_up(
    client: ZooKeeperCoordinator, other: ZooKeeperCoordinator, losing: Callable[..., Answers]
) -> None:
    answers = losing("own ", away=True)
    with pytest.raises(CoordinationLost, match="nobody answers"):
        await owned(client)
    assert (await owners_of(other)).owner == DB1, "nobody knows of it"
    answers.away = False
    await vacant(other)
    assert await claims(other) == []
    claim = await owned(client)
    await kept(claim, 2)


async def test_what_a_call_took_that_failed_is_replaced_by_the_next_one(
    client: ZooKeeperCoordinator, losing: Callable[..., Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = losing("own ", away=True)
    withdrawn = asyncio.Event()

    async def hold(*_: object) -> None:
        await withdrawn.wait()

    monkeypatch.setattr(client, "_withdraw", hold)
    with pytest.raises(CoordinationLost):
        await owned(client)
    answers.away = False
    claim = await owned(client)  # without that it would wait for itself as long as its session lasts
    await kept(claim, 2)
    assert await claims(client) == [claim.fence()]
    withdrawn.set()


async def test_what_was_given_up_late_is_not_the_next_ones(
    client: ZooKeeperCoordinator, losing: Callable[..., Answers]
) -> None:
    first = await owned(client)
    answers = losing("give up ", away=True, sent=False)
    await first.close()
    assert not first.held
    with pytest.raises(CoordinationLost):
        await owned(client)
    answers.away = False
    claim = await owned(client)
    await eventually(lambda: not client._withdrawals, "the first one was given up")
    assert (claim.held, await claims(client)) == (True, [claim.fence()])
    assert (await owners_of(client)).owner == DB1


async def test_an_entry_that_was_given_up_and_came_back_counts_as_free_and_is_replaced(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    claim: ZooKeeperClaim,
) -> None:
    """ZooKeeper was put back to when the log was owned, and the session lives: else the process would stand by for
    itself.
    """
    path, fence = client._paths.owner(GROUP), claim.fence()
    entry = present(await client._nodes.get(path))
    await claim.close()
    await make(client, path, entry)
    await make(client, fence, b"")
    assert (await owners_of(other)).owner == DB1
    assert (await owners_of(client)).owner is None
    again = await owned(client)
    assert (await owners_of(client)).owner == DB1
    assert await claims(client) == [again.fence()] != [fence]


async def test_a_claim_that_is_closed_without_contact_is_given_up_when_there_is_contact(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    losing: Callable[..., Answers],
    claim: ZooKeeperClaim,
) -> None:
    answers = losing("give up ", away=True, sent=False)
    await claim.close()
    assert not claim.held
    assert (await owners_of(other)).owner == DB1
    answers.away = False
    await vacant(other)
    assert (await other.own_log(GROUP, WEST, server="", why="")).term == 2


async def test_a_stop_does_not_wait_for_what_cannot_be_given_up(
    client: ZooKeeperCoordinator, other: ZooKeeperCoordinator, losing: Callable[..., Answers]
) -> None:
    await owned(client)
    losing("give up ", away=True, sent=False)
    async with patience():
        await client.stop()
    await vacant(other)


async def test_a_call_that_is_cancelled_leaves_nothing(
    client: ZooKeeperCoordinator, other: ZooKeeperCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, sent = client._session.call, asyncio.Event()

    async def slow(what: str, ask: Callable[[Any], Any]) -> Any:
        answer = await call(what, ask)
        if what.startswith("own "):
            sent.set()
            await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(client._session, "call", slow)
    owning = asyncio.ensure_future(owned(client))
    async with patience():
        await sent.wait()
    assert (await owners_of(other)).owner == DB1
    owning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await owning
    await vacant(other)
    assert await claims(other) == []


@pytest.mark.parametrize("what", ["owner", "claims"])
async def test_a_node_that_another_client_deletes_is_made_again(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    what: str,
    claim: ZooKeeperClaim,
) -> None:
    fence = claim.fence()
    await kept(claim, 1)
    await wipe(other, f"{client._paths.log(GROUP)}/{what}")
    await kept(claim, 2)
    assert await claims(other) == [claim.fence()] != [fence]
    assert (await owners_of(other)).owner == DB1
    await client.write_flows(RECORDS)


async def test_a_log_that_another_takes_and_leaves_just_before_it_is_taken_again_is_lost(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    before_taking: Callable[[Action], None],
    claim: ZooKeeperClaim,
) -> None:
    watched = client._session._client._data_watchers
    await eventually(lambda: watched.get(client._paths.owner(GROUP)), "what comes is seen as one change")

    async def taken_and_left() -> None:
        await (await other.own_log(GROUP, WEST, server="", why="")).close()

    before_taking(taken_and_left)
    await delete_together(other, client._paths.owner(GROUP), claim.fence())
    async with patience():
        assert "took the log in term 2" in await claim.lost()
    assert (await owners_of(other)).owner is None


async def test_a_log_that_another_takes_while_it_is_looked_at_is_lost(
    client: ZooKeeperCoordinator, other: ZooKeeperCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owner and term are read before ZooKeeper's data goes, the claims after it."""
    claim, together, theirs = await owned(client), client._session.call_together, list[ZooKeeperClaim]()

    async def in_pieces(what: str, asks: list[Callable[[Any], Any]]) -> list[Any]:
        if not what.startswith("look at") or theirs:
            return await together(what, asks)
        before = await together(what, asks[:2])
        await wipe(other, client._paths.log(GROUP))
        after = await together(what, asks[2:])
        theirs.append(await owned(other))
        return [*before, *after]

    monkeypatch.setattr(client._session, "call_together", in_pieces)
    claim._changed.notify()
    async with patience():
        assert "took the log in term 1" in await claim.lost()
    assert await claims(other) == [theirs[0].fence()]
    await other.write_flows(RECORDS)
    assert (await owners_of(client)).owner is not None


async def test_a_log_that_another_had_since_its_term_was_made_anew_is_lost(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    before_taking: Callable[[Action], None],
    claim: ZooKeeperClaim,
) -> None:
    """The new node has the version of the former one, so the transaction that takes the log again goes through."""

    async def made_anew() -> None:
        await delete(other, client._paths.term(GROUP))
        await (await owned(other)).close()

    before_taking(made_anew)
    await delete_together(client, client._paths.owner(GROUP), claim.fence())
    async with patience():
        assert "was made anew: another publisher may own the log" in await claim.lost()
    await vacant(other)
    assert await claims(other) == []


async def test_who_takes_a_log_whose_owners_node_was_deleted_shuts_that_owner_out(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    monkeypatch: pytest.MonkeyPatch,
    claim: ZooKeeperClaim,
) -> None:
    assert claim._keeper is not None
    claim._keeper.cancel()  # so that it does not take the log again
    await delete(other, client._paths.owner(GROUP))
    taken = await other.own_log(GROUP, WEST, server="", why="")
    assert await claims(other) == [taken.fence()]
    with pytest.raises(CoordinationLost, match="does not own the log any more"):
        await client.write_flows(RECORDS)


async def test_a_session_that_was_left_behind_gives_its_log_to_the_next_one_of_the_process(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    claim: ZooKeeperClaim,
) -> None:
    """kazoo may begin a new session while the old one still lives."""
    await kept(claim, 1)
    before = client._session.session_id
    claim._session = other._session
    assert not claim.held
    claim._changed.notify()
    await kept(claim, 2)
    stat = await other._session.call("look", lambda zookeeper: zookeeper.exists_async(claim.fence()))
    assert before != stat.ephemeralOwner == other._session.session_id
    assert await claims(other) == [claim.fence()]


async def test_in_a_wiped_root_another_may_have_owned_the_log(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    claim: ZooKeeperClaim,
) -> None:
    await kept(claim, 1)
    await client.register_candidate(GROUP, CANDIDATE)
    await wipe(other, client._paths.logs)
    async with patience():
        assert f"ZooKeeper lost {client._paths.term(GROUP)}" in await claim.lost()
    assert not claim.held
    with pytest.raises(CoordinationLost):
        await client.write_flows(RECORDS)
    await soon(other.watch_log(GROUP), lambda owners: owners.candidates == (CANDIDATE,))
    taken = await other.own_log(GROUP, WEST, server="", why="")
    assert taken.term == 1, "numbers come again: claims do not"
    await claim.close()
    assert taken.held
    assert await claims(other) == [taken.fence()]


async def test_a_term_that_another_client_wrote_is_anothers_even_with_the_number_of_ours(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    claim: ZooKeeperClaim,
) -> None:
    await kept(claim, 1)
    path = client._paths.term(GROUP)
    data = present(await other._nodes.get(path))
    await delete(other, path)
    await other._nodes.put(path, json.dumps(json.loads(data) | {"claim": "0f" * 16}).encode())
    await delete(other, client._paths.owner(GROUP))
    async with patience():
        assert await claim.lost() == "process 42 on host1, of the copy main, took the log in term 1"


async def test_records_that_make_no_sense_are_left_out(
    client: ZooKeeperCoordinator, other: ZooKeeperCoordinator
) -> None:
    log, put = client._paths.log(GROUP), client._nodes.put
    await other.register_candidate(GROUP, CANDIDATE)
    for name in ("term", "move"):
        await put(f"{log}/{name}", b"\xff")
    for name in ("owner", "candidates/west@h", "candidates/main"):
        await make(other, f"{log}/{name}", b"\xff")
    assert await soon(client.watch_log(GROUP)) == LogOwners(None, (CANDIDATE,), (), None)
    assert await client.log_owners() == {GROUP: LogOwners(None, (CANDIDATE,), (), None)}
    assert sorted(path.removeprefix(f"{log}/") for path in client.problems) == [
        "candidates/main", "candidates/west@h", "move", "owner", "term",
    ]  # fmt: skip
    with pytest.raises(Retryable, match=f"{log}/owner holds no valid record"):
        await owned(client)
    await delete(client, f"{log}/owner")
    claim = await owned(client)
    assert claim.term == 2, "each write of the node is taken for a term"
    assert [term.number for term in (await owners_of(client)).terms] == [2]
    assert sorted(path.removeprefix(f"{log}/") for path in client.problems) == ["candidates/main", "candidates/west@h"]
    await put(f"{log}/term", b"{}")
    await delete(other, client._paths.owner(GROUP))
    async with patience():
        assert f"{log}/term in ZooKeeper holds no valid record" in await claim.lost()


async def test_a_log_that_cannot_be_taken_again_is_tried_again(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    caplog: pytest.LogCaptureFixture,
    claim: ZooKeeperClaim,
) -> None:
    await kept(claim, 1)
    folder = client._paths.claims(GROUP)
    assert claim._keeper is not None
    await wipe(other, folder)
    await kept(claim, 2)

    def block(zookeeper: Any) -> Any:
        transaction = zookeeper.transaction()
        transaction.delete(claim.fence())
        transaction.delete(folder)
        transaction.create(folder, b"", ephemeral=True)  # which can have nothing below it
        return transaction.commit_async()

    await other._session.call("block", block)
    await eventually(lambda: "could not be taken again" in caplog.text, "it is said")
    assert f"refuses to own {GROUP}, at {folder}/" in caplog.text
    assert "NoChildrenForEphemeralsError" in caplog.text
    assert not claim.held
    await delete(other, folder)
    await kept(claim, 3)
    assert await claims(other) == [claim.fence()]


async def test_a_refusal_is_said_and_can_be_tried_again(
    client: ZooKeeperCoordinator, other: ZooKeeperCoordinator
) -> None:
    folder = client._paths.claims(GROUP)
    await make(other, folder, b"")
    with pytest.raises(ConfigError, match=f"refuses to own {GROUP}, at {folder}/.*: NoChildrenForEphemeralsError"):
        await owned(client)
    await delete(other, folder)
    claim = await owned(client)
    await kept(claim, 1)


async def test_an_address_on_loopback_is_not_reported_to_other_machines(client: ZooKeeperCoordinator) -> None:
    client._on_loopback = False
    await client.register_candidate(GROUP, CANDIDATE)
    await owned(client)
    owners = await owners_of(client)
    assert owners.owner == replace(DB1, address="")
    assert owners.candidates == (replace(CANDIDATE, address=""),)


async def test_a_move_that_came_while_the_log_was_taken_is_seen_or_stays(
    client: ZooKeeperCoordinator, other: ZooKeeperCoordinator, before_taking: Callable[[Action], None]
) -> None:
    await other.request_move(GROUP, MoveRequest("main@host1", "eve", 1.0))
    before_taking(partial(delete, other, client._paths.move(GROUP)))  # the transaction fails, and all is read again
    claim = await owned(client)
    assert (claim.term, (await owners_of(other)).move) == (1, None)


async def test_who_reads_while_a_log_is_taken_sees_no_former_owner_without_the_move(
    client: ZooKeeperCoordinator,
    other: ZooKeeperCoordinator,
    monkeypatch: pytest.MonkeyPatch,
    claim: ZooKeeperClaim,
) -> None:
    """Red before: `publishers move` said that the former owner took the log instead."""
    await kept(claim, 1)
    await other.request_move(GROUP, MoveRequest("west@host2", "eve", 1.0))
    call, taken = client._session.call, False
    between = {f"read {client._paths.owner(GROUP)}", f"read {client._paths.move(GROUP)}"}

    async def meanwhile(what: str, ask: Callable[[Any], Any]) -> Any:
        nonlocal taken
        answer = await call(what, ask)
        if what in between and not taken:
            taken = True
            await claim.close()
            await other.own_log(GROUP, WEST, server="", why="")
        return answer

    monkeypatch.setattr(client._session, "call", meanwhile)
    seen = await client._logs.read(GROUP)
    assert taken
    assert (seen.owner, seen.move) == (WEST, MoveRequest("west@host2", "eve", 1.0))
    assert await owners_of(client) == replace(seen, move=None)
