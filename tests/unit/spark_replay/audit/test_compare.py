"""Books against the archive, window by window."""

from __future__ import annotations

import time
from typing import Any

import pytest

from spark_replay.archive.columns import place_bytes
from spark_replay.audit.archived import Archived, Part
from spark_replay.audit.compare import Window, compare, completed_s, found, looked_for
from tests.support.markers import CACHE, marker
from tests.unit.publisher.flows.test_books import WINDOW as PRESENT
from tests.unit.publisher.flows.test_books import World, body
from wormhole.audit.books import KEPT_WINDOWS, Books
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, Tally, total
from wormhole.wire.v1 import admin_pb2

FLOW = "cache/db1"
NOW = 100.0 * WINDOW_S


def held(*hashes: int, unaudited: int = 0, ahead: int = 0, partly: int = 0, again: Tally | None = None) -> Archived:
    parts = {Part.BOOKED: Tally(len(hashes), sum(hashes) % 2**64)}
    parts[Part.PARTLY] = Tally(partly, 1)
    parts[Part.AGAIN] = again or Tally()
    parts[Part.UNAUDITED], parts[Part.AHEAD] = Tally(unaudited, 1), Tally(ahead, 1)
    place = place_bytes(LogPosition(1, 2, 30), False, 0)
    return Archived(parts, place, place)


def booked(*hashes: int, processed: int | None = None, set_aside: int = 0, **more: Any) -> admin_pb2.AuditWindow:
    told = len(hashes) if processed is None else processed
    typed: dict[str, Any] = {"told": True, "delays": [len(hashes)]}
    return admin_pb2.AuditWindow(
        delivered=len(hashes),
        hash=sum(hashes) % 2**64,
        processed=told,
        set_aside=set_aside,
        **(typed | more),
    )


def one(archived: Archived, books: admin_pb2.AuditWindow | None, *, lacks: bool = False, window: int = 7) -> Window:
    pages = {} if books is None else {window: books}
    (compared,) = compare(FLOW, {window: archived}, pages, (1.0,), lacks=lambda _: lacks, now_s=NOW)
    return compared


def test_all_is_well_where_both_say_the_same() -> None:
    window = one(held(3, 4), booked(3, 4))
    assert (window.state, window.lost, window.unprocessed, window.duplicates, window.complete_s) == (
        "complete",
        0,
        0,
        0,
        1.0,
    )
    assert found([window], {}) == []


def test_one_that_was_never_delivered_is_named_by_the_hash_that_lacks() -> None:
    window = one(held(3, 4, 2**64 - 5), booked(3, 4))
    assert looked_for([window]) == {("db1", 7): frozenset({2**64 - 5})}
    (finding,) = found([window], {("db1", 7): {2**64 - 5: "s:9:0"}})
    assert (finding.kind, finding.updates, finding.update, finding.where, finding.is_loss) == (
        "lost",
        1,
        "s:9:0",
        "",
        True,
    )


def test_of_several_the_range_is_told() -> None:
    window = one(held(3, 4, 5), booked(3))
    assert looked_for([window]) == {}
    (finding,) = found([window], {})
    assert (finding.kind, finding.updates, finding.where) == ("lost", 2, "1/2/30 to 1/2/30")


def test_a_callback_that_did_not_run_is_a_loss_also_where_duplicates_hide_it() -> None:
    lacks = one(held(3, 4), booked(3, 4, processed=3, problems=["a to b"], missing=1, missing_first=1))
    (finding,) = found([lacks], {})
    assert (finding.kind, finding.updates, finding.where, finding.is_loss) == ("unprocessed", 1, "a to b", True)
    assert (lacks.unprocessed, lacks.duplicates, lacks.possible) == (1, 2, 0)


def test_what_a_replay_delivered_again_is_told_as_repaired_and_is_no_loss() -> None:
    window = one(held(3, 4), booked(3, 4, processed=3, repaired=1, repairs=["a to b"]))
    (finding,) = found([window], {})
    assert (finding.kind, finding.updates, finding.where, finding.is_loss) == ("repaired", 1, "a to b", False)
    assert (window.unprocessed, window.duplicates, window.possible) == (0, 1, 0)


@pytest.mark.parametrize(
    ("more", "least", "possible"),
    [
        ({}, 3, 0),
        ({"ahead": 2}, 1, 2),
        ({"ahead": 9}, 0, 3),
        ({"unheard": 4}, 3, 4),
        ({"missing": 2, "missing_first": 1}, 4, 1),
        ({"told": False}, None, 0),
    ],
)
def test_duplicates_are_what_is_proven_and_beside_what_is_possible(
    more: dict[str, Any], least: int | None, possible: int
) -> None:
    window = one(held(3, 4), booked(3, 4, processed=5, **more))
    assert (window.duplicates, window.possible) == (least, possible)


def test_what_died_with_its_publisher_may_have_done_all_that_lies_there() -> None:
    archived = held(3, 4)
    archived.parts[Part.UNHEARD] = Tally(2, 7)
    window = one(archived, booked(3, 4, processed=3))
    assert (window.duplicates, window.possible, window.archived) == (1, 2, 2)


def test_what_was_set_aside_is_no_loss_and_no_duplicate() -> None:
    window = one(held(3, 4), booked(3, 4, processed=1, set_aside=1, set_aside_hash=4))
    assert (window.unprocessed, window.duplicates) == (0, 0)
    (finding,) = found([window], {("db1", 7): {4: "s:4:0"}})
    assert (finding.kind, finding.update, finding.is_loss) == ("set_aside", "s:4:0", False)


def test_repeats_are_duplicates() -> None:
    window = one(held(3, 4), booked(3, 4, processed=5))
    assert (window.duplicates, found([window], {})) == (3, [])


def test_as_many_but_other_ones_differ() -> None:
    (finding,) = found([one(held(3, 4), booked(3, 5))], {})
    assert (finding.kind, finding.updates, finding.is_loss) == ("differs", 2, True)


def test_what_the_archive_lacks_is_not_lost() -> None:
    (finding,) = found([one(held(3), booked(3, 5))], {})
    assert (finding.kind, finding.updates, finding.is_loss) == ("unarchived", 1, False)
    behind = one(held(3), booked(3, 5), lacks=True)
    assert (behind.state, found([behind], {})) == ("not archived", [])


def test_a_window_that_is_not_over_or_not_acknowledged_is_open() -> None:
    assert one(held(3), booked(3), window=99).state == "complete"
    assert one(held(3), booked(3), window=100).state == "open"
    pending = one(held(3, ahead=2), booked(3))
    assert (pending.state, pending.pending, pending.complete_s, found([pending], {})) == ("open", 2, None, [])


def test_what_was_before_the_books_is_unaudited() -> None:
    window = one(held(unaudited=5), None)
    assert (window.state, window.unaudited, window.archived, found([window], {})) == ("unaudited", 5, 0, [])


def test_what_was_replayed_in_part_is_neither_lost_nor_complete() -> None:
    window = one(held(partly=5), booked(processed_partly=2))
    assert (window.state, window.replayed, window.replayed_processed, window.duplicates) == ("replayed", 5, 2, 0)
    assert found([window], {}) == []
    mixed = one(held(3, 4, partly=5), booked(3))
    assert (mixed.state, mixed.replayed, mixed.lost) == ("complete", 5, 1)


def test_what_a_replay_brought_after_all_is_not_lost() -> None:
    """Of the first time two lack: 4 and 5, or 3 and 6."""
    assert found([one(held(again=Tally(4, 18)), booked(4, 5, processed=6))], {}) == []
    (finding,) = found([one(held(9, again=Tally(3, 12)), booked(4, 5))], {})
    assert (finding.kind, finding.updates) == ("lost", 1), "at most what was not delivered again"
    whole = one(held(again=Tally(2, 9)), booked(4, 5, processed=4))
    assert (whole.state, whole.archived, whole.duplicates, found([whole], {})) == ("complete", 2, 2, [])


def test_what_is_older_than_the_books_keep_it_is_unaudited() -> None:
    late = NOW + KEPT_WINDOWS * WINDOW_S
    archived = {7: held(3, 4)}
    for books in ({}, {7: booked(3)}):
        (window,) = compare(FLOW, archived, books, (1.0,), lacks=lambda _: False, now_s=late)
        assert (window.state, window.unaudited, window.archived, found([window], {})) == ("unaudited", 2, 0, [])


def test_nobody_knows_what_a_subscriber_processed_that_does_not_tell() -> None:
    window = one(held(3), booked(3, told=False))
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
    """From what was sent to the findings, with the real ledger and books; the archive has what the log had."""
    world = World()
    ledger = await world.assign()
    whole = body(0, 3)
    sent = body(1, 2) if planted == "dropped" else whole
    ledger.sent(sent)
    if planted == "counted twice":
        ledger.sent(whole)
    ledger.offered(marker(3))
    done = total(sent.tallies).updates * (2 if planted == "counted twice" else 1)
    world.ack(3, done - 1 if planted == "callback lost" else done)
    if planted == "page forgotten":
        pages = {name: page for name, page in world.store.books(CACHE).items() if not name.endswith(f".{PRESENT}")}
        reply = admin_pb2.AuditReply()
        assert not Books(pages).unreadable
    else:
        reply = world.keeper.report(admin_pb2.AuditRequest(), [world.flow])
    archived = Archived({Part.BOOKED: whole.tallies[PRESENT]})
    books = {one.window: one for one in reply.windows}
    windows = compare(FLOW, {PRESENT: archived}, books, (1.0,), lacks=lambda _: False, now_s=time.time())
    findings = [(one.kind, one.updates) for one in found(windows, {})]
    assert (
        findings
        == {
            "nothing": [],
            "dropped": [("lost", 2)],
            "counted twice": [("unarchived", 6)],
            "page forgotten": [("lost", 6)],
            "callback lost": [("unprocessed", 1)],
        }[planted]
    )
