"""Measures of the log: the lag of each flow, the growth of the log, and how long the log still holds the updates after
a datamarker (headroom).

Pure: segments, source status and time (seconds) are arguments.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from caravan.log_map import LogMap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.model.segment import Segment
from wormhole.ports.log_source import RelayStatus, SourceStatus

__all__ = ["FlowLag", "Headroom", "LogWatch"]

_STRETCHES: Final = 512
_COUNTS: Final = 20_000  # the most per-shard numbers in all stretches, to bound the memory
_GROWTH_S: Final = 60.0
_LEAST_GROWTH_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class FlowLag:
    """How far a flow's datamarker is behind the end of the log. Each value is ``None`` if it is unknown.

    ``seconds``: age of the oldest unacknowledged transaction; 0 if no transaction of the flow's shard follows.
    ``bytes``: bytes of log after the datamarker, of all shards. ``transactions``: transactions of the flow's shard
    after the datamarker.
    """

    seconds: float
    bytes: int | None
    transactions: int | None


@dataclass(frozen=True, slots=True)
class Headroom:
    """``seconds`` until the log no longer holds the updates after a datamarker; ``None``: not known, for the reason in
    ``unknown``.
    """

    seconds: float | None
    unknown: str = ""


@dataclass(slots=True)
class _Stretch:
    """A range of the log that was read, with the commit time of its first transaction and the number of transactions
    of each shard that end in it."""

    begin: LogPosition
    end: LogPosition
    oldest_us: int
    transactions: dict[str, int]


class LogWatch:
    """Receives every segment that the lead caravan reads, and the source's status once a second.

    ``transactions`` and ``updates`` count each part of the log once, even if it is read again. A transaction is counted
    once for each shard that it changes.
    """

    def __init__(self) -> None:
        self.transactions = 0
        self.updates = 0
        self._stretches: deque[_Stretch] = deque()
        self._counts = 0
        self._map = LogMap()
        self._status: SourceStatus | None = None
        self._failure = NO_PROBLEM
        self._ends: deque[tuple[float, LogPosition]] = deque()

    def read(self, segment: Segment) -> None:
        """A caravan read the segment. A segment that was read before is ignored."""
        last = self._stretches[-1].end if self._stretches else None
        if last is not None and segment.end <= last:
            return
        if last is not None and (segment.begin > last or segment.begin.incarnation != last.incarnation):
            self._stretches.clear()  # the lead jumped ahead: the log in between was not counted
            self._counts = 0
            last = None
        runs = segment.runs
        oldest = min((run.tx_committed_at_us[0] for run in runs.values() if run.tx_committed_at_us), default=0)
        counts = {shard: len(run.tx_end) for shard, run in runs.items()}
        self._stretches.append(_Stretch(last or segment.begin, segment.end, oldest, counts))
        self._counts += len(counts)
        self.transactions += sum(counts.values())
        self.updates += sum(run.updates for run in runs.values())
        if len(self._stretches) > _STRETCHES or (self._counts > _COUNTS and len(self._stretches) > 2):
            self._thin()

    def _thin(self) -> None:
        """Join the older half of the stretches in pairs, so that old stretches are coarser."""
        stretches = list(self._stretches)
        half = max(2, len(stretches) // 2)
        old, new = stretches[:half], stretches[half:]
        joined = []
        for first, second in zip(old[::2], old[1::2], strict=False):
            for shard, number in second.transactions.items():
                first.transactions[shard] = first.transactions.get(shard, 0) + number
            joined.append(_Stretch(first.begin, second.end, first.oldest_us or second.oldest_us, first.transactions))
        self._stretches = deque([*joined, *old[len(joined) * 2 :], *new])
        self._counts = sum(len(stretch.transactions) for stretch in self._stretches)

    def measured(self, status: SourceStatus, now: float) -> None:
        """The source's status at ``now`` (monotonic)."""
        self._status = status
        self._failure = NO_PROBLEM
        self._map = LogMap(status.files)
        end = self._written(status)
        if self._ends and self._ends[-1][1].incarnation != end.incarnation:
            self._ends.clear()
        self._ends.append((now, end))
        # No distance can be computed to a place in a file that was released since.
        while self._ends[0][0] < now - _GROWTH_S or self._map.between(self._ends[0][1], end) is None:
            self._ends.popleft()

    def failed(self, problem: Problem) -> None:
        """The source's status could not be read, for this reason."""
        self._failure = problem

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The present problems of the log, for the operator."""
        if self._failure:
            return (self._failure,)
        return () if self._status is None else self._status.problems

    @property
    def end_unknown(self) -> str:
        """Why the end of the log is unknown, so that a lag is only a lower bound; empty while the end is known."""
        if self._failure:
            return str(self._failure)
        return "" if self._status is None else self._status.end_unknown

    @property
    def unreachable(self) -> Problem:
        """The problem because of which the log's end is unknown; empty while the end is known."""
        return next((one for one in self.problems if str(one) == self.end_unknown), Problem.parsed(self.end_unknown))

    @staticmethod
    def _written(status: SourceStatus) -> LogPosition:
        """The end of the newest file, including log that no caravan has read yet."""
        if not status.files:
            return status.end
        return max(status.end, LogPosition(status.end.incarnation, *status.files[-1]))

    def growth(self) -> float | None:
        """Bytes of log written per second, over the last minute; ``None`` when unknown."""
        if not self._ends:
            return None
        (since, first), (until, last) = self._ends[0], self._ends[-1]
        grown = self._map.between(first, last)
        if grown is None or until - since < _LEAST_GROWTH_S:
            return None
        return grown / (until - since)

    @property
    def status(self) -> SourceStatus | None:
        """What the source reported last."""
        return self._status

    def end(self) -> LogPosition | None:
        """The end of the part of the log that is known to be complete."""
        ends = [self._stretches[-1].end] if self._stretches else []
        if self._status is not None:
            ends.append(self._status.end)
        return max(ends, default=None)

    def behind(self, place: LogPosition | None) -> int | None:
        """Bytes of log that are written after ``place``; ``None`` when unknown."""
        if self._status is None or place is None:
            return None
        end = self._written(self._status)
        return self._map.between(place, end) if place < end else 0

    def between(self, start: LogPosition, end: LogPosition) -> int | None:
        """Bytes of log between two places; ``None`` when unknown."""
        return self._map.between(start, end)

    def lag(self, shard: str, marker: Datamarker, now: float) -> FlowLag:
        """How far a flow with this datamarker is behind. ``now``: seconds since 1970."""
        end, place = self.end(), marker.order
        if end is None:
            # Before the first status, and while the log cannot be reached, newer updates may exist.
            return FlowLag(_age(marker.committed_at_us, now) if self._failure else 0.0, None, None)
        if end <= place:
            return FlowLag(0.0, 0, 0)
        behind = self._map.between(place, end)
        stretches = self._stretches
        after = [stretch for stretch in stretches if stretch.end > place]
        if not after or place < stretches[0].begin:
            return FlowLag(_age(marker.committed_at_us, now), behind, None)
        first = after[0]
        # A marker without an ack has no commit time. The stretch that contains the marker is not younger.
        oldest = (marker.committed_at_us if first.begin < place else 0) or first.oldest_us
        if stretches[-1].end < end:
            return FlowLag(_age(oldest or marker.committed_at_us, now), behind, None)
        if all(shard not in stretch.transactions for stretch in after):
            return FlowLag(0.0, behind, 0)  # the log grew without updates of the shard: by checkpoints or other tables
        number = sum(stretch.transactions.get(shard, 0) for stretch in after[1:]) + self._part(first, shard, place)
        return FlowLag(_age(oldest or marker.committed_at_us, now), behind, number)

    def _part(self, stretch: _Stretch, shard: str, place: LogPosition) -> int:
        """The transactions of a stretch after ``place``: all if ``place`` is at or before the stretch's beginning,
        otherwise a number in proportion to the bytes.
        """
        number = stretch.transactions.get(shard, 0)
        if place <= stretch.begin:
            return number
        whole, rest = self._map.between(stretch.begin, stretch.end), self._map.between(place, stretch.end)
        if not whole or rest is None:
            return number
        return min(number, -(-number * rest // whole))

    @property
    def relay(self) -> RelayStatus | None:
        """What the log's relay held at the last status; ``None``: the log has no relay."""
        return None if self._status is None else self._status.relay

    def reads_relay(self, place: LogPosition) -> bool:
        """Whether a reader at ``place`` reads next from the relay, and not from the datastore."""
        relay = self.relay
        return relay is not None and any(begin <= place < end for begin, end in relay.stretches)

    def headroom(self, marker: Datamarker) -> Headroom:
        """For how long the log, or its relay, holds the updates after the datamarker, if the growth stays the same."""
        status, place = self._status, marker.order
        if status is None:
            return Headroom(None, "the log was not measured yet")
        relay = status.relay
        if relay is None or relay.tip is None:
            return self._in_log(place, status)
        tip = relay.tip.order
        until = tip if place >= tip else next((end for begin, end in relay.stretches if begin <= place < end), None)
        if until is None:
            return self._in_log(place, status)
        # Log after the end of the relay's last stretch is only in the datastore. So is log that is not being recorded.
        # A relay that protects the datastore's disk lets the datastore keep one more budget of log than it always does.
        if until != tip or relay.problem:
            bound = 2 * relay.slot_budget_bytes if relay.mode == "hold" and not relay.keeps_slot else 0
            return self._in_log(max(place, until), status, bound)
        return self._in_relay(place, relay, status)

    def _in_relay(self, place: LogPosition, relay: RelayStatus, status: SourceStatus) -> Headroom:
        """The headroom in the last stretch of a recording relay. A full relay deletes its oldest records."""
        assert relay.tip is not None
        growth = self.growth()
        if unknown := _no_growth(growth):
            return Headroom(None, unknown)
        log_bytes = 0 if place >= relay.tip.order else self._map.between(place, relay.tip.order)
        if log_bytes is None:
            return Headroom(None, "how much of the log follows the datamarker is not known")
        # New log is assumed to compress as well as the log recorded so far.
        room = relay.budget_bytes * relay.log_bytes / relay.bytes if relay.bytes else relay.budget_bytes
        assert growth is not None
        seconds = max(0.0, (room - log_bytes) / growth)
        if relay.mode == "hold" and not relay.keeps_slot:
            return Headroom(seconds)
        log = self._in_log(relay.tip.order if relay.keeps_slot else place, status)
        if log.seconds is not None:
            return Headroom(seconds + log.seconds if relay.keeps_slot else max(seconds, log.seconds))
        if status.budget_bytes:
            return Headroom(seconds)
        about = f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"
        return Headroom(None, f"the relay holds it for about {about} as the log grows now; then {log.unknown}")

    def _in_log(self, place: LogPosition, status: SourceStatus, bound: int = 0) -> Headroom:
        """The headroom of a place in the datastore's log. The log is kept up to the source's budget, and its oldest
        file is deleted first. ``bound``: a smaller budget in bytes; 0 for none.
        """
        budget = min(status.budget_bytes or bound, bound or status.budget_bytes)
        if not budget and status.slots:
            return Headroom(None, "the datastore keeps its log for the publisher's slots, without a limit")
        if not budget:
            return Headroom(None, "the datastore itself decides how long it keeps its log")
        growth = self.growth()
        if unknown := _no_growth(growth):
            return Headroom(None, unknown)
        # The budget of a slot is measured from the slot's place.
        begin = place if status.slots else LogPosition(place.incarnation, place.file, 0)
        kept = self._map.between(begin, self._written(status))
        if kept is None:
            return Headroom(None, "the datamarker is in a file that the log no longer has")
        assert growth is not None
        return Headroom(max(0.0, (budget - kept) / growth))


def _no_growth(growth: float | None) -> str:
    if growth is None:
        return "the growth of the log is not known yet"
    return "the log does not grow" if growth <= 0 else ""


def _age(committed_at_us: int, now: float) -> float:
    return max(0.0, now - committed_at_us / 1e6) if committed_at_us else 0.0
