from wormhole.wire.v1 import update_pb2 as _update_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Verify(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERIFY_NONE: _ClassVar[Verify]
    VERIFY_COMPARE: _ClassVar[Verify]
    VERIFY_REPAIR: _ClassVar[Verify]
VERIFY_NONE: Verify
VERIFY_COMPARE: Verify
VERIFY_REPAIR: Verify

class PublisherMessage(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[PublisherFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[PublisherFrame, _Mapping]]] = ...) -> None: ...

class SubscriberMessage(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[SubscriberFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[SubscriberFrame, _Mapping]]] = ...) -> None: ...

class PublisherFrame(_message.Message):
    __slots__ = ("hello", "assign", "schema", "batch", "part", "datamarker", "revoke", "heartbeat", "data_loss", "notice", "goodbye", "parked", "chunk_end", "scan_end")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    DATAMARKER_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DATA_LOSS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_END_FIELD_NUMBER: _ClassVar[int]
    SCAN_END_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    assign: Assign
    schema: SchemaFrame
    batch: Batch
    part: Part
    datamarker: DatamarkerFrame
    revoke: Revoke
    heartbeat: Heartbeat
    data_loss: DataLoss
    notice: ShardNotice
    goodbye: Goodbye
    parked: Parked
    chunk_end: ChunkEnd
    scan_end: ScanEnd
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., assign: _Optional[_Union[Assign, _Mapping]] = ..., schema: _Optional[_Union[SchemaFrame, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., datamarker: _Optional[_Union[DatamarkerFrame, _Mapping]] = ..., revoke: _Optional[_Union[Revoke, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., data_loss: _Optional[_Union[DataLoss, _Mapping]] = ..., notice: _Optional[_Union[ShardNotice, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., parked: _Optional[_Union[Parked, _Mapping]] = ..., chunk_end: _Optional[_Union[ChunkEnd, _Mapping]] = ..., scan_end: _Optional[_Union[ScanEnd, _Mapping]] = ...) -> None: ...

class SubscriberFrame(_message.Message):
    __slots__ = ("welcome", "accepted", "progress", "ack", "released", "heartbeat", "failed", "loss_decision", "goodbye", "park", "report", "verified")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOSS_DECISION_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    PARK_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    accepted: Accepted
    progress: Progress
    ack: Ack
    released: Released
    heartbeat: Heartbeat
    failed: Failed
    loss_decision: LossDecision
    goodbye: Goodbye
    park: Park
    report: Report
    verified: Verified
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., loss_decision: _Optional[_Union[LossDecision, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., park: _Optional[_Union[Park, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., verified: _Optional[_Union[Verified, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("min_version", "max_version", "publisher", "dataset", "copy", "log", "application", "subscriber", "heartbeat_ms", "max_frame_bytes", "owner")
    MIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    min_version: int
    max_version: int
    publisher: str
    dataset: str
    copy: str
    log: str
    application: str
    subscriber: str
    heartbeat_ms: int
    max_frame_bytes: int
    owner: str
    def __init__(self, min_version: _Optional[int] = ..., max_version: _Optional[int] = ..., publisher: _Optional[str] = ..., dataset: _Optional[str] = ..., copy: _Optional[str] = ..., log: _Optional[str] = ..., application: _Optional[str] = ..., subscriber: _Optional[str] = ..., heartbeat_ms: _Optional[int] = ..., max_frame_bytes: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "application", "subscriber", "max_frame_bytes", "verifies", "takes_ranges")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    VERIFIES_FIELD_NUMBER: _ClassVar[int]
    TAKES_RANGES_FIELD_NUMBER: _ClassVar[int]
    version: int
    application: str
    subscriber: str
    max_frame_bytes: int
    verifies: bool
    takes_ranges: bool
    def __init__(self, version: _Optional[int] = ..., application: _Optional[str] = ..., subscriber: _Optional[str] = ..., max_frame_bytes: _Optional[int] = ..., verifies: _Optional[bool] = ..., takes_ranges: _Optional[bool] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "message", "hint")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Goodbye.Reason]
        LEAVING: _ClassVar[Goodbye.Reason]
        VERSION: _ClassVar[Goodbye.Reason]
        WRONG_ADDRESS: _ClassVar[Goodbye.Reason]
        PROTOCOL: _ClassVar[Goodbye.Reason]
        NOT_ALLOWED: _ClassVar[Goodbye.Reason]
    REASON_UNSPECIFIED: Goodbye.Reason
    LEAVING: Goodbye.Reason
    VERSION: Goodbye.Reason
    WRONG_ADDRESS: Goodbye.Reason
    PROTOCOL: Goodbye.Reason
    NOT_ALLOWED: Goodbye.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    reason: Goodbye.Reason
    message: str
    hint: str
    def __init__(self, reason: _Optional[_Union[Goodbye.Reason, str]] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Assign(_message.Message):
    __slots__ = ("flow", "epoch", "application", "shard", "marker", "replayed", "skip", "park", "parked", "rolled_back", "rewound", "yields", "generation", "verify", "move", "acknowledged", "last_ack")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    PARK_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    REWOUND_FIELD_NUMBER: _ClassVar[int]
    YIELDS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VERIFY_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    LAST_ACK_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    application: str
    shard: str
    marker: Datamarker
    replayed: bool
    skip: _containers.RepeatedScalarFieldContainer[str]
    park: bool
    parked: _containers.RepeatedCompositeFieldContainer[ParkedKey]
    rolled_back: str
    rewound: bool
    yields: bool
    generation: int
    verify: Verify
    move: int
    acknowledged: bool
    last_ack: LastAck
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., application: _Optional[str] = ..., shard: _Optional[str] = ..., marker: _Optional[_Union[Datamarker, _Mapping]] = ..., replayed: _Optional[bool] = ..., skip: _Optional[_Iterable[str]] = ..., park: _Optional[bool] = ..., parked: _Optional[_Iterable[_Union[ParkedKey, _Mapping]]] = ..., rolled_back: _Optional[str] = ..., rewound: _Optional[bool] = ..., yields: _Optional[bool] = ..., generation: _Optional[int] = ..., verify: _Optional[_Union[Verify, str]] = ..., move: _Optional[int] = ..., acknowledged: _Optional[bool] = ..., last_ack: _Optional[_Union[LastAck, _Mapping]] = ...) -> None: ...

class LastAck(_message.Message):
    __slots__ = ("move", "order")
    MOVE_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    move: int
    order: Position
    def __init__(self, move: _Optional[int] = ..., order: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class UpdatePlace(_message.Message):
    __slots__ = ("position", "inside", "transaction", "index")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    INSIDE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    position: Position
    inside: bool
    transaction: str
    index: int
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ..., inside: _Optional[bool] = ..., transaction: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class ParkedKey(_message.Message):
    __slots__ = ("key", "first")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    key: _update_pb2.RowKey
    first: UpdatePlace
    def __init__(self, key: _Optional[_Union[_update_pb2.RowKey, _Mapping]] = ..., first: _Optional[_Union[UpdatePlace, _Mapping]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("flow", "epoch", "credit", "have", "life", "processed", "epochs", "move")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    credit: int
    have: Datamarker
    life: int
    processed: _containers.RepeatedCompositeFieldContainer[Processed]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    move: int
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., credit: _Optional[int] = ..., have: _Optional[_Union[Datamarker, _Mapping]] = ..., life: _Optional[int] = ..., processed: _Optional[_Iterable[_Union[Processed, _Mapping]]] = ..., epochs: _Optional[_Iterable[int]] = ..., move: _Optional[int] = ...) -> None: ...

class SchemaFrame(_message.Message):
    __slots__ = ("id", "canonical")
    ID_FIELD_NUMBER: _ClassVar[int]
    CANONICAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    canonical: bytes
    def __init__(self, id: _Optional[int] = ..., canonical: _Optional[bytes] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("flow", "epoch", "number", "replayed", "body", "unfinished")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    number: int
    replayed: bool
    body: bytes
    unfinished: bool
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., replayed: _Optional[bool] = ..., body: _Optional[bytes] = ..., unfinished: _Optional[bool] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("flow", "epoch", "number", "replayed", "index", "last", "total_bytes", "data", "unfinished")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    number: int
    replayed: bool
    index: int
    last: bool
    total_bytes: int
    data: bytes
    unfinished: bool
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., replayed: _Optional[bool] = ..., index: _Optional[int] = ..., last: _Optional[bool] = ..., total_bytes: _Optional[int] = ..., data: _Optional[bytes] = ..., unfinished: _Optional[bool] = ...) -> None: ...

class DatamarkerFrame(_message.Message):
    __slots__ = ("flow", "epoch", "marker")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    marker: Datamarker
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., marker: _Optional[_Union[Datamarker, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("flow", "epoch", "number", "processed")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    number: int
    processed: _containers.RepeatedCompositeFieldContainer[Processed]
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., processed: _Optional[_Iterable[_Union[Processed, _Mapping]]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("flow", "epoch", "marker", "life", "processed")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    marker: Datamarker
    life: int
    processed: _containers.RepeatedCompositeFieldContainer[Processed]
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., marker: _Optional[_Union[Datamarker, _Mapping]] = ..., life: _Optional[int] = ..., processed: _Optional[_Iterable[_Union[Processed, _Mapping]]] = ...) -> None: ...

class Processed(_message.Message):
    __slots__ = ("window", "updates", "set_aside", "set_aside_hash", "in_vain")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_HASH_FIELD_NUMBER: _ClassVar[int]
    IN_VAIN_FIELD_NUMBER: _ClassVar[int]
    window: int
    updates: int
    set_aside: int
    set_aside_hash: int
    in_vain: int
    def __init__(self, window: _Optional[int] = ..., updates: _Optional[int] = ..., set_aside: _Optional[int] = ..., set_aside_hash: _Optional[int] = ..., in_vain: _Optional[int] = ...) -> None: ...

class ChunkEnd(_message.Message):
    __slots__ = ("flow", "epoch", "schema", "after", "until", "alone", "portable", "narrowed", "rows")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    EXCEPT_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    PORTABLE_FIELD_NUMBER: _ClassVar[int]
    NARROWED_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    schema: int
    after: _update_pb2.RowKey
    until: _update_pb2.RowKey
    alone: _containers.RepeatedCompositeFieldContainer[_update_pb2.RowKey]
    portable: bool
    narrowed: bool
    rows: int
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., schema: _Optional[int] = ..., after: _Optional[_Union[_update_pb2.RowKey, _Mapping]] = ..., until: _Optional[_Union[_update_pb2.RowKey, _Mapping]] = ..., alone: _Optional[_Iterable[_Union[_update_pb2.RowKey, _Mapping]]] = ..., portable: _Optional[bool] = ..., narrowed: _Optional[bool] = ..., rows: _Optional[int] = ..., **kwargs) -> None: ...

class ScanEnd(_message.Message):
    __slots__ = ("flow", "epoch", "table", "generation", "rows")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    table: str
    generation: int
    rows: int
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., table: _Optional[str] = ..., generation: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class Verified(_message.Message):
    __slots__ = ("flow", "epoch", "table", "compared", "not_compared", "differs", "missing", "extra", "repaired", "removed", "differences", "ended", "confirm", "trouble")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
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
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    table: str
    compared: int
    not_compared: int
    differs: int
    missing: int
    extra: int
    repaired: int
    removed: int
    differences: _containers.RepeatedCompositeFieldContainer[Difference]
    ended: bool
    confirm: bool
    trouble: str
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., table: _Optional[str] = ..., compared: _Optional[int] = ..., not_compared: _Optional[int] = ..., differs: _Optional[int] = ..., missing: _Optional[int] = ..., extra: _Optional[int] = ..., repaired: _Optional[int] = ..., removed: _Optional[int] = ..., differences: _Optional[_Iterable[_Union[Difference, _Mapping]]] = ..., ended: _Optional[bool] = ..., confirm: _Optional[bool] = ..., trouble: _Optional[str] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ("kind", "key", "columns")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Difference.Kind]
        DIFFERS: _ClassVar[Difference.Kind]
        MISSING: _ClassVar[Difference.Kind]
        EXTRA: _ClassVar[Difference.Kind]
    KIND_UNSPECIFIED: Difference.Kind
    DIFFERS: Difference.Kind
    MISSING: Difference.Kind
    EXTRA: Difference.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    kind: Difference.Kind
    key: _update_pb2.RowKey
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[_Union[Difference.Kind, str]] = ..., key: _Optional[_Union[_update_pb2.RowKey, _Mapping]] = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class Revoke(_message.Message):
    __slots__ = ("flow", "epoch", "cause")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    cause: str
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ("flow", "epoch", "marker", "life", "processed")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    marker: Datamarker
    life: int
    processed: _containers.RepeatedCompositeFieldContainer[Processed]
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., marker: _Optional[_Union[Datamarker, _Mapping]] = ..., life: _Optional[int] = ..., processed: _Optional[_Iterable[_Union[Processed, _Mapping]]] = ...) -> None: ...

class Park(_message.Message):
    __slots__ = ("flow", "epoch", "update_id", "body", "more", "schema", "place", "error")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    update_id: str
    body: bytes
    more: bool
    schema: bytes
    place: UpdatePlace
    error: str
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., update_id: _Optional[str] = ..., body: _Optional[bytes] = ..., more: _Optional[bool] = ..., schema: _Optional[bytes] = ..., place: _Optional[_Union[UpdatePlace, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class Parked(_message.Message):
    __slots__ = ("flow", "epoch", "update_id", "refused")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    update_id: str
    refused: str
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., update_id: _Optional[str] = ..., refused: _Optional[str] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("flow", "epoch", "handler")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HANDLER_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    handler: HandlerReport
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., handler: _Optional[_Union[HandlerReport, _Mapping]] = ...) -> None: ...

class HandlerReport(_message.Message):
    __slots__ = ("updates", "busy_s", "failures", "slowest_table", "slowest_s", "queued_bytes", "running_update", "running_s", "skipped", "parked")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_TABLE_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_S_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_UPDATE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_S_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    updates: int
    busy_s: float
    failures: int
    slowest_table: str
    slowest_s: float
    queued_bytes: int
    running_update: str
    running_s: float
    skipped: int
    parked: int
    def __init__(self, updates: _Optional[int] = ..., busy_s: _Optional[float] = ..., failures: _Optional[int] = ..., slowest_table: _Optional[str] = ..., slowest_s: _Optional[float] = ..., queued_bytes: _Optional[int] = ..., running_update: _Optional[str] = ..., running_s: _Optional[float] = ..., skipped: _Optional[int] = ..., parked: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("flow", "epoch", "reason", "update_id", "message", "held_epoch", "held_by", "contested")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Failed.Reason]
        RESEND: _ClassVar[Failed.Reason]
        HANDLER: _ClassVar[Failed.Reason]
        STALE_EPOCH: _ClassVar[Failed.Reason]
    REASON_UNSPECIFIED: Failed.Reason
    RESEND: Failed.Reason
    HANDLER: Failed.Reason
    STALE_EPOCH: Failed.Reason
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UPDATE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HELD_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    CONTESTED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    reason: Failed.Reason
    update_id: str
    message: str
    held_epoch: int
    held_by: str
    contested: bool
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[_Union[Failed.Reason, str]] = ..., update_id: _Optional[str] = ..., message: _Optional[str] = ..., held_epoch: _Optional[int] = ..., held_by: _Optional[str] = ..., contested: _Optional[bool] = ...) -> None: ...

class DataLoss(_message.Message):
    __slots__ = ("flow", "epoch", "kind", "first_missing", "last_missing", "resume", "message")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[DataLoss.Kind]
        PURGED: _ClassVar[DataLoss.Kind]
        NOT_LOGGED: _ClassVar[DataLoss.Kind]
        DIVERGED: _ClassVar[DataLoss.Kind]
    KIND_UNSPECIFIED: DataLoss.Kind
    PURGED: DataLoss.Kind
    NOT_LOGGED: DataLoss.Kind
    DIVERGED: DataLoss.Kind
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FIRST_MISSING_FIELD_NUMBER: _ClassVar[int]
    LAST_MISSING_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    kind: DataLoss.Kind
    first_missing: str
    last_missing: str
    resume: Datamarker
    message: str
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., kind: _Optional[_Union[DataLoss.Kind, str]] = ..., first_missing: _Optional[str] = ..., last_missing: _Optional[str] = ..., resume: _Optional[_Union[Datamarker, _Mapping]] = ..., message: _Optional[str] = ...) -> None: ...

class LossDecision(_message.Message):
    __slots__ = ("flow", "epoch", "proceed")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROCEED_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    proceed: bool
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., proceed: _Optional[bool] = ...) -> None: ...

class ShardNotice(_message.Message):
    __slots__ = ("flow", "epoch", "kind", "latest")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ShardNotice.Kind]
        REPLAY_BEGIN: _ClassVar[ShardNotice.Kind]
        REPLAY_END: _ClassVar[ShardNotice.Kind]
    KIND_UNSPECIFIED: ShardNotice.Kind
    REPLAY_BEGIN: ShardNotice.Kind
    REPLAY_END: ShardNotice.Kind
    FLOW_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    flow: int
    epoch: int
    kind: ShardNotice.Kind
    latest: bool
    def __init__(self, flow: _Optional[int] = ..., epoch: _Optional[int] = ..., kind: _Optional[_Union[ShardNotice.Kind, str]] = ..., latest: _Optional[bool] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("incarnation", "file", "offset")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    file: int
    offset: int
    def __init__(self, incarnation: _Optional[int] = ..., file: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Anchor(_message.Message):
    __slots__ = ("id", "checksum", "begin")
    ID_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    id: str
    checksum: int
    begin: Position
    def __init__(self, id: _Optional[str] = ..., checksum: _Optional[int] = ..., begin: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Datamarker(_message.Message):
    __slots__ = ("order", "delivered", "read_from", "anchor", "committed_at_us", "backfill")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    READ_FROM_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    order: Position
    delivered: str
    read_from: Position
    anchor: Anchor
    committed_at_us: int
    backfill: bytes
    def __init__(self, order: _Optional[_Union[Position, _Mapping]] = ..., delivered: _Optional[str] = ..., read_from: _Optional[_Union[Position, _Mapping]] = ..., anchor: _Optional[_Union[Anchor, _Mapping]] = ..., committed_at_us: _Optional[int] = ..., backfill: _Optional[bytes] = ...) -> None: ...
