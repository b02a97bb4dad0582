from wormhole.wire.v1 import push_pb2 as _push_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union
from wormhole.wire.v1.push_pb2 import PublisherMessage as PublisherMessage
from wormhole.wire.v1.push_pb2 import SubscriberMessage as SubscriberMessage
from wormhole.wire.v1.push_pb2 import PublisherFrame as PublisherFrame
from wormhole.wire.v1.push_pb2 import SubscriberFrame as SubscriberFrame
from wormhole.wire.v1.push_pb2 import Hello as Hello
from wormhole.wire.v1.push_pb2 import Welcome as Welcome
from wormhole.wire.v1.push_pb2 import Goodbye as Goodbye
from wormhole.wire.v1.push_pb2 import Heartbeat as Heartbeat
from wormhole.wire.v1.push_pb2 import Assign as Assign
from wormhole.wire.v1.push_pb2 import LastAck as LastAck
from wormhole.wire.v1.push_pb2 import UpdatePlace as UpdatePlace
from wormhole.wire.v1.push_pb2 import ParkedKey as ParkedKey
from wormhole.wire.v1.push_pb2 import Accepted as Accepted
from wormhole.wire.v1.push_pb2 import SchemaFrame as SchemaFrame
from wormhole.wire.v1.push_pb2 import Batch as Batch
from wormhole.wire.v1.push_pb2 import Part as Part
from wormhole.wire.v1.push_pb2 import DatamarkerFrame as DatamarkerFrame
from wormhole.wire.v1.push_pb2 import Progress as Progress
from wormhole.wire.v1.push_pb2 import Ack as Ack
from wormhole.wire.v1.push_pb2 import Processed as Processed
from wormhole.wire.v1.push_pb2 import ChunkEnd as ChunkEnd
from wormhole.wire.v1.push_pb2 import ScanEnd as ScanEnd
from wormhole.wire.v1.push_pb2 import Verified as Verified
from wormhole.wire.v1.push_pb2 import Difference as Difference
from wormhole.wire.v1.push_pb2 import Revoke as Revoke
from wormhole.wire.v1.push_pb2 import Released as Released
from wormhole.wire.v1.push_pb2 import Park as Park
from wormhole.wire.v1.push_pb2 import Parked as Parked
from wormhole.wire.v1.push_pb2 import Report as Report
from wormhole.wire.v1.push_pb2 import HandlerReport as HandlerReport
from wormhole.wire.v1.push_pb2 import Failed as Failed
from wormhole.wire.v1.push_pb2 import DataLoss as DataLoss
from wormhole.wire.v1.push_pb2 import LossDecision as LossDecision
from wormhole.wire.v1.push_pb2 import ShardNotice as ShardNotice
from wormhole.wire.v1.push_pb2 import Position as Position
from wormhole.wire.v1.push_pb2 import Anchor as Anchor
from wormhole.wire.v1.push_pb2 import Datamarker as Datamarker
from wormhole.wire.v1.push_pb2 import Verify as Verify

DESCRIPTOR: _descriptor.FileDescriptor
VERIFY_NONE: _push_pb2.Verify
VERIFY_COMPARE: _push_pb2.Verify
VERIFY_REPAIR: _push_pb2.Verify

class ReplayMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLAY_MODE_UNSPECIFIED: _ClassVar[ReplayMode]
    LOG: _ClassVar[ReplayMode]
    LATEST: _ClassVar[ReplayMode]
REPLAY_MODE_UNSPECIFIED: ReplayMode
LOG: ReplayMode
LATEST: ReplayMode

class DescribeRequest(_message.Message):
    __slots__ = ("flow", "after")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    flow: str
    after: str
    def __init__(self, flow: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("text", "hint", "code")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    text: str
    hint: str
    code: str
    def __init__(self, text: _Optional[str] = ..., hint: _Optional[str] = ..., code: _Optional[str] = ...) -> None: ...

class PublisherStatus(_message.Message):
    __slots__ = ("dataset", "copy", "log", "version", "compiled", "uptime_s", "flows", "caravans", "subscribers", "coordination", "log_end", "limits", "log_bytes_per_s", "events", "token_file", "host", "pid", "stuck_s", "http_address", "problems", "end_unknown", "admin_address", "more", "warnings", "source", "log_base", "relay", "standby", "term", "candidate", "owner", "unreadable", "attach")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMPILED_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    CARAVANS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    COORDINATION_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FILE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STUCK_S_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    END_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LOG_BASE_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    copy: str
    log: str
    version: str
    compiled: _containers.RepeatedScalarFieldContainer[str]
    uptime_s: float
    flows: _containers.RepeatedCompositeFieldContainer[FlowStatus]
    caravans: _containers.RepeatedCompositeFieldContainer[CaravanStatus]
    subscribers: _containers.RepeatedCompositeFieldContainer[SubscriberStatus]
    coordination: str
    log_end: _push_pb2.Position
    limits: CaravanLimits
    log_bytes_per_s: float
    events: _containers.RepeatedCompositeFieldContainer[CaravanEvent]
    token_file: str
    host: str
    pid: int
    stuck_s: float
    http_address: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    end_unknown: str
    admin_address: str
    more: str
    warnings: _containers.RepeatedCompositeFieldContainer[Problem]
    source: str
    log_base: str
    relay: RelayStatus
    standby: Problem
    term: int
    candidate: str
    owner: str
    unreadable: Problem
    attach: AttachStatus
    def __init__(self, dataset: _Optional[str] = ..., copy: _Optional[str] = ..., log: _Optional[str] = ..., version: _Optional[str] = ..., compiled: _Optional[_Iterable[str]] = ..., uptime_s: _Optional[float] = ..., flows: _Optional[_Iterable[_Union[FlowStatus, _Mapping]]] = ..., caravans: _Optional[_Iterable[_Union[CaravanStatus, _Mapping]]] = ..., subscribers: _Optional[_Iterable[_Union[SubscriberStatus, _Mapping]]] = ..., coordination: _Optional[str] = ..., log_end: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., limits: _Optional[_Union[CaravanLimits, _Mapping]] = ..., log_bytes_per_s: _Optional[float] = ..., events: _Optional[_Iterable[_Union[CaravanEvent, _Mapping]]] = ..., token_file: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., stuck_s: _Optional[float] = ..., http_address: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., end_unknown: _Optional[str] = ..., admin_address: _Optional[str] = ..., more: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[Problem, _Mapping]]] = ..., source: _Optional[str] = ..., log_base: _Optional[str] = ..., relay: _Optional[_Union[RelayStatus, _Mapping]] = ..., standby: _Optional[_Union[Problem, _Mapping]] = ..., term: _Optional[int] = ..., candidate: _Optional[str] = ..., owner: _Optional[str] = ..., unreadable: _Optional[_Union[Problem, _Mapping]] = ..., attach: _Optional[_Union[AttachStatus, _Mapping]] = ...) -> None: ...

class AttachStatus(_message.Message):
    __slots__ = ("address", "problem", "attached", "refused", "unfinished")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    address: str
    problem: Problem
    attached: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedAttempts]
    unfinished: int
    def __init__(self, address: _Optional[str] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., attached: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedAttempts, _Mapping]]] = ..., unfinished: _Optional[int] = ...) -> None: ...

class RefusedAttempts(_message.Message):
    __slots__ = ("code", "attempts")
    CODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    code: str
    attempts: int
    def __init__(self, code: _Optional[str] = ..., attempts: _Optional[int] = ...) -> None: ...

class RelayStatus(_message.Message):
    __slots__ = ("mode", "begin", "begin_committed_s", "tip", "synced", "stretches", "held", "bytes", "log_bytes", "budget_bytes", "slot_budget_bytes", "keeps_slot", "readers", "unsynced_bytes", "problem")
    MODE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    BEGIN_COMMITTED_S_FIELD_NUMBER: _ClassVar[int]
    TIP_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    STRETCHES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    SLOT_BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEPS_SLOT_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    UNSYNCED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    mode: str
    begin: _push_pb2.Position
    begin_committed_s: float
    tip: _push_pb2.Position
    synced: _push_pb2.Position
    stretches: _containers.RepeatedCompositeFieldContainer[RelayStretch]
    held: _push_pb2.Position
    bytes: int
    log_bytes: int
    budget_bytes: int
    slot_budget_bytes: int
    keeps_slot: bool
    readers: int
    unsynced_bytes: int
    problem: Problem
    def __init__(self, mode: _Optional[str] = ..., begin: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., begin_committed_s: _Optional[float] = ..., tip: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., synced: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., stretches: _Optional[_Iterable[_Union[RelayStretch, _Mapping]]] = ..., held: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., bytes: _Optional[int] = ..., log_bytes: _Optional[int] = ..., budget_bytes: _Optional[int] = ..., slot_budget_bytes: _Optional[int] = ..., keeps_slot: _Optional[bool] = ..., readers: _Optional[int] = ..., unsynced_bytes: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class RelayStretch(_message.Message):
    __slots__ = ("begin", "end")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    begin: _push_pb2.Position
    end: _push_pb2.Position
    def __init__(self, begin: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., end: _Optional[_Union[_push_pb2.Position, _Mapping]] = ...) -> None: ...

class CaravanLimits(_message.Message):
    __slots__ = ("caravans", "read_rate", "total_read_rate", "buffer_bytes", "buffered_bytes")
    CARAVANS_FIELD_NUMBER: _ClassVar[int]
    READ_RATE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_READ_RATE_FIELD_NUMBER: _ClassVar[int]
    BUFFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    caravans: int
    read_rate: float
    total_read_rate: float
    buffer_bytes: int
    buffered_bytes: int
    def __init__(self, caravans: _Optional[int] = ..., read_rate: _Optional[float] = ..., total_read_rate: _Optional[float] = ..., buffer_bytes: _Optional[int] = ..., buffered_bytes: _Optional[int] = ...) -> None: ...

class CaravanEvent(_message.Message):
    __slots__ = ("at_s", "caravan", "what", "kind")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[CaravanEvent.Kind]
        STARTED: _ClassVar[CaravanEvent.Kind]
        ENDED: _ClassVar[CaravanEvent.Kind]
        JOINED: _ClassVar[CaravanEvent.Kind]
        LEFT: _ClassVar[CaravanEvent.Kind]
        LIMITS_CHANGED: _ClassVar[CaravanEvent.Kind]
    KIND_UNSPECIFIED: CaravanEvent.Kind
    STARTED: CaravanEvent.Kind
    ENDED: CaravanEvent.Kind
    JOINED: CaravanEvent.Kind
    LEFT: CaravanEvent.Kind
    LIMITS_CHANGED: CaravanEvent.Kind
    AT_S_FIELD_NUMBER: _ClassVar[int]
    CARAVAN_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    caravan: int
    what: str
    kind: CaravanEvent.Kind
    def __init__(self, at_s: _Optional[float] = ..., caravan: _Optional[int] = ..., what: _Optional[str] = ..., kind: _Optional[_Union[CaravanEvent.Kind, str]] = ...) -> None: ...

class FlowStatus(_message.Message):
    __slots__ = ("flow", "state", "subscriber", "epoch", "place", "marker", "credit", "in_flight", "updates", "bytes", "lag_s", "lag_bytes", "caravan", "filter", "cause", "lag_transactions", "bad_values", "headroom_s", "paused", "skip", "dead_letters", "halted_at", "loss_pending", "handler", "credit_waited_s", "progress_s", "replay", "problem", "headroom_unknown", "backfill", "verifies", "reads_relay", "repair")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_S_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    CARAVAN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LAG_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    BAD_VALUES_FIELD_NUMBER: _ClassVar[int]
    HEADROOM_S_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    HALTED_AT_FIELD_NUMBER: _ClassVar[int]
    LOSS_PENDING_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    CREDIT_WAITED_S_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_S_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    HEADROOM_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    VERIFIES_FIELD_NUMBER: _ClassVar[int]
    READS_RELAY_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    flow: str
    state: str
    subscriber: str
    epoch: int
    place: _push_pb2.Position
    marker: _push_pb2.Datamarker
    credit: int
    in_flight: int
    updates: int
    bytes: int
    lag_s: float
    lag_bytes: int
    caravan: int
    filter: str
    cause: str
    lag_transactions: int
    bad_values: int
    headroom_s: float
    paused: str
    skip: _containers.RepeatedScalarFieldContainer[str]
    dead_letters: int
    halted_at: str
    loss_pending: bool
    handler: _push_pb2.HandlerReport
    credit_waited_s: float
    progress_s: float
    replay: ReplayStatus
    problem: Problem
    headroom_unknown: str
    backfill: BackfillStatus
    verifies: bool
    reads_relay: bool
    repair: str
    def __init__(self, flow: _Optional[str] = ..., state: _Optional[str] = ..., subscriber: _Optional[str] = ..., epoch: _Optional[int] = ..., place: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., marker: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., credit: _Optional[int] = ..., in_flight: _Optional[int] = ..., updates: _Optional[int] = ..., bytes: _Optional[int] = ..., lag_s: _Optional[float] = ..., lag_bytes: _Optional[int] = ..., caravan: _Optional[int] = ..., filter: _Optional[str] = ..., cause: _Optional[str] = ..., lag_transactions: _Optional[int] = ..., bad_values: _Optional[int] = ..., headroom_s: _Optional[float] = ..., paused: _Optional[str] = ..., skip: _Optional[_Iterable[str]] = ..., dead_letters: _Optional[int] = ..., halted_at: _Optional[str] = ..., loss_pending: _Optional[bool] = ..., handler: _Optional[_Union[_push_pb2.HandlerReport, _Mapping]] = ..., credit_waited_s: _Optional[float] = ..., progress_s: _Optional[float] = ..., replay: _Optional[_Union[ReplayStatus, _Mapping]] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., headroom_unknown: _Optional[str] = ..., backfill: _Optional[_Union[BackfillStatus, _Mapping]] = ..., verifies: _Optional[bool] = ..., reads_relay: _Optional[bool] = ..., repair: _Optional[str] = ...) -> None: ...

class CaravanStatus(_message.Message):
    __slots__ = ("number", "lead", "place", "bytes_per_s", "flows", "buffered_bytes", "cause", "target_bytes_per_s", "read_bytes", "events")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LEAD_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    TARGET_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    lead: bool
    place: _push_pb2.Position
    bytes_per_s: float
    flows: _containers.RepeatedScalarFieldContainer[str]
    buffered_bytes: int
    cause: str
    target_bytes_per_s: float
    read_bytes: int
    events: _containers.RepeatedCompositeFieldContainer[CaravanEvent]
    def __init__(self, number: _Optional[int] = ..., lead: _Optional[bool] = ..., place: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., bytes_per_s: _Optional[float] = ..., flows: _Optional[_Iterable[str]] = ..., buffered_bytes: _Optional[int] = ..., cause: _Optional[str] = ..., target_bytes_per_s: _Optional[float] = ..., read_bytes: _Optional[int] = ..., events: _Optional[_Iterable[_Union[CaravanEvent, _Mapping]]] = ...) -> None: ...

class SubscriberStatus(_message.Message):
    __slots__ = ("application", "subscriber", "address", "state", "flows", "cause", "problem", "connected_s")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_S_FIELD_NUMBER: _ClassVar[int]
    application: str
    subscriber: str
    address: str
    state: str
    flows: int
    cause: str
    problem: Problem
    connected_s: float
    def __init__(self, application: _Optional[str] = ..., subscriber: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., flows: _Optional[int] = ..., cause: _Optional[str] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ..., connected_s: _Optional[float] = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("who", "preview", "flow", "pause", "resume", "set_marker", "skip", "accept_loss", "retry_dead_letters", "discard_dead_letters", "forget", "backfill_start", "backfill_pause", "backfill_resume", "backfill_cancel")
    WHO_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SET_MARKER_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    RETRY_DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    DISCARD_DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_START_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_PAUSE_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_RESUME_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_CANCEL_FIELD_NUMBER: _ClassVar[int]
    who: str
    preview: bool
    flow: str
    pause: Pause
    resume: Resume
    set_marker: SetMarker
    skip: Skip
    accept_loss: AcceptLoss
    retry_dead_letters: RetryDeadLetters
    discard_dead_letters: DiscardDeadLetters
    forget: Forget
    backfill_start: BackfillStart
    backfill_pause: BackfillPause
    backfill_resume: BackfillResume
    backfill_cancel: BackfillCancel
    def __init__(self, who: _Optional[str] = ..., preview: _Optional[bool] = ..., flow: _Optional[str] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., set_marker: _Optional[_Union[SetMarker, _Mapping]] = ..., skip: _Optional[_Union[Skip, _Mapping]] = ..., accept_loss: _Optional[_Union[AcceptLoss, _Mapping]] = ..., retry_dead_letters: _Optional[_Union[RetryDeadLetters, _Mapping]] = ..., discard_dead_letters: _Optional[_Union[DiscardDeadLetters, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ..., backfill_start: _Optional[_Union[BackfillStart, _Mapping]] = ..., backfill_pause: _Optional[_Union[BackfillPause, _Mapping]] = ..., backfill_resume: _Optional[_Union[BackfillResume, _Mapping]] = ..., backfill_cancel: _Optional[_Union[BackfillCancel, _Mapping]] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Resume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetMarker(_message.Message):
    __slots__ = ("place", "at_s")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    place: str
    at_s: float
    def __init__(self, place: _Optional[str] = ..., at_s: _Optional[float] = ...) -> None: ...

class Skip(_message.Message):
    __slots__ = ("update_id",)
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    update_id: str
    def __init__(self, update_id: _Optional[str] = ...) -> None: ...

class AcceptLoss(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RetryDeadLetters(_message.Message):
    __slots__ = ("key", "anyone")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ANYONE_FIELD_NUMBER: _ClassVar[int]
    key: str
    anyone: bool
    def __init__(self, key: _Optional[str] = ..., anyone: _Optional[bool] = ...) -> None: ...

class DiscardDeadLetters(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class Forget(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackfillStart(_message.Message):
    __slots__ = ("tables", "where", "rate", "verify", "lost")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedScalarFieldContainer[str]
    where: str
    rate: float
    verify: _push_pb2.Verify
    lost: bool
    def __init__(self, tables: _Optional[_Iterable[str]] = ..., where: _Optional[str] = ..., rate: _Optional[float] = ..., verify: _Optional[_Union[_push_pb2.Verify, str]] = ..., lost: _Optional[bool] = ...) -> None: ...

class BackfillPause(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackfillResume(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackfillCancel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ChangeReply(_message.Message):
    __slots__ = ("before", "after", "notes")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    before: FlowStatus
    after: FlowStatus
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, before: _Optional[_Union[FlowStatus, _Mapping]] = ..., after: _Optional[_Union[FlowStatus, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class DeadLettersRequest(_message.Message):
    __slots__ = ("flow", "limit")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    flow: str
    limit: int
    def __init__(self, flow: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("flow", "update_id", "table", "key", "op", "parked_at_s", "error", "bytes", "retrying", "parked_by")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OP_FIELD_NUMBER: _ClassVar[int]
    PARKED_AT_S_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    PARKED_BY_FIELD_NUMBER: _ClassVar[int]
    flow: str
    update_id: str
    table: str
    key: str
    op: str
    parked_at_s: float
    error: str
    bytes: int
    retrying: bool
    parked_by: str
    def __init__(self, flow: _Optional[str] = ..., update_id: _Optional[str] = ..., table: _Optional[str] = ..., key: _Optional[str] = ..., op: _Optional[str] = ..., parked_at_s: _Optional[float] = ..., error: _Optional[str] = ..., bytes: _Optional[int] = ..., retrying: _Optional[bool] = ..., parked_by: _Optional[str] = ...) -> None: ...

class DeadLettersReply(_message.Message):
    __slots__ = ("letters", "total", "limit")
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    total: int
    limit: int
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., total: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReplayRequest(_message.Message):
    __slots__ = ("flow", "replay", "ticket", "begin", "open", "advance", "renew", "finish", "cancel", "park")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ADVANCE_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PARK_FIELD_NUMBER: _ClassVar[int]
    flow: str
    replay: str
    ticket: str
    begin: BeginReplay
    open: OpenReplay
    advance: AdvanceReplay
    renew: RenewReplay
    finish: FinishReplay
    cancel: CancelReplay
    park: ParkReplay
    def __init__(self, flow: _Optional[str] = ..., replay: _Optional[str] = ..., ticket: _Optional[str] = ..., begin: _Optional[_Union[BeginReplay, _Mapping]] = ..., open: _Optional[_Union[OpenReplay, _Mapping]] = ..., advance: _Optional[_Union[AdvanceReplay, _Mapping]] = ..., renew: _Optional[_Union[RenewReplay, _Mapping]] = ..., finish: _Optional[_Union[FinishReplay, _Mapping]] = ..., cancel: _Optional[_Union[CancelReplay, _Mapping]] = ..., park: _Optional[_Union[ParkReplay, _Mapping]] = ...) -> None: ...

class BeginReplay(_message.Message):
    __slots__ = ("who", "preview", "mode", "begin", "until", "where", "lease_s", "snapshot", "resumes")
    WHO_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    who: str
    preview: bool
    mode: ReplayMode
    begin: _push_pb2.Datamarker
    until: _push_pb2.Datamarker
    where: str
    lease_s: float
    snapshot: _push_pb2.Datamarker
    resumes: float
    def __init__(self, who: _Optional[str] = ..., preview: _Optional[bool] = ..., mode: _Optional[_Union[ReplayMode, str]] = ..., begin: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., until: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., where: _Optional[str] = ..., lease_s: _Optional[float] = ..., snapshot: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., resumes: _Optional[float] = ...) -> None: ...

class OpenReplay(_message.Message):
    __slots__ = ("parks", "opener", "above", "projects")
    PARKS_FIELD_NUMBER: _ClassVar[int]
    OPENER_FIELD_NUMBER: _ClassVar[int]
    ABOVE_FIELD_NUMBER: _ClassVar[int]
    PROJECTS_FIELD_NUMBER: _ClassVar[int]
    parks: bool
    opener: str
    above: int
    projects: bool
    def __init__(self, parks: _Optional[bool] = ..., opener: _Optional[str] = ..., above: _Optional[int] = ..., projects: _Optional[bool] = ...) -> None: ...

class AdvanceReplay(_message.Message):
    __slots__ = ("epoch", "marker", "progress", "updates", "bytes", "settled")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    marker: _push_pb2.Datamarker
    progress: bytes
    updates: int
    bytes: int
    settled: Settled
    def __init__(self, epoch: _Optional[int] = ..., marker: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., progress: _Optional[bytes] = ..., updates: _Optional[int] = ..., bytes: _Optional[int] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("begin", "windows", "life", "processed", "partly", "before")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    PARTLY_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    begin: _push_pb2.Position
    windows: _containers.RepeatedCompositeFieldContainer[SettledWindow]
    life: int
    processed: _containers.RepeatedCompositeFieldContainer[_push_pb2.Processed]
    partly: bool
    before: SettledBefore
    def __init__(self, begin: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., windows: _Optional[_Iterable[_Union[SettledWindow, _Mapping]]] = ..., life: _Optional[int] = ..., processed: _Optional[_Iterable[_Union[_push_pb2.Processed, _Mapping]]] = ..., partly: _Optional[bool] = ..., before: _Optional[_Union[SettledBefore, _Mapping]] = ...) -> None: ...

class SettledBefore(_message.Message):
    __slots__ = ("processed", "epochs")
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    processed: _containers.RepeatedCompositeFieldContainer[_push_pb2.Processed]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, processed: _Optional[_Iterable[_Union[_push_pb2.Processed, _Mapping]]] = ..., epochs: _Optional[_Iterable[int]] = ...) -> None: ...

class SettledWindow(_message.Message):
    __slots__ = ("window", "sent", "delivered", "hash", "passed")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    window: int
    sent: int
    delivered: int
    hash: int
    passed: int
    def __init__(self, window: _Optional[int] = ..., sent: _Optional[int] = ..., delivered: _Optional[int] = ..., hash: _Optional[int] = ..., passed: _Optional[int] = ...) -> None: ...

class RenewReplay(_message.Message):
    __slots__ = ("rate",)
    RATE_FIELD_NUMBER: _ClassVar[int]
    rate: float
    def __init__(self, rate: _Optional[float] = ...) -> None: ...

class FinishReplay(_message.Message):
    __slots__ = ("epoch", "marker", "accept_gap")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_GAP_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    marker: _push_pb2.Datamarker
    accept_gap: bool
    def __init__(self, epoch: _Optional[int] = ..., marker: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., accept_gap: _Optional[bool] = ...) -> None: ...

class CancelReplay(_message.Message):
    __slots__ = ("who",)
    WHO_FIELD_NUMBER: _ClassVar[int]
    who: str
    def __init__(self, who: _Optional[str] = ...) -> None: ...

class ParkReplay(_message.Message):
    __slots__ = ("epoch", "park")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARK_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    park: _push_pb2.Park
    def __init__(self, epoch: _Optional[int] = ..., park: _Optional[_Union[_push_pb2.Park, _Mapping]] = ...) -> None: ...

class ReplayStatus(_message.Message):
    __slots__ = ("replay", "who", "state", "mode", "begin", "until", "where", "progress", "started_s", "lease_left_s", "updates", "bytes", "attempts", "snapshot", "opener", "rate")
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    OPENER_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    replay: str
    who: str
    state: str
    mode: ReplayMode
    begin: _push_pb2.Datamarker
    until: _push_pb2.Datamarker
    where: str
    progress: bytes
    started_s: float
    lease_left_s: float
    updates: int
    bytes: int
    attempts: int
    snapshot: _push_pb2.Datamarker
    opener: str
    rate: float
    def __init__(self, replay: _Optional[str] = ..., who: _Optional[str] = ..., state: _Optional[str] = ..., mode: _Optional[_Union[ReplayMode, str]] = ..., begin: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., until: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., where: _Optional[str] = ..., progress: _Optional[bytes] = ..., started_s: _Optional[float] = ..., lease_left_s: _Optional[float] = ..., updates: _Optional[int] = ..., bytes: _Optional[int] = ..., attempts: _Optional[int] = ..., snapshot: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., opener: _Optional[str] = ..., rate: _Optional[float] = ...) -> None: ...

class BackfillStatus(_message.Message):
    __slots__ = ("generation", "state", "who", "started_s", "tables", "where", "rate", "paused", "waits", "table", "rows", "rows_estimate", "share", "rows_per_s", "bytes_per_s", "left_s", "progress", "verify", "verified", "lost")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    generation: int
    state: str
    who: str
    started_s: float
    tables: _containers.RepeatedScalarFieldContainer[str]
    where: str
    rate: float
    paused: str
    waits: Problem
    table: str
    rows: int
    rows_estimate: int
    share: float
    rows_per_s: float
    bytes_per_s: float
    left_s: float
    progress: _containers.RepeatedCompositeFieldContainer[BackfillTable]
    verify: _push_pb2.Verify
    verified: _containers.RepeatedCompositeFieldContainer[TableVerification]
    lost: str
    def __init__(self, generation: _Optional[int] = ..., state: _Optional[str] = ..., who: _Optional[str] = ..., started_s: _Optional[float] = ..., tables: _Optional[_Iterable[str]] = ..., where: _Optional[str] = ..., rate: _Optional[float] = ..., paused: _Optional[str] = ..., waits: _Optional[_Union[Problem, _Mapping]] = ..., table: _Optional[str] = ..., rows: _Optional[int] = ..., rows_estimate: _Optional[int] = ..., share: _Optional[float] = ..., rows_per_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ..., left_s: _Optional[float] = ..., progress: _Optional[_Iterable[_Union[BackfillTable, _Mapping]]] = ..., verify: _Optional[_Union[_push_pb2.Verify, str]] = ..., verified: _Optional[_Iterable[_Union[TableVerification, _Mapping]]] = ..., lost: _Optional[str] = ...) -> None: ...

class TableVerification(_message.Message):
    __slots__ = ("table", "compared", "not_compared", "differs", "missing", "extra", "repaired", "removed", "differences", "ended", "trouble")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    NOT_COMPARED_FIELD_NUMBER: _ClassVar[int]
    DIFFERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    compared: int
    not_compared: int
    differs: int
    missing: int
    extra: int
    repaired: int
    removed: int
    differences: _containers.RepeatedCompositeFieldContainer[RowDifference]
    ended: bool
    trouble: Problem
    def __init__(self, table: _Optional[str] = ..., compared: _Optional[int] = ..., not_compared: _Optional[int] = ..., differs: _Optional[int] = ..., missing: _Optional[int] = ..., extra: _Optional[int] = ..., repaired: _Optional[int] = ..., removed: _Optional[int] = ..., differences: _Optional[_Iterable[_Union[RowDifference, _Mapping]]] = ..., ended: _Optional[bool] = ..., trouble: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class RowDifference(_message.Message):
    __slots__ = ("kind", "key", "columns")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    key: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., key: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class BackfillTable(_message.Message):
    __slots__ = ("table", "state", "rows", "rows_estimate", "refused")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    table: str
    state: str
    rows: int
    rows_estimate: int
    refused: Problem
    def __init__(self, table: _Optional[str] = ..., state: _Optional[str] = ..., rows: _Optional[int] = ..., rows_estimate: _Optional[int] = ..., refused: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class ReplayReply(_message.Message):
    __slots__ = ("flow", "replay", "ticket", "opened", "cause", "purged", "reaches", "refused", "problem")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    PURGED_FIELD_NUMBER: _ClassVar[int]
    REACHES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    flow: FlowStatus
    replay: ReplayStatus
    ticket: str
    opened: OpenedReplay
    cause: str
    purged: PurgedLog
    reaches: bool
    refused: str
    problem: Problem
    def __init__(self, flow: _Optional[_Union[FlowStatus, _Mapping]] = ..., replay: _Optional[_Union[ReplayStatus, _Mapping]] = ..., ticket: _Optional[str] = ..., opened: _Optional[_Union[OpenedReplay, _Mapping]] = ..., cause: _Optional[str] = ..., purged: _Optional[_Union[PurgedLog, _Mapping]] = ..., reaches: _Optional[bool] = ..., refused: _Optional[str] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class OpenedReplay(_message.Message):
    __slots__ = ("epoch", "subscriber", "address", "marker", "progress", "skip", "filter", "publisher", "dataset", "copy", "log", "counted_to", "park", "parked", "rewound", "projection", "move", "acknowledged", "last_ack")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    COUNTED_TO_FIELD_NUMBER: _ClassVar[int]
    PARK_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    REWOUND_FIELD_NUMBER: _ClassVar[int]
    PROJECTION_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    LAST_ACK_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    subscriber: str
    address: str
    marker: _push_pb2.Datamarker
    progress: bytes
    skip: _containers.RepeatedScalarFieldContainer[str]
    filter: str
    publisher: str
    dataset: str
    copy: str
    log: str
    counted_to: _push_pb2.Position
    park: bool
    parked: _containers.RepeatedCompositeFieldContainer[_push_pb2.ParkedKey]
    rewound: bool
    projection: Projection
    move: int
    acknowledged: bool
    last_ack: _push_pb2.LastAck
    def __init__(self, epoch: _Optional[int] = ..., subscriber: _Optional[str] = ..., address: _Optional[str] = ..., marker: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., progress: _Optional[bytes] = ..., skip: _Optional[_Iterable[str]] = ..., filter: _Optional[str] = ..., publisher: _Optional[str] = ..., dataset: _Optional[str] = ..., copy: _Optional[str] = ..., log: _Optional[str] = ..., counted_to: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., park: _Optional[bool] = ..., parked: _Optional[_Iterable[_Union[_push_pb2.ParkedKey, _Mapping]]] = ..., rewound: _Optional[bool] = ..., projection: _Optional[_Union[Projection, _Mapping]] = ..., move: _Optional[int] = ..., acknowledged: _Optional[bool] = ..., last_ack: _Optional[_Union[_push_pb2.LastAck, _Mapping]] = ...) -> None: ...

class Projection(_message.Message):
    __slots__ = ("columns", "mask", "key_check")
    class MaskEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    KEY_CHECK_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    mask: _containers.ScalarMap[str, str]
    key_check: str
    def __init__(self, columns: _Optional[_Iterable[str]] = ..., mask: _Optional[_Mapping[str, str]] = ..., key_check: _Optional[str] = ...) -> None: ...

class PurgedLog(_message.Message):
    __slots__ = ("earliest", "first_missing", "last_missing", "message")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_MISSING_FIELD_NUMBER: _ClassVar[int]
    LAST_MISSING_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    earliest: _push_pb2.Datamarker
    first_missing: str
    last_missing: str
    message: str
    def __init__(self, earliest: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., first_missing: _Optional[str] = ..., last_missing: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("flow", "first_window", "last_window")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    FIRST_WINDOW_FIELD_NUMBER: _ClassVar[int]
    LAST_WINDOW_FIELD_NUMBER: _ClassVar[int]
    flow: str
    first_window: int
    last_window: int
    def __init__(self, flow: _Optional[str] = ..., first_window: _Optional[int] = ..., last_window: _Optional[int] = ...) -> None: ...

class AuditWindow(_message.Message):
    __slots__ = ("flow", "filter_hash", "window", "delivered", "hash", "processed", "delays", "problems", "set_aside", "set_aside_hash", "told", "processed_partly", "missing", "missing_first", "repaired", "repairs", "ahead", "unheard")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    FILTER_HASH_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    DELAYS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_HASH_FIELD_NUMBER: _ClassVar[int]
    TOLD_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_PARTLY_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIRST_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REPAIRS_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    UNHEARD_FIELD_NUMBER: _ClassVar[int]
    flow: str
    filter_hash: str
    window: int
    delivered: int
    hash: int
    processed: int
    delays: _containers.RepeatedScalarFieldContainer[int]
    problems: _containers.RepeatedScalarFieldContainer[str]
    set_aside: int
    set_aside_hash: int
    told: bool
    processed_partly: int
    missing: int
    missing_first: int
    repaired: int
    repairs: _containers.RepeatedScalarFieldContainer[str]
    ahead: int
    unheard: int
    def __init__(self, flow: _Optional[str] = ..., filter_hash: _Optional[str] = ..., window: _Optional[int] = ..., delivered: _Optional[int] = ..., hash: _Optional[int] = ..., processed: _Optional[int] = ..., delays: _Optional[_Iterable[int]] = ..., problems: _Optional[_Iterable[str]] = ..., set_aside: _Optional[int] = ..., set_aside_hash: _Optional[int] = ..., told: _Optional[bool] = ..., processed_partly: _Optional[int] = ..., missing: _Optional[int] = ..., missing_first: _Optional[int] = ..., repaired: _Optional[int] = ..., repairs: _Optional[_Iterable[str]] = ..., ahead: _Optional[int] = ..., unheard: _Optional[int] = ...) -> None: ...

class AuditRange(_message.Message):
    __slots__ = ("flow", "filter_hash", "begin", "end", "partly", "again", "unheard")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    FILTER_HASH_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PARTLY_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    UNHEARD_FIELD_NUMBER: _ClassVar[int]
    flow: str
    filter_hash: str
    begin: _push_pb2.Position
    end: _push_pb2.Position
    partly: bool
    again: bool
    unheard: bool
    def __init__(self, flow: _Optional[str] = ..., filter_hash: _Optional[str] = ..., begin: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., end: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., partly: _Optional[bool] = ..., again: _Optional[bool] = ..., unheard: _Optional[bool] = ...) -> None: ...

class AuditReply(_message.Message):
    __slots__ = ("windows", "delay_limits_s", "ranges")
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LIMITS_S_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    windows: _containers.RepeatedCompositeFieldContainer[AuditWindow]
    delay_limits_s: _containers.RepeatedScalarFieldContainer[float]
    ranges: _containers.RepeatedCompositeFieldContainer[AuditRange]
    def __init__(self, windows: _Optional[_Iterable[_Union[AuditWindow, _Mapping]]] = ..., delay_limits_s: _Optional[_Iterable[float]] = ..., ranges: _Optional[_Iterable[_Union[AuditRange, _Mapping]]] = ...) -> None: ...

class TrimRelayRequest(_message.Message):
    __slots__ = ("who", "preview", "keep_bytes")
    WHO_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    KEEP_BYTES_FIELD_NUMBER: _ClassVar[int]
    who: str
    preview: bool
    keep_bytes: int
    def __init__(self, who: _Optional[str] = ..., preview: _Optional[bool] = ..., keep_bytes: _Optional[int] = ...) -> None: ...

class TrimRelayReply(_message.Message):
    __slots__ = ("before", "after", "losing")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LOSING_FIELD_NUMBER: _ClassVar[int]
    before: RelayStatus
    after: RelayStatus
    losing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, before: _Optional[_Union[RelayStatus, _Mapping]] = ..., after: _Optional[_Union[RelayStatus, _Mapping]] = ..., losing: _Optional[_Iterable[str]] = ...) -> None: ...
