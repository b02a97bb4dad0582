"""The plan of caravans, over any places and limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from caravan.plan import SOON_BYTES, Action, Board, CaravanView, Close, FlowView, SendBack, Start, lead, plan
from wormhole.model.position import LogPosition

# Few places, some near each other (within a mebibyte) and some far: ties and order are what matters.
_places = st.builds(
    lambda file, far, near: LogPosition(1, file, (far << 26) + near),
    st.integers(1, 2),
    st.integers(0, 3),
    st.integers(0, 3),
)


@dataclass
class World:
    """Caravans and flows, and what carrying a plan out does to them."""

    caravans: dict[int, CaravanView]
    flows: dict[str, FlowView]
    maximum: int

    def views(self) -> tuple[list[CaravanView], list[FlowView]]:
        riders = [flow.caravan for flow in self.flows.values()]
        caravans = [replace(c, flows=riders.count(c.number)) for c in self.caravans.values()]
        flows = [
            replace(f, held=frozenset(c.number for c in caravans if c.start <= f.place <= c.place))
            for f in self.flows.values()
        ]
        return caravans, flows

    def plan(self) -> list[Action]:
        return plan(*self.views(), self.maximum)

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Board(name, number, _):
                    if number in self.caravans:  # not sent back by an earlier action
                        self._move(name, number)
                case Start(name, _):
                    self._move(name, self._open(self.flows[name].place))
                case SendBack(name, number, _):
                    if number not in self.caravans:
                        continue
                    del self.caravans[number]
                    started = self._open(self.flows[name].place)
                    for rider in (name, *(f.name for f in self.flows.values() if f.caravan == number)):
                        self._move(rider, started)
                case Close(number, _):
                    del self.caravans[number]
                    for flow in tuple(self.flows.values()):
                        if flow.caravan == number:
                            self.flows[flow.name] = replace(flow, caravan=None)

    def _open(self, place: LogPosition) -> int:
        number = max(self.caravans, default=0) + 100
        self.caravans[number] = CaravanView(number, place, place, 0)
        return number

    def _move(self, name: str, number: int) -> None:
        self.flows[name] = replace(self.flows[name], caravan=number)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    maximum = draw(st.integers(1, 4))
    spans = draw(st.lists(st.tuples(_places, _places), max_size=maximum))
    caravans = {i: CaravanView(i, min(span), max(span), 0) for i, span in enumerate(spans)}
    flows = {}
    for i, place in enumerate(draw(st.lists(_places, max_size=6))):
        aboard = draw(st.sampled_from([None, *(n for n, c in caravans.items() if c.start <= place)]))
        flows[str(i)] = FlowView(str(i), place, aboard, frozenset())
    return World(caravans, flows, maximum)


@given(worlds())
def test_every_flow_gets_a_caravan_within_a_few_plans_and_then_nothing_moves(world: World) -> None:
    for _ in range(2 * len(world.flows) + 2):
        actions = world.plan()
        if not actions:
            break
        world.carry_out(actions)
    assert world.plan() == [], "the plan never comes to rest"
    assert all(flow.caravan is not None for flow in world.flows.values())


@given(worlds(), st.integers(1, 3))
def test_fewer_caravans_are_left_when_fewer_are_allowed_and_everybody_travels_on(world: World, maximum: int) -> None:
    before = {name: flow.caravan for name, flow in world.flows.items() if flow.caravan is not None}
    world.maximum = min(world.maximum, maximum)
    actions = world.plan()
    assert len({a.caravan for a in actions if isinstance(a, Close)}) == sum(isinstance(a, Close) for a in actions)
    if len(world.caravans) > world.maximum and before:
        rear = min((c for c in world.views()[0] if c.flows), key=lambda c: (c.place, -c.number))
        ended = {a.caravan for a in actions if isinstance(a, Close) and a.cause.startswith("no more than")}
        assert rear.number not in ended, "the furthest behind stays"
        backward = [
            a
            for a in actions
            if isinstance(a, SendBack) and world.flows[a.flow].place < world.caravans[a.caravan].place
        ]
        assert not any(a.flow in before for a in backward), "nobody who travels is sent back"
    world.carry_out(actions)
    assert len(world.caravans) <= world.maximum
    for _ in range(2 * len(world.flows) + 2):
        if not (actions := world.plan()):
            break
        world.carry_out(actions)
        assert len(world.caravans) <= world.maximum
    assert world.plan() == [], "the plan never comes to rest"
    assert all(flow.caravan is not None for flow in world.flows.values())


@given(worlds())
def test_limits_and_the_lead_are_kept(world: World) -> None:
    caravans, flows = world.views()
    actions = world.plan()
    head = lead(caravans)
    names = [action.flow for action in actions if not isinstance(action, Close)]
    assert len(names) == len(set(names)), "two actions for one flow"
    starts = [action for action in actions if isinstance(action, Start)]
    count = len(caravans)
    for action in actions:
        count += isinstance(action, Start) - isinstance(action, Close)
        assert count <= world.maximum
    closed = {action.caravan for action in actions if isinstance(action, Close)}
    if head is not None:
        assert head.number not in closed
    boarded = {action.caravan for action in actions if isinstance(action, Board | SendBack)}
    assert not closed & boarded
    wanting = {flow.name for flow in flows if flow.caravan is None}
    for name in wanting - set(names):
        # Left for the next plan: a caravan is being started, or goes to where it can join.
        assert starts or any(isinstance(action, SendBack) for action in actions), f"flow {name} was forgotten"


@given(worlds())
def test_a_flow_never_boards_a_caravan_that_is_past_it(world: World) -> None:
    caravans, flows = world.views()
    by_number, by_name = {c.number: c for c in caravans}, {f.name: f for f in flows}
    for action in world.plan():
        if isinstance(action, Board):
            flow, caravan = by_name[action.flow], by_number[action.caravan]
            assert action.caravan in flow.held or caravan.place < flow.place


@given(worlds())
def test_a_caravan_at_a_place_that_it_does_not_hold_is_not_boarded(world: World) -> None:
    """It is inside a large transaction whose first piece was dropped: both places are equal, and the flow would miss
    the piece."""
    caravans, flows = world.views()
    blind = [replace(flow, held=frozenset()) for flow in flows]
    places = {c.number: c.place for c in caravans}
    for action in plan(caravans, blind, world.maximum):
        if isinstance(action, Board):
            assert places[action.caravan] < world.flows[action.flow].place


@given(worlds())
def test_the_last_caravan_is_kept_for_who_can_be_live_soon(world: World) -> None:
    """Or is with one who is on its way already."""
    caravans, flows = world.views()
    head = lead(caravans)
    if head is None or world.maximum < 3:
        return
    actions = world.plan()
    count = len(caravans) + sum(isinstance(a, Start) - isinstance(a, Close) for a in actions)
    if len(caravans) < world.maximum == count:
        closed = {a.caravan for a in actions if isinstance(a, Close)}
        places = [c.place for c in caravans if c is not head and c.number not in closed]
        by_name = {f.name: f.place for f in flows}
        places += [by_name[a.flow] for a in actions if isinstance(a, Start)]
        assert any(
            p > head.place or (p.file == head.place.file and head.place.offset - p.offset <= SOON_BYTES) for p in places
        )


@given(worlds())
def test_who_travels_is_moved_only_ahead_or_nearer(world: World) -> None:
    """What makes flapping impossible: along each move the caravan is further ahead, and none ahead of the flow
    misses anything."""
    caravans, flows = world.views()
    by_number, by_name = {c.number: c for c in caravans}, {f.name: f for f in flows}
    for action in world.plan():
        if isinstance(action, Board):
            own = by_name[action.flow].caravan
            if own is not None:
                new, old = by_number[action.caravan], by_number[own]
                assert (new.place, -new.number) > (old.place, -old.number)
        elif isinstance(action, SendBack) and by_name[action.flow].caravan is not None:
            assert by_number[action.caravan].place < by_name[action.flow].place


@given(worlds())
def test_a_caravan_that_serves_its_own_is_not_sent_back(world: World) -> None:
    caravans, flows = world.views()
    busy = [replace(c, settled=False) for c in caravans]
    wanting = {flow.name for flow in flows if flow.caravan is None}
    for action in plan(busy, flows, world.maximum):
        assert not (isinstance(action, SendBack) and action.flow in wanting)


@given(worlds())
def test_the_order_of_what_is_given_does_not_matter(world: World) -> None:
    caravans, flows = world.views()
    assert plan(caravans, flows, world.maximum) == plan(caravans, flows[::-1], world.maximum)
