"""Delivery counts against the archive, window by window."""

from __future__ import annotations

import time
from typing import Any

import pytest

from spark_replay.archive.columns import place_bytes
from spark_replay.audit.archived import Archived, AuditPart
from spark_replay.audit.compare import AuditWindow, compare, completed_s, findings, single_hashes
from tests.support.markers import CACHE, marker
from tests.unit.publisher.flows.test_delivery_counter import WINDOW as PRESENT
from tests.unit.publisher.flows.test_delivery_counter import World, body
from wormhole.audit.delivery_counts import KEPT_WINDOWS, DeliveryCounts
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, Tally, total
from wormhole.wire.v1 import admin_pb2

FLOW = "cache/db1"
NOW = 100.0 * WINDOW_S


def held(*hashes: int, unaudited: int = 0, pending: int = 0, partial: int = 0, again: Tally | None = None) -> Archived:
    parts = {AuditPart.COUNTED: Tally(len(hashes), sum(hashes) % 2**64)}
    parts[AuditPart.PARTIAL] = Tally(partial, 1)
    parts[AuditPart.REDELIVERED] = again or Tally()
    parts[AuditPart.UNAUDITED], parts[AuditPart.PENDING] = Tally(unaudited, 1), Tally(pending, 1)
    place = place_bytes(LogPosition(1, 2, 30), False, 0)
    return Archived(parts, place, place)


def counted(*hashes: int, processed: int | None = None, set_aside: int = 0, **more: Any) -> admin_pb2.AuditWindow:
    told = len(hashes) if processed is None else processed
    typed: dict[str, Any] = {"told": True, "delays": [len(hashes)]}
    return admin_pb2.AuditWindow(
        delivered=len(hashes),
        hash=sum(hashes) % 2**64,
        processed=told,
        set_aside=set_aside,
        **(typed | more),
    )


def one(
    archived: Archived, counts: admin_pb2.AuditWindow | None, *, lacks: bool = False, window: int = 7
) -> AuditWindow:
    pages = {} if counts is None else {window: counts}
    (compared,) = compare(FLOW, {window: archived}, pages, (1.0,), lacks=lambda _: lacks, now_s=NOW)
    return compared


UPDATES = {("db1", 7): {2**64 - 5: "s:9:0", 4: "s:4:0", 12: "s:9:1"}}
Found = list[tuple[str, int, str, str, bool]]
"""Kind, updates, the one that is named, where, and whether it is a loss."""


@pytest.mark.parametrize(
    ("window", "is_", "found"),
    [
        (
            one(held(3, 4), counted(3, 4)),
            {"state": "complete", "lost": 0, "unprocessed": 0, "duplicates": 0, "complete_s": 1.0},
            [],
        ),
        # The hash of one missing update is known; of several, only the range is.
        (one(held(3, 4, 2**64 - 5), counted(3, 4)), {}, [("lost", 1, "s:9:0", "", True)]),
        (one(held(3, 4, 5), counted(3)), {}, [("lost", 2, "", "1/2/30 to 1/2/30", True)]),
        # A callback that did not run is a loss also where duplicates hide it.
        (
            one(held(3, 4), counted(3, 4, processed=3, problems=["a to b"], missing=1, missing_first=1)),
            {"unprocessed": 1, "duplicates": 2},
            [("unprocessed", 1, "", "a to b", True)],
        ),
        (
            one(held(3, 4), counted(3, 4, processed=3, repaired=1, repairs=["a to b"])),
            {"unprocessed": 0, "duplicates": 1},
            [("repaired", 1, "", "a to b", False)],
        ),
        (
            one(held(3, 4), counted(3, 4, processed=1, set_aside=1, set_aside_hash=4)),
            {"unprocessed": 0, "duplicates": 0},
            [("set_aside", 1, "s:4:0", "", False)],
        ),
        (one(held(3, 4), counted(3, 4, processed=5)), {"duplicates": 3}, []),
        (one(held(3, 4), counted(3, 5)), {}, [("differs", 2, "", "1/2/30 to 1/2/30", True)]),
        # What the archive lacks is not lost.
        (one(held(3), counted(3, 5)), {}, [("unarchived", 1, "", "1/2/30 to 1/2/30", False)]),
        (one(held(3), counted(3, 5), lacks=True), {"state": "not archived"}, []),
        (one(held(3), counted(3), window=99), {"state": "complete"}, []),
        (one(held(3), counted(3), window=100), {"state": "open"}, []),
        (one(held(3, pending=2), counted(3)), {"state": "open", "pending": 2, "complete_s": None}, []),
        (one(held(unaudited=5), None), {"state": "unaudited", "unaudited": 5, "archived": 0}, []),
        # What was replayed in part is neither lost nor complete.
        (
            one(held(partial=5), counted(processed_partly=2)),
            {"state": "replayed", "replayed": 5, "replayed_processed": 2, "duplicates": 0},
            [],
        ),
        (
            one(held(3, 4, partial=5), counted(3)),
            {"state": "complete", "replayed": 5, "lost": 1},
            [("lost", 1, "s:4:0", "", True)],
        ),
        # Two updates of the first delivery lack, and a replay brought them after all: 4 and 5, or 3 and 6.
        (one(held(again=Tally(4, 18)), counted(4, 5, processed=6)), {}, []),
        (one(held(9, again=Tally(3, 12)), counted(4, 5)), {}, [("lost", 1, "s:9:1", "", True)]),
        (
            one(held(again=Tally(2, 9)), counted(4, 5, processed=4)),
            {"state": "complete", "archived": 2, "duplicates": 2},
            [],
        ),
        (one(held(3), counted(3, told=False)), {"processed": None, "duplicates": None, "unprocessed": 0}, []),
    ],
)
def test_what_a_window_comes_to(window: AuditWindow, is_: dict[str, Any], found: Found) -> None:
    assert {name: getattr(window, name) for name in is_} == is_
    named = findings([window], UPDATES)
    assert [(one.kind, one.updates, one.update, one.where, one.is_loss) for one in named] == found
    assert bool(single_hashes([window])) == any(update for _, _, update, *_ in found)


@pytest.mark.parametrize(
    ("more", "duplicates"),
    [
        ({}, 3),
        ({"ahead": 2}, 1),
        ({"ahead": 9}, 0),
        ({"unheard": 4}, 3),
        ({"missing": 2, "missing_first": 1}, 4),
        ({"told": False}, None),
    ],
)
def test_duplicates_are_those_that_certainly_happened(more: dict[str, Any], duplicates: int | None) -> None:
    assert one(held(3, 4), counted(3, 4, processed=5, **more)).duplicates == duplicates


def test_what_is_older_than_the_counts_is_unaudited() -> None:
    late = NOW + KEPT_WINDOWS * WINDOW_S
    archived = {7: held(3, 4)}
    for pages in ({}, {7: counted(3)}):
        (window,) = compare(FLOW, archived, pages, (1.0,), lacks=lambda _: False, now_s=late)
        assert (window.state, window.unaudited, window.archived, findings([window], {})) == ("unaudited", 2, 0, [])


@pytest.mark.parametrize(
    ("delays", "updates", "expected"),
    [
        ([999, 1, 0], 1000, 1.0),
        ([998, 2, 0], 1000, 5.0),
        ([0, 0, 9], 9, float("inf")),
        ([5, 0, 0], 9, None),
        ([], 0, None),
    ],
)
def test_a_window_is_complete_when_all_but_a_thousandth_is(
    delays: list[int], updates: int, expected: float | None
) -> None:
    assert completed_s(delays, (1.0, 5.0), updates) == expected


@pytest.mark.parametrize("planted", ["nothing", "dropped", "counted twice", "page forgotten", "callback lost"])
async def test_what_is_planted_between_log_and_callback_is_named(planted: str) -> None:
    """From what was sent to the findings, with the real counts; the archive has what the log had."""
    world = World()
    await world.assign()
    whole = body(0, 3)
    sent = body(1, 2) if planted == "dropped" else whole
    world.flow.delivery.sent_counts.sent(sent)
    if planted == "counted twice":
        world.flow.delivery.sent_counts.sent(whole)
    world.flow.delivery.sent_counts.offered(marker(3))
    done = total(sent.tallies).updates * (2 if planted == "counted twice" else 1)
    world.ack(3, done - 1 if planted == "callback lost" else done)
    if planted == "page forgotten":
        stored = world.store.delivery_counts([CACHE])[CACHE]
        pages = {name: page for name, page in stored.items() if not name.endswith(f".{PRESENT}")}
        reply = admin_pb2.AuditReply()
        assert not DeliveryCounts(pages).unreadable
    else:
        reply = world.counter.report(admin_pb2.AuditRequest(), [world.flow])
    archived = Archived({AuditPart.COUNTED: whole.tallies[PRESENT]})
    counts = {one.window: one for one in reply.windows}
    windows = compare(FLOW, {PRESENT: archived}, counts, (1.0,), lacks=lambda _: False, now_s=time.time())
    named = [(one.kind, one.updates) for one in findings(windows, {})]
    assert (
        named
        == {
            "nothing": [],
            "dropped": [("lost", 2)],
            "counted twice": [("unarchived", 6)],
            "page forgotten": [("lost", 6)],
            "callback lost": [("unprocessed", 1)],
        }[planted]
    )
