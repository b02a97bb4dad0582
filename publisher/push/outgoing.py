"""What one connection sends next: frames about its flows, then batches of each flow in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from caravan.fleet import Fleet
from caravan.flow import CaravanFlow, CaravanFlowState, Piece
from publisher.push.flow import PublisherFlow
from publisher.push.messages import Messages
from publisher.push.obstacles import ask_about_gap, hold_at_bad_value, hold_at_undecodable, skip_undecodable
from wormhole.model.segment import ChunkRange
from wormhole.push.connection import Traffic
from wormhole.push.session import FlowPhase, PushFlow, PushSession

__all__ = ["Outgoing"]

_QUANTUM = 256 << 10  # bytes that a flow may send before the next one's turn
_ROUND = 1 << 20  # bytes of all flows together that are put together before they are written
_SWEEP_S = 0.5  # in which every flow is looked at: datamarkers are due by time, and nobody wakes for a segment that is
# none of a flow's own. A few at a time, because looking at a thousand would hold up the updates of all.


class Outgoing:
    """See the module.

    ``flows``: by number, those that are open or being opened; :meth:`open` and :meth:`close` change them. ``answers``:
    to parked updates, that wait to be written. ``undone``: called with a transaction that was rolled back after a part
    of it was sent. ``wake``: there is more to send. ``may_send``: whether the publisher owns its log.
    """

    def __init__(
        self,
        session: PushSession,
        fleet: Fleet,
        traffic: Traffic,
        may_send: Callable[[], bool],
        undone: Callable[[PublisherFlow, str], None],
        wake: Callable[[], None],
    ) -> None:
        self.flows: dict[int, tuple[PushFlow, PublisherFlow]] = {}
        self.answers = 0
        self._session = session
        self._fleet = fleet
        self._traffic = traffic
        self._may_send = may_send
        self._undone = undone
        self._wake = wake
        self._control: list[bytes] = []
        self._late: set[int] = set()  # flows whose turn did not come in the last round
        self._due: set[int] = set()  # flows that may have something to send
        self._starved: set[int] = set()  # flows that wait for credit
        self._looked_s = -math.inf  # when flows were looked at last
        self._unswept: list[int] = []  # flows that this sweep has yet to look at
        self._numbers: dict[PublisherFlow, int] = {}
        self._turn = 0

    def open(self, push: PushFlow, flow: PublisherFlow) -> None:
        """The flow was given to the subscriber."""
        self.flows[push.number] = (push, flow)
        self._numbers[flow] = push.number

    def close(self, number: int) -> PublisherFlow:
        """The subscriber has the flow no longer; which one it was."""
        _, flow = self.flows.pop(number)
        self._starved.discard(number)
        if self._numbers.get(flow) == number:
            del self._numbers[flow]
        return flow

    def push_of(self, flow: PublisherFlow) -> PushFlow | None:
        """The flow as this connection knows it; ``None`` when it is not here."""
        number = self._numbers.get(flow)
        return None if number is None else self.flows[number][0]

    def wake(self, flow: PublisherFlow) -> None:
        """The flow may have something to send, or may send it now."""
        number = self._numbers.get(flow)
        if number is not None:
            self._due.add(number)
            self._wake()

    def progressed(self, push: PushFlow, flow: PublisherFlow) -> None:
        """The subscriber processed something of the flow, which matters to one that waits for that."""
        caravan_flow = flow.delivery.caravan_flow
        if push.number in self._starved or (caravan_flow is not None and caravan_flow.blocked):
            self.wake(flow)

    def add(self, frame: bytes) -> None:
        """A frame that goes before all batches."""
        self._control.append(frame)
        self._wake()

    def messages(self, now: float) -> Iterator[bytes]:
        """One round over the flows, until there is enough to write: deficit round robin, those with the lead caravan
        first.
        """
        out = Messages(self._session.max_frame_bytes)
        for frame in self._control:
            out.add(frame)
        self._control.clear()
        self.answers = 0
        if self._session.welcomed and self._may_send():
            members = self._in_turn(self._looked_at(now))
            for count, (push, flow) in enumerate(members):
                if out.bytes >= _ROUND:
                    self._late = {late.number for late, _ in members[count:]}
                    self._wake()
                    break
                self._add_flow(push, flow, now, out)
            else:
                self._late.clear()
        return out.take()

    def datamarker(self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow, now: float) -> bytes | None:
        """Where the flow is; ``None`` amid a transaction, behind whose first updates the datamarker before it would
        stand, and for one that was offered.
        """
        if caravan_flow.inside:
            return None
        frame = self._session.datamarker(push, caravan_flow.marker, now)
        if frame is not None:
            flow.delivery.sent_counts.offered(caravan_flow.marker)
            flow.delivery.offers(caravan_flow.marker)
        return frame

    def _looked_at(self, now: float) -> list[tuple[PushFlow, PublisherFlow]]:
        """The flows whose turn it is: those that may have something to send, and as large a part of all as the time
        since the last round is of a sweep.
        """
        due, self._due = self._due | self._late, set()
        share = math.ceil(len(self.flows) * min(1.0, (now - self._looked_s) / _SWEEP_S))
        self._looked_s = now
        if share:
            if len(self._unswept) < share:
                self._unswept = [*self.flows, *self._unswept]
            due.update(self._unswept[-share:])
            del self._unswept[-share:]
        return [self.flows[number] for number in due if number in self.flows]

    def _in_turn(self, members: list[tuple[PushFlow, PublisherFlow]]) -> list[tuple[PushFlow, PublisherFlow]]:
        if len(members) > 1:
            self._turn = (self._turn + 1) % len(members)
            members = members[self._turn :] + members[: self._turn]
            lead = self._fleet.lead
            if lead is not None:
                members.sort(key=lambda member: member[1].delivery.caravan_flow not in lead.flows)
            if self._late:
                members.sort(key=lambda member: member[0].number not in self._late)
        return members

    def _add_flow(self, push: PushFlow, flow: PublisherFlow, now: float, out: Messages) -> None:
        """Add what one flow may send now."""
        caravan_flow = flow.delivery.caravan_flow
        if caravan_flow is None or push.phase is not FlowPhase.OPEN:
            return
        if caravan_flow.blocked and push.window.half_free:
            self._fleet.moved(caravan_flow)
        quantum = _QUANTUM
        cursor = caravan_flow.cursor
        while (
            quantum > 0
            and caravan_flow.state is CaravanFlowState.TRAVELLING
            and (piece := caravan_flow.peek()) is not None
        ):
            if piece.gap is not None:
                missing, resume = ask_about_gap(self._fleet, flow, caravan_flow, piece.gap)
                self.add(self._session.data_loss(push, missing, resume))
                break
            if piece.undone:
                self._undone(flow, piece.undone)
                break
            if piece.broken is not None:
                if skip_undecodable(flow, caravan_flow, piece.broken):
                    continue
                self._offer(push, flow, caravan_flow, now, out)
                hold_at_undecodable(self._fleet, flow, caravan_flow, piece.broken)
                break
            body = piece.body
            if body is not None:
                if body.bad and flow.halts_on_bad_value:
                    self._offer(push, flow, caravan_flow, now, out)  # so that what was sent is acknowledged
                    hold_at_bad_value(self._fleet, flow, caravan_flow, body.bad[0])
                    break
                if not push.window.admits(body.size):
                    flow.holding.lacks_credit(now)
                    self._starved.add(push.number)
                    break
                flow.holding.has_credit()
                self._starved.discard(push.number)
                if not push.window.in_flight:
                    flow.holding.progressed(now)  # there was nothing to do before
                if piece.marker is None and self._session.marker_due(push, now, soon=True):
                    self._offer(push, flow, caravan_flow, now, out)  # the transaction that begins here may be long
                for schema in self._session.schemas(body.schemas):
                    out.add(schema)
                for frame in self._session.batch(push, body.pieces, caravan_flow.place, unfinished=body.unfinished):
                    out.add(*frame)
                flow.delivery.sent(body)
                quantum -= body.size
                self._traffic.batches += 1
            if piece.chunk is not None:
                self._add_ends(push, caravan_flow, piece, piece.chunk, out)
            caravan_flow.take()
            if piece.marker is not None and self._session.marker_due(push, now, soon=bool(piece.finished)):
                self._offer(push, flow, caravan_flow, now, out)
        else:
            if quantum <= 0:
                self._due.add(push.number)
                self._wake()
            elif caravan_flow.state is CaravanFlowState.TRAVELLING and self._session.marker_due(push, now):
                self._offer(push, flow, caravan_flow, now, out)
        if caravan_flow.cursor != cursor:  # also when it only skipped what it has
            self._fleet.moved(caravan_flow)

    def _add_ends(
        self, push: PushFlow, caravan_flow: CaravanFlow, piece: Piece, chunk: ChunkRange, out: Messages
    ) -> None:
        """What follows the rows of a chunk: which range they are, and that a table is through. Nothing follows from
        rows that a filter of the backfill left out, or that could not be read.
        """
        backfill = caravan_flow.backfill
        assert backfill is not None
        rows = 0 if piece.body is None else piece.body.updates
        for frame in self._session.chunk_end(push, chunk, narrowed=backfill.narrowed, rows=rows):
            out.add(frame)
        for table in piece.finished:
            if not backfill.narrowed and not table.unread:
                out.add(self._session.scan_end(push, table.table, backfill.generation, table.rows))

    def _offer(self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow, now: float, out: Messages) -> None:
        frame = self.datamarker(push, flow, caravan_flow, now)
        if frame is not None:
            out.add(frame)
