"""One stream as seen by the subscriber: frames and time in, events and frames out. No I/O, no clock.

docs/wire.md describes the protocol. ``flow`` has the grammar of a flow. The grammar of a stream::

    publisher  = Hello { SchemaFrame | Assign | flow frame | Heartbeat } [ Goodbye ]
    subscriber = ( Welcome { flow answer | Heartbeat } [ Goodbye ] ) | Goodbye

A breach of the protocol is answered by one Goodbye(PROTOCOL), which names frame and field. The session then returns a
:class:`Closed` event, and ignores later frames. Frames of an older epoch, or of a flow that was released or has failed,
are not a breach, because the publisher may have sent them before it knew. They are dropped and counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from subscriber_sdk.backfill import check_chunk_end, check_scan_end
from subscriber_sdk.options.admission import Admission
from subscriber_sdk.stream.budget import FLOW_BYTES, Accounts, large_budget, state_budget
from subscriber_sdk.stream.counts import NO_COUNTS, Counts
from subscriber_sdk.stream.events import (
    Assigned,
    BatchArrived,
    Closed,
    Event,
    LossArrived,
    MarkerArrived,
    NoticeArrived,
    ParkAnswered,
    PublisherWelcomed,
    RangeArrived,
    Revoked,
    ScanEnded,
)
from subscriber_sdk.stream.flow import SubscriberFlow, SubscriberFlowPhase
from subscriber_sdk.stream.flow_port import NO_ABILITIES, Abilities, Held, PushingPeer
from subscriber_sdk.stream.outbox import Outbox
from wormhole.audit.window_counts import processed_to_messages
from wormhole.model.errors import ProtocolError
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.model.schema import Schema
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import Parcel, UpdatePlace, rows_from_messages
from wormhole.push.epochs import may_be_exceeded
from wormhole.push.parking import park_frames
from wormhole.wire.bounds import shortened
from wormhole.wire.markers import ack_from_message, marker_from_message, marker_to_message
from wormhole.wire.problems import code_of_goodbye
from wormhole.wire.v1 import push_pb2
from wormhole.wire.verification import mode_of

__all__ = ["VERSIONS", "Session"]

VERSIONS: Final = (3, 3)
"""The first and the last protocol version of this side (docs/wire.md)."""

_SILENCE: Final = 3  # missed heartbeats after which the other side is considered lost
_HELLO_S: Final = 10.0  # the timeout for a connection that sends no Hello
_REMEMBERED: Final = 4096  # the most ended flows whose late frames are recognised
_SCHEMA_BYTES: Final = 1 << 10
_COLUMN_BYTES: Final = 160  # memory of a column's object without its name; measured
_WAITING_BYTES: Final = 128  # memory of a datamarker or a notice without its texts
_STANDING_BYTES: Final = 1 << 10  # memory that a flow takes on the stream, without its worker
_LONGEST_TEXT: Final = 1000  # the most characters of a text that is kept or logged
_LISTS: Final = 8  # memory of a message's texts and places as objects, in multiples of its bytes
_OWN_STATE: Final = 64 << 20
_LONGEST_SHARD: Final = 4096
_UNREAD_FRAMES: Final = 50_000  # the most frames of ours that wait for a publisher that does not read
_PIECE: Final = 1 << 20  # bytes of one piece of a parked update's body; publishers accept messages of 4 MiB
_FLOW_FRAMES: Final = frozenset(
    {"batch", "part", "datamarker", "revoke", "notice", "data_loss", "parked", "chunk_end", "scan_end"}
)
_Goodbye = push_pb2.Goodbye
_Failed = push_pb2.Failed


class Session:
    """One stream. ``now`` is seconds of any monotonic clock, always the same one.

    ``peer``: the peer that dialled. ``abilities``: what the application can do, reported to the publisher.
    ``accounts``: limit the memory that the publisher makes this process use; ``None``: budgets for this stream alone.
    """

    def __init__(
        self,
        admission: Admission,
        *,
        max_frame_bytes: int,
        max_body_bytes: int,
        now: float,
        peer: PushingPeer | None = None,
        abilities: Abilities = NO_ABILITIES,
        accounts: Accounts | None = None,
    ) -> None:
        self._accounts = accounts or Accounts(state_budget(_OWN_STATE).open(""), large_budget(max_body_bytes).open(""))
        self._admission = admission
        self._abilities = abilities
        self._max_frame = max_frame_bytes
        self._max_body = max_body_bytes
        self._flows: dict[int, SubscriberFlow] = {}
        self._of_shard: dict[str, SubscriberFlow] = {}  # by shard the flow that was assigned last
        self._gone: OrderedDict[int, int] = OrderedDict()  # flow number -> newest epoch that ended
        self._schemas: dict[int, Schema] = {}
        self._out = Outbox()
        self._beats = 0
        self._heartbeat: float | None = None
        self._heard = self._spoke = now
        self._report_at = now
        self.peer = peer or PushingPeer()
        """The peer that dialled."""
        self.dropped = 0
        """The number of frames that were dropped because they arrived after the end of their epoch."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "hello awaited" if self._heartbeat is None else f"{len(self._flows)} flows"
        return f"<Session {self.peer.name or 'unknown publisher'}: {state}, {self.dropped} frames dropped>"

    @property
    def closed(self) -> bool:
        """Whether the stream is over."""
        return not self.peer.connected

    @property
    def welcomed(self) -> bool:
        """Whether the publisher was accepted."""
        return self._heartbeat is not None

    # --- in ---

    def receive(self, data: bytes, now: float) -> list[Event]:
        """One gRPC message."""
        events: list[Event] = []
        if self.closed:
            return events
        self._heard = now
        try:
            if len(data) > self._max_frame:
                raise ProtocolError(f"message of {len(data)} bytes; Welcome.max_frame_bytes was {self._max_frame}")
            try:
                message = push_pb2.PublisherMessage.FromString(data)
            except ProtobufDecodeError as error:
                raise ProtocolError(
                    f"PublisherMessage: {len(data)} bytes that are no valid message: {error}"
                ) from error
            if len(self._out) > _UNREAD_FRAMES:
                raise ProtocolError(f"{len(self._out)} answers wait: this publisher sends, and reads nothing")
            for frame in message.frames:
                self._frame(frame, events)
                if events and isinstance(events[-1], Closed):
                    break
        except ProtocolError as error:
            events.append(self.refuse(error))
        return events

    def tick(self, now: float) -> list[Event]:
        """Send due heartbeats, or end the stream if the other side was silent for too long. Call this at
        :meth:`deadline`."""
        if self.closed:
            return []
        if self._heartbeat is None:
            if now - self._heard >= _HELLO_S:
                return [self.refuse(ProtocolError(f"no Hello within {_HELLO_S:g} s"))]
            return []
        if now - self._heard >= _SILENCE * self._heartbeat:
            return [self._close(f"nothing heard from the publisher for {now - self._heard:.1f} s")]
        if now - self._spoke >= self._heartbeat:
            self._beats += 1
            self._out.add(heartbeat=push_pb2.Heartbeat(number=self._beats))
            self._spoke = now
        return []

    def silence_limit(self) -> float:
        """Seconds that the publisher may be silent, or leave our frames unread."""
        return _HELLO_S if self._heartbeat is None else _SILENCE * self._heartbeat

    def deadline(self) -> float:
        """The time at which :meth:`tick` has to be called next."""
        if self._heartbeat is None:
            return self._heard + _HELLO_S
        next_ = min(self._heard + _SILENCE * self._heartbeat, self._spoke + self._heartbeat)
        return min(next_, self._report_at)

    def report_due(self, now: float) -> bool:
        """Whether :meth:`report` is due, which is about once a heartbeat."""
        if self._heartbeat is None or now < self._report_at or self.closed:
            return False
        self._report_at = now + self._heartbeat
        return True

    @property
    def speaks(self) -> bool:
        """Whether a waiting frame should be sent at once, or the stream is over."""
        return self.closed or len(self._out) > 0

    def schema(self, id_: int) -> Schema:
        """A schema that arrived on this stream. Raises ``KeyError``."""
        return self._schemas[id_]

    def _frame(self, frame: push_pb2.PublisherFrame, events: list[Event]) -> None:
        kind = frame.WhichOneof("kind")
        if kind is None:
            raise ProtocolError(
                f"PublisherFrame.kind: a frame of a kind that protocol version {VERSIONS[1]} does not have"
            )
        if (self._heartbeat is None) != (kind == "hello"):
            raise ProtocolError(
                "hello: a second one" if kind == "hello" else f"{kind}: the first frame of a stream is hello"
            )
        given = getattr(frame, kind)
        if kind in _FLOW_FRAMES:
            flow = self._flow(kind, given.flow, given.epoch)
            if flow is not None:
                self._flow_frame(kind, flow, given, events)
        elif kind == "schema":
            self._learn(given)
        elif kind == "assign":
            self._assign(given, events)
        elif kind == "hello":
            self._hello(given, events)
        elif kind == "goodbye":
            name = _Goodbye.Reason.Name(given.reason) if given.reason in range(6) else "UNKNOWN"
            cause = f"publisher said goodbye ({name}) {_shown(given.message)}".rstrip()
            self.peer.left = given.reason == _Goodbye.LEAVING
            events.append(self._close(cause, expected=self.peer.left))
        # a heartbeat only shows that the publisher is alive

    def _flow_frame(self, kind: str, flow: SubscriberFlow, given: Any, events: list[Event]) -> None:
        number = flow.number
        if kind == "batch":
            body = flow.batch(given)
            if self._admits(flow):
                events.append(BatchArrived(number, given.number, given.replayed, body, given.unfinished))
        elif kind == "part":
            whole = flow.part(given)
            if self._admits(flow) and whole is not None:
                events.append(BatchArrived(number, given.number, given.replayed, whole, given.unfinished))
        elif kind == "datamarker":
            flow.between(kind)
            marker = _marker("datamarker.marker", given.marker)
            self._keep(flow, given.marker.ByteSize(), marker)
            events.append(MarkerArrived(number, marker))
        elif kind == "revoke":
            flow.close(SubscriberFlowPhase.REVOKED)
            events.append(Revoked(number, _shown(given.cause)))
        elif kind == "notice":
            flow.between(kind)
            self._keep(flow, 0)
            if given.kind not in {push_pb2.ShardNotice.REPLAY_BEGIN, push_pb2.ShardNotice.REPLAY_END}:
                raise ProtocolError(
                    f"notice.kind: {given.kind} is neither REPLAY_BEGIN nor REPLAY_END", shard=flow.shard
                )
            events.append(NoticeArrived(number, given.kind == push_pb2.ShardNotice.REPLAY_BEGIN, given.latest))
        elif kind == "data_loss":
            self._data_loss(flow, given, events)
        elif kind == "chunk_end":
            events.append(self._chunk_end(flow, given))
        elif kind == "scan_end":
            flow.between_transactions(kind)
            check_scan_end(given, flow.generation)
            self._keep(flow, given.ByteSize())
            events.append(ScanEnded(number, given.table, given.rows))
        elif kind == "parked":
            events.append(ParkAnswered(number, given.update_id, _shown(given.refused)))

    def _hello(self, hello: push_pb2.Hello, events: list[Event]) -> None:
        for name in ("publisher", "dataset", "copy", "log", "application", "subscriber", "owner"):
            if len(getattr(hello, name)) > _LONGEST_TEXT:
                raise ProtocolError(f"hello.{name}: longer than {_LONGEST_TEXT} characters")
        self.peer.name = hello.publisher or self.peer.name
        self.peer.dataset, self.peer.log, self.peer.owner = hello.dataset, hello.log, hello.owner
        refusal = self._admission.refuses_hello(hello, VERSIONS)
        refusal = refusal or self._admission.refuses_dataset(self.peer.names, hello.dataset)
        if refusal is not None:
            self.goodbye(*refusal)
            reason, message, hint = refusal
            events.append(Closed(message, refusal=Problem(message, hint, code_of_goodbye(reason))))
            return
        if not 0 < hello.heartbeat_ms <= 3_600_000:
            raise ProtocolError(f"hello.heartbeat_ms: {hello.heartbeat_ms}; 1 to 3600000 is allowed")
        self._heartbeat = hello.heartbeat_ms / 1000
        self._report_at = self._heard + self._heartbeat
        welcome = push_pb2.Welcome(
            version=min(VERSIONS[1], hello.max_version),
            application=self._admission.application,
            subscriber=self._admission.subscriber,
            max_frame_bytes=self._max_frame,
            verifies=self._abilities.verifies,
            takes_ranges=self._abilities.takes_ranges,
        )
        self._out.add(welcome=welcome)
        events.append(PublisherWelcomed())

    def _learn(self, frame: push_pb2.SchemaFrame) -> None:
        if frame.id in self._schemas:
            return
        # The bytes of a schema are kept twice: in the object and in the canonical form.
        self._accounts.state.charge(_SCHEMA_BYTES + 2 * len(frame.canonical), f"schema {frame.id:#018x}")
        try:
            schema = Schema.from_canonical(frame.canonical)
        except (ProtobufDecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(f"schema.canonical: no valid Schema: {error}") from error
        if schema.id != frame.id or schema.canonical != frame.canonical:
            raise ProtocolError(f"schema.id: {frame.id:#018x}, but its canonical bytes hash to {schema.id:#018x}")
        self._accounts.state.charge(
            _COLUMN_BYTES * (len(schema.key) + len(schema.columns)), f"schema of {_shown(schema.table)}"
        )
        self._schemas[frame.id] = schema

    def _assign(self, assign: push_pb2.Assign, events: list[Event]) -> None:
        application = self._admission.application
        if assign.application != application:
            raise ProtocolError(f"assign.application: {assign.application!r} on a stream of {application!r}")
        if not assign.shard:
            raise ProtocolError("assign.shard: empty")
        if len(assign.shard) > _LONGEST_SHARD:
            raise ProtocolError(f"assign.shard: longer than {_LONGEST_SHARD} characters")
        if len(assign.rolled_back) > _LONGEST_TEXT:
            raise ProtocolError(f"assign.rolled_back: longer than {_LONGEST_TEXT} characters")
        if not may_be_exceeded(assign.epoch):
            raise ProtocolError(
                (
                    f"assign.epoch: {assign.epoch}; epochs are below 2^63, and one without a successor would keep "
                    "every other publisher away"
                ),
                shard=assign.shard,
            )
        marker = _marker("assign.marker", assign.marker)
        old = self._flows.get(assign.flow)
        if old is not None:
            if old.shard != assign.shard:
                raise ProtocolError(f"assign.flow: {assign.flow} is in use for shard {old.shard}", shard=assign.shard)
            if old.epoch >= assign.epoch:
                raise ProtocolError(
                    f"assign.epoch: {assign.epoch} for flow {assign.flow}, which has epoch {old.epoch}", shard=old.shard
                )
            self.forget(assign.flow)
        self._forget_failed(assign.shard)
        generation = assign.generation
        verify = mode_of(assign.verify)
        if verify is None or (verify is not VerifyMode.NONE and not (self._abilities.verifies and generation)):
            why = "this release knows 0 to 2" if verify is None else "this flow cannot be verified"
            raise ProtocolError(f"assign.verify: {int(assign.verify)}; {why}", shard=assign.shard)
        flow = SubscriberFlow(assign.flow, assign.epoch, assign.shard, self._max_body, generation)
        flow.kept = _STANDING_BYTES + _LISTS * assign.ByteSize()
        self._accounts.state.charge(flow.kept, f"shard {_shown(assign.shard)}")
        self._flows[assign.flow] = flow
        self._of_shard[assign.shard] = flow
        events.append(
            Assigned(
                assign.flow,
                assign.epoch,
                assign.shard,
                marker,
                assign.replayed,
                tuple(assign.skip),
                assign.park,
                rows_from_messages(assign.parked),
                assign.rolled_back,
                assign.rewound,
                assign.yields,
                generation,
                verify,
                assign.move,
                assign.acknowledged,
                ack_from_message(assign.last_ack),
                FLOW_BYTES + 2 * len(assign.shard),
            )
        )

    def _forget_failed(self, shard: str) -> None:
        """Forget a failed flow of the shard, because the shard is assigned again under another flow number. The former
        number is never revoked."""
        flow = self._of_shard.get(shard)
        if flow is not None and flow.phase is SubscriberFlowPhase.FAILED:
            self.forget(flow.number)

    def _data_loss(self, flow: SubscriberFlow, loss: push_pb2.DataLoss, events: list[Event]) -> None:
        flow.between("data_loss")
        if flow.deciding:
            raise ProtocolError("data_loss.flow: another one is not decided yet", shard=flow.shard)
        flow.deciding = True
        self._keep(flow, loss.ByteSize())
        if loss.kind not in {push_pb2.DataLoss.PURGED, push_pb2.DataLoss.NOT_LOGGED, push_pb2.DataLoss.DIVERGED}:
            raise ProtocolError(f"data_loss.kind: {loss.kind} is not known", shard=flow.shard)
        resume = _marker("data_loss.resume", loss.resume) if loss.HasField("resume") else None
        events.append(LossArrived(flow.number, loss, resume))

    def _chunk_end(self, flow: SubscriberFlow, frame: push_pb2.ChunkEnd) -> RangeArrived:
        flow.between_transactions("chunk_end")
        schema = self._schemas.get(frame.schema)
        if schema is None:
            raise ProtocolError(f"chunk_end.schema: {frame.schema:#018x} was not sent on this stream", shard=flow.shard)
        check_chunk_end(frame, schema)
        data = frame.SerializeToString()
        self._keep(flow, len(data))
        return RangeArrived(flow.number, data, schema)

    def _admits(self, flow: SubscriberFlow) -> bool:
        """Charge the bytes of the flow's batch beyond its credit. Returns false if the budget has no space for them, so
        that the publisher has to send the batch again."""
        more = flow.excess - flow.excess_charged
        if more <= 0:
            return True
        try:
            self._accounts.large.charge(more, f"a batch of {flow.in_flight} bytes")
        except ProtocolError as error:
            self.fail(flow.number, _Failed.RESEND, "", error.message)
            return False
        flow.excess_charged = flow.excess
        return True

    def _keep(self, flow: SubscriberFlow, size: int, marker: Datamarker | None = None) -> None:
        """Charge a frame that is kept until a datamarker is acknowledged: the frame's ``marker``, or else the next."""
        cost = _WAITING_BYTES + 2 * size
        flow.keep(cost, marker)
        self._accounts.state.charge(cost, f"what waits for shard {_shown(flow.shard)}")

    def _flow(self, kind: str, number: int, epoch: int) -> SubscriberFlow | None:
        """The flow of a frame; ``None`` if the frame arrived too late."""
        flow = self._flows.get(number)
        newest = flow.epoch if flow is not None else self._gone.get(number)
        if newest is None:
            raise ProtocolError(f"{kind}.flow: {number} was never assigned on this stream")
        if epoch > newest:
            raise ProtocolError(f"{kind}.epoch: {epoch} of flow {number}, which was assigned in epoch {newest}")
        if (
            flow is None
            or epoch < newest
            or flow.phase is SubscriberFlowPhase.REVOKED
            or (flow.phase is SubscriberFlowPhase.FAILED and kind != "revoke")
        ):
            self.dropped += 1
            return None
        return flow

    # --- out ---

    def accept(
        self, number: int, credit: int, have: Datamarker | None, counts: Counts = NO_COUNTS, move: int = 0
    ) -> None:
        """Accept the flow, so that the first batch may be sent. Nothing is sent if the flow was revoked meanwhile.

        ``move``: the number of the last move that the application knew when it stored ``have``; 0: unknown.
        ``counts``: reported from now on. Their present content is from before this epoch.
        """
        flow = self._flows[number]
        if flow.phase is not SubscriberFlowPhase.ASSIGNED:
            return
        flow.phase = SubscriberFlowPhase.OPEN
        flow.credit = credit
        before = self._out.begin(flow, counts)
        accepted = push_pb2.Accepted(
            flow=number,
            epoch=flow.epoch,
            credit=credit,
            life=before.life,
            processed=processed_to_messages(before.windows),
            epochs=counts.epochs,
            move=move,
        )
        if have is not None:
            accepted.have.CopyFrom(marker_to_message(have))
        self._out.add(accepted=accepted)

    def progress(self, number: int, batch: int | None) -> bool:
        """Report that callbacks of the flow's batches up to ``batch`` have returned; ``None``: only the counts changed.
        Returns whether the report should be sent at once, because the publisher may soon wait for the credit.
        """
        flow = self._flows[number]
        if batch is not None:
            flow.progress(batch)
            if flow.excess_charged and not flow.excess:
                self._accounts.large.release(flow.excess_charged)
                flow.excess_charged = 0
        self._out.progress(flow)
        return flow.owes_credit

    def ack(self, number: int, marker: Datamarker) -> None:
        """Acknowledge a marker that was offered in this epoch."""
        flow = self._flows[number]
        self._accounts.state.release(flow.acknowledged(marker))
        self._out.ack(flow, marker)

    def release(self, number: int, marker: Datamarker | None) -> None:
        """Release the flow; ``marker`` is the last one acknowledged in this epoch."""
        flow = self._flows[number]
        life, processed = self._out.last(flow)
        released = push_pb2.Released(flow=number, epoch=flow.epoch, life=life, processed=processed)
        if marker is not None:
            released.marker.CopyFrom(marker_to_message(marker))
        self._out.add(released=released)
        self.forget(number)

    def fail(
        self, number: int, reason: push_pb2.Failed.Reason, update_id: str, message: str, held: Held | None = None
    ) -> None:
        """Report that the flow cannot continue at this subscriber. The session still knows the flow, so that the
        publisher may revoke it. ``held``: for STALE_EPOCH, the epoch that this process holds.
        """
        flow = self._flows[number]
        self._out.end(flow)
        failed = _Failed(flow=number, epoch=flow.epoch, reason=reason, update_id=update_id, message=shortened(message))
        if held is not None:
            failed.held_epoch, failed.held_by, failed.contested = held.epoch, held.by, held.contested
        self._out.add(failed=failed)
        if flow.phase is not SubscriberFlowPhase.REVOKED:
            flow.close(SubscriberFlowPhase.FAILED)

    def park(self, number: int, update_id: str, parcel: Parcel, place: UpdatePlace, error: str) -> None:
        """Have the publisher park an update. Its answer is a :class:`ParkAnswered` event."""
        epoch = self._flows[number].epoch
        for park in park_frames(update_id, parcel, place, error, _PIECE):
            park.flow, park.epoch = number, epoch
            self._out.add(park=park)

    def report(self, number: int, report: push_pb2.HandlerReport) -> None:
        """Report on a flow's callbacks. Nothing is sent if nothing changed."""
        self._out.report(self._flows[number], report)

    def verified(self, number: int, verified: push_pb2.Verified) -> None:
        """Report the findings about a table since the last such frame."""
        verified.flow, verified.epoch = number, self._flows[number].epoch
        self._out.add(verified=verified)

    def decide_loss(self, number: int, *, proceed: bool) -> None:
        """Answer whether the flow continues after a data loss."""
        self._flows[number].deciding = False
        decision = push_pb2.LossDecision(flow=number, epoch=self._flows[number].epoch, proceed=proceed)
        self._out.add(loss_decision=decision)

    def hold(self, size: int, what: str) -> Callable[[], None]:
        """Charge ``size`` bytes of memory for ``what`` to this publisher. The returned function ends the charge. Raises
        :class:`~wormhole.model.errors.ProtocolError` if the publisher exceeds its budget.
        """
        self._accounts.state.charge(size, what)
        return partial(self._accounts.state.release, size)

    def end(self) -> None:
        """Close the accounts of the stream, because the stream is over."""
        self.peer.connected = False
        self._accounts.close()

    def goodbye(self, reason: push_pb2.Goodbye.Reason, message: str, hint: str = "") -> None:
        """Send the last frame of the stream."""
        self._out.flush()
        goodbye = _Goodbye(reason=reason, message=shortened(message), hint=shortened(hint))
        self._out.add(goodbye=goodbye)
        self.peer.connected = False

    def refuse(self, error: ProtocolError) -> Closed:
        """End the stream, because the publisher broke the protocol."""
        self.goodbye(
            _Goodbye.PROTOCOL,
            str(error),
            error.hint or "compare the releases on both sides; the publisher's frames are described in docs/wire.md",
        )
        return self._close(str(error))

    def forget(self, number: int) -> None:
        """Send nothing more for the flow, and drop its late frames."""
        flow = self._flows.pop(number)
        self._accounts.state.release(flow.kept)
        self._accounts.large.release(flow.excess_charged)
        if self._of_shard.get(flow.shard) is flow:
            del self._of_shard[flow.shard]
        self._out.forget(number)
        self._gone[number] = flow.epoch
        self._gone.move_to_end(number)
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def has(self, number: int, epoch: int) -> bool:
        """Whether the stream still has this flow."""
        flow = self._flows.get(number)
        return flow is not None and flow.epoch == epoch and not self.closed

    def take_output(self, now: float) -> bytes | None:
        """The waiting frames as one message, at most 4096 frames; ``None`` if no frame waits."""
        data = self._out.take()
        if data is not None:
            self._spoke = now
        return data

    def _close(self, cause: str, *, expected: bool = False) -> Closed:
        self.peer.connected = False
        return Closed(cause, expected)


def _shown(text: str) -> str:
    """The text shortened for logs and answers, because a publisher's text may fill a message."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _marker(where: str, message: push_pb2.Datamarker) -> Datamarker:
    try:
        return marker_from_message(message)
    except ProtocolError as error:
        raise ProtocolError(f"{where}: {error.message}") from error
