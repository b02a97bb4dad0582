"""The plan of a fleet, over the map of its log."""

from __future__ import annotations

import pytest

from caravan.log_map import LogMap
from caravan.plan import (
    NEAR_BYTES,
    SOON_BYTES,
    Action,
    Board,
    CaravanView,
    Close,
    FlowView,
    SendBack,
    Start,
    lead,
    plan,
)
from wormhole.model.position import LogPosition

# --- Each preference of the plan by one example. ``tests/property/test_plan.py`` has what holds for all


FAR = 10 * NEAR_BYTES
DISTANT = 10 * SOON_BYTES


def at(offset: int, file: int = 1, incarnation: int = 1) -> LogPosition:
    return LogPosition(incarnation, file, offset)


def caravan(number: int, place: int, *, holds: int = 0, flows: int = 1) -> CaravanView:
    return CaravanView(number, at(place - holds), at(place), flows)


def flow(name: str, place: int, *, aboard: int | None = None, held: set[int] | None = None) -> FlowView:
    return FlowView(name, at(place), aboard, frozenset(held or ()))


def starts(actions: list[Action]) -> list[str]:
    return [action.flow for action in actions if isinstance(action, Start)]


def test_the_lead_is_furthest_ahead_and_the_oldest_among_equals() -> None:
    caravans = [caravan(3, 5), caravan(1, 5), caravan(2, 4)]
    assert lead(caravans) == caravans[1]
    assert lead([]) is None


NEAREST = "the nearest behind it, no other may be started"
AHEAD = "further ahead than every caravan"
LATE, BACK = "behind every caravan, no other may be started", "sent on: no other flow needs what lies before its place"
OTHER_FILE = [CaravanView(1, at(5), at(5), 1)]
BUSY = [CaravanView(1, at(9 * FAR), at(9 * FAR), 1, settled=False)]
TO_BE_DROPPED = FlowView("f", at(8 * FAR + 5), 2, frozenset({1, 2}), frozenset({2}))
BOTH = [flow("f", 6 * FAR, aboard=2), flow("g", FAR, aboard=2, held={2})]

CASES: dict[str, tuple[list[CaravanView], list[FlowView], int, list[Action]]] = {
    "without flows and caravans there is nothing to do": ([], [], 4, []),
    "the lead stays without flows": ([caravan(1, 5, flows=0)], [], 4, []),
    "the lead is preferred where it holds the place": (
        [caravan(1, 2 * FAR, holds=2 * FAR), caravan(2, FAR, holds=FAR, flows=1)],
        [flow("f", 5, held={1, 2}), flow("g", FAR, aboard=2, held={2})],
        4,
        [Board("f", 1, "within the lead's change buffer")],
    ),
    "else a caravan whose buffer holds it": (
        [caravan(1, 3 * FAR), caravan(2, 2 * FAR, holds=2 * FAR), caravan(3, FAR, holds=FAR)],
        [flow("f", 5, held={2, 3})],
        4,
        [Board("f", 2, "within a change buffer")],
    ),
    "else one shortly behind, which it skips on with": (
        [caravan(1, 3 * FAR), caravan(2, FAR)],
        [flow("f", FAR + NEAR_BYTES)],
        4,
        [Board("f", 2, "shortly before its place")],
    ),
    "else it starts one": (
        [caravan(1, 3 * FAR), caravan(2, FAR)],
        [flow("f", FAR + NEAR_BYTES + 1), flow("g", FAR, aboard=2, held={2})],
        4,
        [Start("f", "shortly behind the lead")],
    ),
    "offsets of another file say nothing about the distance": (
        OTHER_FILE,
        [FlowView("f", at(6, file=2), None, frozenset())],
        4,
        [Start("f", AHEAD)],
    ),
    "a caravan of another incarnation is not behind": (
        OTHER_FILE,
        [FlowView("f", at(5, 1, 2), None, frozenset())],
        4,
        [Start("f", AHEAD)],
    ),
    "beside one that starts ahead of all, one behind gets its own": (
        [caravan(1, 5 * FAR), caravan(2, 4 * FAR)],
        [flow("front", 20 * FAR), flow("back", FAR), flow("g", 4 * FAR, aboard=2, held={2})],
        4,
        [Start("front", AHEAD), Start("back", "shortly behind the lead")],
    ),
    "at the maximum, the nearest behind it": (
        [caravan(1, 9 * FAR), caravan(2, 2 * FAR), caravan(3, FAR)],
        [flow("f", 5 * FAR), flow("g", FAR, aboard=3, held={3})],
        3,
        [Board("f", 2, NEAREST)],
    ),
    "at the maximum, with none behind it the rearmost goes back": (
        [caravan(1, 9 * FAR), caravan(2, 2 * FAR)],
        [flow("f", FAR)],
        2,
        [SendBack("f", 2, LATE)],
    ),
    "flows close together start one caravan at the rearmost": (
        [],
        [flow("a", FAR), flow("b", FAR + 7), flow("c", FAR)],
        4,
        [Start("a", AHEAD)],
    ),
    "one is kept for who is shortly behind the lead": (
        [caravan(1, DISTANT), caravan(2, FAR)],
        [flow("far", 9 * FAR)],
        3,
        [Board("far", 2, NEAREST)],
    ),
    "who is shortly behind the lead gets the one that is kept": (
        [caravan(1, DISTANT), caravan(2, FAR)],
        [flow("far", 9 * FAR), flow("soon", DISTANT - 2 * FAR)],
        3,
        [Start("soon", "shortly behind the lead"), Board("far", 2, NEAREST)],
    ),
    "none is kept where one is on its way": (
        [caravan(1, DISTANT), caravan(2, FAR, flows=1), caravan(3, DISTANT - FAR)],
        [flow("far", 9 * FAR), flow("g", FAR, aboard=2, held={2}), flow("h", DISTANT - FAR, aboard=3, held={3})],
        4,
        [Start("far", "no caravan near its place")],
    ),
    "who is ahead of all gets the one that is kept": (
        [caravan(1, 5 * FAR), caravan(2, FAR)],
        [flow("live", DISTANT), flow("g", FAR, aboard=2, held={2})],
        3,
        [Start("live", AHEAD)],
    ),
    "only the one furthest behind sends a caravan back": (
        [caravan(1, 9 * FAR)],
        [flow(str(i), i * FAR) for i in range(5)],
        1,
        [SendBack("0", 1, LATE)],
    ),
    "a caravan that did not serve its own yet is not sent back": (
        BUSY,
        [flow("late", FAR), flow("b", 9 * FAR, aboard=1, held={1})],
        1,
        [],
    ),
    "who caught up moves to the lead, and an empty caravan is closed": (
        [caravan(1, 9 * FAR, holds=FAR), caravan(2, 9 * FAR - 5)],
        [flow("f", 9 * FAR - 5, aboard=2, held={1, 2})],
        4,
        [Board("f", 1, "caught up with the lead"), Close(2, "merged into caravan 1")],
    ),
    "caravans that meet merge into the one ahead": (
        [caravan(1, 99 * FAR), caravan(2, 9 * FAR, holds=FAR), caravan(3, 9 * FAR - 5)],
        [flow("f", 9 * FAR - 5, aboard=3, held={2, 3}), flow("g", 9 * FAR, aboard=2, held={2})],
        4,
        [Board("f", 2, "caravan 3 met it"), Close(3, "merged into caravan 2")],
    ),
    "two at one place merge into the older": (
        [caravan(1, 99 * FAR), caravan(2, FAR, holds=5), caravan(3, FAR, holds=5)],
        [flow("f", FAR, aboard=3, held={2, 3}), flow("g", FAR, aboard=2, held={2, 3})],
        4,
        [Board("f", 2, "caravan 3 met it"), Close(3, "merged into caravan 2")],
    ),
    "a place that the lead is about to drop is not moved to": (
        [caravan(1, 9 * FAR, holds=FAR), caravan(2, 8 * FAR + 5)],
        [TO_BE_DROPPED],
        4,
        [],
    ),
    "a flow moves to a caravan that is nearer behind it": (
        [caravan(1, 9 * FAR), caravan(2, FAR, flows=2), caravan(3, 4 * FAR)],
        [flow("f", 6 * FAR, aboard=2), flow("g", FAR, aboard=2, held={2}), flow("h", 4 * FAR, aboard=3, held={3})],
        3,
        [Board("f", 3, "nearer to its place than caravan 2")],
    ),
    "a flow far ahead of its caravan is split off when there is room": (
        [caravan(1, DISTANT), caravan(2, FAR, flows=2)],
        BOTH,
        4,
        [Start("f", "split off: its place is far ahead of caravan 2")],
    ),
    "for a split the last is kept": ([caravan(1, DISTANT), caravan(2, FAR, flows=2)], BOTH, 3, []),
    "a split needs room": ([caravan(1, DISTANT), caravan(2, FAR, flows=2)], BOTH, 2, []),
    "a caravan whose only flow is far ahead goes there": (
        [caravan(1, 9 * FAR), caravan(2, FAR)],
        [flow("f", 6 * FAR, aboard=2)],
        2,
        [SendBack("f", 2, BACK)],
    ),
    "a caravan without flows makes room for another": (
        [caravan(1, 9 * FAR), caravan(2, 5 * FAR, flows=0)],
        [flow("f", FAR)],
        2,
        [Close(2, "no flow travels with it"), Start("f", "no caravan near its place")],
    ),
    "an empty caravan that gets a flow stays": (
        [caravan(1, 9 * FAR), caravan(2, FAR, holds=5, flows=0)],
        [flow("f", FAR, held={2})],
        4,
        [Board("f", 2, "within a change buffer")],
    ),
    "a lead without flows keeps its place for who is live": (
        [caravan(1, 9 * FAR, flows=0), caravan(2, 5 * FAR)],
        [flow("f", 7 * FAR)],
        2,
        [Board("f", 2, NEAREST)],
    ),
    "who is live joins a lead without flows": (
        [caravan(1, 9 * FAR, flows=0), caravan(2, 5 * FAR, flows=1)],
        [flow("f", 9 * FAR + 5), flow("g", 5 * FAR, aboard=2, held={2})],
        2,
        [Board("f", 1, "shortly before its place")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_done_with(name: str) -> None:
    caravans, flows, most, actions = CASES[name]
    assert plan(caravans, flows, most) == actions


@pytest.mark.parametrize(("most", "started"), [(4, "50"), (12, "9876543210"), (2, "0")])
def test_of_more_places_than_caravans_those_start_that_save_the_most_waiting(most: int, started: str) -> None:
    """One is kept for who is shortly behind the lead."""
    assert starts(plan([caravan(1, DISTANT)], [flow(str(i), i * FAR) for i in range(10)], most)) == [*started]


def test_thousands_of_places_are_planned_with_a_bounded_number_of_candidates() -> None:
    flows = [flow(f"{i:05}", i * 2 * NEAR_BYTES) for i in range(5000)]
    chosen = starts(plan([caravan(1, 1 << 40)], flows, 6))
    assert (len(chosen), chosen[-1]) == (4, "00000")


# --- Distances in a log


def in_file(file: int, offset: int, incarnation: int = 1) -> LogPosition:
    return LogPosition(incarnation, file, offset)


FILES = LogMap([(3, 100), (5, 50), (9, 10)])


@pytest.mark.parametrize(
    ("start", "end", "bytes_"),
    [
        (in_file(3, 10), in_file(3, 30), 20),
        (in_file(3, 10), in_file(5, 5), 95),
        (in_file(3, 0), in_file(9, 10), 160),
        (in_file(9, 10), in_file(3, 0), -160),
        (in_file(7, 1), in_file(7, 5), 4),
        (in_file(4, 0), in_file(9, 0), None),
        (in_file(3, 0), in_file(10, 0), None),
        (in_file(3, 0), in_file(3, 0, incarnation=2), None),
    ],
)
def test_between(start: LogPosition, end: LogPosition, bytes_: int | None) -> None:
    assert FILES.between(start, end) == bytes_


def test_without_files_only_within_one() -> None:
    assert LogMap().between(in_file(1, 2), in_file(1, 5)) == 3
    assert LogMap().between(in_file(1, 2), in_file(2, 5)) is None
    assert LogMap().between(in_file(2, 2), in_file(1, 5)) is None
