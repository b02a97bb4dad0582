"""Whether a publisher may act (with real ZooKeeper: tests/system/test_owners)."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from publisher.flows.candidacy import Candidacy
from publisher.flows.ownership import LogHandedOver, Ownership
from tests.support.clocks import ScriptedClock
from tests.support.eventually import eventually
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import LogClaim, PublisherInfo

ONE = PublisherInfo("shop", "main", "db1", "host1", 1, "", 1.0)
TWO = PublisherInfo("shop", "main", "db1", "host2", 2, "", 2.0)


class Scene:
    """``fenced``: markers that other hosts can write."""

    def __init__(self, *, fenced: bool) -> None:
        self.clock = ScriptedClock()
        self.coordinator = MemoryCoordinator(MemoryWorld(), session_timeout=3.0, clock=self.clock.clock.monotonic)
        self.ownership = Ownership(self.coordinator, fenced=fenced, clock=self.clock.clock)

    @property
    def may(self) -> tuple[bool, bool, bool]:
        """Send, assign, be sure of being the only one."""
        return self.ownership.may_send(), self.ownership.may_assign(), self.ownership.sole()


@pytest.fixture(params=[True, False], ids=["fenced", "local"])
async def scene(request: pytest.FixtureRequest) -> Scene:
    scene = Scene(fenced=request.param)
    await scene.coordinator.start()
    return scene


async def test_a_registered_publisher_may_everything(scene: Scene) -> None:
    assert not scene.ownership.sole()
    await scene.ownership.take(ONE)
    assert scene.may == (True, True, True)
    await scene.ownership.give_up()
    await scene.ownership.give_up()
    assert await scene.coordinator.publishers() == ()


async def test_without_contact_local_markers_go_on_with_what_they_have(scene: Scene) -> None:
    await scene.ownership.take(ONE)
    scene.coordinator.suspend()
    assert scene.may == (True, False, False)
    scene.clock.now += 2.0  # the lease is two thirds of three seconds
    fenced = scene.ownership.may_send() is False
    assert scene.may == (not fenced, False, False)
    assert not fenced or "bring ZooKeeper back" in str(scene.ownership.why_silent())


async def test_a_publisher_that_lost_its_log_is_silent_and_says_so(scene: Scene) -> None:
    await scene.ownership.take(ONE)
    assert scene.ownership._registration is not None
    scene.ownership._registration.held = False  # type: ignore[misc]
    assert scene.may == (False, False, False)
    assert "wormholectl publishers" in str(scene.ownership.why_silent())


async def test_it_waits_for_as_long_as_another_one_has_the_log_and_says_for_whom(scene: Scene) -> None:
    other = await scene.coordinator.register_publisher(TWO)
    taking = asyncio.create_task(scene.ownership.take(ONE))
    await eventually(lambda: "process 2 on host2" in scene.ownership.waits, "it said for whom it waits")
    assert not taking.done()
    await other.close()
    await taking
    assert scene.ownership.waits == ""
    assert scene.may == (True, True, True)


class Claimed:
    """Takes the place of a candidacy that won, and of the claim."""

    held, term = True, 1

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def win(self, info: PublisherInfo) -> Claimed:
        return self

    def watch(self, claim: LogClaim) -> None:
        assert cast("object", claim) is self

    async def lost(self) -> str:
        await self.gone.wait()
        return "process 2 took it"

    def fence(self) -> str:
        return "/claims/1"

    async def close(self) -> None:
        pass


async def test_one_that_loses_the_log_before_it_is_registered_waits_no_longer(scene: Scene) -> None:
    claimed = Claimed()
    ownership = Ownership(scene.coordinator, fenced=True, candidacy=cast("Candidacy", claimed), clock=scene.clock.clock)
    await scene.coordinator.register_publisher(TWO)
    taking = asyncio.create_task(ownership.take(ONE))
    await eventually(lambda: "process 2 on host2" in ownership._registers, "it said for whom it waits")
    claimed.gone.set()
    with pytest.raises(LogHandedOver, match="process 2 took it") as raised:
        await taking
    assert raised.value.gone
    await ownership.give_up()


async def test_what_is_written_after_it_gave_up_checks_the_claim_that_is_gone(scene: Scene) -> None:
    """A thread of the marker store may have begun before, and write afterwards."""
    candidacy = cast("Candidacy", Claimed())
    ownership = Ownership(scene.coordinator, fenced=True, candidacy=candidacy, clock=scene.clock.clock)
    assert ownership.fence() == ""
    await ownership.take(ONE)
    await ownership.give_up()
    assert ownership.fence() == "/claims/1"
    assert ownership.term == 0


async def test_beyond_the_lease_nobody_is_said_to_have_taken_the_log() -> None:
    """The claim goes with the session, and without contact nobody knows more than that."""
    scene = Scene(fenced=True)
    await scene.coordinator.start()
    await scene.ownership.take(ONE)
    scene.coordinator.lose()
    scene.ownership._registration.held = False  # type: ignore[misc, union-attr]
    scene.clock.now += 2.5
    assert not scene.ownership.may_send()
    assert "beyond the lease" in str(scene.ownership.why_silent())
