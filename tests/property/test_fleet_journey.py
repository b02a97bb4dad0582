"""Plan and speeds over time: a simulated log, caravans that read it at their targets, and flows of any speed that come
and go.

No flow is without a caravan for long, there are never more than the maximum, no second exceeds a cap, every flow that
catches up arrives, and the number of moves is bounded by what there is to move.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from caravan.plan import NEAR_BYTES, Action, Board, CaravanView, Close, FlowView, SendBack, Start, lead, plan
from caravan.speeds import speeds
from tests.support.seed import examples
from wormhole.model.position import LogPosition

_TICK_S = 0.1
_MIB = 1 << 20
_BUFFER = 8 * _MIB
_PACE = 16.0 * _MIB


def _at(offset: float) -> LogPosition:
    return LogPosition(1, 1, int(offset))


@dataclass
class _Caravan:
    number: int
    place: float
    start: float
    rate: float = 0.0
    target: float = 0.0
    ahead_at: float = 0.0


@dataclass
class _Flow:
    name: str
    place: float
    speed: float
    caravan: int | None = None
    waited: float = 0.0
    moves: int = 0


@dataclass
class _World:
    """Places in bytes, rates in bytes per second.

    Flows take at most ``speed``; a caravan leaves behind who holds up another."""

    end: float
    growth: float
    maximum: int
    one: float
    total: float
    flows: list[_Flow]
    caravans: dict[int, _Caravan] = field(default_factory=dict)
    now: float = 0.0
    sent_back: int = 0
    numbers: count[int] = field(default_factory=lambda: count(1))

    def views(self) -> tuple[list[CaravanView], list[FlowView]]:
        caravans = []
        for c in self.caravans.values():
            riders = [f for f in self.flows if f.caravan == c.number]
            if any(int(f.place) > int(c.place) for f in riders):
                c.ahead_at = self.now
            settled = not riders or self.now - c.ahead_at >= 1.0
            caravans.append(CaravanView(c.number, _at(c.start), _at(c.place), len(riders), settled))
        flows = [
            FlowView(
                f.name,
                _at(f.place),
                f.caravan,
                frozenset(c.number for c in caravans if c.start <= _at(f.place) <= c.place),
            )
            for f in self.flows
        ]
        return caravans, flows

    def step(self) -> None:
        caravans, flows = self.views()
        for action in plan(caravans, flows, self.maximum):
            self._carry_out(action)
            assert len(self.caravans) <= self.maximum
        self._aim()
        self._read()
        self._take()
        self.now += _TICK_S
        self.end += self.growth * _TICK_S

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Close):
            del self.caravans[action.caravan]
            return
        flow = next(f for f in self.flows if f.name == action.flow)
        match action:
            case Board(_, number, _):
                if number in self.caravans:
                    flow.moves += 1
                    flow.caravan = number
            case Start():
                flow.moves += 1
                flow.caravan = self._start(flow.place)
            case SendBack(_, number, _):
                self.sent_back += 1
                del self.caravans[number]
                started = self._start(flow.place)
                for rider in self.flows:
                    if rider is flow or rider.caravan == number:
                        rider.caravan = started

    def _start(self, place: float) -> int:
        number = next(self.numbers)
        self.caravans[number] = _Caravan(number, place, place, ahead_at=self.now)
        return number

    def _aim(self) -> None:
        head = lead(self.views()[0])
        if head is None:
            return
        front = self.caravans[head.number]
        others = {n: int(front.place - c.place) for n, c in self.caravans.items() if c is not front}
        told = speeds(front.rate, others, read_rate=self.one, total_read_rate=self.total, pace=_PACE)
        front.target = told.lead
        for number, target in told.others.items():
            self.caravans[number].target = target
        if self.total:
            # The bucket of all is taken from by the lead first.
            want = min(front.target, (self.end - front.place) / _TICK_S)
            left = self.total - min(want, told.lead)
            for number in told.others:
                self.caravans[number].target = min(self.caravans[number].target, left)
                left -= self.caravans[number].target

    def _read(self) -> None:
        read = 0.0
        for c in self.caravans.values():
            riders = [f for f in self.flows if f.caravan == c.number]
            slowest = min((max(f.place, c.start) for f in riders), default=c.place)
            fastest = max((min(f.place, c.place) for f in riders), default=c.place)
            room = _BUFFER - (c.place - slowest)
            if room <= 0 and self.maximum > 1 and fastest >= c.place and c.place < self.end:
                for f in riders:
                    if f.place == slowest:
                        f.caravan = None
                room = _BUFFER
            size = max(0.0, min(c.target * _TICK_S, self.end - c.place, room))
            c.place += size
            c.start = max(c.start, c.place - _BUFFER)
            c.rate = size / _TICK_S
            assert not self.one or c.rate <= self.one * (1 + 1e-9)
            read += c.rate
        assert not self.total or read <= self.total * (1 + 1e-9)

    def _take(self) -> None:
        for f in self.flows:
            if f.caravan is None:
                f.waited += _TICK_S
            else:
                c = self.caravans[f.caravan]
                f.place = max(f.place, min(c.place, f.place + f.speed * _TICK_S))


@st.composite
def _worlds(draw: st.DrawFn) -> _World:
    end = 256.0 * _MIB
    growth = draw(st.sampled_from([0.0, 0.1, 1.0])) * _MIB
    one = draw(st.sampled_from([0.0, 8.0, 64.0])) * _MIB
    total = draw(st.sampled_from([0.0, 64.0, 100.0])) * _MIB
    flows = [
        _Flow(str(i), draw(st.integers(0, 256)) * float(_MIB), draw(st.sampled_from([12.0, 40.0, 500.0])) * _MIB)
        for i in range(draw(st.integers(1, 8)))
    ]
    return _World(end, growth, draw(st.integers(1, 5)), one, total, flows)


def _flow_at_the_start_of_a_full_buffer() -> _World:
    """Flow 5 joins the lead, which is at the end of the log, at the place where the lead's buffer begins."""
    places = {0: (246, 500.0), 1: (0, 12.0), 2: (0, 12.0), 3: (0, 12.0), 4: (1, 12.0), 5: (244, 40.0)}
    flows = [_Flow(str(i), place * float(_MIB), speed * _MIB) for i, (place, speed) in places.items()]
    return _World(256.0 * _MIB, 0.0, 3, 0.0, 0.0, flows)


@examples(60)
@example(_flow_at_the_start_of_a_full_buffer())
@given(_worlds())
def test_every_flow_arrives_within_the_caps_and_nothing_flaps(world: _World) -> None:
    while any(world.end - flow.place > NEAR_BYTES for flow in world.flows):
        world.step()
        assert world.now < 1000, f"not arrived: {[f for f in world.flows if world.end - f.place > NEAR_BYTES]}"
    for _ in range(50):
        world.step()
    assert len(world.caravans) == 1, "those that arrived did not merge"
    assert all(flow.caravan is not None for flow in world.flows)
    # A slow flow may be left behind once for each change buffer of log that it reads; nothing else makes it move again.
    for flow in world.flows:
        assert flow.moves <= 4 * (world.end / _BUFFER), f"{flow} flaps"
