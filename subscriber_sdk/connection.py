"""One stream joined to the flows that it feeds. Bytes in, bytes out; the carrying is ``server``'s (or a test's)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from subscriber_sdk.acks import BatchItem, LossItem, MarkerItem, NoticeItem
from subscriber_sdk.budget import STREAM_BYTES
from subscriber_sdk.counts import Counts
from subscriber_sdk.dispatch import FlowWorker
from subscriber_sdk.epoch import Ending
from subscriber_sdk.events import (
    Assigned,
    BatchArrived,
    Closed,
    Event,
    LossTold,
    MarkerArrived,
    Noticed,
    ParkAnswered,
    Revoked,
)
from subscriber_sdk.port import Held, Peer
from subscriber_sdk.recorded import AskEpochs, Recorded
from subscriber_sdk.session import Session
from subscriber_sdk.shards import Shards
from subscriber_sdk.subscriber import DataLoss, NoticeKind, ShardNotice
from wormhole.model.errors import ProtocolError
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema
from wormhole.ports.dead_letters import Parcel, UpdatePlace
from wormhole.wire.v1 import push_pb2

__all__ = ["Connection"]

log = logging.getLogger("subscriber_sdk")

_LOSS = {
    push_pb2.DataLoss.PURGED: LossKind.PURGED,
    push_pb2.DataLoss.NOT_LOGGED: LossKind.NOT_LOGGED,
    push_pb2.DataLoss.DIVERGED: LossKind.DIVERGED,
}


class Connection:
    """Feeds a session's events to flows and their answers to the session.

    ``output``: called when :meth:`take_output` has something, or the stream should end. It may be called often; it has
    to be cheap. ``epochs``: where assignments are looked up before they are taken.
    """

    def __init__(
        self, session: Session, shards: Shards, output: Callable[[], None], epochs: AskEpochs | None = None
    ) -> None:
        self.session = session
        self._recorded = None if epochs is None else Recorded(epochs, self._take, self._unrecorded)
        self._shards = shards
        self._output = output
        self._workers: dict[int, FlowWorker] = {}

    @property
    def closed(self) -> bool:
        """Whether the stream should end once the output was sent."""
        return self.session.closed

    def begin(self) -> None:
        """The stream is open: it takes its part of what publishers may make this process keep."""
        try:
            self.session.hold(STREAM_BYTES, "a stream")
        except ProtocolError as error:
            self.refuse(error)

    def receive(self, data: bytes, now: float) -> None:
        """One message of the publisher."""
        for event in self.session.receive(data, now):
            self._handle(event)
        self._output()

    def refuse(self, error: ProtocolError) -> None:
        """End the stream, with the reason."""
        if not self.session.closed:
            self._handle(self.session.refuse(error))
            self._output()

    def tick(self, now: float) -> None:
        """Time passed."""
        for event in self.session.tick(now):
            self._handle(event)
        self._output()

    def take_output(self, now: float) -> bytes | None:
        """What to send next. It may be called again at once, for more."""
        if self.session.report_due(now):
            for flow, worker in self._workers.items():
                if self.session.has(flow, worker.epoch):
                    self.session.report(flow, worker.report(now))
        return self.session.take_output(now)

    def lost(self, cause: str) -> None:
        """The stream ended: running callbacks finish, everything else of its flows is dropped."""
        self.session.end()
        if self._recorded is not None:
            self._recorded.close()
        workers, self._workers = self._workers, {}
        for worker in workers.values():
            worker.end(Ending.LOST, cause)

    def leave(self) -> None:
        """Every flow was released: say goodbye."""
        if not self.session.closed:
            self.session.goodbye(push_pb2.Goodbye.LEAVING, "this subscriber leaves")
            self._output()

    def dismiss(self, message: str, hint: str) -> None:
        """End the stream of a publisher that may push no longer."""
        if not self.session.closed:
            self.session.goodbye(push_pb2.Goodbye.NOT_ALLOWED, message, hint)
            self._output()

    def _handle(self, event: Event) -> None:
        match event:
            case BatchArrived():
                self._feed(event.flow, BatchItem(event.number, event.replayed, event.body, event.unfinished))
            case MarkerArrived():
                self._feed(event.flow, MarkerItem(event.marker))
            case Assigned():
                self._assign(event)
            case Revoked():
                worker = self._workers.pop(event.flow, None)
                if worker is not None:
                    worker.end(Ending.REVOKED, event.cause)
                elif self._recorded is not None and self._recorded.drop(event.flow):
                    self.session.release(event.flow, None)
            case Noticed():
                self._notice(event)
            case ParkAnswered():
                worker = self._workers.get(event.flow)
                if worker is not None:
                    worker.park_answered(event.update_id, event.refused)
            case LossTold():
                self._loss(event)
            case Closed():
                level = logging.INFO if event.expected else logging.WARNING
                log.log(level, "stream of %s ends: %s", self.session.peer.name, event.cause)
                self.lost(event.cause)

    def _feed(self, flow: int, item: BatchItem | MarkerItem | NoticeItem | LossItem) -> None:
        worker = self._workers.get(flow)
        if worker is not None:
            worker.feed(item)

    def _assign(self, event: Assigned) -> None:
        if self.session.closed:
            return  # by an event before it in the same message
        log.debug(
            "publisher %s assigns shard %s in epoch %d from %s",
            self.session.peer.name,
            event.shard,
            event.epoch,
            event.marker,
        )
        if self._recorded is None:
            self._take(event)
        else:
            self._recorded.add(event)

    def _unrecorded(self, event: Assigned, recorded: int) -> None:
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
        except ProtocolError as error:  # it makes this process keep too much
            self._handle(self.session.refuse(error))
            return
        if worker is not None:
            self._workers[event.flow] = worker
            worker.when_ended(lambda: self._ended(event.flow, worker))

    def _ended(self, flow: int, worker: FlowWorker) -> None:
        if self._workers.get(flow) is worker:
            del self._workers[flow]

    def _notice(self, event: Noticed) -> None:
        worker = self._workers.get(event.flow)
        if worker is not None:
            kind = NoticeKind.REPLAY_BEGIN if event.begin else NoticeKind.REPLAY_END
            worker.feed(NoticeItem(ShardNotice(kind, worker.shard, worker.epoch)))

    def _loss(self, event: LossTold) -> None:
        worker = self._workers.get(event.flow)
        if worker is not None:
            frame = event.frame
            loss = DataLoss(
                worker.shard,
                worker.epoch,
                _LOSS[frame.kind],
                frame.first_missing,
                frame.last_missing,
                event.resume,
                frame.message,
            )
            worker.feed(LossItem(loss))


class _Port:
    """Answers of one epoch of a flow; silent once the stream or the epoch is over."""

    __slots__ = ("_connection", "_epoch", "_flow", "_session")

    def __init__(self, connection: Connection, flow: int, epoch: int) -> None:
        self._connection = connection
        self._session = connection.session
        self._flow = flow
        self._epoch = epoch

    def _live(self) -> bool:
        return self._session.has(self._flow, self._epoch)

    def accept(self, credit: int, have: Datamarker | None, counts: Counts | None = None) -> None:
        if self._live():
            self._session.accept(self._flow, credit, have, counts)
            self._connection._output()

    def progress(self, number: int | None) -> None:
        if self._live():
            self._session.progress(self._flow, number)
            self._connection._output()

    def ack(self, marker: Datamarker) -> None:
        if self._live():
            self._session.ack(self._flow, marker)
            self._connection._output()

    def release(self, marker: Datamarker | None) -> None:
        if self._live():
            self._session.release(self._flow, marker)
            self._connection._output()

    @property
    def peer(self) -> Peer:
        return self._session.peer

    def fail(self, reason: push_pb2.Failed.Reason, update_id: str, message: str, held: Held | None = None) -> None:
        if self._live():
            self._session.fail(self._flow, reason, update_id, message, held)
            self._connection._output()

    def park(self, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        if self._live():
            self._session.park(self._flow, update_id, parcel, place, error)
            self._connection._output()

    def decide_loss(self, *, proceed: bool) -> None:
        if self._live():
            self._session.decide_loss(self._flow, proceed=proceed)
            self._connection._output()

    def refuse(self, error: ProtocolError) -> None:
        if self._live():
            self._connection.refuse(error)

    def hold(self, size: int, what: str) -> Callable[[], None]:
        return self._session.hold(size, what)

    def schema(self, id_: int) -> Schema:
        return self._session.schema(id_)
