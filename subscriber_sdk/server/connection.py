"""Connects one stream to the flows that it feeds. Takes and returns bytes, which ``stream`` (or a test) transports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from subscriber_sdk.calls.epoch import Ending
from subscriber_sdk.server.epoch_records import AskEpochs, EpochRecords
from subscriber_sdk.server.publishers import Publishers
from subscriber_sdk.stream.budget import STREAM_BYTES
from subscriber_sdk.stream.counts import Counts
from subscriber_sdk.stream.events import (
    Assigned,
    BatchArrived,
    Closed,
    Event,
    FlowEvent,
    LossArrived,
    MarkerArrived,
    NoticeArrived,
    ParkAnswered,
    PublisherWelcomed,
    RangeArrived,
    Revoked,
    ScanEnded,
)
from subscriber_sdk.stream.flow_port import Held
from subscriber_sdk.stream.session import Session
from subscriber_sdk.subscriber import DataLoss, NoticeKind, ShardNotice
from subscriber_sdk.work.acks import BatchItem, LossItem, MarkerItem, NoticeItem, RangeItem, ScanEndItem
from subscriber_sdk.work.flow_worker import FlowWorker
from subscriber_sdk.work.shards import Shards
from wormhole.model.errors import ProtocolError
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker
from wormhole.ports.dead_letters import Parcel, UpdatePlace
from wormhole.wire.v1 import push_pb2

__all__ = ["PublisherConnection"]

log = logging.getLogger("subscriber_sdk")

_LOSS = {
    push_pb2.DataLoss.PURGED: LossKind.PURGED,
    push_pb2.DataLoss.NOT_LOGGED: LossKind.NOT_LOGGED,
    push_pb2.DataLoss.DIVERGED: LossKind.DIVERGED,
}


class PublisherConnection:
    """Feeds a session's events to flows and their answers to the session.

    ``output``: called when :meth:`take_output` has something, or the stream should end. Calls are frequent, so they
    have to be cheap. ``soon``: called in place of ``output`` for output that may wait a moment for more; by default
    ``output``. ``epochs``: looks up the recorded epoch of an assignment before the assignment is taken. ``publishers``:
    logs accepted and refused publishers.
    """

    def __init__(
        self,
        session: Session,
        shards: Shards,
        output: Callable[[], None],
        epochs: AskEpochs | None = None,
        publishers: Publishers | None = None,
        soon: Callable[[], None] | None = None,
    ) -> None:
        self.session = session
        self._publishers = publishers
        self._unchecked = None if epochs is None else EpochRecords(epochs, self._take, self._refuse_unrecorded)
        self._shards = shards
        self._output = output
        self._soon = soon or output
        self._workers: dict[int, FlowWorker] = {}

    @property
    def closed(self) -> bool:
        """Whether the stream should end after the output was sent."""
        return self.session.closed

    def begin(self) -> None:
        """Open the accounts of the stream in the memory budgets, because the stream is open."""
        try:
            self.session.hold(STREAM_BYTES, "a stream")
        except ProtocolError as error:
            self.refuse(error)

    def receive(self, data: bytes, now: float) -> None:
        """Handle one message of the publisher."""
        for event in self.session.receive(data, now):
            self._handle(event)
        if self.session.speaks:
            self._output()

    def refuse(self, error: ProtocolError) -> None:
        """End the stream with a goodbye that contains the reason."""
        if not self.session.closed:
            self._handle(self.session.refuse(error))
            self._output()

    def tick(self, now: float) -> None:
        """Time passed."""
        for event in self.session.tick(now):
            self._handle(event)
        self._output()

    def take_output(self, now: float) -> bytes | None:
        """The next message to send; ``None``: nothing waits. Call again for more."""
        if self.session.report_due(now):
            for flow, worker in self._workers.items():
                if self.session.has(flow, worker.epoch.number):
                    self.session.report(flow, worker.report(now))
        return self.session.take_output(now)

    def lost(self, cause: str) -> None:
        """End the stream's flows, because the stream is over. Running callbacks finish. All other work is dropped."""
        self.session.end()
        if self._unchecked is not None:
            self._unchecked.close()
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.end(Ending.LOST, cause)

    def leave(self) -> None:
        """Send goodbye, because every flow was released."""
        if not self.session.closed:
            self.session.goodbye(push_pb2.Goodbye.LEAVING, "this subscriber leaves")
            self._output()

    def dismiss(self, message: str, hint: str) -> None:
        """End the stream of a publisher that may no longer push."""
        if not self.session.closed:
            self.session.goodbye(push_pb2.Goodbye.NOT_ALLOWED, message, hint)
            self._output()

    def _handle(self, event: Event) -> None:
        match event:
            case PublisherWelcomed():
                if self._publishers is not None:
                    self._publishers.connected(self.session.peer)
            case Assigned():
                self._assign(event)
            case Closed():
                if event.refusal is not None and self._publishers is not None:
                    self._publishers.refused(self.session.peer.name, event.refusal)
                else:
                    level = logging.INFO if event.expected else logging.WARNING
                    log.log(level, "stream of %s ends: %s", self.session.peer.name, event.cause)
                self.lost(event.cause)
            case _:
                worker = self._workers.get(event.flow)
                if worker is not None:
                    self._feed(worker, event)
                elif isinstance(event, Revoked) and self._unchecked is not None:
                    assigned = self._unchecked.drop(event.flow)
                    if assigned is not None:
                        self._shards.give_back(_Port(self, event.flow, assigned.epoch), assigned.shard)

    def _feed(self, worker: FlowWorker, event: FlowEvent) -> None:
        epoch = worker.epoch
        match event:
            case BatchArrived():
                worker.feed(BatchItem(event.number, event.replayed, event.body, event.unfinished))
            case MarkerArrived():
                worker.feed(MarkerItem(event.marker))
            case Revoked():
                del self._workers[event.flow]
                worker.end(Ending.REVOKED, event.cause)
            case NoticeArrived():
                kind = NoticeKind.REPLAY_BEGIN if event.begin else NoticeKind.REPLAY_END
                worker.feed(NoticeItem(ShardNotice(kind, epoch.shard, epoch.number, latest=event.latest)))
            case RangeArrived():
                worker.feed(RangeItem(event.frame, event.schema))
            case ScanEnded():
                worker.feed(ScanEndItem(event.table, event.rows))
            case ParkAnswered():
                worker.park_answered(event.update_id, event.refused)
            case LossArrived():
                loss = event.frame
                missing = (loss.first_missing, loss.last_missing)
                kind_of_loss = _LOSS[loss.kind]
                worker.feed(
                    LossItem(DataLoss(epoch.shard, epoch.number, kind_of_loss, *missing, event.resume, loss.message))
                )

    def _assign(self, event: Assigned) -> None:
        if self.session.closed:
            return  # an earlier event of the same message closed the stream
        log.debug(
            "publisher %s assigns shard %s in epoch %d from %s",
            self.session.peer.name,
            event.shard,
            event.epoch,
            event.marker,
        )
        if self._unchecked is None:
            self._take(event)
        else:
            self._unchecked.add(event)

    def _refuse_unrecorded(self, event: Assigned, recorded: int) -> None:
        message = f"epoch {event.epoch} of shard {event.shard} is refused: the coordinator records " + (
            f"epoch {recorded} for it" if recorded else "none for it"
        )
        log.warning("publisher %s: %s", self.session.peer.name, message)
        if self.session.has(event.flow, event.epoch):
            self.session.fail(event.flow, push_pb2.Failed.RESEND, "", message)
            self._output()

    def _take(self, event: Assigned) -> None:
        if not self.session.has(event.flow, event.epoch):
            return
        try:
            worker = self._shards.assign(_Port(self, event.flow, event.epoch), event)
        except ProtocolError as error:  # the flow would use more memory than the publisher may
            self._handle(self.session.refuse(error))
            return
        if worker is not None:
            self._workers[event.flow] = worker
            worker.when_ended(lambda: self._ended(event.flow, worker))

    def _ended(self, flow: int, worker: FlowWorker) -> None:
        if self._workers.get(flow) is worker:
            del self._workers[flow]


class _Port:
    """The port for the answers of one epoch of a flow. Answers after the end of the stream or epoch are dropped."""

    __slots__ = ("_connection", "_epoch", "_flow", "_session", "hold", "peer", "schema")

    def __init__(self, connection: PublisherConnection, flow: int, epoch: int) -> None:
        self._connection = connection
        self._session = session = connection.session
        self._flow = flow
        self._epoch = epoch
        self.peer = session.peer
        self.hold = session.hold
        self.schema = session.schema

    def accept(self, credit: int, have: Datamarker | None, counts: Counts, move: int) -> None:
        self._answer(self._session.accept, credit, have, counts, move)

    def progress(self, number: int | None) -> None:
        if self._session.has(self._flow, self._epoch):
            at_once = self._session.progress(self._flow, number)
            (self._connection._output if at_once else self._connection._soon)()

    def ack(self, marker: Datamarker) -> bool:
        return self._answer(self._session.ack, marker)

    def release(self, marker: Datamarker | None) -> None:
        self._answer(self._session.release, marker)

    def fail(self, reason: push_pb2.Failed.Reason, update_id: str, message: str, held: Held | None = None) -> None:
        self._answer(self._session.fail, reason, update_id, message, held)

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        self._answer(self._session.park, update_id, parcel, place, error)

    def verified(self, verified: push_pb2.Verified) -> None:
        self._answer(self._session.verified, verified)

    def decide_loss(self, *, proceed: bool) -> None:
        self._answer(partial(self._session.decide_loss, proceed=proceed))

    def refuse(self, error: ProtocolError) -> None:
        if self._session.has(self._flow, self._epoch):
            self._connection.refuse(error)

    def _answer(self, answer: Callable[..., None], *what: Any) -> bool:
        """Returns whether the answer was taken to be sent."""
        if not self._session.has(self._flow, self._epoch):
            return False
        answer(self._flow, *what)
        self._connection._output()
        return True
