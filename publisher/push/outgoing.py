"""Chooses the next messages of one connection: frames about its flows, then batches of each flow in turn."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from caravan.fleet import Fleet
from caravan.flow import CaravanFlow, CaravanFlowState, Piece
from publisher.push.flow import PublisherFlow
from publisher.push.messages import Messages
from publisher.push.obstacles import ask_about_gap, hold, skip_undecodable
from wormhole.model.segment import ChunkRange
from wormhole.push.connection import Traffic
from wormhole.push.session import FlowPhase, PushFlow, PushSession
from wormhole.push.window import Window

__all__ = ["NextStep", "Outgoing", "next_step"]

_QUANTUM = 256 << 10  # bytes that a flow may send in one turn
_ROUND = 1 << 20  # bytes of all flows that are collected before they are written
# A piece counts as at least this many bytes, to bound the time of a round. A small piece takes 40 us, so a round takes
# 10 ms. Without this bound, a flow with a thousand buffered transactions stopped all other streams for 60 ms.
_PIECE = 4 << 10
# Every flow is checked within this time, because its datamarker may be due although no segment wakes it. Each round
# checks a few flows, because a check of a thousand flows would delay all updates.
_SWEEP_S = 0.5


class NextStep(Enum):
    """The next step for the piece of log that a flow reaches."""

    SEND = auto()  # its updates are sent
    PASS = auto()  # the piece has nothing to send
    SKIP = auto()  # the piece cannot be decoded, and an operator requested to skip it
    WAIT = auto()  # the piece needs more credit
    ASK = auto()  # log is missing before the piece, and the application decides
    BEGIN_AGAIN = auto()  # a transaction was rolled back after a part of it was sent
    HOLD = auto()  # the piece cannot be decoded, or has a value that the application refuses


def next_step(piece: Piece, flow: PublisherFlow, window: Window) -> NextStep:
    """The next step for ``piece``. Pure."""
    body = piece.body
    if body is not None:
        if body.bad and flow.halts_on_bad_value:
            return NextStep.HOLD
        return NextStep.SEND if window.admits(body.size) else NextStep.WAIT
    if piece.gap is not None:
        return NextStep.ASK
    if piece.undone:
        return NextStep.BEGIN_AGAIN
    if piece.broken is not None:
        return NextStep.SKIP if piece.broken.update_id in flow.control.skip else NextStep.HOLD
    return NextStep.PASS


@dataclass(slots=True)
class _FlowTurn:
    """One flow's turn in a round. ``quantum``: the bytes that the flow may still send in this turn."""

    push: PushFlow
    flow: PublisherFlow
    caravan_flow: CaravanFlow
    now: float
    out: Messages
    quantum: int = _QUANTUM


class Outgoing:
    """See the module.

    ``flows``: by number, the flows that are open or being opened; :meth:`open` and :meth:`close` change them.
    ``answers``: the number of answers about parking that wait to be written. ``undone``: called with a flow and the
    transaction that was rolled back after a part of it was sent. ``wake``: called when there is more to send.
    ``may_send``: returns whether the publisher owns its log.
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
        self._late: set[int] = set()  # flows that had no turn in the last round
        self._due: set[int] = set()  # flows that may have something to send
        self._starved: set[int] = set()  # flows that wait for credit
        self._looked_s = -math.inf  # when flows were last checked
        self._timed: set[int] = set()  # flows that a timer wakes for their next datamarker
        self._unswept: list[int] = []  # flows that this sweep has not checked yet
        self._numbers: dict[PublisherFlow, int] = {}
        self._turn = 0

    def open(self, push: PushFlow, flow: PublisherFlow) -> None:
        """Add a flow that was assigned to the subscriber."""
        self.flows[push.number] = (push, flow)
        self._numbers[flow] = push.number

    def close(self, number: int) -> PublisherFlow:
        """Remove and return a flow that the subscriber no longer has."""
        _, flow = self.flows.pop(number)
        self._starved.discard(number)
        if self._numbers.get(flow) == number:
            del self._numbers[flow]
        return flow

    def push_of(self, flow: PublisherFlow) -> PushFlow | None:
        """This connection's object for the flow; ``None`` if the connection does not have the flow."""
        number = self._numbers.get(flow)
        return None if number is None else self.flows[number][0]

    def wake(self, flow: PublisherFlow) -> None:
        """Check the flow in the next round, because it may have something to send."""
        number = self._numbers.get(flow)
        if number is not None:
            self._due.add(number)
            self._wake()

    def progressed(self, push: PushFlow, flow: PublisherFlow) -> None:
        """Note that the subscriber processed something of the flow. Wakes the flow if it waits for credit."""
        caravan_flow = flow.delivery.caravan_flow
        if push.number in self._starved or (caravan_flow is not None and caravan_flow.blocked):
            self.wake(flow)

    def add(self, frame: bytes) -> None:
        """Add a frame that is sent before all batches."""
        self._control.append(frame)
        self._wake()

    def messages(self, now: float) -> Iterator[bytes]:
        """The messages of one round over the flows, by deficit round robin. Flows of the lead caravan come first. The
        round ends when it has enough bytes.
        """
        out = Messages(self._session.max_frame_bytes)
        for frame in self._control:
            out.add(frame)
        self._control.clear()
        self.answers = 0
        if self._session.welcomed and self._may_send():
            members = self._in_turn(self._looked_at(now))
            used = 0
            for count, (push, flow) in enumerate(members):
                if used >= _ROUND:
                    self._late = {late.number for late, _ in members[count:]}
                    self._wake()
                    break
                used += self._add_flow(push, flow, now, out)
            else:
                self._late.clear()
        return out.take()

    def datamarker(self, push: PushFlow, flow: PublisherFlow, caravan_flow: CaravanFlow, now: float) -> bytes | None:
        """The frame that offers the datamarker at the flow's place; ``None`` if it was offered already. Also ``None``
        within a transaction, because its first updates were sent after the datamarker.
        """
        if caravan_flow.inside:
            return None
        frame = self._session.datamarker(push, caravan_flow.marker, now)
        if frame is not None:
            flow.delivery.sent_counts.offered(caravan_flow.marker)
            flow.delivery.offers(caravan_flow.marker)
        return frame

    def _looked_at(self, now: float) -> list[tuple[PushFlow, PublisherFlow]]:
        """The flows to check in this round: flows that may have something to send, and a part of all flows in
        proportion to the time since the last round.
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

    def _add_flow(self, push: PushFlow, flow: PublisherFlow, now: float, out: Messages) -> int:
        """Add the frames that one flow may send now. Returns the bytes that it used of the round."""
        caravan_flow = flow.delivery.caravan_flow
        if caravan_flow is None or push.phase is not FlowPhase.OPEN:
            return 0
        if caravan_flow.blocked and push.window.half_free:
            self._fleet.moved(caravan_flow)
        turn = _FlowTurn(push, flow, caravan_flow, now, out)
        cursor = caravan_flow.cursor
        if self._add_pieces(turn):
            self._end_turn(turn)
        if caravan_flow.cursor != cursor:  # even if the flow only skipped updates that the subscriber has
            self._fleet.moved(caravan_flow)
        return _QUANTUM - turn.quantum

    def _add_pieces(self, turn: _FlowTurn) -> bool:
        """Add pieces until the flow's quantum is used or nothing is left. Returns whether no piece stopped the flow."""
        caravan_flow = turn.caravan_flow
        while turn.quantum > 0 and (piece := _peek(caravan_flow)) is not None:
            step = next_step(piece, turn.flow, turn.push.window)
            if step is NextStep.SEND:
                self._send(turn, piece)
            elif step is NextStep.SKIP:
                skip_undecodable(turn.flow, caravan_flow, piece)
                continue
            elif step is not NextStep.PASS:
                self._stop(step, turn, piece)
                return False
            turn.quantum -= _PIECE if piece.body is None else max(_PIECE, piece.body.size)
            if piece.chunk is not None:
                self._add_ends(turn, piece, piece.chunk)
            caravan_flow.take()
            if piece.marker is not None and self._session.marker_due(turn.push, turn.now, soon=bool(piece.finished)):
                self._offer(turn)
        return True

    def _send(self, turn: _FlowTurn, piece: Piece) -> None:
        """Add the piece's updates."""
        push, flow, body, out = turn.push, turn.flow, piece.body, turn.out
        assert body is not None
        flow.holding.has_credit()
        self._starved.discard(push.number)
        if not push.window.in_flight:
            flow.holding.progressed(turn.now)  # the subscriber had nothing to process before
        if piece.marker is None and self._session.marker_due(push, turn.now, soon=True):
            self._offer(turn)  # the transaction that begins here may be long
        for schema in self._session.schemas(body.schemas):
            out.add(schema)
        for frame in self._session.batch(push, body.pieces, turn.caravan_flow.place, unfinished=body.unfinished):
            out.add(*frame)
        flow.delivery.sent(body)
        self._traffic.batches += 1

    def _stop(self, step: NextStep, turn: _FlowTurn, piece: Piece) -> None:
        """Do the ``step`` that prevents that the piece is sent now."""
        push, flow, caravan_flow = turn.push, turn.flow, turn.caravan_flow
        match step:
            case NextStep.WAIT:
                flow.holding.lacks_credit(turn.now)
                self._starved.add(push.number)
            case NextStep.ASK:
                missing, resume = ask_about_gap(self._fleet, flow, caravan_flow, piece)
                self.add(self._session.data_loss(push, missing, resume))
            case NextStep.BEGIN_AGAIN:
                self._undone(flow, piece.undone)
            case _:  # HOLD
                self._offer(turn)  # so that the sent updates are acknowledged
                hold(self._fleet, flow, caravan_flow, piece)

    def _end_turn(self, turn: _FlowTurn) -> None:
        """End a turn in which no piece stopped the flow: its quantum is used up, or all read log is sent."""
        push, caravan_flow = turn.push, turn.caravan_flow
        if turn.quantum <= 0:
            self._due.add(push.number)
            self._wake()
        elif caravan_flow.state is CaravanFlowState.TRAVELLING and self._session.marker_due(push, turn.now):
            self._offer(turn)
        else:
            self._look_again(turn)

    def _look_again(self, turn: _FlowTurn) -> None:
        """Set a timer if the flow's next datamarker is due before the next sweep reaches the flow."""
        push = turn.push
        left_s = push.marker_at + push.marker_every_s - turn.now
        if push.dirty and 0 < left_s < _SWEEP_S and push.number not in self._timed:
            self._timed.add(push.number)
            asyncio.get_running_loop().call_later(left_s, self._marker_comes_due, push.number, turn.flow)

    def _marker_comes_due(self, number: int, flow: PublisherFlow) -> None:
        self._timed.discard(number)
        self.wake(flow)

    def _add_ends(self, turn: _FlowTurn, piece: Piece, chunk: ChunkRange) -> None:
        """Add the frames after the rows of a chunk: the range of their keys, and the end of a table. Both are omitted
        if a filter of the backfill left out rows, or if rows could not be read.
        """
        backfill = turn.caravan_flow.backfill
        assert backfill is not None
        rows = 0 if piece.body is None else piece.body.updates
        for frame in self._session.chunk_end(turn.push, chunk, narrowed=backfill.narrowed, rows=rows):
            turn.out.add(frame)
        for table in piece.finished:
            if not backfill.narrowed and not table.unread:
                turn.out.add(self._session.scan_end(turn.push, table.table, backfill.generation, table.rows))

    def _offer(self, turn: _FlowTurn) -> None:
        frame = self.datamarker(turn.push, turn.flow, turn.caravan_flow, turn.now)
        if frame is not None:
            turn.out.add(frame)


def _peek(caravan_flow: CaravanFlow) -> Piece | None:
    return caravan_flow.peek() if caravan_flow.state is CaravanFlowState.TRAVELLING else None
