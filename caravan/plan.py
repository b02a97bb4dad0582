"""Computes the next actions of the fleet from the flows' places and the limits. Pure (design section 8).

A flow without a caravan gets one by these preferences, in this order (**join**). First, a caravan whose change buffer
holds its place (the lead before others). Second, the nearest caravan shortly behind its place, in which it skips the
updates that it has. Third, a new caravan. At the maximum of caravans, the nearest caravan behind it, however far. If
none is behind it, the rearmost caravan is **sent back**. When more flows want a caravan than may be started, caravans
start where they shorten the waiting of all flows the most (:func:`choose`).

With three or more caravans, one is reserved for flows within 64 MiB of the lead or ahead of every caravan. So a live
flow that returns after a moment or after a restart is live again within moments, however many flows are far behind.

A flow that travels **moves** when another caravan serves it better. There are two cases. A caravan further ahead may
hold its place: two caravans that meet **merge** in this way, flow by flow. Every caravan that catches up merges with
the lead. Or the flow's own caravan is far behind its place, and another is nearer or may be started for it
(**split**).

When fewer caravans are allowed than there are, those between the lead and the rearmost one end. Their flows join the
nearest caravan behind them, so that none is sent back. A caravan without flows is closed. The lead stays without flows
too: a live flow, or one that returns after a moment, finds it at the end of the log, however many flows catch up.

Each move is to a caravan further ahead, or nearer behind the flow, so no flow moves back and forth. Sending back undoes
progress, so it waits until the caravan has served its own flows (``settled``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from caravan.log_map import LogMap
from wormhole.model.position import LogPosition

__all__ = ["Action", "Board", "CaravanView", "Close", "FlowView", "SendBack", "Start", "choose", "lead", "plan"]

NEAR_BYTES = 1 << 20
"""A flow that is ahead of a caravan by no more than this joins it, and no new one is started. Reading a mebibyte takes
a few milliseconds.
"""

SOON_BYTES = 64 << 20
"""A flow that is behind the lead by no more than this is live again within a second or two."""

_UNKNOWN = 1 << 50  # distance if the files between are not known: larger than any known distance
_CANDIDATES = 64  # limit of the places that are considered for new caravans

Between = Callable[[LogPosition, LogPosition], int | None]
"""Bytes of log between two places, ``None`` when unknown."""

_WITHIN_A_FILE = LogMap().between


@dataclass(frozen=True, slots=True)
class CaravanView:
    """A caravan as the plan sees it: the range of places that its buffer holds, and how many flows travel with it.

    ``settled``: it has served all its flows for a while; before that it is not sent back.
    """

    number: int
    start: LogPosition
    place: LogPosition
    flows: int
    settled: bool = True


@dataclass(frozen=True, slots=True)
class FlowView:
    """A flow as the plan sees it.

    ``caravan``: ``None`` if it wants one. ``held``: caravans whose buffer holds its place. ``inside``: the caravans in
    ``held`` that will hold the place for some time, so that moving to them is useful; ``None``: all.
    """

    name: str
    place: LogPosition
    caravan: int | None
    held: frozenset[int]
    inside: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """The flow joins the caravan and leaves its present one, if any."""

    flow: str
    caravan: int
    cause: str


@dataclass(frozen=True, slots=True)
class Start:
    """A new caravan starts at the flow's place. The flow joins it and leaves its present one, if any."""

    flow: str
    cause: str


@dataclass(frozen=True, slots=True)
class SendBack:
    """The caravan's reader returns to the flow's place. The flow joins it; the other flows skip the updates that they
    have.
    """

    flow: str
    caravan: int
    cause: str


@dataclass(frozen=True, slots=True)
class Close:
    """The caravan is closed: it has no flows and is not the lead."""

    caravan: int
    cause: str


Action = Board | Start | SendBack | Close


def lead(caravans: Sequence[CaravanView]) -> CaravanView | None:
    """The caravan furthest ahead; among equals the oldest."""
    return max(caravans, key=lambda c: (c.place, -c.number), default=None)


def plan(
    caravans: Sequence[CaravanView], flows: Sequence[FlowView], maximum: int, between: Between = _WITHIN_A_FILE
) -> list[Action]:
    """Actions in the order in which they have to be carried out: at most one for each flow. There are never more
    caravans than ``maximum``.
    """
    return _Planner(caravans, flows, maximum, between).plan()


class _Planner:
    def __init__(
        self, caravans: Sequence[CaravanView], flows: Sequence[FlowView], maximum: int, between: Between
    ) -> None:
        self._caravans = {c.number: c for c in caravans}
        self._flows = sorted(flows, key=lambda f: (f.place, f.name), reverse=True)
        self._maximum = maximum
        self._several = maximum > 2
        self._between = between
        self._riders = {c.number: c.flows for c in caravans}
        self._actions: list[Action] = []
        self._reduce()
        self._head = lead(tuple(self._caravans.values()))
        self._free = maximum - len(self._caravans)

    def plan(self) -> list[Action]:
        need = []
        for flow in self._flows:
            if flow.caravan is None:
                board = self._join(flow)
                if board is None:
                    need.append(flow)
                else:
                    self._board(flow, board)
            else:
                move = self._better(flow, self._caravans[flow.caravan])
                if move is not None:
                    self._board(flow, move)
        self._close()
        self._give_caravans(need)
        self._split()
        return self._actions

    def _reduce(self) -> None:
        """End the caravans above the maximum. The next plan assigns their flows to others."""
        ordered = sorted(self._caravans.values(), key=lambda c: (c.place, -c.number))
        if len(ordered) <= self._maximum:
            return
        rear = next((c for c in ordered if c.flows), ordered[-1])
        first = [rear] if self._maximum == 1 else [ordered[-1], rear]
        rest = sorted(ordered, key=lambda c: (c.flows > 0, c.place), reverse=True)
        kept = {c.number for c in list(dict.fromkeys([*first, *rest]))[: self._maximum]}
        for number in sorted(self._caravans.keys() - kept):
            self._actions.append(Close(number, f"no more than {self._maximum} may read"))
        self._caravans = {number: c for number, c in self._caravans.items() if number in kept}
        self._flows = [
            replace(flow, held=flow.held & kept, inside=None if flow.inside is None else flow.inside & kept)
            for flow in self._flows
            if flow.caravan is None or flow.caravan in kept
        ]

    # -- flows that want a caravan

    def _join(self, flow: FlowView) -> Board | None:
        if self._head is not None and self._head.number in flow.held:
            return Board(flow.name, self._head.number, "within the lead's change buffer")
        holding = [self._caravans[number] for number in flow.held]
        if holding:
            nearest = max(holding, key=lambda c: (c.place, -c.number))
            return Board(flow.name, nearest.number, "within a change buffer")
        behind = self._behind(flow)
        if behind is not None and self._near(behind.place, flow.place):
            return Board(flow.name, behind.number, "shortly before its place")
        return None

    def _give_caravans(self, need: Sequence[FlowView]) -> None:
        started: list[LogPosition] = []
        if need and self._free > 0 and (self._head is None or self._head.place < need[0].place):
            front = [f for f in need if self._near(f.place, need[0].place)][-1]
            started.append(front.place)
            self._start(front, "further ahead than every caravan")
        rest = [f for f in need if not started or f.place < started[0]]
        soon = [f for f in rest if self._soon(f.place)]
        self._start_at(soon, 1, "shortly behind the lead", started)
        self._start_at(rest, self._free - self._kept(started), "no caravan near its place", started)
        last: FlowView | None = None  # the flow furthest behind that no caravan will reach
        for flow in need:
            if flow.place in started:
                continue  # a new caravan starts at its place: the flow joins it by its own start or by the next plan
            behind = self._behind(flow)
            if any(place <= flow.place and (behind is None or place > behind.place) for place in started):
                continue  # a new caravan starts nearer behind it
            if behind is not None:
                self._board(flow, Board(flow.name, behind.number, "the nearest behind it, no other may be started"))
            else:
                last = flow
        if last is not None and not started and self._caravans:
            rear = min(self._caravans.values(), key=lambda c: (c.place, c.number))
            if rear.settled:
                cause = "behind every caravan, no other may be started"
                self._actions.append(SendBack(last.name, rear.number, cause))
                self._riders[rear.number] += 1

    def _start_at(self, flows: Sequence[FlowView], count: int, cause: str, started: list[LogPosition]) -> None:
        wanted = [f for f in flows if f.place not in started]
        chosen = choose([(f.place, self._behind(f)) for f in wanted], min(count, self._free), self._between)
        for flow in wanted:
            if flow.place in chosen and flow.place not in started:
                started.append(flow.place)
                self._start(flow, cause)

    def _soon(self, place: LogPosition) -> bool:
        """Whether a flow at ``place`` can reach the lead within moments."""
        distance = None if self._head is None else self._between(place, self._head.place)
        return distance is not None and 0 <= distance <= SOON_BYTES

    def _kept(self, started: Sequence[LogPosition] = ()) -> int:
        """How many caravans are reserved and may not be started for flows far behind: one, unless one is already
        shortly behind the lead.
        """
        others = [c.place for c in self._caravans.values() if c is not self._head]
        return int(self._several and not any(self._soon(place) for place in (*others, *started)))

    # -- flows that travel

    def _better(self, flow: FlowView, own: CaravanView) -> Board | None:
        """The move to a caravan that serves the flow better than its own, if there is one."""
        inside = flow.held if flow.inside is None else flow.inside
        ahead = [c for c in map(self._caravans.__getitem__, inside) if (c.place, -c.number) > (own.place, -own.number)]
        if ahead:
            best = max(ahead, key=lambda c: (c.place, -c.number))
            cause = "caught up with the lead" if best is self._head else f"caravan {own.number} met it"
            return Board(flow.name, best.number, cause)
        behind = self._behind(flow)
        if behind is not None and behind.place > own.place and not self._near(own.place, behind.place):
            return Board(flow.name, behind.number, f"nearer to its place than caravan {own.number}")
        return None

    def _split(self) -> None:
        """Split off one flow that is far ahead of its caravan: it gets a new caravan, if one may be started. If it is
        the only flow of its caravan, that caravan is moved to its place.
        """
        moved = {action.flow for action in self._actions if not isinstance(action, Close)}
        for flow in self._flows:
            if flow.caravan is None or flow.name in moved:
                continue
            own = self._caravans[flow.caravan]
            if own.place >= flow.place or self._near(own.place, flow.place):
                continue
            if self._riders[own.number] == 1:
                cause = "sent on: no other flow needs what lies before its place"
                self._actions.append(SendBack(flow.name, own.number, cause))
                return
            if self._free > self._kept():
                self._riders[own.number] -= 1
                self._start(flow, f"split off: its place is far ahead of caravan {own.number}")
                return

    # -- inside

    def _board(self, flow: FlowView, action: Board) -> None:
        if flow.caravan is not None:
            self._riders[flow.caravan] -= 1
        self._riders[action.caravan] += 1
        self._actions.append(action)

    def _start(self, flow: FlowView, cause: str) -> None:
        self._free -= 1
        self._actions.append(Start(flow.name, cause))

    def _close(self) -> None:
        for number in tuple(self._caravans):
            if not self._riders[number] and self._head is not None and number != self._head.number:
                del self._caravans[number]
                self._free += 1
                onward = [a for a in self._actions if isinstance(a, Board)]
                into = [a.caravan for a in onward if any(f.name == a.flow and f.caravan == number for f in self._flows)]
                cause = f"merged into caravan {into[0]}" if into else "no flow travels with it"
                self._actions.append(Close(number, cause))

    def _behind(self, flow: FlowView) -> CaravanView | None:
        """The nearest caravan behind the flow.

        A caravan exactly at the flow's place that does not hold it is inside a transaction whose first piece was
        dropped. It cannot be joined.
        """
        behind = [
            c for c in self._caravans.values() if c.place < flow.place and c.place.incarnation == flow.place.incarnation
        ]
        return max(behind, key=lambda c: (c.place, -c.number), default=None)

    def _near(self, behind: LogPosition, place: LogPosition) -> bool:
        distance = self._between(behind, place)
        return distance is not None and 0 <= distance <= NEAR_BYTES


def choose(
    wanted: Sequence[tuple[LogPosition, CaravanView | None]], free: int, between: Between
) -> frozenset[LogPosition]:
    """The places of flows, up to ``free``, at which new caravans should start, so that the sum of all waiting is least.

    ``wanted``: each flow's place and the nearest caravan behind it, if there is one. A flow waits until the log between
    its place and the nearest caravan at or behind it was read. Places close together are treated as one. The
    choice is greedy: the best place first, then the next best.
    """
    if free <= 0 or not wanted:
        return frozenset()
    ordered = sorted(wanted, key=lambda one: one[0])
    groups: list[tuple[LogPosition, CaravanView | None, int]] = []
    for place, behind in ordered:
        if groups:
            first, its, count = groups[-1]
            apart = between(first, place)
            if apart is not None and apart <= NEAR_BYTES:
                groups[-1] = (first, its, count + 1)
                continue
        groups.append((place, behind, 1))

    def distance(start: LogPosition, end: LogPosition) -> int:
        known = between(start, end)
        return _UNKNOWN if known is None else known

    waits = [_UNKNOWN * 2 if its is None else distance(its.place, place) for place, its, _ in groups]
    step = -(-len(groups) // _CANDIDATES)
    candidates = list(range(0, len(groups), step))
    chosen: set[int] = set()
    while len(chosen) < free:
        best, best_gain = -1, 0
        for candidate in candidates:
            if candidate in chosen:
                continue
            gain = 0
            for i in range(candidate, len(groups), step):
                gain += groups[i][2] * max(0, waits[i] - distance(groups[candidate][0], groups[i][0]))
            if gain > best_gain:
                best, best_gain = candidate, gain
        if best < 0:
            break
        chosen.add(best)
        for i in range(best, len(groups)):
            waits[i] = min(waits[i], distance(groups[best][0], groups[i][0]))
    return frozenset(groups[i][0] for i in chosen)
