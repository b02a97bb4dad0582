"""The protobuf classes of the NameNode's edits: the used fields of Hadoop's inotify, acl and xattr.

A field that a later Hadoop adds is skipped. A test compares the fields with the classes in Hadoop's jar.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["MESSAGES", "EditsResponse", "class_of"]

_PACKAGE: Final = "hadoop.hdfs"
_TYPES: Final = {
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
}

# Enumerations are read as numbers. `decode.events` has their names in the same order.
MESSAGES: Final = {
    "EventProto": "1 type int32, 2 contents bytes",
    "EventBatchProto": "1 txid int64, 2 events EventProto*",
    "EventsListProto": "2 firstTxid int64, 3 lastTxid int64, 4 syncTxid int64, 5 batch EventBatchProto*",
    "GetEditsFromTxidResponseProto": "1 eventsList EventsListProto",
    "FsPermissionProto": "1 perm uint32",
    "AclEntryProto": "1 type int32, 2 scope int32, 3 permissions int32, 4 name string",
    "XAttrProto": "1 namespace int32, 2 name string, 3 value bytes",
    "CreateEventProto": "1 type int32, 2 path string, 3 ctime int64, 4 ownerName string, 5 groupName string, "
    "6 perms FsPermissionProto, 7 replication int32, 8 symlinkTarget string, 9 overwrite bool, "
    "10 defaultBlockSize int64, 11 erasureCoded bool",
    "CloseEventProto": "1 path string, 2 fileSize int64, 3 timestamp int64",
    "TruncateEventProto": "1 path string, 2 fileSize int64, 3 timestamp int64",
    "AppendEventProto": "1 path string, 2 newBlock bool",
    "RenameEventProto": "1 srcPath string, 2 destPath string, 3 timestamp int64",
    "MetadataUpdateEventProto": "1 path string, 2 type int32, 3 mtime int64, 4 atime int64, 5 replication int32, "
    "6 ownerName string, 7 groupName string, 8 perms FsPermissionProto, 9 acls AclEntryProto*, "
    "10 xAttrs XAttrProto*, 11 xAttrsRemoved bool",
    "UnlinkEventProto": "1 path string, 2 timestamp int64",
}
"""The fields of each message: number, name and type. ``*``: repeated."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    # Hadoop's proto2 does not check that text is UTF-8. This syntax does; the bytes are the same.
    file = descriptor_pb2.FileDescriptorProto(name="inotify.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split(", "):
            number, field_name, kind = text.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    return file


_pool: Final = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def class_of(name: str) -> Any:
    """The Python class of a message."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


EditsResponse: Final = class_of("GetEditsFromTxidResponseProto")
"""The NameNode's answer to a call for edits."""
