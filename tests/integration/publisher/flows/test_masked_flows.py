"""Columns and masks at work: live, changed while a flow is served, in parked updates, and in what a replay is told."""

from __future__ import annotations

import hmac
from pathlib import Path

import grpc
import pytest

from publisher.flows.dead_letters import projected
from subscriber_sdk.testing import update
from tests.integration.publisher.conftest import World
from tests.integration.publisher.flows.replay_steps import held, opened, refused
from tests.integration.publisher.receiving import KEY, taken
from tests.support.eventually import eventually
from tests.support.letters import parcel_of
from tests.support.scripted_subscriber import ScriptedSubscriber, scripted_subscriber
from wormhole.filters import MaskKey, Projection
from wormhole.model.position import Datamarker
from wormhole.model.values import Op
from wormhole.ports.dead_letters import open_parcel

SECRET = b"0123456789abcdef0123456789abcdef"
PRIVATE = "ada@example.com"
HASH = hmac.new(SECRET, PRIVATE.encode(), "sha256").hexdigest()


def write(world: World, key: bytes, **row: str) -> Datamarker:
    return world.source.commit([(Op.UPSERT, "t", key, row)])


@pytest.fixture
def masked(world: World, tmp_path: Path) -> World:
    """A world whose publisher has a key."""
    path = tmp_path / "mask.key"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    world.settings["mask_key_file"] = path
    return world


async def rows(subscriber: ScriptedSubscriber) -> list[object]:
    frame = await subscriber.hears_later("batch")
    await subscriber.processed(frame)
    return [dict(update.after or {}) for update in subscriber.updates(frame)]


async def test_a_mask_that_changes_applies_from_the_marker_in_a_new_epoch(masked: World) -> None:
    masked.application()
    write(masked, b"a", email=PRIVATE, notes="n")
    async with scripted_subscriber("app", "s1") as s1, masked.publisher() as publisher:
        await masked.register(s1)
        first = await taken(s1)
        assert await rows(s1) == [{"email": PRIVATE, "notes": "n"}]
        offered = await s1.hears_later("datamarker")
        await s1.acks(offered)
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: masked.markers.records[KEY].filter_hash == flow.filter.hash, "stored")
        before = flow.filter.hash
        masked.application(mask={"email": "hash"}, columns=["email"])
        revoke = (await s1.hears_later("revoke")).revoke
        assert revoke.cause == "its filter changed"
        await s1.releases(first)
        again = await s1.accepts(await s1.hears_later("assign"))
        assert again.epoch == first.epoch + 1
        write(masked, b"b", email=PRIVATE, notes="n")
        assert await rows(s1) == [{"email": HASH}]
        await s1.acks(await s1.hears_later("datamarker"))
        await eventually(lambda: masked.markers.records[KEY].filter_hash == flow.filter.hash != before, "stored")


async def test_without_a_key_an_application_is_not_served_and_the_others_are(
    world: World, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    world.settings["mask_key_file"] = tmp_path / "mask.key"
    world.application("app", mask={"email": "hash"})
    world.application("other", mask={"email": "null"})
    write(world, b"a", email=PRIVATE)
    async with (
        scripted_subscriber("other", "o1") as other,
        scripted_subscriber("app", "s1") as s1,
        world.publisher() as publisher,
    ):
        await world.register(s1)
        await world.register(other)
        await other.accepts(await other.hears_later("assign"))
        assert await rows(other) == [{"email": None}]
        assert KEY not in publisher.assigner.flows
        assert any("mask.key cannot be read" in message for message in caplog.messages)
        (tmp_path / "made.key").write_bytes(SECRET)
        (tmp_path / "made.key").chmod(0o644)
        (tmp_path / "made.key").rename(tmp_path / "mask.key")
        await s1.accepts(await s1.hears_later("assign"))
        assert await rows(s1) == [{"email": HASH}]
        assert any("every user of this host can read" in message for message in caplog.messages)


async def test_a_mask_on_a_key_holds_the_flow_until_it_is_corrected(masked: World) -> None:
    masked.application(mask={"key": "null"})
    write(masked, b"a", email=PRIVATE)
    async with scripted_subscriber("app", "s1") as s1, masked.publisher() as publisher:
        await masked.register(s1)
        await taken(s1)
        await eventually(lambda: KEY in publisher.assigner.flows, "registered")
        flow = publisher.assigner.flows[KEY]
        await eventually(lambda: flow.state(frozenset()).value == "held", "held")
        assert "mask: key names key, a column of the key of t" in flow.cause
        assert flow.problem.hint.startswith("remove key from mask")
        assert flow.delivery.updates == 0
        masked.application(mask={"email": "null"})
        revoked = (await s1.hears_later("revoke")).revoke
        await s1.says(released={"flow": revoked.flow, "epoch": revoked.epoch})
        await s1.accepts(await s1.hears_later("assign"))
        assert await rows(s1) == [{"email": None}]


async def test_a_task_of_a_replay_learns_what_it_may_send(masked: World, s1: ScriptedSubscriber) -> None:
    masked.application(mask={"email": "hash", "name": "null"}, columns=["-notes"])
    end = write(masked, b"a", email=PRIVATE)
    async with masked.publisher() as publisher:
        replay = await held(masked, publisher, s1, until=end)
        answer = await refused(replay.tries_to_open(projects=False))
        assert answer.status is grpc.StatusCode.FAILED_PRECONDITION
        assert "would send every value" in str(answer)
        told = (await replay.opens()).projection
        assert (list(told.columns), dict(told.mask)) == (["-notes"], {"email": "hash", "name": "null"})
        assert told.key_check == MaskKey(SECRET).check


async def test_a_mask_that_comes_while_a_task_opens_the_flow_is_not_missed(
    masked: World, s1: ScriptedSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a task of an earlier release would send every value, in an epoch that passes for one with the mask."""
    masked.application()
    end = write(masked, b"a", email=PRIVATE)
    async with masked.publisher() as publisher:
        replay = await held(masked, publisher, s1, until=end)
        settle = publisher.records.settle

        async def settles() -> None:
            masked.application(mask={"email": "null"})
            await eventually(lambda: bool(publisher.assigner.flows[KEY].filter.projection), "configured")
            await settle()

        assigner = publisher.assigner
        await eventually(lambda: assigner.receiver(assigner.flows[KEY]), "the subscriber is free")  # else it waits
        monkeypatch.setattr(publisher.records, "settle", settles)
        answer = await refused(replay.tries_to_open(projects=False))
        assert "would send every value" in str(answer)


async def test_a_task_of_an_earlier_release_replays_what_is_sent_as_it_is(
    world: World, s1: ScriptedSubscriber, first: Datamarker
) -> None:
    async with world.publisher() as publisher:
        replay = await opened(world, publisher, s1, until=first)
        assert not (await replay.opens()).HasField("projection")
        assert (await replay.tries_to_open(projects=False)).HasField("opened")


def test_a_parked_update_is_delivered_again_with_the_columns_of_now() -> None:
    parked = parcel_of(update("users", key=7, after={"email": PRIVATE, "name": "ada"}))
    projection = Projection.parse(["email"], {"email": "hash"}, MaskKey(SECRET))
    again = projected(open_parcel(parked), projection)
    assert PRIVATE.encode() not in again.body
    found = open_parcel(again)
    assert (found.id, found.key, found.after) == (open_parcel(parked).id, (7,), {"email": HASH})
    assert projected(found, projection) == again, "what was masked when it was parked is masked once"
