from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.contenders import contending, is_there
from tests.support.eventually import until
from tests.support.fake_admin import FakeAdmin
from wormhole.admin.discovery import with_coordinator
from wormhole.coordination.current_user import current_user
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import (
    CandidateInfo,
    HistoryEntry,
    LogClaim,
    LogGroup,
    LogOwners,
    MoveRequest,
    PublisherInfo,
)
from wormhole.model.errors import Fatal
from wormhole.model.problem import Problem
from wormhole.ports.datastore import Standing
from wormholectl.publishers.commands import _move
from wormholectl.publishers.log_moves import PlannedMove
from wormholectl.shared.options import Where

GROUP = LogGroup("shop", "@failover", "db1")
FILE = """version = 1
[coordinator]
zookeeper = "{0}"
[datasets.shop.copies.main.logs.db1]
source = "mysql://wormhole@127.0.0.1:3306"
hosts = ["alpha", "beta"]
[datasets.shop.copies.west.logs.db1]
source = "mysql://wormhole@127.0.0.2:3306"
host = "gamma"
[datasets.shop.failover]
copies = ["main", "west"]
[applications.cache]
dataset = "shop"
start = "latest"
"""
READY = Standing("M")
LAGS = Standing("W", lacking="M:5-9")


@pytest.fixture
def applied(zookeeper: str, tmp_path: Path) -> str:
    file = tmp_path / "shop.toml"
    file.write_text(FILE.format(zookeeper))
    code, _, err = run("config", "apply", str(file), "--yes")
    assert code == 0, err
    return zookeeper


def test_owners_with_their_term_and_below_them_who_stands_by(
    applied: str, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = admin.status
    status.term = 1
    with contending(applied, GROUP, main_alpha=READY, main_beta=READY, west_gamma=LAGS):
        code, out, err = run("publishers", "-c", applied)
        told = json.loads(run("publishers", "-c", applied, "--json")[1])
    assert (code, err) == (0, "")
    head, publisher, title, _, beta, gamma = out.splitlines()
    assert head.split()[-2:] == ["TERM", "CAUSE"]
    assert publisher.split()[-1] == "1"
    assert title == "standbys"
    assert (beta.split()[:3], beta.split()[-1]) == (["shop/@failover/db1", "main@alpha", "main@beta"], "yes")
    assert gamma.endswith("after its patience: it lacks M:5-9, which was delivered")
    [log] = told["logs"]
    assert (log["owner"]["name"], [one["name"] for one in log["standbys"]]) == (
        "main@alpha",
        ["main@beta", "west@gamma"],
    )
    assert told["publishers"][0]["term"] == 1


def test_standbys_are_listed_although_nobody_owns_the_log(applied: str) -> None:
    waits = Standing("M", ready=False, problem=Problem("it is a standby", "promote it"))
    with contending(applied, GROUP, main_alpha=waits):
        code, out, err = run("publishers", "-c", applied)
        _, _, flows = run("flows", "-c", applied)
        _, _, why = run("why-lag", "cache/db1", "-c", applied)
        lag_code, lag, _ = run("lag", "cache", "-c", applied)
        doctor_code, doctor, _ = run("doctor", "-c", applied)
    unowned = "no publisher owns the log shop/@failover/db1"
    said = f"{unowned}, and the flows there are not known: main@alpha stands by: it is a standby"
    assert code == 3
    assert "no publishers answer" in out
    assert out.splitlines()[-1].endswith("no: it is a standby")
    for text in (err, flows, why):
        assert said in text
    assert "next: promote it" in flows
    assert "next: promote it" in why
    assert (lag_code, said in lag) == (3, True)
    assert doctor_code == 1
    assert unowned in doctor
    assert "west/db1 is configured" not in doctor, "its copies take turns: said once"


def test_a_log_is_moved_and_moved_back(applied: str) -> None:
    with contending(applied, GROUP, main_alpha=READY, main_beta=READY, west_gamma=LAGS):
        code, out, err = run("publishers", "move", "shop/db1", "--to", "beta", "-c", applied)
        assert (code, "--yes" in err) == (2, True)
        assert out.splitlines()[0] == "shop/@failover/db1 is owned by main@alpha and would be owned by main@beta"
        code, out, err = run("publishers", "move", "shop/db1", "--to", "beta", "-c", applied, "--yes")
        assert (code, err) == (0, ""), out
        assert out.splitlines()[-1].startswith("main@beta owns shop/@failover/db1, after ")
        until(lambda: is_there(applied, GROUP, "main@alpha"), "it stands by")
        code, out, _ = run("publishers", "move", "shop/main/db1", "--to", "main@alpha", "-c", applied, "-y", "--json")
        told = json.loads(out)
        assert (code, told["changed"], told["after"]["owner"]["name"]) == (0, True, "main@alpha")
        assert told["after"]["terms"][-1]["why"] == f"moved by {current_user()}"
        _, listed, _ = run("publishers", "-c", applied)
    takeovers = listed.partition("the last takeovers\n")[2].splitlines()[1:]
    assert [(line.split()[1], line.split()[4:6]) for line in takeovers] == [
        ("3", ["main@beta", "main@alpha"]),
        ("2", ["main@alpha", "main@beta"]),
    ]
    kept = with_coordinator(Where("", applied), lambda coordinator: coordinator.history(2))
    assert [(one.what, one.target, one.before, one.after) for one in kept] == [
        ("publishers move", "shop/@failover/db1", "main@beta", "main@alpha"),
        ("publishers move", "shop/@failover/db1", "main@alpha", "main@beta"),
    ]


def test_what_a_candidate_lacks_is_said_before_anybody_is_asked(applied: str) -> None:
    with contending(applied, GROUP, main_alpha=READY, west_gamma=LAGS):
        code, _, err = run("publishers", "move", "shop/db1", "--to", "gamma", "-c", applied)
        assert (code, "warning: west@gamma lacks M:5-9" in err) == (2, True)
        assert run("publishers", "move", "shop/db1", "--to", "gamma", "-c", applied, "--yes")[0] == 0


async def moved_to_beta(
    meanwhile: Callable[[asyncio.Task[object], LogClaim, MemoryCoordinator], Awaitable[object]],
) -> LogOwners:
    """What is left of a request to move the log to beta. ``meanwhile``: what happens once it is stored."""
    client = MemoryCoordinator(MemoryWorld())
    await client.start()
    claim = await client.own_log(GROUP, PublisherInfo("shop", "main", "db1", "alpha", 1, "", 1.0), server="", why="")
    beta = CandidateInfo("main", "beta", 2, "", 1.0, 1)
    await client.register_candidate(GROUP, beta)
    [owners] = (await client.log_owners()).values()
    planned, request = PlannedMove(GROUP, owners, beta), MoveRequest(beta.name, "maria", 1.0)
    entry = HistoryEntry(1.0, "maria", "publishers move", str(GROUP), "main@alpha", beta.name)
    moving = asyncio.create_task(_move(client, planned, request, entry, 60.0))
    async for owners in client.watch_log(GROUP):
        if owners.move is not None:
            break
    await meanwhile(moving, claim, client)
    [owners] = (await client.log_owners()).values()
    await client.stop()
    return owners


def test_a_move_that_is_interrupted_is_requested_no_more() -> None:
    """The log would move at some later time, when that host is back and nobody expects it."""

    async def interrupt(moving: asyncio.Task[object], *_: object) -> None:
        moving.cancel()  # as Ctrl-C does
        await asyncio.gather(moving, return_exceptions=True)

    assert asyncio.run(moved_to_beta(interrupt)).move is None


def test_a_move_ends_once_another_candidate_takes_the_log() -> None:
    async def take(moving: asyncio.Task[object], claim: LogClaim, client: MemoryCoordinator) -> None:
        await claim.close()
        gamma = PublisherInfo("shop", "west", "db1", "gamma", 3, "", 1.0)
        await client.own_log(GROUP, gamma, server="", why="")
        with pytest.raises(Fatal, match=f"west@gamma took {GROUP} instead of main@beta") as caught:
            await moving
        assert caught.value.code == "owner-elsewhere"

    assert asyncio.run(moved_to_beta(take)).move is None


def test_a_move_that_does_not_come_about_ends_with_3_and_is_requested_no_more(applied: str) -> None:
    with contending(applied, GROUP, main_alpha=READY, main_beta=READY):
        command = ("publishers", "move", "shop/db1", "--to", "beta", "-c", applied, "--yes", "--timeout", "0s")
        code, _, err = run(*command)
    assert code == 3
    assert "main@beta does not own shop/@failover/db1 after 0 s; main@alpha does" in err
    assert "the request was withdrawn" in err
