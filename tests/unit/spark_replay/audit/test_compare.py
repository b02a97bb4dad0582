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


def test_all_is_well_where_both_say_the_same() -> None:
    window = one(held(3, 4), counted(3, 4))
    assert (window.state, window.lost, window.unprocessed, window.duplicates, window.complete_s) == (
        "complete",
        0,
        0,
        0,
        1.0,
    )
    assert findings([window], {}) == []


def test_one_that_was_never_delivered_is_named_by_the_hash_that_lacks() -> None:
    window = one(held(3, 4, 2**64 - 5), counted(3, 4))
    assert single_hashes([window]) == {("db1", 7): frozenset({2**64 - 5})}
    (finding,) = findings([window], {("db1", 7): {2**64 - 5: "s:9:0"}})
    assert (finding.kind, finding.updates, finding.update, finding.where, finding.is_loss) == (
        "lost",
        1,
        "s:9:0",
        "",
        True,
    )


def test_of_several_the_range_is_reported() -> None:
    window = one(held(3, 4, 5), counted(3))
    assert single_hashes([window]) == {}
    (finding,) = findings([window], {})
    assert (finding.kind, finding.updates, finding.where) == ("lost", 2, "1/2/30 to 1/2/30")


def test_a_callback_that_did_not_run_is_a_loss_also_where_duplicates_hide_it() -> None:
    lacks = one(held(3, 4), counted(3, 4, processed=3, problems=["a to b"], missing=1, missing_first=1))
    (finding,) = findings([lacks], {})
    assert (finding.kind, finding.updates, finding.where, finding.is_loss) == ("unprocessed", 1, "a to b", True)
    assert (lacks.unprocessed, lacks.duplicates) == (1, 2)


def test_what_a_replay_delivered_again_is_repaired_and_no_loss() -> None:
    window = one(held(3, 4), counted(3, 4, processed=3, repaired=1, repairs=["a to b"]))
    (finding,) = findings([window], {})
    assert (finding.kind, finding.updates, finding.where, finding.is_loss) == ("repaired", 1, "a to b", False)
    assert (window.unprocessed, window.duplicates) == (0, 1)


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


def test_what_was_set_aside_is_no_loss_and_no_duplicate() -> None:
    window = one(held(3, 4), counted(3, 4, processed=1, set_aside=1, set_aside_hash=4))
    assert (window.unprocessed, window.duplicates) == (0, 0)
    (finding,) = findings([window], {("db1", 7): {4: "s:4:0"}})
    assert (finding.kind, finding.update, finding.is_loss) == ("set_aside", "s:4:0", False)


def test_repeats_are_duplicates() -> None:
    window = one(held(3, 4), counted(3, 4, processed=5))
    assert (window.duplicates, findings([window], {})) == (3, [])


def test_as_many_but_other_ones_differ() -> None:
    (finding,) = findings([one(held(3, 4), counted(3, 5))], {})
    assert (finding.kind, finding.updates, finding.is_loss) == ("differs", 2, True)


def test_what_the_archive_lacks_is_not_lost() -> None:
    (finding,) = findings([one(held(3), counted(3, 5))], {})
    assert (finding.kind, finding.updates, finding.is_loss) == ("unarchived", 1, False)
    behind = one(held(3), counted(3, 5), lacks=True)
    assert (behind.state, findings([behind], {})) == ("not archived", [])


def test_a_window_that_is_not_over_or_not_acknowledged_is_open() -> None:
    assert one(held(3), counted(3), window=99).state == "complete"
    assert one(held(3), counted(3), window=100).state == "open"
    pending = one(held(3, pending=2), counted(3))
    assert (pending.state, pending.pending, pending.complete_s, findings([pending], {})) == ("open", 2, None, [])


def test_what_was_before_the_counts_is_unaudited() -> None:
    window = one(held(unaudited=5), None)
    assert (window.state, window.unaudited, window.archived, findings([window], {})) == ("unaudited", 5, 0, [])


def test_what_was_replayed_in_part_is_neither_lost_nor_complete() -> None:
    window = one(held(partial=5), counted(processed_partly=2))
    assert (window.state, window.replayed, window.replayed_processed, window.duplicates) == ("replayed", 5, 2, 0)
    assert findings([window], {}) == []
    mixed = one(held(3, 4, partial=5), counted(3))
    assert (mixed.state, mixed.replayed, mixed.lost) == ("complete", 5, 1)


def test_what_a_replay_brought_after_all_is_not_lost() -> None:
    """Two updates of the first delivery lack: 4 and 5, or 3 and 6."""
    assert findings([one(held(again=Tally(4, 18)), counted(4, 5, processed=6))], {}) == []
    (finding,) = findings([one(held(9, again=Tally(3, 12)), counted(4, 5))], {})
    assert (finding.kind, finding.updates) == ("lost", 1), "at most what was not delivered again"
    whole = one(held(again=Tally(2, 9)), counted(4, 5, processed=4))
    assert (whole.state, whole.archived, whole.duplicates, findings([whole], {})) == ("complete", 2, 2, [])


def test_what_is_older_than_the_counts_is_unaudited() -> None:
    late = NOW + KEPT_WINDOWS * WINDOW_S
    archived = {7: held(3, 4)}
    for pages in ({}, {7: counted(3)}):
        (window,) = compare(FLOW, archived, pages, (1.0,), lacks=lambda _: False, now_s=late)
        assert (window.state, window.unaudited, window.archived, findings([window], {})) == ("unaudited", 2, 0, [])


def test_of_a_subscriber_that_reports_nothing_nothing_is_known() -> None:
    window = one(held(3), counted(3, told=False))
    assert (window.processed, window.duplicates, window.unprocessed) == (None, None, 0)


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
    world.flow.sent_counts.sent(sent)
    if planted == "counted twice":
        world.flow.sent_counts.sent(whole)
    world.flow.sent_counts.offered(marker(3))
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
