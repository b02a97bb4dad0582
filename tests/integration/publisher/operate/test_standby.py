"""What a publisher reports that waits for a log which another one owns, or nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from publisher.flows.candidacy import Candidate
from publisher.operate.http import serve_http
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.support.clocks import FAST
from tests.support.eventually import eventually
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import LogClaim, LogGroup, PublisherInfo
from wormhole.host.compiled import compiled_modules
from wormhole.host.http_server import url
from wormhole.metrics import Sample
from wormhole.model.problem import Problem
from wormhole.ports.datastore import Standing

GROUP = LogGroup("shop", "main", "log")
LOG = ("shop", "main", "log")
OTHER = PublisherInfo("shop", "main", "log", "alpha", 7, "alpha:7000", 1.0)


class Datastore:
    """What the candidate of the test finds."""

    def __init__(self) -> None:
        self.standing = Standing("S")

    async def look(self) -> Standing:
        return self.standing


@pytest.fixture(autouse=True)
async def known() -> None:
    await asyncio.to_thread(compiled_modules)  # as `serve_admin` does


@pytest.fixture
def datastore(world: World) -> Datastore:
    found = Datastore()
    world.candidate = Candidate(GROUP, "main", "beta", 1, 3600.0 * FAST, found.look)
    world.application()
    return found


@pytest.fixture
async def other(world: World, datastore: Datastore) -> AsyncIterator[LogClaim]:
    """Another publisher, on alpha, that owns the log."""
    coordinator = MemoryCoordinator(world.coordination)
    await coordinator.start()
    yield await coordinator.own_log(GROUP, OTHER, server="S", why="the test")
    await coordinator.stop()


def reasons(publisher: Publisher) -> tuple[str, ...]:
    return operated(publisher).readiness.found().reasons


async def values(publisher: Publisher) -> dict[str, float]:
    found = [one for one in await operated(publisher).metrics.collect() if isinstance(one, Sample)]
    return {one.metric.name: one.value for one in found if one.labels[:3] == LOG}


async def test_it_is_ready_for_a_rolling_update_and_names_the_owner(other: LogClaim, publisher: Publisher) -> None:
    await eventually(lambda: "main@alpha" in publisher.ownership.waits, "it knows the owner")
    server = await serve_http(operated(publisher), "127.0.0.1:0", None, False)
    try:
        async with aiohttp.ClientSession() as session, session.get(url(server.address, None, "/readyz")) as answer:
            assert answer.status == 200
            assert await answer.text() == "stands by: main@alpha (process 7) owns the log, in term 1 [stands-by]\n"
    finally:
        await server.close()
    told = operated(publisher).reports.status()
    assert (told.owner, told.candidate, told.term) == ("main@alpha", "main@beta", 0)
    assert told.standby.text.startswith("stands by: main@alpha")
    assert not told.standby.hint, "nobody has to do anything"


async def test_its_metrics_say_whether_it_could_take_over(
    other: LogClaim, datastore: Datastore, publisher: Publisher
) -> None:
    await eventually(lambda: "main@alpha" in publisher.ownership.waits, "it knows the owner")
    found = await values(publisher)
    assert (found["wormhole_publisher_owns"], found["wormhole_publisher_standby_ready"]) == (0, 1)
    assert found["wormhole_publisher_ready"] == 1
    assert not {"wormhole_publisher_term", "wormhole_publisher_may_send"} & found.keys()
    datastore.standing = Standing("S", lacking="U:5-9")
    await other.close()
    await eventually(lambda: "it lacks U:5-9" in publisher.ownership.waits, "it looked again")
    assert (await values(publisher))["wormhole_publisher_standby_ready"] == 0


@pytest.mark.usefixtures("other")
async def test_one_that_is_to_be_promoted_first_is_as_ready_as_it_can_be(world: World, datastore: Datastore) -> None:
    """Else a healthy PostgreSQL standby would raise an alert for as long as its primary lives."""
    datastore.standing = Standing("S", ready=False, problem=Problem("it is a standby", "promote it"), promotable=True)
    async with world.publisher() as publisher:
        await eventually(lambda: "it is a standby" in publisher.ownership.waits, "it looked")
        assert (await values(publisher))["wormhole_publisher_standby_ready"] == 1


async def test_one_whose_log_nobody_owns_is_not_ready(datastore: Datastore, publisher: Publisher) -> None:
    datastore.standing = Standing("S", ready=False, problem=Problem("it is a standby", "promote it"))
    await eventually(lambda: "it is a standby" in publisher.ownership.waits, "it looked")
    [reason] = reasons(publisher)
    assert reason.endswith(
        "which no other publisher is known to own: it is a standby [copy-not-ready]. Next: promote it"
    )
    told = operated(publisher).reports.status()
    assert (told.owner, told.standby.text, told.standby.hint) == ("", "it is a standby", "promote it")
    found = await values(publisher)
    assert (found["wormhole_publisher_owns"], found["wormhole_publisher_ready"]) == (0, 0)


async def test_once_it_owns_the_log_it_reports_as_every_publisher(
    other: LogClaim, datastore: Datastore, publisher: Publisher
) -> None:
    await eventually(lambda: "main@alpha" in publisher.ownership.waits, "it knows the owner")
    await other.close()
    await eventually(lambda: publisher.ownership.term == 2 and not reasons(publisher), "it took over")
    told = operated(publisher).reports.status()
    assert (told.term, told.owner, told.HasField("standby")) == (2, "", False)
    found = await values(publisher)
    assert (found["wormhole_publisher_owns"], found["wormhole_publisher_term"]) == (1, 2)
    assert found["wormhole_publisher_may_send"] == 1
    assert "wormhole_publisher_standby_ready" not in found


async def test_where_nobody_else_could_nothing_of_it_is_reported(world: World, publisher: Publisher) -> None:
    assert not {"wormhole_publisher_owns", "wormhole_publisher_term"} & (await values(publisher)).keys()
    assert operated(publisher).reports.status().candidate == ""
