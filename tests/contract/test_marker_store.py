"""The port of `wormhole/ports/marker_store.py` over its three forms; `tests/unit/publisher/stores/markers` has what
each adds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.markers import CACHE, SEARCH, marker, write
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import Datamarker, LastAck, LogPosition
from wormhole.ports.marker_store import (
    BackfillControl,
    FlowControl,
    MarkerStore,
    MarkerWrite,
    ReplayControl,
    ReplayState,
    StoredFlow,
    start_key,
)

Reopen = Callable[[], MarkerStore]


@pytest.fixture
def store(reopen: Reopen) -> MarkerStore:
    return reopen()


# --- every form --------------------------------------------------------------------------------------------------


def test_a_new_store_is_empty(store: MarkerStore) -> None:
    assert store.load() == {}
    assert store.load("cache") == {}


def test_registering_stores_marker_and_start_at_once(store: MarkerStore, reopen: Reopen) -> None:
    stored = store.register(CACHE, marker(10), "latest")
    assert (stored.marker, stored.epoch, stored.start, stored.filter_hash) == (marker(10), 0, "latest", "")
    assert reopen().load() == {CACHE: stored}


def test_registering_again_changes_nothing(store: MarkerStore) -> None:
    first = store.register(CACHE, marker(10), "latest")
    assert store.register(CACHE, marker(99), "earliest") == first
    assert store.load() == {CACHE: first}


def test_many_flows_are_registered_at_once_and_those_that_are_there_stay(store: MarkerStore, reopen: Reopen) -> None:
    flows = [("cache", f"db1.{number}") for number in range(250)]
    first = store.register(flows[120], marker(1), "earliest")
    held = FlowControl(paused="maria@ops since noon")
    wanted = {flow: StoredFlow(marker(10), number, "latest", control=held) for number, flow in enumerate(flows)}
    wanted[SEARCH] = StoredFlow(marker(3), 0, "latest")
    expected = wanted | {flows[120]: first}
    assert store.register_all(wanted) == expected
    assert store.register_all(dict.fromkeys(flows, StoredFlow(marker(99), 0, "latest"))).keys() == set(flows)
    assert reopen().load() == expected


def test_an_applications_start_is_kept_beside_its_flows(store: MarkerStore, reopen: Reopen) -> None:
    start = start_key("cache", "db1")
    assert store.register(start, marker(3), "latest").marker == marker(3)
    store.register(CACHE, marker(10), "latest")
    assert store.register(start, marker(99), "earliest").marker == marker(3)
    found = reopen().load("cache")
    assert {flow: stored.marker for flow, stored in found.items()} == {start: marker(3), CACHE: marker(10)}


def test_load_selects_one_application(store: MarkerStore) -> None:
    store.register(CACHE, marker(1), "latest")
    store.register(SEARCH, marker(2), "latest")
    assert set(store.load()) == {CACHE, SEARCH}
    assert set(store.load("search")) == {SEARCH}


def test_stored_markers_survive_with_every_part(store: MarkerStore, reopen: Reopen) -> None:
    store.register(CACHE, marker(1), "latest")
    moved = Datamarker(LogPosition(1, 8, 5), "gtid:1-9", LogPosition(1, 7, 2), None, 5)
    assert store.store([MarkerWrite(CACHE, 0, moved, "hash")]) == ()
    assert store.store([]) == ()
    stored = reopen().load()[CACHE]
    assert (stored.marker, stored.filter_hash, stored.start) == (moved, "hash", "latest")


def test_several_writes_of_one_call_take_effect_in_order(store: MarkerStore) -> None:
    store.register(CACHE, marker(1), "latest")
    store.register(SEARCH, marker(1), "latest")
    assert store.store([write(5), write(6), write(7, flow=SEARCH)]) == ()
    assert {flow: stored.marker for flow, stored in store.load().items()} == {CACHE: marker(6), SEARCH: marker(7)}


def test_books_are_stored_with_the_marker_or_not_at_all(store: MarkerStore, reopen: Reopen) -> None:
    store.register(CACHE, marker(1), "latest")
    store.register(SEARCH, marker(1), "latest")
    assert store.delivery_counts([CACHE])[CACHE] == {}
    first = MarkerWrite(CACHE, 0, marker(5), "", {"f.7": b"seven", "f.-8": b"eight"})
    assert store.store([first, MarkerWrite(SEARCH, 0, marker(5), "", {"f.7": b"other"})]) == ()
    assert store.store([MarkerWrite(CACHE, 0, marker(6), "", {"f.7": b"", "f.9": b"nine", "f.8": b""})]) == ()
    assert store.store([MarkerWrite(CACHE, 0, marker(2), "", {"f.9": b"back"})]) == (CACHE,)
    store.raise_epoch(CACHE)
    assert store.store([MarkerWrite(CACHE, 0, marker(9), "", {"f.9": b"late"})]) == (CACHE,)
    store = reopen()
    assert store.delivery_counts([CACHE])[CACHE] == {"f.-8": b"eight", "f.9": b"nine"}
    assert store.delivery_counts([SEARCH])[SEARCH] == {"f.7": b"other"}
    store.forget(CACHE)
    assert (store.delivery_counts([CACHE])[CACHE], store.delivery_counts([SEARCH])[SEARCH]) == ({}, {"f.7": b"other"})
    store.register(CACHE, marker(1), "latest")
    assert store.store([MarkerWrite(CACHE, 0, marker(5), "", {"f.7": b"anew"})]) == ()
    assert store.delivery_counts([CACHE])[CACHE] == {"f.7": b"anew"}


def test_books_of_many_flows_and_windows_are_stored_at_once(store: MarkerStore) -> None:
    flows = [("cache", f"db1.{number}") for number in range(40)]
    store.register_all(dict.fromkeys(flows, StoredFlow(marker(1), 0, "latest")))
    pages = {f"f.{window}": bytes(1000) for window in range(30)}
    assert store.store([MarkerWrite(flow, 0, marker(5), "", pages) for flow in flows]) == ()
    assert store.delivery_counts(flows) == dict.fromkeys(flows, pages)


def test_an_older_epoch_is_refused_and_the_others_of_the_call_are_stored(store: MarkerStore, reopen: Reopen) -> None:
    store.register(CACHE, marker(1), "latest")
    store.register(SEARCH, marker(1), "latest")
    assert store.raise_epoch(CACHE) == 1
    assert store.store([write(5), write(5, flow=SEARCH)]) == (CACHE,)
    found = reopen().load()
    assert (found[CACHE].marker, found[CACHE].epoch) == (marker(1), 1)
    assert found[SEARCH].marker == marker(5)


def test_an_epoch_never_raised_is_refused(store: MarkerStore) -> None:
    store.register(CACHE, marker(1), "latest")
    assert store.store([write(5, epoch=3)]) == (CACHE,)


def test_epochs_never_fall(store: MarkerStore, reopen: Reopen) -> None:
    store.register(CACHE, marker(1), "latest")
    seen = [store.raise_epoch(CACHE) for _ in range(3)]
    store.store([write(5, epoch=3)])
    store.register(CACHE, marker(1), "latest")
    store = reopen()
    seen += [store.load()[CACHE].epoch, store.rewind(CACHE, marker(2)), store.raise_epoch(CACHE)]
    assert seen == [1, 2, 3, 3, 4, 5]


def test_a_write_never_goes_back(store: MarkerStore) -> None:
    store.register(CACHE, marker(10), "latest")
    assert store.store([write(9)]) == (CACHE,)
    assert store.store([write(10)]) == ()
    assert store.store([write(11), write(10)]) == (CACHE,)
    assert store.load()[CACHE].marker == marker(11)


def test_a_newer_incarnation_is_ahead_of_any_place_in_an_older_one(store: MarkerStore) -> None:
    store.register(CACHE, marker(10), "latest")
    assert store.store([MarkerWrite(CACHE, 0, marker(1, incarnation=2))]) == ()
    assert store.store([write(99)]) == (CACHE,)


def test_rewind_goes_back_and_refuses_what_was_under_way(store: MarkerStore, reopen: Reopen) -> None:
    store.register(CACHE, marker(10), "latest")
    assert store.rewind(CACHE, marker(3)) == 1
    assert store.store([write(11, epoch=0)]) == (CACHE,)
    assert store.store([write(4, epoch=1)]) == ()
    assert reopen().load()[CACHE].marker == marker(4)


def test_a_forgotten_flow_is_gone_and_may_come_back(store: MarkerStore) -> None:
    store.register(CACHE, marker(10), "latest")
    store.forget(CACHE)
    store.forget(CACHE)
    assert store.load() == {}
    assert store.store([write(11)]) == (CACHE,)
    assert store.register(CACHE, marker(1), "earliest").marker == marker(1)


def test_what_was_asked_of_a_flow_survives_everything_but_forgetting(store: MarkerStore, reopen: Reopen) -> None:
    assert store.register(CACHE, marker(1), "latest").control == FlowControl()
    asked = FlowControl("maria@ops since noon", ("db:7:0", "db:9:1"))
    store.set_control(CACHE, asked)
    store.raise_epoch(CACHE)
    assert store.store([write(5, epoch=1)]) == ()
    store.rewind(CACHE, marker(2))
    store = reopen()
    found = store.load()[CACHE]
    assert (found.control, found.marker, found.epoch) == (asked, marker(2), 2)
    assert store.register(CACHE, marker(9), "latest").control == asked
    store.set_control(CACHE, FlowControl())
    assert reopen().load()[CACHE].control == FlowControl()
    store = reopen()
    store.set_control(CACHE, asked)
    store.forget(CACHE)
    assert store.register(CACHE, marker(1), "latest").control == FlowControl()


REPLAY = ReplayControl(
    "r1",
    "maria@ops",
    "latest",
    1700000000.5,
    30.0,
    "0123",
    ReplayState.REPLAYING,
    marker(1),
    Datamarker(LogPosition(1, 8, 5), "gtid:1-9", LogPosition(1, 7, 2), None, 5),
    'op = "insert"',
    b"\x00\xff",
    3,
    "s1",
    "task",
    marker(2),
)


@pytest.mark.parametrize("replay", [REPLAY, ReplayControl("r2", "", "log", 0.0, 1.0, "")])
def test_the_replay_that_has_a_flow_survives_with_every_part(
    store: MarkerStore, reopen: Reopen, replay: ReplayControl
) -> None:
    store.register(CACHE, marker(1), "latest")
    asked = FlowControl("maria@ops since noon", ("db:7:0",), replay)
    assert store.set_control(CACHE, asked)
    assert store.raise_epoch(CACHE) == 1
    assert store.store([write(5, epoch=1)]) == ()
    assert reopen().load()[CACHE].control == asked


BACKFILL = BackfillControl(
    3,
    "maria@ops",
    1700000000.5,
    ("shop.users", "shop.Straße"),
    'after.city == "Lund"',
    "0123456789abcdef",
    1e6,
    "eve@host1 at noon",
    "cancelled",
    rows=1 << 40,
)


@pytest.mark.parametrize("backfill", [BACKFILL, BackfillControl(1, "start", 0.0)])
def test_the_backfill_of_a_flow_survives_with_every_part(
    store: MarkerStore, reopen: Reopen, backfill: BackfillControl
) -> None:
    asked = FlowControl(backfill=backfill, unlogged=("shop.größe", "shop.t"))
    assert store.register(CACHE, marker(1), "existing", control=asked).control == asked
    assert store.raise_epoch(CACHE) == 1
    reached = replace(marker(5), backfill=b"\x00\xff how far")
    assert store.store([MarkerWrite(CACHE, 1, reached)]) == ()
    found = reopen().load()[CACHE]
    assert (found.control, found.marker, found.marker.backfill) == (asked, reached, reached.backfill)


def test_a_backfill_goes_on_at_one_place_of_the_log(store: MarkerStore) -> None:
    store.register(CACHE, marker(5), "existing")
    for reached in (b"1", b"2"):
        assert store.store([MarkerWrite(CACHE, 0, replace(marker(5), backfill=reached))]) == ()
        assert store.load()[CACHE].marker.backfill == reached


def test_a_flow_that_is_set_back_has_no_backfill_progress(store: MarkerStore) -> None:
    store.register(CACHE, marker(5), "existing", control=FlowControl(backfill=BACKFILL))
    assert store.store([MarkerWrite(CACHE, 0, replace(marker(6), backfill=b"1"))]) == ()
    store.rewind(CACHE, marker(4))
    found = store.load()[CACHE]
    assert (found.marker.backfill, found.control.backfill) == (b"", BACKFILL)


def test_large_markers_of_many_flows_are_stored_in_one_call(store: MarkerStore) -> None:
    """A backfill's progress takes up to 16 KiB; one request to ZooKeeper takes 1 MB."""
    flows = [("cache", f"db1.{number}of100") for number in range(100)]
    store.register_all(dict.fromkeys(flows, StoredFlow(marker(1), 0, "existing")))
    reached = replace(marker(2), backfill=bytes(16 << 10))
    assert store.store([MarkerWrite(flow, 0, reached) for flow in flows]) == ()
    assert {stored.marker for stored in store.load().values()} == {reached}


def test_what_another_client_changed_is_not_replaced(store: MarkerStore, reopen: Reopen) -> None:
    store.register(CACHE, marker(1), "latest")
    here, elsewhere = FlowControl(replay=REPLAY), FlowControl("maria@ops since noon")
    assert store.set_control(CACHE, elsewhere, FlowControl())
    assert not store.set_control(CACHE, here, FlowControl())
    assert reopen().load()[CACHE].control == elsewhere
    store = reopen()
    assert store.set_control(CACHE, here, elsewhere)
    assert store.load()[CACHE].control == here


def test_an_unknown_flow_is_a_key_error(store: MarkerStore) -> None:
    with pytest.raises(KeyError):
        store.set_control(CACHE, FlowControl("maria"))
    with pytest.raises(KeyError):
        store.raise_epoch(CACHE)
    with pytest.raises(KeyError):
        store.rewind(CACHE, marker(1))


def test_many_flows_in_one_call(store: MarkerStore) -> None:
    flows = [("cache", f"db1.{number}of250") for number in range(250)]
    store.register_all(dict.fromkeys(flows, StoredFlow(marker(1), 0, "latest")))
    assert store.store([write(2, flow=flow) for flow in flows]) == ()
    assert {stored.marker for stored in store.load().values()} == {marker(2)}


def test_threads_may_share_a_store(store: MarkerStore) -> None:
    store.register(CACHE, marker(0), "latest")
    epochs: list[int] = []
    threads = [
        threading.Thread(target=lambda: epochs.extend(store.raise_epoch(CACHE) for _ in range(10))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs) == list(range(1, 31))


def test_a_closed_store_refuses(store: MarkerStore) -> None:
    store.close()
    store.close()
    with pytest.raises(MarkerStoreError, match="not open"):
        store.load()


def test_an_epoch_is_raised_above_what_a_subscriber_has_seen(store: MarkerStore, reopen: Reopen) -> None:
    store.register(CACHE, marker(1), "latest")
    assert store.raise_epoch(CACHE, 7) == 8
    assert store.raise_epoch(CACHE, 3) == 9
    assert reopen().load()[CACHE].epoch == 9


def test_a_flow_that_was_set_back_is_known_as_that_until_something_is_stored(
    store: MarkerStore, reopen: Reopen
) -> None:
    store.register(CACHE, marker(10), "latest")
    store.rewind(CACHE, marker(20))
    assert not store.load()[CACHE].rewound
    store.rewind(CACHE, marker(3))
    store.rewind(CACHE, marker(5))  # still before what was acknowledged
    store.raise_epoch(CACHE)
    store = reopen()
    assert store.load()[CACHE].rewound
    assert store.store([write(6, epoch=4)]) == ()
    assert not reopen().load()[CACHE].rewound


def test_a_move_is_stored_with_its_number_until_the_next_one(store: MarkerStore, reopen: Reopen) -> None:
    assert store.register(CACHE, marker(10), "latest").move == 0
    store.raise_epoch(CACHE, 6)
    assert store.rewind(CACHE, marker(20)) == 8
    assert store.rewind(CACHE, marker(15), counts=False) == 9
    store.raise_epoch(CACHE)
    assert store.store([write(30, epoch=10)]) == ()
    assert store.set_control(CACHE, FlowControl(paused="ann"))
    store = reopen()
    stored = store.load()[CACHE]
    assert (stored.marker, stored.epoch, stored.move) == (marker(30), 10, 8)
    assert store.rewind(CACHE, marker(3)) == reopen().load()[CACHE].move == 11
    store = reopen()
    store.forget(CACHE)
    assert store.register(CACHE, marker(1), "latest").move == 0


def test_the_last_acknowledgement_is_stored_until_the_next_one(store: MarkerStore, reopen: Reopen) -> None:
    def stored(place: int) -> LastAck | None:
        store = reopen()
        assert store.store([write(place, epoch=store.raise_epoch(CACHE))]) == ()
        return reopen().load()[CACHE].last_ack

    def moved(place: int, *, counts: bool) -> LastAck | None:
        reopen().rewind(CACHE, marker(place), counts=counts)
        return reopen().load()[CACHE].last_ack

    store.register(CACHE, marker(10), "latest")
    assert stored(10) is None, "nothing was acknowledged"
    first = LastAck(0, marker(20).order)
    assert stored(20) == moved(40, counts=True) == first
    assert stored(40) == first, "the move itself is not acknowledged"
    assert moved(5, counts=False) == first, "the application was set back, and has not what it acknowledged"
    move = reopen().load()[CACHE].move
    second = LastAck(move, marker(6).order)
    assert stored(6) == moved(9, counts=False) == second
    third = LastAck(move, marker(3).order)
    assert moved(3, counts=False) == moved(30, counts=True) == third, "the application itself reported less"


def test_many_epochs_are_raised_together(store: MarkerStore, reopen: Reopen) -> None:
    flows = [("app", f"db1.{number}of250") for number in range(250)]  # more than one transaction takes
    large, small = (StoredFlow(replace(marker(1), backfill=bytes(size)), 0, "latest") for size in (16 << 10, 0))
    store.register_all({flow: large if number < 60 else small for number, flow in enumerate(flows)})
    store.raise_epoch(flows[3])
    missing = ("app", "db1.9999")
    raised = store.raise_epochs({**dict.fromkeys(flows, 0), flows[7]: 41, missing: 0})
    assert raised == {**dict.fromkeys(flows, 1), flows[3]: 2, flows[7]: 42}
    found = reopen().load()
    assert {flow: stored.epoch for flow, stored in found.items()} == raised
    assert all(stored.marker.order == marker(1).order for stored in found.values())


# --- those that are stored ---------------------------------------------------------------------------------------


def damage_row(store: Any) -> None:
    store._connected().execute("UPDATE flows SET marker = x'ff'")


def damage_node(store: Any) -> None:
    store._client.kazoo.set(store._path(CACHE), b'{"marker": "?"}')


@pytest.mark.parametrize(
    ("reopen", "damage"),
    [("local", damage_row), ("zookeeper", damage_node)],
    indirect=["reopen"],
    ids=["local", "zookeeper"],
)
def test_a_damaged_record_is_named_with_its_flow_and_replaced(
    store: MarkerStore, damage: Callable[[MarkerStore], None], caplog: pytest.LogCaptureFixture
) -> None:
    store.register(CACHE, marker(1), "latest")
    damage(store)
    with pytest.raises(MarkerStoreError, match=r"flow cache/db1.*accept-loss"):
        store.raise_epoch(CACHE)
    assert store.load() == {}
    assert "flow cache/db1" in caplog.text
    other = ("cache", "db1.t")
    store.register(other, marker(1), "latest")
    assert store.store([write(2), write(3, flow=other)]) == (CACHE,), "the others are stored"
    anew = store.register(CACHE, marker(5), "latest", epoch=7)
    assert (anew.marker, anew.epoch) == (marker(5), 7)
    assert "holds no valid" in str(anew.control.missing)
    assert store.load("cache")[CACHE] == store.register(CACHE, marker(9), "latest") == anew
