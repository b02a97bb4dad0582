"""Parked updates of a flow that a mass replay has."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.flows.replay_steps import flow_of, held, opened, refused
from tests.integration.publisher.operate.changes import FLOW
from tests.integration.publisher.receiving import KEY
from tests.support.letters import letter
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.ports.dead_letters import Parcel, rows_from_messages
from wormhole.push.parking import park_frames
from wormhole.wire.v1 import admin_pb2

Status = grpc.StatusCode


@pytest.fixture
async def s1() -> AsyncIterator[ScriptedSubscriber]:
    async with scripted_subscriber("app", "s1") as subscriber:
        yield subscriber


def letters(world: World) -> list[str]:
    return sorted(world.markers.letters.get(KEY, {}))


async def test_what_a_task_hands_over_is_parked_in_its_epoch_and_reported_to_the_next(
    world: World, s1: ScriptedSubscriber
) -> None:
    world.application(on_failure="park")
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await held(world, publisher, s1)
        opening = await replay.opens()
        assert (opening.park, list(opening.parked)) == (True, [])
        told, parcel = letter(5)
        assert await replay.parks(told, parcel, piece=3) == ""
        assert letters(world) == ["test:5:0"]
        assert await replay.parks(told, parcel) == "", "known: as when the answer was lost"
        former = replay.epoch
        again = await replay.opens()
        assert rows_from_messages(again.parked) == ((told.rows[0], told.place),)
        replay.epoch = former
        assert (await refused(replay.parks(*letter(6)))).status is Status.ABORTED
        assert letters(world) == ["test:5:0"]

        # An operator's word ends the epoch in which the row is held; a flow of which updates are parked may be begun
        # again.
        replay.epoch = again.epoch
        discard = admin_pb2.ChangeRequest(who="maria@ops", flow=FLOW)
        discard.discard_dead_letters.SetInParent()
        await operated(publisher).control.change(discard, "")
        assert (await refused(replay.parks(*letter(7)))).status is Status.ABORTED
        await replay.opens()
        assert await replay.parks(*letter(8)) == ""
        await replay.begin()
        assert (await replay.opens()).parked


async def test_what_came_of_an_update_goes_with_its_epoch(world: World, s1: ScriptedSubscriber) -> None:
    world.application(on_failure="park")
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        told, parcel = letter(5)
        half = next(iter(park_frames(told.id, parcel, told.place, told.error, 3)))
        flow = flow_of(publisher)
        assert await publisher.replays.park(KEY, "r1", replay.ticket, replay.epoch, half) == ""
        assert publisher.parking_room.used == 3
        publisher.replays.fence(flow)
        assert publisher.parking_room.used == 0


async def test_a_task_that_knows_of_no_parked_updates_is_not_let_in(world: World, s1: ScriptedSubscriber) -> None:
    world.application(on_failure="park")
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        await replay.parks(*letter(5))
        epoch = flow_of(publisher).holding.epoch
        waits = await replay.tries_to_open(parks=False)
        assert (waits.HasField("opened"), "of an earlier release" in waits.cause) == (False, True)
        assert flow_of(publisher).holding.epoch == epoch, "no epoch is used up"


async def test_what_cannot_be_read_is_not_parked(world: World, s1: ScriptedSubscriber) -> None:
    world.application(on_failure="park")
    world.commit("a")
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1)
        told, parcel = letter(5)
        wrong = await refused(replay.parks(told, Parcel(parcel.schema, b"\xff")))
        assert (wrong.status, "no valid message" in wrong.message) == (Status.INVALID_ARGUMENT, True)
        assert letters(world) == []
