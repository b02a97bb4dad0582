from wormhole.wire.v1 import push_pb2 as _push_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PublisherStatus(_message.Message):
    __slots__ = ("dataset", "copy", "log", "version", "compiled", "uptime_s", "flows", "caravans", "subscribers", "coordination", "log_end", "limits", "log_bytes_per_s", "events")
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
    def __init__(self, dataset: _Optional[str] = ..., copy: _Optional[str] = ..., log: _Optional[str] = ..., version: _Optional[str] = ..., compiled: _Optional[_Iterable[str]] = ..., uptime_s: _Optional[float] = ..., flows: _Optional[_Iterable[_Union[FlowStatus, _Mapping]]] = ..., caravans: _Optional[_Iterable[_Union[CaravanStatus, _Mapping]]] = ..., subscribers: _Optional[_Iterable[_Union[SubscriberStatus, _Mapping]]] = ..., coordination: _Optional[str] = ..., log_end: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., limits: _Optional[_Union[CaravanLimits, _Mapping]] = ..., log_bytes_per_s: _Optional[float] = ..., events: _Optional[_Iterable[_Union[CaravanEvent, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("at_s", "caravan", "what")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    CARAVAN_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    caravan: int
    what: str
    def __init__(self, at_s: _Optional[float] = ..., caravan: _Optional[int] = ..., what: _Optional[str] = ...) -> None: ...

class FlowStatus(_message.Message):
    __slots__ = ("flow", "state", "subscriber", "epoch", "place", "marker", "credit", "in_flight", "updates", "bytes", "lag_s", "lag_bytes", "caravan", "filter", "cause", "lag_transactions", "bad_values", "headroom_s")
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
    def __init__(self, flow: _Optional[str] = ..., state: _Optional[str] = ..., subscriber: _Optional[str] = ..., epoch: _Optional[int] = ..., place: _Optional[_Union[_push_pb2.Position, _Mapping]] = ..., marker: _Optional[_Union[_push_pb2.Datamarker, _Mapping]] = ..., credit: _Optional[int] = ..., in_flight: _Optional[int] = ..., updates: _Optional[int] = ..., bytes: _Optional[int] = ..., lag_s: _Optional[float] = ..., lag_bytes: _Optional[int] = ..., caravan: _Optional[int] = ..., filter: _Optional[str] = ..., cause: _Optional[str] = ..., lag_transactions: _Optional[int] = ..., bad_values: _Optional[int] = ..., headroom_s: _Optional[float] = ...) -> None: ...

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
    __slots__ = ("application", "subscriber", "address", "state", "flows", "cause")
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FLOWS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    application: str
    subscriber: str
    address: str
    state: str
    flows: int
    cause: str
    def __init__(self, application: _Optional[str] = ..., subscriber: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[str] = ..., flows: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...
