"""Wrong nodes below ``logs`` in ZooKeeper: of a copied tree, of a mistake by hand, of a malicious process. The owner of
a log is still found by one transaction, and each problem names its node and the next step.
"""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from tests.contract.test_coordinator import CANDIDATE, DB1, GROUP, PLAIN, WEST, A, config, kept, owners_of
from tests.support.command_line import run
from tests.support.eventually import patience
from wormhole.config import CoordinatorConfig
from wormhole.coordination import log_claim, log_owners
from wormhole.coordination.connect import publish_config
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.port import FlowRecord, LogOwners
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import Retryable

OWNER = {"host": "h", "pid": 1, "address": "127.0.0.1:1", "started": 1.0, "copy": "main"}
ABLE = {
    "pid": 1, "address": "127.0.0.1:1", "started": 1.0, "rank": 0, "server": "", "lacking": "", "ready": True,
    "waits": "", "hint": "", "since": 1.0,
}  # fmt: skip
MOVE = {"to": "main@h", "by": "eve", "at": 1.0}
FLOW = {"owner": "o", "subscriber": "s", "epoch": 1, "state": "live"}
GARBAGE = [b"", b"\xff\xfe", b"[" * 100_000, b"[]", b"null", b'{"version": 99}', b'{"x": "' + b"y" * 990_000 + b'"}']


@pytest.fixture
async def client(zookeeper: str) -> AsyncIterator[ZooKeeperCoordinator]:
    made = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0))
    await made.start()
    await publish_config(config(PLAIN), made)
    yield made
    await made.stop()


@pytest.fixture
async def eve(client: ZooKeeperCoordinator) -> AsyncIterator[Writer]:
    """An attacker with a session of her own, who writes any nodes."""
    session = ZooKeeperSession(client._session.settings)
    await session.start()
    yield Writer(session, client._paths.log(GROUP))
    await session.stop()


class Writer:
    """Writes below ``log``."""

    def __init__(self, session: ZooKeeperSession, log: str) -> None:
        self.session, self.log = session, log

    async def write(self, name: str, data: bytes | dict[str, Any], *, lives: bool = False) -> str:
        """``lives``: the node goes with our session, as that of a process does."""
        path, content = f"{self.log}/{name}", data if isinstance(data, bytes) else json.dumps(data).encode()
        await self.session.call(
            "write", lambda client: client.create_async(path, content, ephemeral=lives, makepath=True)
        )
        return path

    async def write_many(self, names: list[str], data: bytes) -> None:
        asks = [partial(_create, f"{self.log}/{name}", data) for name in names]
        await self.session.call_together("write", asks)


def _create(path: str, data: bytes, client: Any) -> Any:
    return client.create_async(path, data, makepath=True)


def problem(client: ZooKeeperCoordinator, path: str) -> str:
    """What is reported of the node: short, with its path and a next step."""
    told = str(client.problems[path])
    assert path.rstrip("/") in told
    assert ". Next: " in told
    assert len(told) < 1000
    return told


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("data", [json.dumps(OWNER).encode(), b"\xff"], ids=["valid", "garbage"])
async def test_an_owner_without_a_session_owns_nothing(
    client: ZooKeeperCoordinator, eve: Writer, caplog: pytest.LogCaptureFixture, data: bytes, below: bool
) -> None:
    """Red before: it owned the log until the node was deleted, and every candidate stood by for it."""
    path = await eve.write("owner", data)
    if below:
        await eve.write("owner/below/deep", b"")
    assert (await owners_of(client)).owner is None
    assert "the next publisher that takes the log replaces it" in problem(client, path)
    claim = await client.own_log(GROUP, DB1, server="", why="")
    await kept(claim, 1)
    assert f"{path} belonged to no session" in caplog.text
    assert (await owners_of(client)).owner == DB1
    assert path not in client.problems


async def test_an_owner_that_lives_is_left_alone_whatever_it_wrote(client: ZooKeeperCoordinator, eve: Writer) -> None:
    path = await eve.write("owner", b"\xff", lives=True)
    assert (await owners_of(client)).owner is None
    assert "stop the process that made it" in problem(client, path)
    with pytest.raises(Retryable, match=f"{path} holds no valid record"):
        await client.own_log(GROUP, DB1, server="", why="")
    await eve.session.stop()
    await kept(await client.own_log(GROUP, DB1, server="", why=""), 1)


async def test_an_owner_that_may_not_be_read_is_one_all_the_same(client: ZooKeeperCoordinator, eve: Writer) -> None:
    """Red before: commands could not name the owner, and a publisher that tried to own the log ended."""
    path, nobody = f"{eve.log}/owner", [make_digest_acl("nobody", "x", all=True)]

    def ask(zookeeper: Any) -> Any:
        return zookeeper.create_async(path, b"", acl=nobody, ephemeral=True, makepath=True)

    await eve.session.call("close", ask)
    await eve.session.call("open", lambda zookeeper: zookeeper.set_acls_async(eve.log, OPEN_ACL_UNSAFE))
    assert (await owners_of(client)).owner is None
    assert "may not be read by us" in problem(client, path)
    with pytest.raises(Retryable, match=f"some node below {eve.log} may not be read by us"):
        await client.own_log(GROUP, DB1, server="", why="")
    await eve.session.stop()
    await kept(await client.own_log(GROUP, DB1, server="", why=""), 1)


@pytest.mark.parametrize("name", ["claims/left", "claims/left/below", "move/below", "term/below"])
async def test_nodes_that_were_left_keep_no_publisher_from_a_log(
    client: ZooKeeperCoordinator, eve: Writer, name: str
) -> None:
    """Red before for what has nodes below it: the error ended the publisher, and each that its monitor started."""
    await eve.write(name, b"")
    claim = await client.own_log(GROUP, DB1, server="", why="")
    assert claim.held
    assert await client._nodes.children(client._paths.claims(GROUP)) == [claim.fence().rpartition("/")[2]]


@pytest.mark.parametrize("below", [False, True])
async def test_claims_that_were_left_in_masses_fit_into_a_transaction(
    client: ZooKeeperCoordinator, eve: Writer, monkeypatch: pytest.MonkeyPatch, below: bool
) -> None:
    """Red before: ZooKeeper hung up on a request over 1 MB, again and again. The bound is made small here."""
    monkeypatch.setattr(log_claim, "_TOGETHER", 10)
    await eve.write_many([f"claims/{number:03}" for number in range(200)], b"")
    if below:
        await eve.write("claims/150/below", b"")
    claim = await client.own_log(GROUP, DB1, server="", why="")
    assert await client._nodes.children(client._paths.claims(GROUP)) == [claim.fence().rpartition("/")[2]]


@pytest.mark.parametrize("number", [-1, 1 << 62, 10**39, "7", None])
async def test_the_number_of_a_term_fits_where_it_is_reported(
    client: ZooKeeperCoordinator, eve: Writer, number: object
) -> None:
    """Red before: no publisher of the log could describe itself, and a status page had a traceback."""
    await eve.write("term", {"number": number, "claim": "x", "terms": []})
    claim = await client.own_log(GROUP, DB1, server="", why="")
    assert 0 < claim.term <= 1 << 62
    await claim.close()
    again = await client.own_log(GROUP, DB1, server="", why="")
    assert again.term == claim.term + 1


@pytest.mark.parametrize("data", GARBAGE, ids=["empty", "bytes", "deep", "list", "null", "later", "huge"])
async def test_garbage_names_its_node_and_the_next_step(client: ZooKeeperCoordinator, eve: Writer, data: bytes) -> None:
    paths = [await eve.write(name, data) for name in ("term", "move")]
    paths += [await eve.write(name, data, lives=True) for name in ("owner", "candidates/main@h")]
    await client.register_candidate(GROUP, CANDIDATE)
    assert await owners_of(client) == LogOwners(None, (CANDIDATE,), (), None)
    for path in paths:
        problem(client, path)


@pytest.mark.parametrize(
    ("name", "record", "wrong"),
    [
        ("owner", OWNER, {"pid": 10**30}),
        ("candidates/main@h", ABLE, {"since": 1e17}),
        ("move", MOVE, {"at": 1e17}),
    ],
)
async def test_values_beyond_their_bounds_name_their_node(
    client: ZooKeeperCoordinator, eve: Writer, name: str, record: dict[str, Any], wrong: dict[str, Any]
) -> None:
    """Red before: `wormholectl publishers` ended at a time beyond the calendar."""
    path = await eve.write(name, record | wrong, lives=name != "move")
    assert await owners_of(client) == LogOwners(None, (), (), None)
    (key,) = wrong
    assert f"{key} must be" in problem(client, path)


async def test_a_candidate_without_a_session_is_none(client: ZooKeeperCoordinator, eve: Writer) -> None:
    """Red before: an owner that could not read its log left it to this one, and a log could be moved to it."""
    path = await eve.write("candidates/west@h", ABLE)
    await client.register_candidate(GROUP, CANDIDATE)
    assert (await owners_of(client)).candidates == (CANDIDATE,)
    problem(client, path)
    await eve.session.call("delete", lambda zookeeper: zookeeper.delete_async(path))
    await owners_of(client)
    assert client.problems == {}


async def test_a_node_in_the_place_of_ours_is_replaced_if_no_process_has_it(
    client: ZooKeeperCoordinator, eve: Writer
) -> None:
    """Red before: the host never became a candidate, and waited for a session that did not exist to end."""
    await eve.write(f"candidates/{CANDIDATE.name}", ABLE | {"pid": 7})
    async with patience():
        await client.register_candidate(GROUP, CANDIDATE)
    assert (await owners_of(client)).candidates == (CANDIDATE,)


@pytest.mark.parametrize("lives", [True, False])
async def test_what_another_wrote_in_our_place_is_quoted_shortly(
    client: ZooKeeperCoordinator, eve: Writer, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """Red before: a line of the log, and the status page, had all of it."""
    monkeypatch.setattr(client._session, "timeout_s", lambda: -0.5)  # a second is added
    path = await eve.write(f"candidates/{CANDIDATE.name}", b"x" * 900_000, lives=lives)
    if not lives:
        await eve.write(f"candidates/{CANDIDATE.name}/below", b"")
    with pytest.raises(Retryable) as caught:
        await client.register_candidate(GROUP, CANDIDATE)
    assert len(str(caught.value)) < 1000
    assert lives or f"{path} belongs to no session and has nodes below it: delete them" in str(caught.value)


async def test_candidates_that_are_made_up_in_masses_are_bounded(
    client: ZooKeeperCoordinator, eve: Writer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Red before: each made all others wait half a second longer."""
    monkeypatch.setattr(log_owners, "MOST_CANDIDATES", 5)
    await eve.write(f"candidates/{'a' * 10_000}@h", ABLE, lives=True)
    for number in range(8):
        await eve.write(f"candidates/a{number}@h", ABLE, lives=True)
    for number in range(2):
        await eve.write(f"candidates/b{number}@h", ABLE, lives=True)
        found = (await owners_of(client)).candidates
        assert [one.name for one in found] == [f"a{number}@h" for number in range(5)]
    folder = client._paths.candidates(GROUP)
    assert "has more than 5 nodes below it" in problem(client, f"{folder}/")
    assert caplog.text.count("has more than 5 nodes below it") == 1
    await kept(await client.own_log(GROUP, DB1, server="", why=""), 1)


@pytest.mark.parametrize("epoch", [-1, (1 << 63) - 1, 1 << 63, 10**39, "1"])
async def test_an_epoch_that_nothing_exceeds_is_no_record_of_a_flow(
    client: ZooKeeperCoordinator, eve: Writer, epoch: object
) -> None:
    """Red before: the next publisher gave the flow a higher one, which every subscriber refuses, for good."""
    await client.write_flows({("cache", "db1"): FlowRecord("me", "a", 1, "live")})
    path = client._paths.flow("cache", "db1")
    data = json.dumps(FLOW | {"epoch": epoch}).encode()
    await eve.session.call("write", lambda zookeeper: zookeeper.set_async(path, data))
    assert await client.flows() == {}
    assert "the publisher that serves the flow writes it again" in problem(client, path)


async def test_other_logs_are_not_affected(client: ZooKeeperCoordinator, eve: Writer) -> None:
    other = replace(GROUP, log="db2")
    claim = await client.own_log(other, replace(WEST, log="db2"), server="", why="")
    await client.register_subscriber(A)
    for name in ("owner/below", "term", "move/below", "claims/below/deep", "candidates/main/below"):
        await eve.write(name, b"\xff")
    known = await client.log_owners()
    owner = known[other].owner
    assert owner is not None
    assert owner.copy == WEST.copy
    assert claim.held
    assert known[GROUP] == LogOwners(None, (), (), None)
    assert await client.subscribers() == (A,)


async def test_texts_of_a_candidate_control_no_terminal(
    client: ZooKeeperCoordinator, eve: Writer, zookeeper: str
) -> None:
    text = "\x1b[2J\x9b31mred\x07\r\n2026-01-01 00:00:00 [error    ] forged\u202e\u2066"
    texts = dict.fromkeys(("server", "lacking", "waits", "hint"), text)
    await eve.write("candidates/main\u202e@h", ABLE | texts, lives=True)
    await eve.write("candidates/west@h", ABLE | texts | {"ready": False}, lives=True)
    await eve.write("owner", OWNER | {"host": text, "copy": text}, lives=True)
    await eve.write("move", MOVE | {"to": text, "by": text})
    term = {"copy": text, "host": text, "pid": 1, "server": text, "since": 1.0, "why": text}
    terms = [term | {"number": 1, "host": "a"}, term | {"number": 2}]
    await eve.write("term", {"number": 2, "claim": "x", "terms": terms})
    for words in (["publishers"], ["publishers", "--json"], ["publishers", "move", "shop/db1", "--to", "west@h", "-y"]):
        _, out, err = await asyncio.to_thread(run, *words, "-c", zookeeper)
        assert "forged" in out + err
        assert not {each for each in out + err if unicodedata.category(each) in {"Cc", "Cf"}} - {"\n"}
        assert not [line for line in (out + err).splitlines() if line.startswith("2026-01-01")]
