"""The events of a publisher's stream, as :class:`~subscriber_sdk.stream.session.Session` decodes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from wormhole.model.position import Datamarker, LastAck
from wormhole.model.problem import Problem
from wormhole.model.schema import Schema
from wormhole.model.verification import VerifyMode
from wormhole.ports.dead_letters import UpdatePlace
from wormhole.wire.v1 import push_pb2

__all__ = [
    "Assigned",
    "BatchArrived",
    "Closed",
    "Event",
    "FlowEvent",
    "LossArrived",
    "MarkerArrived",
    "NoticeArrived",
    "ParkAnswered",
    "PublisherWelcomed",
    "RangeArrived",
    "Revoked",
    "ScanEnded",
]


@dataclass(slots=True)
class Assigned:
    """The publisher offers a flow; answer with :meth:`Session.accept` or :meth:`Session.fail`."""

    flow: int
    epoch: int
    shard: str
    marker: Datamarker
    replayed: bool
    skip: tuple[str, ...] = ()
    park: bool = False
    parked: tuple[tuple[bytes, UpdatePlace], ...] = ()
    rolled_back: str = ""
    rewound: bool = False
    yields: bool = False
    generation: int = 0
    verify: VerifyMode = VerifyMode.NONE
    move: int = 0
    acknowledged: bool = False
    last_ack: LastAck | None = None
    size: int = field(default=0, compare=False)
    """Memory of the flow, in addition to its updates."""


@dataclass(slots=True)
class BatchArrived:
    """A whole batch body arrived, in order. ``unfinished``: whether its last transaction continues in the next body."""

    flow: int
    number: int
    replayed: bool
    body: bytes
    unfinished: bool = False


@dataclass(slots=True)
class MarkerArrived:
    """A datamarker between batches."""

    flow: int
    marker: Datamarker


@dataclass(slots=True)
class Revoked:
    """The publisher asks for the flow back; answer with :meth:`Session.release`."""

    flow: int
    cause: str


@dataclass(slots=True)
class LossArrived:
    """A part of the log is missing; answer with :meth:`Session.decide_loss`."""

    flow: int
    frame: push_pb2.DataLoss
    resume: Datamarker | None


@dataclass(slots=True)
class NoticeArrived:
    """A replay begins or ends. ``latest``: whether the replay has only the last change of each key."""

    flow: int
    begin: bool
    latest: bool = False


@dataclass(slots=True)
class RangeArrived:
    """Every row of a range of keys was sent. ``frame``: the checked ``ChunkEnd``, serialized."""

    flow: int
    frame: bytes
    schema: Schema


@dataclass(slots=True)
class ScanEnded:
    """Every row of a table was sent."""

    flow: int
    table: str
    rows: int


@dataclass(slots=True)
class ParkAnswered:
    """The publisher stored a parked update durably. Otherwise ``refused`` has the reason and the next step."""

    flow: int
    update_id: str
    refused: str


@dataclass(slots=True)
class PublisherWelcomed:
    """The publisher was accepted, so flows may be assigned."""


@dataclass(slots=True)
class Closed:
    """The stream is over: send what :meth:`Session.take_output` still has, then end it."""

    cause: str
    expected: bool = False
    """The publisher announced that it leaves."""
    refusal: Problem | None = None
    """Why the publisher was not accepted."""


FlowEvent = (
    BatchArrived | MarkerArrived | Revoked | LossArrived | NoticeArrived | RangeArrived | ScanEnded | ParkAnswered
)
"""An event of a flow that was assigned."""

Event = PublisherWelcomed | Assigned | FlowEvent | Closed
