"""Datamarkers, dead letters and delivery counts of the release before, in an SQLite file and in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.stores.markers import LocalMarkerStore, ZooKeeperMarkerStore
from wormhole.audit.delivery_counts import DeliveryCounts, RangeKind
from wormhole.audit.window_counts import Mismatch, ProcessedCount, WindowCounts
from wormhole.config import CoordinatorConfig
from wormhole.model import problem
from wormhole.model.position import Anchor, Datamarker, LastAck, LogPosition
from wormhole.model.values import Op
from wormhole.ports.dead_letters import DeadLetter, UpdatePlace, open_parcel
from wormhole.ports.marker_store import (
    FlowControl,
    MarkerStore,
    MarkerWrite,
    ReplayControl,
    ReplayState,
    StoredFlow,
    start_key,
)
from wormhole.wire.tally import Tally

CACHE, SEARCH = ("cache", "db1"), ("search", "db1.shop%2Eusers")
REPLAYED, LOST, REWOUND = ("cache", "db1.h0"), ("cache", "db1.h1"), ("cache", "db1.h2")
WINDOW = 1_700_000_000 // 600


def at(offset: int) -> Datamarker:
    place = LogPosition(1, 7, offset)
    anchor = Anchor(f"source:{offset}", 0xDEADBEEF, LogPosition(1, 7, 0))
    return Datamarker(place, f"gtid:1-{offset}", place, anchor, 1_700_000_000_000_000)


@pytest.fixture(params=["local", "zookeeper"])
def store(request: pytest.FixtureRequest, before: Path) -> Iterator[MarkerStore]:
    kept: MarkerStore
    if request.param == "local":
        kept = LocalMarkerStore(before / "markers")
    else:
        settings = CoordinatorConfig(zookeeper=request.getfixturevalue("planted"), session_timeout=20.0)
        kept = ZooKeeperMarkerStore(settings, "db1")
    kept.open()
    yield kept
    kept.close()


def test_every_flow_is_as_it_was_stored(store: MarkerStore) -> None:
    bare = Datamarker(LogPosition(2, 8, 500), "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-9", LogPosition(2, 7, 4), None, 0)
    replay = ReplayControl(
        id="r-1",
        who="eve@host1",
        mode="latest",
        started_s=1_700_000_000.5,
        lease_s=60.0,
        ticket="5e" * 32,
        state=ReplayState.REPLAYING,
        begin=at(20),
        until=at(80),
        where='op == "delete"',
        progress=LogPosition(1, 7, 33).to_bytes() + b"\x00\x01",
        attempts=2,
        subscriber="a",
        opener="task 1 of job 9",
        snapshot=at(15),
    )
    missing = FlowControl(
        missing=problem.Problem("its datamarker is missing: the table of known flows has it", code="marker-missing")
    )
    assert store.load() == {
        start_key("cache", "db1"): StoredFlow(at(3), 0, "latest"),
        CACHE: StoredFlow(at(90), 3, "earliest", "0123456789abcdef"),
        SEARCH: StoredFlow(
            bare,
            42,
            "earliest",
            "fedcba9876543210",
            FlowControl("eve@host1, 2023-11-14", ("source:7:0", "source:9:2")),
        ),
        REPLAYED: StoredFlow(at(10), 0, "earliest", control=FlowControl(replay=replay)),
        LOST: StoredFlow(at(10), 0, "earliest", control=missing),
        REWOUND: StoredFlow(at(5), 1, "earliest", rewound=True),
    }


def test_epochs_and_datamarkers_go_on_from_there(store: MarkerStore) -> None:
    assert store.raise_epoch(CACHE) == 4
    assert store.store([MarkerWrite(CACHE, 3, at(95)), MarkerWrite(SEARCH, 42, at(999))]) == (CACHE, SEARCH)
    assert store.store([MarkerWrite(CACHE, 4, at(95), "0123456789abcdef")]) == ()
    acked = LastAck(0, at(95).order)
    assert store.load()[CACHE] == StoredFlow(at(95), 4, "earliest", "0123456789abcdef", last_ack=acked)


def test_dead_letters_are_read_marked_and_deleted(store: MarkerStore) -> None:
    letters = store.dead_letters()
    first, second, third = letters.load(CACHE)
    (other,) = letters.load(SEARCH)
    parked = open_parcel(letters.read(CACHE, "test:11:0"))
    assert (parked.id, parked.op, parked.key, parked.after) == ("test:11:0", Op.INSERT, (1,), {"name": "ada"})
    place = UpdatePlace(LogPosition(1, 1, 11), False, "test:11", 0)
    assert first == DeadLetter("test:11:0", place, parked.rows(), "insert", 1_700_000_000.5, "boom", False, first.size)
    parcel = letters.read(CACHE, "test:11:0")
    assert first.size == len(parcel.schema) + len(parcel.body)
    assert (second.id, second.error, second.retrying) == ("test:12:0", "", True)
    assert (third.id, third.error, third.place.index) == ("test:13:4", "ValueError('ü')", 4)
    assert open_parcel(letters.read(CACHE, third.id)).key == (3,)
    assert other.id == "test:21:0"
    letters.retry(CACHE, [first.id])
    letters.remove(CACHE, [third.id], epoch=3)
    assert [(letter.id, letter.retrying) for letter in letters.load(CACHE)] == [
        ("test:11:0", True),
        ("test:12:0", True),
    ]


def test_delivery_counts_are_read_with_every_page(store: MarkerStore) -> None:
    name = "0123456789abcdef"
    places = [LogPosition(1, 7, offset) for offset in (0, 10, 20, 30)]
    kept = DeliveryCounts(store.delivery_counts([CACHE])[CACHE])
    assert kept.unreadable == []
    assert kept.windows == {
        (name, 0): WindowCounts(delivered=Tally(1, 5)),
        (name, WINDOW): WindowCounts(
            delivered=Tally(7, 11),
            processed=6,
            set_aside=1,
            aside_hash=9,
            delays=[7, *[0] * 10],
            mismatches=[Mismatch(places[0], places[1], 5, 4, 1, places[1])],
            lives={77: ProcessedCount(6, 1, 9, 2), 78: ProcessedCount(2, 0, 0, 0)},
            partial=2,
            unacknowledged=2,
            moved_past=1,
        ),
    }
    assert kept.ranges == {
        RangeKind.COUNTED: {name: [(places[0], places[2])]},
        RangeKind.PARTIAL: {name: [(places[2], places[3])]},
        RangeKind.REDELIVERED: {name: [(places[0], places[1])]},
    }
    assert kept.moved_in == 0
    assert store.delivery_counts([SEARCH])[SEARCH] == {}
