"""The pushing side of one stream, pure: which frame is sent next, and what an answer means.

The session takes frames and time (seconds, monotonic), and returns frames and events. It has no I/O. The grammar of a
stream, ``P`` the publisher, ``S`` the subscriber::

    stream    = P.Hello S.Welcome { flow | P.Heartbeat | S.Heartbeat } [ Goodbye ]
    flow      = P.Assign ( S.Failed | S.Released | S.Accepted { delivery } ending | P.Revoke [ S.Accepted ] ending )
    delivery  = P.Schema | P.Batch | P.Part { P.Part } | P.Datamarker | P.ShardNotice
              | P.ChunkEnd | P.ScanEnd                             (at a transaction's end)
              | S.Verified                                         (of a flow that is verified)
              | S.Progress | S.Ack | S.Report
              | S.Park { S.Park } P.Parked
              | P.DataLoss S.LossDecision                          (nothing is delivered in between)
    ending    = P.Revoke { S.Progress | S.Ack | S.LossDecision | S.Park | S.Report } ending
              | S.Released | S.Failed | end of stream

Progress returns credit. Only an ack is stored, and it is valid only for a marker that was offered in the same epoch. A
frame for a flow number that is closed belongs to a former epoch and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.errors import ProtocolError
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker, LastAck, LogPosition
from wormhole.model.schema import Schema, schema_id
from wormhole.model.segment import ChunkRange
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import UpdatePlace, rows_to_messages
from wormhole.push.backfill_frames import chunk_end_frames, key_schema
from wormhole.push.events import (
    Acked,
    Event,
    FailedReason,
    FlowFailed,
    FlowPhase,
    LetterArrived,
    LossDecided,
    Opened,
    ParkWanted,
    Parted,
    Progressed,
    PushFlow,
    Released,
    Reported,
    Verified,
    Welcomed,
)
from wormhole.push.frames import batch_frame, frame_bytes, part_frames
from wormhole.push.parking import MOST_BYTES, Arriving
from wormhole.push.room import Room, Share
from wormhole.push.verifying import Verifying
from wormhole.push.window import Window
from wormhole.wire.bounds import (
    MOST_EPOCHS,
    MOST_FRAME_BYTES,
    MOST_NAME,
    MOST_WINDOWS,
    check_count,
    check_name,
    check_seconds,
    fields,
    frames_of,
    shortened,
)
from wormhole.wire.markers import ack_to_message, marker_from_message, marker_to_bytes, marker_to_message
from wormhole.wire.v1 import push_pb2
from wormhole.wire.verification import mode_to_message

__all__ = [
    "MAX_VERSION",
    "MIN_VERSION",
    "Acked",
    "Event",
    "FailedReason",
    "FlowFailed",
    "FlowPhase",
    "LetterArrived",
    "LossDecided",
    "Opened",
    "ParkWanted",
    "Parted",
    "Progressed",
    "PushFlow",
    "PushSession",
    "Released",
    "Reported",
    "Verified",
    "Welcomed",
]

MIN_VERSION, MAX_VERSION = 3, 3

MARKER_EVERY_S = 1.0
MARKER_EVERY_BYTES = 4 << 20
IDLE_MARKER_EVERY_S = 10.0
MOST_OFFERED = (
    128  # unacknowledged markers of one flow: a subscriber that never acks must not take more and more memory
)
_ASSIGN_BYTES = 1024  # an assignment takes at most this, without skipped and parked updates
_FRAME_WORK = 2
_FRAME_BYTES_OF_WORK = 8192  # bytes of a frame for a unit of work: they are copied, and texts are decoded
_WINDOWS_OF_WORK = 4
_LETTER_WORK = 300  # an update to be parked takes two turns of other threads, and an answer
_PARK: Final = push_pb2.SubscriberFrame.DESCRIPTOR.fields_by_name["park"].number
_BODY: Final = push_pb2.Park.DESCRIPTOR.fields_by_name["body"].number
_MOST_PARK_FIELDS: Final = 64  # this release has eight; a later one may add some


class PushSession:
    """The session of one stream; see the module.

    ``max_frame_bytes``: the largest gRPC message that this side sends. ``room``: the subscriber's share of the memory
    for updates that it wants to be parked; ``None``: it is not shared. ``work``: the work for what the subscriber sent,
    in units of about a microsecond.
    """

    def __init__(self, hello: push_pb2.Hello, room: Share | None = None) -> None:
        self.hello = hello
        self.work = 0
        self._room = Room(MOST_BYTES).share(lambda error: None) if room is None else room
        self.max_frame_bytes = hello.max_frame_bytes
        self.flows: dict[int, PushFlow] = {}
        self.welcomed = False
        self.verifies = False
        """Whether the subscriber's application can compare rows with its own."""
        self.takes_ranges = False
        """Whether the application removes the rows of a range of keys that it holds and was not sent."""
        self.stale = 0
        self._numbers = 0
        self._schemas: set[int] = set()
        self._heartbeats = 0

    # -- frames to the subscriber

    def start(self) -> bytes:
        """The first frame."""
        return frame_bytes(push_pb2.PublisherFrame(hello=self.hello))

    def assign(
        self,
        application: str,
        shard: str,
        epoch: int,
        marker: Datamarker,
        replay_until: LogPosition | None,
        now: float,
        *,
        skip: Iterable[str] = (),
        park: bool = False,
        parked: Iterable[tuple[bytes, UpdatePlace]] = (),
        rolled_back: str = "",
        rewound: bool = False,
        move: int = 0,
        acknowledged: bool = False,
        last_ack: LastAck | None = None,
        yields: bool = False,
        generation: int = 0,
        verify: VerifyMode = VerifyMode.NONE,
    ) -> tuple[PushFlow, bytes]:
        """Open a flow that begins after ``marker``. For the keyword arguments see push.proto. ``verify``: ignored
        unless :attr:`verifies`.
        """
        self._numbers += 1
        replayed = replay_until is not None and replay_until > marker.order
        until = replay_until if replayed else None
        flow = PushFlow(self._numbers, application, shard, epoch, until, marker_at=now, parking=Arriving(self._room))
        self.flows[flow.number] = flow
        frame = push_pb2.Assign(
            flow=flow.number,
            epoch=epoch,
            application=application,
            shard=shard,
            marker=marker_to_message(marker),
            replayed=replayed,
            rolled_back=rolled_back,
            rewound=rewound,
            move=move,
            acknowledged=acknowledged,
            last_ack=ack_to_message(last_ack),
            yields=yields,
            park=park,
            generation=generation,
        )
        frame.MergeFrom(_set_aside(skip, parked))
        flow.generation = generation
        if self.verifies:
            frame.verify = mode_to_message(verify)
            flow.verifying = Verifying(verify)
        return flow, frame_bytes(push_pb2.PublisherFrame(assign=frame))

    def lacking(self, skip: Iterable[str], parked: Iterable[tuple[bytes, UpdatePlace]]) -> int:
        """The number of bytes by which an assignment with ``skip`` and ``parked`` would exceed the subscriber's largest
        message; 0 when it fits.
        """
        return max(0, _set_aside(skip, parked).ByteSize() + _ASSIGN_BYTES - self.max_frame_bytes)

    def parked(self, flow: PushFlow, update_id: str, refused: str = "") -> bytes:
        """The answer about an update to be parked: it is stored, or ``refused`` is the reason and the next step."""
        frame = push_pb2.Parked(flow=flow.number, epoch=flow.epoch, update_id=update_id, refused=refused)
        return frame_bytes(push_pb2.PublisherFrame(parked=frame))

    def letter(self, flow: PushFlow, schema: Schema, body: bytes, marker: Datamarker, now: float) -> list[bytes]:
        """Frames of a parked update that is delivered again, followed by its datamarker. The ack of this marker shows
        that the update was processed.

        Nothing may be in flight, and ``marker`` must not be offered already.
        """
        frames = self._numbered(flow, (body,), replayed=True)
        out = [*self.schemas((schema,)), *map(b"".join, frames)]
        offered = self.datamarker(flow, marker, now)
        return out if offered is None else [*out, offered]

    def schemas(self, schemas: Iterable[Schema]) -> list[bytes]:
        """Frames for the schemas that this stream has not sent yet."""
        out = []
        for schema in schemas:
            if schema.id not in self._schemas:
                self._schemas.add(schema.id)
                frame = push_pb2.SchemaFrame(id=schema.id, canonical=schema.canonical)
                out.append(frame_bytes(push_pb2.PublisherFrame(schema=frame)))
        return out

    def batch(
        self, flow: PushFlow, body: Sequence[bytes], begins: LogPosition, *, unfinished: bool = False
    ) -> list[list[bytes | memoryview]]:
        """A body, in pieces, as frames. Each frame is a list of pieces to join. The window must admit the body.

        ``begins``: the flow's place before it; ``unfinished``: its last transaction continues in the next body.
        """
        replayed = flow.replay_until is not None and begins < flow.replay_until
        if flow.replay_until is not None and not replayed:
            flow.replay_until = None
        return self._numbered(flow, body, replayed=replayed, unfinished=unfinished)

    def _numbered(
        self, flow: PushFlow, body: Sequence[bytes], *, replayed: bool, unfinished: bool = False
    ) -> list[list[bytes | memoryview]]:
        size = sum(map(len, body))
        number = flow.window.sent(size)
        flow.bytes_since += size
        flow.dirty = True
        room = self.max_frame_bytes - 256  # the frame's own fields
        if size <= room:
            return [batch_frame(flow.number, flow.epoch, number, replayed, body, unfinished)]
        return part_frames(flow.number, flow.epoch, number, replayed, body, room, unfinished)

    def marker_due(self, flow: PushFlow, now: float, *, soon: bool = False) -> bool:
        """Whether a datamarker should be offered: every second, or more often if the flow wants it, or every 4 MiB of
        updates, and every ten seconds when no update was selected. ``soon``: as soon as there were updates.
        """
        if len(flow.offered) >= MOST_OFFERED:
            return False
        waited = now - flow.marker_at
        if flow.dirty:
            every_s = min(flow.marker_every_s, MARKER_EVERY_S)
            return soon or waited >= every_s or flow.bytes_since >= MARKER_EVERY_BYTES
        return waited >= IDLE_MARKER_EVERY_S

    def datamarker(self, flow: PushFlow, marker: Datamarker, now: float) -> bytes | None:
        """Offer a datamarker; ``None`` if it equals the last one that was offered."""
        flow.marker_at, flow.bytes_since, flow.dirty = now, 0, False
        data = marker_to_bytes(marker)
        if flow.offered and flow.offered[-1][0] == data:
            return None
        flow.offered.append((data, marker))
        frame = push_pb2.DatamarkerFrame(flow=flow.number, epoch=flow.epoch, marker=marker_to_message(marker))
        return frame_bytes(push_pb2.PublisherFrame(datamarker=frame))

    def data_loss(self, flow: PushFlow, gap: LogGap, resume: Datamarker) -> bytes:
        """Report a gap; nothing is delivered until :class:`LossDecided`."""
        flow.phase = FlowPhase.DECIDING
        kind = {
            LossKind.PURGED: push_pb2.DataLoss.PURGED,
            LossKind.NOT_LOGGED: push_pb2.DataLoss.NOT_LOGGED,
            LossKind.DIVERGED: push_pb2.DataLoss.DIVERGED,
        }[gap.kind]
        frame = push_pb2.DataLoss(
            flow=flow.number,
            epoch=flow.epoch,
            kind=kind,
            first_missing=gap.first_missing,
            last_missing=gap.last_missing,
            resume=marker_to_message(resume),
            message=gap.message,
        )
        return frame_bytes(push_pb2.PublisherFrame(data_loss=frame))

    def notice(self, flow: PushFlow, *, begins: bool, latest: bool = False) -> bytes:
        """Report that a mass replay begins or ends here. The application is notified in order among the batches.
        ``latest``: only the last change of each key follows."""
        kind = push_pb2.ShardNotice.REPLAY_BEGIN if begins else push_pb2.ShardNotice.REPLAY_END
        frame = push_pb2.ShardNotice(flow=flow.number, epoch=flow.epoch, kind=kind, latest=latest)
        return frame_bytes(push_pb2.PublisherFrame(notice=frame))

    def chunk_end(self, flow: PushFlow, chunk: ChunkRange, *, narrowed: bool, rows: int) -> list[bytes]:
        """Frames after the rows of a chunk, ``rows`` READ updates. They follow the rows' batch and precede the next
        datamarker.

        ``narrowed``: the backfill has a filter of its own, in addition to the application's.
        """
        flow.dirty = True
        flow.verifying.sent(chunk.table, rows)
        ends = chunk_end_frames(
            flow.number, flow.epoch, chunk, narrowed=narrowed, rows=rows, max_frame_bytes=self.max_frame_bytes
        )
        return [*self.schemas((key_schema(chunk),)), *ends]

    def scan_end(self, flow: PushFlow, table: str, generation: int, rows: int) -> bytes:
        """The frame after the last row of the table in this generation. ``rows``: the number of READ updates in all.

        It follows the last :meth:`chunk_end` of the table and precedes the next datamarker.
        """
        flow.dirty = True
        flow.verifying.scanned(table)
        frame = push_pb2.ScanEnd(flow=flow.number, epoch=flow.epoch, table=table, generation=generation, rows=rows)
        return frame_bytes(push_pb2.PublisherFrame(scan_end=frame))

    def revoke(self, flow: PushFlow, cause: str) -> bytes:
        """Request that the subscriber releases the flow; :class:`Released` answers."""
        flow.phase = FlowPhase.REVOKED
        frame = push_pb2.Revoke(flow=flow.number, epoch=flow.epoch, cause=cause)
        return frame_bytes(push_pb2.PublisherFrame(revoke=frame))

    def heartbeat(self) -> bytes:
        """Keep the stream alive."""
        self._heartbeats += 1
        return frame_bytes(push_pb2.PublisherFrame(heartbeat=push_pb2.Heartbeat(number=self._heartbeats)))

    def goodbye(self, reason: push_pb2.Goodbye.Reason, message: str) -> bytes:
        """The last frame."""
        return frame_bytes(push_pb2.PublisherFrame(goodbye=push_pb2.Goodbye(reason=reason, message=message)))

    # -- frames from the subscriber

    def receive(self, data: bytes) -> Iterator[Event | None]:
        """The event of each frame of a subscriber's message; ``None``: the frame needs no action now. A frame is parsed
        only after the earlier ones were handled.

        Raises :class:`~wormhole.model.errors.ProtocolError`, which names frame and field, between two frames.
        """
        for piece in frames_of(data, "what the subscriber sent"):
            self.work += _FRAME_WORK + len(piece) // _FRAME_BYTES_OF_WORK
            yield self._frame(*_parsed(piece))

    def close(self) -> None:
        """End the stream: unfinished updates are dropped."""
        for flow in self.flows.values():
            flow.parking.drop()
        self.flows.clear()

    def _frame(self, frame: push_pb2.SubscriberFrame, body: bytes) -> Event | None:
        kind = frame.WhichOneof("kind")
        if kind == "goodbye":
            goodbye = frame.goodbye
            return Parted(goodbye.reason, shortened(goodbye.message), shortened(goodbye.hint))
        if kind == "welcome":
            return self._welcome(frame.welcome)
        if not self.welcomed:
            raise ProtocolError(f"{kind or 'a frame of an unknown kind'}: sent before welcome")
        match kind:
            case "heartbeat":
                return None
            case "progress":
                if (flow := self._flow(frame.progress)) is not None:
                    if flow.phase is FlowPhase.ASSIGNED:
                        raise ProtocolError(f"progress: {flow.name} was not accepted yet")
                    flow.window.returned(frame.progress.number)
                    return Progressed(flow, self._processed(frame.progress))
            case "ack":
                if (flow := self._flow(frame.ack)) is not None:
                    return self._ack(flow, frame.ack)
            case "park":
                if (flow := self._flow(frame.park)) is not None:
                    return self._park(flow, frame.park, body)
            case "report":
                if (flow := self._flow(frame.report)) is not None:
                    return Reported(flow, _report(frame.report.handler))
            case "verified":
                if (flow := self._flow(frame.verified)) is not None:
                    return self._verified(flow, frame.verified)
            case "accepted":
                if (flow := self._flow(frame.accepted)) is not None:
                    return self._accepted(flow, frame.accepted)
            case "released":
                if (flow := self._flow(frame.released)) is not None:
                    self._close(flow)
                    return Released(flow, self._processed(frame.released))
            case "failed":
                if (flow := self._flow(frame.failed)) is not None:
                    self._close(flow)
                    return self._failed(flow, frame.failed)
            case "loss_decision":
                if (flow := self._flow(frame.loss_decision)) is not None:
                    if flow.phase is FlowPhase.REVOKED:
                        return None  # the decision was sent before the revocation arrived
                    if flow.phase is not FlowPhase.DECIDING:
                        raise ProtocolError(f"loss_decision: {flow.name} received no data loss")
                    flow.phase = FlowPhase.OPEN
                    return LossDecided(flow, frame.loss_decision.proceed)
            case _:
                raise ProtocolError("a frame of a kind that this version does not know")
        return None

    def _close(self, flow: PushFlow) -> None:
        del self.flows[flow.number]
        flow.parking.drop()

    def _processed(
        self, frame: push_pb2.Accepted | push_pb2.Progress | push_pb2.Ack | push_pb2.Released
    ) -> Sequence[push_pb2.Processed]:
        check_count(frame.processed, MOST_WINDOWS, f"{type(frame).__name__.lower()}.processed")
        self.work += len(frame.processed) // _WINDOWS_OF_WORK
        return tuple(frame.processed)

    def _welcome(self, welcome: push_pb2.Welcome) -> Event:
        if self.welcomed:
            raise ProtocolError("welcome: sent twice")
        if not MIN_VERSION <= welcome.version <= MAX_VERSION:
            raise ProtocolError(f"welcome: version {welcome.version} was not offered ({MIN_VERSION}-{MAX_VERSION})")
        expected = (self.hello.application, self.hello.subscriber)
        if (welcome.application, welcome.subscriber) != expected:
            answers = f"{shortened(welcome.application)}/{shortened(welcome.subscriber)}"
            raise ProtocolError(f"welcome: {answers} answers at the address of {'/'.join(expected)}")
        if welcome.max_frame_bytes:
            if welcome.max_frame_bytes < 4096:
                raise ProtocolError(f"welcome: max_frame_bytes {welcome.max_frame_bytes} is below 4096")
            self.max_frame_bytes = min(self.max_frame_bytes, welcome.max_frame_bytes)
        self.welcomed = True
        self.verifies = welcome.verifies
        self.takes_ranges = welcome.takes_ranges
        return Welcomed(welcome.subscriber)

    def _flow(
        self,
        frame: push_pb2.Progress
        | push_pb2.Ack
        | push_pb2.Accepted
        | push_pb2.Released
        | push_pb2.Failed
        | push_pb2.LossDecision
        | push_pb2.Park
        | push_pb2.Report
        | push_pb2.Verified,
    ) -> PushFlow | None:
        flow = self.flows.get(frame.flow)
        if flow is None and not 0 < frame.flow <= self._numbers:
            raise ProtocolError(f"{type(frame).__name__.lower()}: flow {frame.flow} was never assigned on this stream")
        if flow is None or frame.epoch != flow.epoch:
            if flow is not None and frame.epoch > flow.epoch:
                raise ProtocolError(f"{flow.name}: epoch {frame.epoch} was never given; the flow is at {flow.epoch}")
            self.stale += 1
            return None
        return flow

    def _accepted(self, flow: PushFlow, frame: push_pb2.Accepted) -> Event:
        if flow.phase is FlowPhase.REVOKED:
            return Progressed(flow)
        if flow.phase is not FlowPhase.ASSIGNED:
            raise ProtocolError(f"accepted: {flow.name} is open already")
        if not frame.credit:
            raise ProtocolError(f"accepted: {flow.name} is given no credit")
        check_count(frame.epochs, MOST_EPOCHS, "accepted.epochs")
        flow.window = Window(frame.credit)
        flow.phase = FlowPhase.OPEN
        have = marker_from_message(frame.have) if frame.HasField("have") else None
        return Opened(flow, have, frame.life, self._processed(frame), tuple(frame.epochs), frame.move)

    def _ack(self, flow: PushFlow, frame: push_pb2.Ack) -> Event:
        data = marker_to_bytes(marker_from_message(frame.marker))
        for position, (offered, marker) in enumerate(flow.offered):
            if offered == data:
                for _ in range(position + 1):
                    flow.offered.popleft()
                return Acked(flow, marker, self._processed(frame))
        given = shortened(str(marker_from_message(frame.marker)))
        raise ProtocolError(f"ack: {flow.name} was never offered the marker {given}")

    def _park(self, flow: PushFlow, frame: push_pb2.Park, body: bytes) -> Event | None:
        if flow.phase is FlowPhase.ASSIGNED:
            raise ProtocolError(f"park: {flow.name} was not accepted yet")
        whole = flow.parking.take(frame, flow.name, body)
        if whole is None:
            return None
        if schema_id(whole.schema) not in self._schemas:  # not parsed before: it may have any number of columns
            whole.done()
            raise ProtocolError(f"park.schema: {flow.name} was sent no update with this schema on this stream")
        self.work += _LETTER_WORK
        return ParkWanted(flow, whole)

    def _verified(self, flow: PushFlow, frame: push_pb2.Verified) -> Event:
        before = flow.verifying.work
        found, confirm = flow.verifying.take(frame, flow.name)
        self.work += flow.verifying.work - before
        return Verified(flow, found, confirm)

    def _failed(self, flow: PushFlow, frame: push_pb2.Failed) -> Event:
        try:
            reason = FailedReason(frame.reason)
        except ValueError:
            raise ProtocolError(f"failed: {flow.name} fails for no known reason ({frame.reason})") from None
        update_id = check_name(frame.update_id, "failed.update_id")
        message, held_by = shortened(frame.message), shortened(frame.held_by)
        return FlowFailed(flow, reason, update_id, message, frame.held_epoch, held_by, frame.contested)


def _set_aside(skip: Iterable[str], parked: Iterable[tuple[bytes, UpdatePlace]]) -> push_pb2.Assign:
    """The part of an assignment about updates that get no callback."""
    return push_pb2.Assign(skip=skip, parked=rows_to_messages(parked))


def _parsed(piece: memoryview) -> tuple[push_pb2.SubscriberFrame, bytes]:
    """One frame, and the body of its update if the frame is large, which is then missing in the frame. The first field
    of a frame is its kind. Only a frame that carries an update may be large.
    """
    try:
        if len(piece) <= MOST_FRAME_BYTES:
            return push_pb2.SubscriberFrame.FromString(bytes(piece)), b""
        if piece[0] >> 3 != _PARK:
            raise ProtocolError(
                f"a frame of {len(piece)} bytes that carries no update; at most {MOST_FRAME_BYTES} are taken"
            )
        [(_, begin, end)] = fields(piece, 1, "a frame that carries an update")
        park, body = _without_body(piece[begin:end])
        return push_pb2.SubscriberFrame(park=push_pb2.Park.FromString(park)), body
    except ProtobufDecodeError as error:
        raise ProtocolError(f"what the subscriber sent is no valid message: {error}") from error


def _without_body(park: memoryview) -> tuple[bytes, bytes]:
    """A serialized ``Park`` without its body, and the body. The body is copied once: while megabytes are copied, the
    event loop serves no other subscriber.
    """
    rest, body, at = bytearray(), b"", 0
    for number, begin, end in fields(park, _MOST_PARK_FIELDS, "park"):
        if number == _BODY:
            body = bytes(park[begin:end])
        else:
            rest += park[at:end]
        at = end
    return bytes(rest), body


def _report(given: push_pb2.HandlerReport) -> push_pb2.HandlerReport:
    """A checked copy of the report, which keeps no other part of its message in memory."""
    return push_pb2.HandlerReport(
        updates=given.updates,
        busy_s=check_seconds(given.busy_s, "report.busy_s"),
        failures=given.failures,
        slowest_table=shortened(given.slowest_table, MOST_NAME),
        slowest_s=check_seconds(given.slowest_s, "report.slowest_s"),
        queued_bytes=given.queued_bytes,
        running_update=shortened(given.running_update, MOST_NAME),
        running_s=check_seconds(given.running_s, "report.running_s"),
        skipped=given.skipped,
        parked=given.parked,
    )
