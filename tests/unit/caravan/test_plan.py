"""Each preference of the plan by one example. ``tests/property/test_plan.py`` has what holds for all."""

from __future__ import annotations

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


def test_without_flows_and_caravans_there_is_nothing_to_do() -> None:
    assert plan([], [], 4) == []
    assert lead([]) is None


def test_the_lead_is_furthest_ahead_and_the_oldest_among_equals() -> None:
    caravans = [caravan(3, 5), caravan(1, 5), caravan(2, 4)]
    assert lead(caravans) == caravans[1]


def test_the_lead_is_preferred_where_it_holds_the_place() -> None:
    caravans = [caravan(1, 2 * FAR, holds=2 * FAR), caravan(2, FAR, holds=FAR)]
    assert plan(caravans, [flow("f", 5, held={1, 2})], 4)[0] == Board("f", 1, "within the lead's change buffer")


def test_else_a_caravan_whose_buffer_holds_it() -> None:
    caravans = [caravan(1, 3 * FAR), caravan(2, 2 * FAR, holds=2 * FAR), caravan(3, FAR, holds=FAR)]
    assert plan(caravans, [flow("f", 5, held={2, 3})], 4) == [Board("f", 2, "within a change buffer")]


def test_else_one_shortly_behind_which_it_skips_on_with() -> None:
    caravans = [caravan(1, 3 * FAR), caravan(2, FAR)]
    assert plan(caravans, [flow("f", FAR + NEAR_BYTES)], 4) == [Board("f", 2, "shortly before its place")]
    assert isinstance(plan(caravans, [flow("f", FAR + NEAR_BYTES + 1)], 4)[0], Start)


def test_offsets_of_another_file_say_nothing_about_the_distance() -> None:
    caravans = [CaravanView(1, at(5, file=1), at(5, file=1), 1)]
    assert plan(caravans, [FlowView("f", at(6, file=2), None, frozenset())], 4) == [
        Start("f", "further ahead than every caravan")
    ]


def test_at_the_maximum_the_nearest_behind_it() -> None:
    caravans = [caravan(1, 9 * FAR), caravan(2, 2 * FAR), caravan(3, FAR)]
    assert plan(caravans, [flow("f", 5 * FAR)], 3) == [Board("f", 2, "the nearest behind it, no other may be started")]


def test_at_the_maximum_with_none_behind_it_the_rearmost_goes_back() -> None:
    caravans = [caravan(1, 9 * FAR), caravan(2, 2 * FAR)]
    assert plan(caravans, [flow("f", FAR)], 2) == [SendBack("f", 2, "behind every caravan, no other may be started")]


def test_a_caravan_of_another_incarnation_is_not_behind() -> None:
    caravans = [CaravanView(1, at(5), at(5), 1)]
    assert isinstance(plan(caravans, [FlowView("f", at(5, 1, 2), None, frozenset())], 4)[0], Start)


def test_flows_close_together_start_one_caravan_at_the_rearmost() -> None:
    assert plan([], [flow("a", FAR), flow("b", FAR + 7), flow("c", FAR)], 4) == [
        Start("a", "further ahead than every caravan")
    ]


def test_of_more_places_than_caravans_those_start_that_save_the_most_waiting() -> None:
    flows = [flow(str(i), i * FAR) for i in range(10)]
    end = [caravan(1, DISTANT)]
    assert starts(plan(end, flows, 4)) == ["5", "0"], "one is kept for who is shortly behind the lead"
    assert starts(plan(end, flows, 12)) == [str(i) for i in range(9, -1, -1)]
    assert starts(plan(end, flows, 2)) == ["0"]


def test_who_is_shortly_behind_the_lead_gets_the_one_that_is_kept() -> None:
    caravans = [caravan(1, DISTANT), caravan(2, FAR)]
    far = flow("far", 9 * FAR)
    soon = flow("soon", DISTANT - 2 * FAR)
    nearest = "the nearest behind it, no other may be started"
    assert plan(caravans, [far], 3) == [Board("far", 2, nearest)]
    assert plan(caravans, [far, soon], 3) == [Start("soon", "shortly behind the lead"), Board("far", 2, nearest)]
    on_its_way = [*caravans, caravan(3, DISTANT - FAR)]
    assert plan(on_its_way, [far], 4) == [Start("far", "no caravan near its place")]


def test_who_is_ahead_of_all_gets_the_one_that_is_kept() -> None:
    caravans = [caravan(1, 5 * FAR), caravan(2, FAR)]
    assert plan(caravans, [flow("live", DISTANT)], 3) == [Start("live", "further ahead than every caravan")]


def test_only_the_one_furthest_behind_sends_a_caravan_back() -> None:
    flows = [flow(str(i), i * FAR) for i in range(5)]
    assert plan([caravan(1, 9 * FAR)], flows, 1) == [SendBack("0", 1, "behind every caravan, no other may be started")]


def test_a_caravan_that_did_not_serve_its_own_yet_is_not_sent_back() -> None:
    busy = CaravanView(1, at(9 * FAR), at(9 * FAR), 1, settled=False)
    assert plan([busy], [flow("late", FAR), flow("b", 9 * FAR, aboard=1, held={1})], 1) == []


def test_who_caught_up_moves_to_the_lead_and_an_empty_caravan_is_closed() -> None:
    caravans = [caravan(1, 9 * FAR, holds=FAR), caravan(2, 9 * FAR - 5)]
    assert plan(caravans, [flow("f", 9 * FAR - 5, aboard=2, held={1, 2})], 4) == [
        Board("f", 1, "caught up with the lead"),
        Close(2, "merged into caravan 1"),
    ]


def test_caravans_that_meet_merge_into_the_one_ahead() -> None:
    caravans = [caravan(1, 99 * FAR), caravan(2, 9 * FAR, holds=FAR), caravan(3, 9 * FAR - 5)]
    flows = [flow("f", 9 * FAR - 5, aboard=3, held={2, 3}), flow("g", 9 * FAR, aboard=2, held={2})]
    assert plan(caravans, flows, 4) == [Board("f", 2, "caravan 3 met it"), Close(3, "merged into caravan 2")]


def test_two_at_one_place_merge_into_the_older() -> None:
    caravans = [caravan(1, 99 * FAR), caravan(2, FAR, holds=5), caravan(3, FAR, holds=5)]
    flows = [flow("f", FAR, aboard=3, held={2, 3}), flow("g", FAR, aboard=2, held={2, 3})]
    assert plan(caravans, flows, 4) == [Board("f", 2, "caravan 3 met it"), Close(3, "merged into caravan 2")]


def test_a_place_that_the_lead_is_about_to_drop_is_not_moved_to() -> None:
    caravans = [caravan(1, 9 * FAR, holds=FAR), caravan(2, 8 * FAR + 5)]
    waiting = FlowView("f", at(8 * FAR + 5), 2, frozenset({1, 2}), frozenset({2}))
    assert plan(caravans, [waiting], 4) == []


def test_a_flow_moves_to_a_caravan_that_is_nearer_behind_it() -> None:
    caravans = [caravan(1, 9 * FAR), caravan(2, FAR, flows=2), caravan(3, 4 * FAR)]
    flows = [flow("f", 6 * FAR, aboard=2), flow("g", FAR, aboard=2, held={2}), flow("h", 4 * FAR, aboard=3, held={3})]
    assert plan(caravans, flows, 3) == [Board("f", 3, "nearer to its place than caravan 2")]


def test_a_flow_far_ahead_of_its_caravan_is_split_off_when_there_is_room() -> None:
    caravans = [caravan(1, DISTANT), caravan(2, FAR, flows=2)]
    flows = [flow("f", 6 * FAR, aboard=2), flow("g", FAR, aboard=2, held={2})]
    assert plan(caravans, flows, 3) == [], "the last is kept"
    assert plan(caravans, flows, 4) == [Start("f", "split off: its place is far ahead of caravan 2")]
    assert plan(caravans, flows, 2) == []


def test_a_caravan_whose_only_flow_is_far_ahead_goes_there() -> None:
    caravans = [caravan(1, 9 * FAR), caravan(2, FAR)]
    assert plan(caravans, [flow("f", 6 * FAR, aboard=2)], 2) == [
        SendBack("f", 2, "sent on: no other flow needs what lies before its place")
    ]


def test_a_caravan_without_flows_makes_room_for_another() -> None:
    caravans = [caravan(1, 9 * FAR), caravan(2, 5 * FAR, flows=0)]
    assert plan(caravans, [flow("f", FAR)], 2) == [
        Close(2, "no flow travels with it"),
        Start("f", "no caravan near its place"),
    ]


def test_thousands_of_places_are_planned_with_a_bounded_number_of_candidates() -> None:
    flows = [flow(f"{i:05}", i * 2 * NEAR_BYTES) for i in range(5000)]
    chosen = starts(plan([caravan(1, 1 << 40)], flows, 6))
    assert len(chosen) == 4
    assert chosen[-1] == "00000"


def test_an_empty_caravan_that_gets_a_flow_stays() -> None:
    caravans = [caravan(1, 9 * FAR), caravan(2, FAR, holds=5, flows=0)]
    assert plan(caravans, [flow("f", FAR, held={2})], 4) == [Board("f", 2, "within a change buffer")]


def test_the_lead_stays_without_flows() -> None:
    assert plan([caravan(1, 5, flows=0)], [], 4) == []


def test_a_lead_without_flows_keeps_its_place_for_who_is_live() -> None:
    caravans = [caravan(1, 9 * FAR, flows=0), caravan(2, 5 * FAR)]
    assert plan(caravans, [flow("f", 7 * FAR)], 2) == [Board("f", 2, "the nearest behind it, no other may be started")]
    assert plan(caravans, [flow("f", 9 * FAR + 5)], 2)[0] == Board("f", 1, "shortly before its place")
