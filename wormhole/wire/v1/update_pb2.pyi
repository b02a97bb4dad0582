from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Op(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OP_UNSPECIFIED: _ClassVar[Op]
    INSERT: _ClassVar[Op]
    UPDATE: _ClassVar[Op]
    DELETE: _ClassVar[Op]
    TRUNCATE: _ClassVar[Op]
    UPSERT: _ClassVar[Op]
    MERGE: _ClassVar[Op]
    DELETE_RANGE: _ClassVar[Op]
    READ: _ClassVar[Op]

class Mark(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MARK_NONE: _ClassVar[Mark]
    ENTERED: _ClassVar[Mark]
    LEFT: _ClassVar[Mark]
OP_UNSPECIFIED: Op
INSERT: Op
UPDATE: Op
DELETE: Op
TRUNCATE: Op
UPSERT: Op
MERGE: Op
DELETE_RANGE: Op
READ: Op
MARK_NONE: Mark
ENTERED: Mark
LEFT: Mark

class Value(_message.Message):
    __slots__ = ("bytes", "text", "int", "uint", "double", "bool", "decimal", "null", "unavailable", "entries")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INT_FIELD_NUMBER: _ClassVar[int]
    UINT_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_FIELD_NUMBER: _ClassVar[int]
    BOOL_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_FIELD_NUMBER: _ClassVar[int]
    NULL_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    bytes: bytes
    text: str
    int: int
    uint: int
    double: float
    bool: bool
    decimal: str
    null: bool
    unavailable: bool
    entries: Entries
    def __init__(self, bytes: _Optional[bytes] = ..., text: _Optional[str] = ..., int: _Optional[int] = ..., uint: _Optional[int] = ..., double: _Optional[float] = ..., bool: _Optional[bool] = ..., decimal: _Optional[str] = ..., null: _Optional[bool] = ..., unavailable: _Optional[bool] = ..., entries: _Optional[_Union[Entries, _Mapping]] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("names", "values")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, names: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("op", "key", "after", "before", "old_key", "key_end", "too_large")
    OP_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    OLD_KEY_FIELD_NUMBER: _ClassVar[int]
    KEY_END_FIELD_NUMBER: _ClassVar[int]
    TOO_LARGE_FIELD_NUMBER: _ClassVar[int]
    op: Op
    key: _containers.RepeatedCompositeFieldContainer[Value]
    after: _containers.RepeatedCompositeFieldContainer[Value]
    before: _containers.RepeatedCompositeFieldContainer[Value]
    old_key: _containers.RepeatedCompositeFieldContainer[Value]
    key_end: _containers.RepeatedCompositeFieldContainer[Value]
    too_large: bool
    def __init__(self, op: _Optional[_Union[Op, str]] = ..., key: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., before: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., old_key: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., key_end: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., too_large: _Optional[bool] = ...) -> None: ...

class RowKey(_message.Message):
    __slots__ = ("table", "values", "whole")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    values: _containers.RepeatedCompositeFieldContainer[Value]
    whole: bool
    def __init__(self, table: _Optional[str] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., whole: _Optional[bool] = ...) -> None: ...

class BatchBody(_message.Message):
    __slots__ = ("updates", "schema_ids", "schema_index", "update_index", "first_index", "sources", "tx_source", "tx_number", "incarnation", "tx_file", "tx_offset", "tx_committed_at_us", "tx_end", "marks", "window", "ended")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_IDS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_INDEX_FIELD_NUMBER: _ClassVar[int]
    UPDATE_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    TX_SOURCE_FIELD_NUMBER: _ClassVar[int]
    TX_NUMBER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TX_FILE_FIELD_NUMBER: _ClassVar[int]
    TX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TX_COMMITTED_AT_US_FIELD_NUMBER: _ClassVar[int]
    TX_END_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedScalarFieldContainer[bytes]
    schema_ids: _containers.RepeatedScalarFieldContainer[int]
    schema_index: _containers.RepeatedScalarFieldContainer[int]
    update_index: _containers.RepeatedScalarFieldContainer[int]
    first_index: int
    sources: _containers.RepeatedScalarFieldContainer[str]
    tx_source: _containers.RepeatedScalarFieldContainer[int]
    tx_number: _containers.RepeatedScalarFieldContainer[int]
    incarnation: int
    tx_file: _containers.RepeatedScalarFieldContainer[int]
    tx_offset: _containers.RepeatedScalarFieldContainer[int]
    tx_committed_at_us: _containers.RepeatedScalarFieldContainer[int]
    tx_end: _containers.RepeatedScalarFieldContainer[int]
    marks: _containers.RepeatedScalarFieldContainer[Mark]
    window: int
    ended: bool
    def __init__(self, updates: _Optional[_Iterable[bytes]] = ..., schema_ids: _Optional[_Iterable[int]] = ..., schema_index: _Optional[_Iterable[int]] = ..., update_index: _Optional[_Iterable[int]] = ..., first_index: _Optional[int] = ..., sources: _Optional[_Iterable[str]] = ..., tx_source: _Optional[_Iterable[int]] = ..., tx_number: _Optional[_Iterable[int]] = ..., incarnation: _Optional[int] = ..., tx_file: _Optional[_Iterable[int]] = ..., tx_offset: _Optional[_Iterable[int]] = ..., tx_committed_at_us: _Optional[_Iterable[int]] = ..., tx_end: _Optional[_Iterable[int]] = ..., marks: _Optional[_Iterable[_Union[Mark, str]]] = ..., window: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...
