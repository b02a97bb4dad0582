"""Where flows begin: an application's start is stored once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from datastores.memory.source import MemorySource
from publisher.flows.known_flows import FormerHolder, KnownFlows
from publisher.flows.registrar import Beginning, Registrar, begin_of_unknown
from publisher.stores.markers.memory import MemoryMarkers, MemoryMarkerStore
from tests.support.clocks import ScriptedClock
from tests.support.markers import marker
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import FlowRecord
from wormhole.model.errors import CoordinationLost, PositionError, PositionPurged
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.marker_store import UNASKED, BackfillControl, FlowControl, FlowKey, StoredFlow, start_key

KEY, NEW, START = ("app", "log.t"), ("app", "log.new"), start_key("app", "log")


def stored(**places: int) -> dict[FlowKey, StoredFlow]:
    return {("app", shard): StoredFlow(marker(place), 0, "latest") for shard, place in places.items()}


# --- the decision


@pytest.mark.parametrize(
    ("flows", "shards", "start", "begin"),
    [
        ({"a": 5, "b": 3, "c": 9}, "abcd", None, 3),  # the earliest of the others
        # A dropped table's marker is not moved any more, and the log behind it may be gone.
        ({"a": 5, "dropped": 1}, ("a", "new"), None, 5),
        ({"a": 5, "b": 3}, ("0of2", "1of2"), None, 3),  # another division into shards
        ({}, "a", 7, 7),  # the first shard begins where the application starts
        ({"a": 9}, "ab", 7, 9),  # that is not looked at again once there are flows: they are further on
    ],
)
def test_where_an_unknown_shard_begins(
    flows: dict[str, int], shards: Iterable[str], start: int | None, begin: int
) -> None:
    first = None if start is None else StoredFlow(marker(start), 0, "latest")
    assert begin_of_unknown(stored(**flows), {*shards}, first) == marker(begin)


# --- the registrar


class Books:
    """A log, a store that can be taken away, and a registrar over both."""

    def __init__(self, folder: Path) -> None:
        self.source = MemorySource(log="log", sharding=Sharding("table"))
        self.markers = MemoryMarkers()
        self.refuses: str | None = None
        self.coordinator = MemoryCoordinator(MemoryWorld())
        self.folder = folder
        self.registrar = self.restarted()

    def restarted(self) -> Registrar:
        self.markers.owner = None
        store = _Store(self.markers, self)
        store.open()
        known = KnownFlows(self.coordinator, self.folder / "flows.json", ScriptedClock(50.0).clock)
        return Registrar(store, self.source, "log", known)

    def commit(self, table: str) -> Datamarker:
        return self.source.commit([(Op.UPSERT, table, b"k", {"value": b"v"})])

    async def register(self, start: str = "latest") -> list[Beginning]:
        await self.coordinator.start()
        shards = self.source.shards()
        return await self.registrar.register("app", start, shards, shards, "f")


class _Store(MemoryMarkerStore):
    def __init__(self, markers: MemoryMarkers, books: Books) -> None:
        super().__init__(markers)
        self._books = books

    def register(
        self, flow: FlowKey, marker: Datamarker, start: str, epoch: int = 0, control: FlowControl = UNASKED
    ) -> StoredFlow:
        if flow[1] == self._books.refuses:
            raise CoordinationLost("the store is away")
        return super().register(flow, marker, start, epoch, control)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


async def test_a_start_is_stored_before_there_is_any_shard(books: Books) -> None:
    start = books.source.latest()
    assert await books.register() == []
    assert books.markers.records == {START: StoredFlow(start, 0, "latest")}
    assert books.registrar.starts == {"app": start}
    books.commit("t")
    books.registrar = books.restarted()
    [begin] = await books.register()
    assert (begin.shard, begin.record.marker, begin.sent_until) == ("log.t", start, start.order)


async def test_another_start_in_the_configuration_changes_nothing_afterwards(books: Books) -> None:
    books.commit("t")
    start = books.source.latest()
    await books.register("latest")
    books.commit("new")
    found = {begin.shard: begin.record.marker for begin in await books.register("earliest")}
    assert found == {"log.t": start, "log.new": start}


async def test_a_known_flow_goes_on_at_its_marker_and_may_have_been_sent_up_to_the_end(books: Books) -> None:
    start = books.source.latest()
    books.commit("t")
    await books.register("earliest")
    end = books.commit("t")
    [begin] = await books.register("latest")
    assert (begin.record.marker, begin.sent_until) == (start, end.order)


async def test_a_store_that_fails_half_way_is_gone_on_with_at_the_same_place(books: Books) -> None:
    books.commit("a")
    start = books.commit("b")
    books.refuses = "log.b"
    with pytest.raises(CoordinationLost):
        await books.register()
    assert ("app", "log.a") in books.markers.records
    books.commit("b")
    books.refuses = None
    books.registrar = books.restarted()
    assert {begin.record.marker for begin in await books.register()} == {start}


async def test_a_start_that_the_log_does_not_have_is_reported_at_once_and_nothing_is_stored(books: Books) -> None:
    with pytest.raises(PositionError):
        await books.register("1/9/9")
    assert not books.markers.records


async def test_a_time_begins_at_the_first_transaction_then_or_later(books: Books) -> None:
    times = iter(1_777_636_800_000_000 + i for i in (-2, -1, 0, 0, 1))
    books.source = MemorySource(log="log", sharding=Sharding("table"), now_us=lambda: next(times))
    books.registrar = books.restarted()
    _, last, *_ = [books.commit("t") for _ in range(5)]
    [begin] = await books.register("2026-05-01T12:00:00Z")
    assert begin.record.marker.order == last.order
    assert books.markers.records[START].start == "2026-05-01T12:00:00Z"


async def test_a_time_that_is_still_to_come_or_gone_from_the_log_is_reported_and_nothing_is_stored(
    books: Books,
) -> None:
    with pytest.raises(PositionError, match="start = '2999-01-01T00:00:00Z' is in the future"):
        await books.register("2999-01-01T00:00:00Z")
    books.source.purge(books.commit("t"))
    books.commit("t")
    with pytest.raises(
        PositionPurged, match=r"start = '2001-.*' is before what the log holds: the log begins at .*, about 20"
    ) as caught:
        await books.register("2001-01-01T00:00:00+02:00")
    assert caught.value.message.count("the log begins") == 1
    assert "use earliest or a later time" in str(caught.value.hint)
    assert not books.markers.records


async def test_a_flow_is_registered_with_the_subscriber_that_its_record_names(books: Books) -> None:
    for table in ("t", "new", "free"):
        books.commit(table)
    await books.register()
    del books.markers.records[NEW]  # a store that lost it
    holders = {"log.t": "s1", "log.new": "s2", "log.free": ""}
    records = {("app", shard): FlowRecord("former", name, 1, "live") for shard, name in holders.items()}
    await books.coordinator.write_flows(records)
    books.registrar = books.restarted()
    found = {begin.shard: begin.holder for begin in await books.register()}
    assert found == {"log.t": FormerHolder("s1", 50.0), "log.new": FormerHolder("s2", 50.0), "log.free": None}


async def test_what_is_needed_is_the_flows_places_or_else_the_start(books: Books) -> None:
    assert await books.registrar.needed("app") == []
    start = books.source.latest()
    await books.register()
    assert await books.registrar.needed("app") == [start.read_from]
    moved = books.commit("t")
    books.markers.records["app", "log.t"] = StoredFlow(moved, 3, "latest")
    assert await books.registrar.needed("app") == [moved.read_from]


async def test_a_flow_that_was_served_and_has_no_record_is_held(books: Books, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever `start` says: what it has received is not known, and its epochs go on above those that were seen."""
    books.commit("t")
    [begin] = await books.register()
    assert not begin.record.control.missing
    await books.registrar._known.note({KEY: FlowRecord("publisher", "s1", 4, "live")})
    books.commit("t")
    books.markers.records.clear()
    books.registrar = books.restarted()
    [begin] = await books.register()
    assert begin.record.epoch > 4
    assert begin.record.control.missing.text.startswith("its datamarker is missing: app/log.t was served before")
    assert "`wormholectl flows accept-loss app/log.t`" in caplog.text
    books.registrar = books.restarted()
    [again] = await books.register()
    assert again.record == begin.record, "until an operator decides, over restarts too"


async def test_an_older_copy_of_the_store_does_not_bring_back_epochs(
    books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    """Another subscriber may get the flow then, which never saw the epoch and could not refuse it."""
    books.commit("t")
    await books.register()
    copy = dict(books.markers.records)
    await books.registrar._known.note({KEY: FlowRecord("publisher", "s1", 4, "live")})
    books.markers.records.clear()
    books.markers.records.update(copy)
    books.registrar = books.restarted()
    [begin] = await books.register()
    assert begin.record.epoch > 4
    assert begin.record == books.markers.records[KEY], "stored too: acknowledgements carry it"
    assert "an older copy of the store was restored" in caplog.text
    caplog.clear()
    books.registrar = books.restarted()
    [again] = await books.register()
    assert (again.record.epoch, caplog.text) == (begin.record.epoch, ""), "once"


# --- start = "existing"


async def test_existing_rows_are_asked_for_in_the_write_that_registers_the_flow(books: Books) -> None:
    """A crash after a write of the marker alone would leave a flow that never gets them."""
    books.commit("t")
    begin = books.source.latest()
    [found] = await books.register("existing")
    backfill = found.record.control.backfill
    assert backfill == BackfillControl(1, "start", backfill.started_s if backfill else 0, filter_hash="f")
    assert backfill.started_s > 1e9
    assert (found.record.marker, books.markers.records[KEY]) == (begin, found.record)
    assert books.markers.records[START].control == UNASKED, "that record is no flow"


async def test_the_start_decides_over_existing_rows_once(books: Books) -> None:
    books.commit("t")
    await books.register("latest")
    books.commit("new")
    assert {begin.record.control for begin in await books.register("existing")} == {UNASKED}


async def test_a_crash_between_start_and_flow_does_not_lose_the_existing_rows(books: Books) -> None:
    books.commit("t")
    books.refuses = "log.t"
    with pytest.raises(CoordinationLost):
        await books.register("existing")
    assert list(books.markers.records) == [START]
    books.refuses, books.registrar = None, books.restarted()
    [found] = await books.register("latest")
    assert found.record.control.backfill is not None


async def test_a_shard_that_appears_later_gets_its_rows_too(books: Books) -> None:
    """Its table may have been made before the application, by changes that the log did not show until then."""
    books.commit("t")
    await books.register("existing")
    books.commit("new")
    found = {begin.shard: begin.record.control.backfill for begin in await books.register("existing")}
    assert (found["log.new"] or BackfillControl(0, "", 0)).generation == 1


async def test_a_lost_record_begins_above_every_generation_that_was_used(books: Books) -> None:
    """Its generations are gone with it; each that delivered anything had an epoch of its own."""
    books.commit("t")
    await books.register("existing")
    await books.registrar._known.note({KEY: FlowRecord("publisher", "s1", 4, "live")})
    del books.markers.records[KEY]
    books.registrar = books.restarted()
    [begin] = await books.register("existing")
    backfill = begin.record.control.backfill
    assert begin.record.control.missing
    assert backfill is not None
    assert backfill.generation > 4
