"""The types of :mod:`wormhole.push.session`: the flows of one stream, and events, the meaning of frames. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.model.verification import TableVerification
from wormhole.ports.dead_letters import DeadLetter, Parcel
from wormhole.push.parking import Arrived, Arriving
from wormhole.push.verifying import Verifying
from wormhole.push.window import Window
from wormhole.wire.v1 import push_pb2

__all__ = [
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
    "Released",
    "Reported",
    "Verified",
    "Welcomed",
]


class FlowPhase(Enum):
    """The state of a flow in the grammar of :mod:`wormhole.push.session`."""

    ASSIGNED = auto()
    OPEN = auto()
    DECIDING = auto()
    REVOKED = auto()


class FailedReason(Enum):
    """The reason why a subscriber cannot continue a flow; see push.proto."""

    RESEND = push_pb2.Failed.RESEND
    HANDLER = push_pb2.Failed.HANDLER
    STALE_EPOCH = push_pb2.Failed.STALE_EPOCH


@dataclass(slots=True)
class PushFlow:
    """One flow on one stream.

    ``replay_until``: updates that end at or before this place may have been delivered before. ``generation``: the
    number of its last backfill, as assigned. ``marker_every_s``: how often a datamarker is offered while there are
    updates.
    """

    number: int
    application: str
    shard: str
    epoch: int
    replay_until: LogPosition | None
    phase: FlowPhase = FlowPhase.ASSIGNED
    window: Window = field(default_factory=lambda: Window(0))
    offered: deque[tuple[bytes, Datamarker]] = field(default_factory=deque)
    marker_at: float = 0.0
    bytes_since: int = 0
    dirty: bool = False
    parking: Arriving = field(default_factory=Arriving)
    """An update that is being parked and may not have arrived completely."""
    verifying: Verifying = field(default_factory=Verifying)
    generation: int = 0
    marker_every_s: float = 1.0

    @property
    def name(self) -> str:
        """``APP/SHARD``."""
        return flow_name(self.application, self.shard)


@dataclass(slots=True, frozen=True)
class Welcomed:
    """The subscriber answered; flows may be assigned."""

    subscriber: str


@dataclass(slots=True, frozen=True)
class Opened:
    """The subscriber accepts the flow. ``have``, if given, replaces the stored marker.

    ``life`` (0: the subscriber keeps no counts), ``processed`` and ``epochs``: what it counted before, and in which
    epochs. ``move``: the number of the last move that the application knew when it stored ``have``; 0: unknown.
    """

    flow: PushFlow
    have: Datamarker | None
    life: int = 0
    processed: Sequence[push_pb2.Processed] = ()
    epochs: Sequence[int] = ()
    move: int = 0


@dataclass(slots=True, frozen=True)
class Progressed:
    """Credit was returned, and ``processed`` was counted."""

    flow: PushFlow
    processed: Sequence[push_pb2.Processed] = ()


@dataclass(slots=True, frozen=True)
class Acked:
    """``marker`` was processed and may be stored. ``processed``: the subscriber's counts, see push.proto."""

    flow: PushFlow
    marker: Datamarker
    processed: Sequence[push_pb2.Processed] = ()


@dataclass(slots=True, frozen=True)
class Released:
    """No handler runs for the flow any more, and all its acks were reported. ``processed``: see :class:`Acked`."""

    flow: PushFlow
    processed: Sequence[push_pb2.Processed] = ()


@dataclass(slots=True, frozen=True)
class FlowFailed:
    """The subscriber cannot continue the flow.

    ``held_epoch``, ``held_by``, ``contested``: see ``Failed`` in push.proto.
    """

    flow: PushFlow
    reason: FailedReason
    update_id: str
    message: str
    held_epoch: int = 0
    held_by: str = ""
    contested: bool = False


@dataclass(slots=True, frozen=True)
class ParkWanted:
    """An update has to be stored before it is treated as processed. The connection opens it
    (:func:`wormhole.push.parking.open_letter`) and passes on :class:`LetterArrived`.
    """

    flow: PushFlow
    arrived: Arrived


@dataclass(slots=True, frozen=True)
class LetterArrived:
    """An update has to be stored; :meth:`PushSession.parked` answers. Its receiver calls ``done`` once, when the update
    was stored or is not needed any more.
    """

    flow: PushFlow
    letter: DeadLetter
    parcel: Parcel
    done: Callable[[], None]


@dataclass(slots=True, frozen=True)
class Reported:
    """The state of a flow's callbacks."""

    flow: PushFlow
    report: push_pb2.HandlerReport


@dataclass(slots=True, frozen=True)
class Verified:
    """The results of comparing rows of a table, since the last such event of the flow and table.

    ``confirm``: the extra keys of the table, in this event and earlier ones, have to be read from the source.
    """

    flow: PushFlow
    found: TableVerification
    confirm: bool = False


@dataclass(slots=True, frozen=True)
class LossDecided:
    """The application's answer to a data loss."""

    flow: PushFlow
    proceed: bool


@dataclass(slots=True, frozen=True)
class Parted:
    """The subscriber ends the stream. ``reason``: a ``Goodbye.Reason``, or a number that a later version knows."""

    reason: int
    message: str
    hint: str = ""

    @property
    def reason_name(self) -> str:
        """The reason in words."""
        known = push_pb2.Goodbye.Reason.DESCRIPTOR.values_by_number.get(self.reason)
        return known.name.lower() if known is not None else f"reason {self.reason}"


Event = (
    Welcomed
    | Opened
    | Progressed
    | Acked
    | Released
    | FlowFailed
    | LetterArrived
    | LossDecided
    | ParkWanted
    | Reported
    | Verified
    | Parted
)
