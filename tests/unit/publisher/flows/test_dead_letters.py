"""The office by itself; `tests/integration/test_dead_letters.py` has it between a publisher and a subscriber."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from typing import Any, cast

import pytest

from publisher.flows.dead_letters import DeadLetterOffice
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from publisher.stores.dead_letters.memory import MemoryDeadLetters
from publisher.stores.markers import MemoryMarkerStore
from tests.support.clocks import ScriptedClock
from tests.support.eventually import eventually
from tests.support.letters import letter
from tests.support.markers import CACHE, marker
from tests.support.present import present
from wormhole.filters import Filter, Projection
from wormhole.model.errors import MarkerStoreError, UsageError
from wormhole.model.problem import NO_PROBLEM
from wormhole.ports.dead_letters import Parcel
from wormhole.ports.marker_store import FlowKey
from wormhole.push.peer_threads import PeerThreads


class Desk:
    """An office over a memory store, one flow in epoch 1, and a subscriber that does what the test says."""

    def __init__(self, limit: int = 10, max_frame: int = 20_000) -> None:
        self.max_frame = max_frame
        self.held = True
        self.markers = MemoryMarkerStore()
        self.markers.open()
        self.markers.register(CACHE, marker(1), "latest")
        self.store = self.markers.dead_letters()
        self.flow = PublisherFlow(*CACHE, Filter.parse(None, ()), marker(1), marker(1).order)
        self.flow.holding.raised(self.markers.raise_epoch(CACHE))
        self.told: list[str] = []
        self.flows: dict[FlowKey, PublisherFlow] = {CACHE: self.flow}
        self.office = DeadLetterOffice(self.store, limit, self, PeerThreads("letters"), ScriptedClock().clock)
        self.sent: list[Parcel] = []
        self.may_send = True

    def holds(self, flow: PublisherFlow) -> bool:
        return self.held

    def again(self, flow: PublisherFlow, cause: str) -> None:
        self.told.append(cause)

    def recall(self, flow: PublisherFlow, cause: str) -> None:
        self.told.append(cause)

    async def park(self, number: int, key: int = 1) -> str | None:
        return await self.office.park(self.flow, self.flow.holding.epoch, *letter(number, key), self.max_frame)

    async def assign(self) -> None:
        """A new epoch begins."""
        self.flow.holding.raised(self.markers.raise_epoch(CACHE))
        await self.office.load(self.flow)

    def send_letter(self, flow: PublisherFlow, parcel: Parcel) -> asyncio.Future[bool]:
        """Stands in for the stream."""
        self.sent.append(parcel)
        return flow.parking.expect_answer()

    def redeliver(self) -> asyncio.Task[bool]:
        return asyncio.create_task(self.office.redeliver(cast("SubscriberStream", self), self.flow))

    @property
    def ids(self) -> list[str]:
        return [told.id for told in self.flow.parking.letters or ()]


async def test_a_letter_is_stored_in_the_threads_of_letters_and_its_peer_is_charged() -> None:
    """Not in those of the event loop, where whatever the publisher does for itself would wait behind it."""
    desk, charged = Desk(), list[float]()
    seen: list[str] = []
    park = desk.store.park

    def watched(*arguments: Any) -> None:
        seen.append(threading.current_thread().name)
        park(*arguments)

    desk.store.park = watched  # type: ignore[method-assign,assignment]
    epoch = desk.flow.holding.epoch
    assert await desk.office.park(desk.flow, epoch, *letter(1), desk.max_frame, charge=charged.append) == ""
    assert await desk.office.park(desk.flow, epoch, *letter(1), desk.max_frame, charge=charged.append) == ""
    assert [name.rpartition("_")[0] for name in seen] == ["letters"]
    assert len(charged) == 4  # it is looked at, stored and noted; then it is looked at


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_what_is_answered_is_durable(desk: Desk) -> None:
    assert await desk.park(1) == ""
    [stored] = desk.store.load(CACHE)
    assert stored.parked_at == 1000.0
    assert desk.flow.parking.letters == (stored,)


async def test_what_follows_of_a_row_is_no_line_in_the_log_each(caplog: pytest.LogCaptureFixture, desk: Desk) -> None:
    told, parcel = letter(1)
    for number, error in enumerate(("ValueError('seven')", "", "")):
        one = replace(told, id=f"mem:{number}:0", error=error)
        assert await desk.office.park(desk.flow, desk.flow.holding.epoch, one, parcel, desk.max_frame) == ""
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == [
        f"{desk.flow.name}: update mem:0:0 is parked: ValueError('seven')"
    ]


async def test_the_same_update_is_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(limit=1)
    await desk.park(1)
    monkeypatch.setattr(MemoryDeadLetters, "park", None)
    assert await desk.park(1) == ""
    refused = present(await desk.park(2))
    assert "publisher.dead_letters" in refused


async def test_an_assignment_has_to_hold_the_rows() -> None:
    desk = Desk(max_frame=400)
    assert [await desk.park(number) for number in (1, 2, 3)] == ["", "", ""], "of one row"
    assert await desk.park(4, key=2) == ""
    refused = present(await desk.park(5, key=3))
    assert "half of max_frame is 200" in refused


async def test_a_former_epoch_gets_no_answer_and_parks_nothing(desk: Desk) -> None:
    before = desk.flow.holding.epoch
    await desk.assign()
    assert await desk.office.park(desk.flow, before, *letter(1), desk.max_frame) is None
    assert desk.store.load(CACHE) == ()
    assert desk.told == []


async def test_another_owner_ends_it(desk: Desk) -> None:
    desk.markers.raise_epoch(CACHE)
    assert await desk.park(1) is None
    assert desk.told == ["another publisher owns the flow"]


async def test_a_store_that_fails_is_asked_until_the_epoch_ends(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    tries = []

    def park(*given: object) -> None:
        tries.append(given)
        raise MarkerStoreError("the disk is full")

    monkeypatch.setattr(MemoryDeadLetters, "park", park)
    parking = asyncio.create_task(desk.park(1))
    await eventually(lambda: len(tries) > 2, "it is tried again")
    assert desk.flow.cause == "the disk is full"
    desk.flow.holding.raised(desk.flow.holding.epoch + 1)
    assert await parking is None


async def test_a_store_that_works_again_is_no_cause_any_more(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    desk.flow.explain(NO_PROBLEM)
    full = MarkerStoreError("the disk is full")
    park = MemoryDeadLetters.park
    monkeypatch.setattr(MemoryDeadLetters, "park", lambda *given: (_ for _ in ()).throw(full))
    parking = asyncio.create_task(desk.park(1))
    await eventually(lambda: desk.flow.cause == "the disk is full", "told")
    monkeypatch.setattr(MemoryDeadLetters, "park", park)
    assert await parking == ""
    assert desk.flow.cause == ""


async def test_one_letter_after_the_other_is_delivered_again_and_deleted_when_acknowledged(desk: Desk) -> None:
    for number in (2, 1, 3):
        await desk.park(number)
    await desk.office.retry(desk.flow, "")
    assert desk.told == ["3 parked updates are to be delivered again"]
    assert not any(told.retrying for told in desk.flow.parking.known), "what is under way goes on as it was assigned"
    await desk.assign()
    running = desk.redeliver()
    for number in (1, 2, 3):
        await eventually(lambda number=number: len(desk.sent) == number, "sent")  # type: ignore[misc]
        assert desk.sent[-1] == letter(number)[1]
        assert len(desk.store.load(CACHE)) == 4 - number
        desk.flow.parking.answer(acked=True)
    assert await running
    assert desk.store.load(CACHE) == desk.flow.parking.letters == ()


async def test_a_letter_waits_while_the_publisher_may_not_send(desk: Desk) -> None:
    await desk.park(1)
    await desk.office.retry(desk.flow, "")
    await desk.assign()
    asked: list[str] = []
    read = desk.store.read
    desk.may_send = False

    def counted(flow: FlowKey, id_: str) -> Parcel:
        asked.append(id_)
        return read(flow, id_)

    desk.store.read = counted  # type: ignore[method-assign]
    running = desk.redeliver()
    await eventually(lambda: len(asked) > 3, "it is asked for again and again")
    assert not desk.sent
    desk.may_send = True
    await eventually(lambda: len(desk.sent) == 1, "sent")
    desk.flow.parking.answer(acked=True)
    assert await running


async def test_a_letter_goes_with_the_columns_that_its_application_receives_now(desk: Desk) -> None:
    await desk.park(1)
    masked = Filter.parse(None, projection=Projection.parse([], {"name": "null"}))
    desk.flow.configure(masked, halts_on_bad_value=False, parks=True)
    await desk.office.retry(desk.flow, "")
    await desk.assign()
    running = desk.redeliver()
    await eventually(lambda: len(desk.sent) == 1, "sent")
    assert b"ada" in letter(1)[1].body
    assert b"ada" not in desk.sent[0].body
    desk.flow.parking.answer(acked=True)
    assert await running


@pytest.mark.parametrize("held", [True, False])
async def test_what_is_marked_of_a_flow_that_nobody_has_is_known_at_once(held: bool, desk: Desk) -> None:
    await desk.park(1)
    desk.held = held
    await desk.office.retry(desk.flow, "")
    assert [told.retrying for told in desk.flow.parking.known] == [not held]
    assert [told.retrying for told in desk.store.load(CACHE)] == [True]


async def test_a_letter_that_is_parked_again_stays(desk: Desk) -> None:
    await desk.park(1)
    await desk.office.retry(desk.flow, "")
    await desk.assign()
    running = desk.redeliver()
    await eventually(lambda: bool(desk.sent), "sent")
    told, parcel = letter(1)
    again, epoch = replace(told, error="again"), desk.flow.holding.epoch
    assert await desk.office.park(desk.flow, epoch, again, parcel, desk.max_frame) == ""
    desk.flow.parking.answer(acked=True)
    assert await running
    assert [(one.error, one.retrying) for one in desk.store.load(CACHE)] == [("again", False)]


async def test_when_the_epoch_ends_amid_it_the_rest_is_still_first_in_the_next(desk: Desk) -> None:
    for number in (1, 2):
        await desk.park(number)
    await desk.office.retry(desk.flow, "users:1")
    await desk.assign()
    running = desk.redeliver()
    await eventually(lambda: len(desk.sent) == 1, "sent")
    desk.flow.parking.answer(acked=False)
    assert not await running
    await desk.assign()
    assert [(told.id, told.retrying) for told in desk.flow.parking.known] == [
        ("test:1:0", True),
        ("test:2:0", True),
    ]


async def test_a_letter_that_cannot_be_read_is_reported_and_holds_the_flow_until_it_is_discarded(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    desk: Desk,
) -> None:
    await desk.park(1)
    damaged = Parcel(b"\xff", b"\xff")
    monkeypatch.setattr(MemoryDeadLetters, "read", lambda store, flow, id_: damaged)
    await desk.office.retry(desk.flow, "")
    await desk.assign()
    running = desk.redeliver()
    await eventually(lambda: "test:1:0 cannot be read" in desk.flow.cause, "told")
    assert "dead-letters discard cache/db1" in desk.flow.problem.hint
    assert desk.sent == []
    await desk.office.discard(desk.flow, "")
    monkeypatch.undo()
    await desk.assign()
    assert not await running
    assert await desk.redeliver(), "the log may follow"


async def test_a_letter_that_was_deleted_by_hand_does_not_hold_the_rest(desk: Desk) -> None:
    await desk.park(1)
    await desk.park(2)
    await desk.office.retry(desk.flow, "")
    await desk.assign()
    desk.store.remove(CACHE, ["test:1:0"])
    running = desk.redeliver()
    await eventually(lambda: len(desk.sent) == 1, "sent")
    desk.flow.parking.answer(acked=True)
    assert await running
    assert desk.ids == []


async def test_what_was_parked_since_goes_along(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    await desk.park(1)
    await desk.park(9, key=2)
    await desk.office.retry(desk.flow, "users:1")
    await desk.park(2)
    await desk.assign()
    assert [told.retrying for told in desk.flow.parking.known] == [True, True, False]
    assert desk.ids == ["test:1:0", "test:2:0", "test:9:0"]


async def test_a_preview_changes_nothing(desk: Desk) -> None:
    await desk.park(1)
    before = desk.store.load(CACHE)
    assert "1 parked update is delivered again" in await desk.office.retry(desk.flow, "users:1", preview=True)
    assert "1 parked update is discarded" in await desk.office.discard(desk.flow, "users:1", preview=True)
    assert desk.store.load(CACHE) == before
    assert desk.told == []


async def test_discarded_letters_are_gone_and_the_flow_is_assigned_anew(desk: Desk) -> None:
    await desk.park(1)
    await desk.park(2, key=2)
    with pytest.raises(UsageError, match=r" users:3 .*\(flow cache/db1\) \[change-refused\].*users:1, users:2"):
        await desk.office.discard(desk.flow, "users:3")
    await desk.office.discard(desk.flow, "users:2")
    assert desk.ids == ["test:1:0"]
    assert [told.id for told in desk.store.load(CACHE)] == ["test:1:0"]
    assert desk.told == ["1 parked update is discarded"]


async def test_what_nobody_received_yet_is_reported_too(desk: Desk) -> None:
    desk.store.park(CACHE, desk.flow.holding.epoch, *letter(1))
    assert desk.flow.parking.count == 0
    told, total = await desk.office.letters(None, 10)
    assert total == desk.flow.parking.count == 1
    assert (told[0].key, told[0].table, told[0].bytes) == ("users:1", "users", letter(1)[0].size)
    assert await desk.office.letters(("cache", "other"), 10) == ([], 0)


async def test_a_forgotten_flow_has_none(desk: Desk) -> None:
    await desk.park(1)
    await desk.office.forget(desk.flow)
    assert desk.store.load(CACHE) == desk.flow.parking.letters == ()


async def test_what_fails_again_stays_what_it_was(desk: Desk) -> None:
    """Another subscriber may get it then, which is not to change what is in it or whose it is."""
    told, parcel = letter(1)
    mine = replace(told, parked_by="me")
    assert await desk.office.park(desk.flow, desk.flow.holding.epoch, mine, parcel, desk.max_frame) == ""
    await desk.office.retry(desk.flow, "", anyone=True)
    await desk.assign()
    theirs = replace(told, parked_by="them", rows=letter(1, 7)[0].rows, error="no")
    assert await desk.office.park(desk.flow, desk.flow.holding.epoch, theirs, letter(1, 7)[1], desk.max_frame) == ""
    [stored] = desk.store.load(CACHE)
    assert (stored.rows, stored.parked_by, stored.error, stored.retrying) == (told.rows, "", "no", False)
    assert desk.store.read(CACHE, told.id) == parcel


@pytest.mark.parametrize(
    ("held", "receiver", "anyone", "goes", "stays"),
    [
        (True, "old-1", False, 2, 0),
        (True, "new-2", False, 1, 1),
        (False, "old-1", False, 1, 1),  # it had the flow last, and is away
        (False, "", False, 1, 1),
        (True, "new-2", True, 2, 0),
        (False, "old-1", True, 2, 0),
    ],
)
async def test_an_operator_is_told_what_is_delivered_and_what_waits_for_whom(
    held: bool,
    receiver: str,
    anyone: bool,
    goes: int,
    stays: int,
    desk: Desk,
) -> None:
    for number, by in ((1, "old-1"), (2, "")):  # an earlier release stored no name
        told, parcel = letter(number, number)
        await desk.office.park(desk.flow, desk.flow.holding.epoch, replace(told, parked_by=by), parcel, desk.max_frame)
    desk.flow.parking.received_by(receiver)
    desk.held = held
    note = await desk.office.retry(desk.flow, "", True, anyone=anyone)
    assert f"{goes} parked update{' is' if goes == 1 else 's are'} delivered again, in order" in note
    assert ("once a subscriber has the flow" in note) is not held
    assert ("1 parked update is delivered again only once the subscriber that parked" in note) is bool(stays)
    assert ("(old-1)" in note, "--any-subscriber" in note) == (bool(stays), bool(stays))
