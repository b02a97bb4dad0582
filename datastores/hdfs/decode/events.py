"""Decodes a transaction's events into updates. Pure; raises only ``DecodeError``.

A path is the key of a row. The first folder of the path is the row's table. An event does not show whether a removed or
renamed path is a file or a folder. So each such event becomes a delete of the path and of the range of paths below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError as WireError
from google_crc32c import value as crc32c

from datastores.hdfs.decode.messages import EditsResponse, class_of
from wormhole.model.errors import DecodeError
from wormhole.model.schema import Column
from wormhole.model.values import UNAVAILABLE, Op, Value

__all__ = ["COLUMNS", "KEY", "Batch", "Edit", "Edits", "table_of"]

KEY: Final = (Column("path", "text"),)
COLUMNS: Final = (
    Column("event", "text"),
    Column("name", "text"),
    Column("type", "text"),
    Column("size", "int"),
    Column("owner", "text"),
    Column("group", "text"),
    Column("permission", "text"),
    Column("replication", "int"),
    Column("block_size", "int"),
    Column("mtime_ms", "int"),
    Column("atime_ms", "int"),
    Column("target", "text"),
    Column("renamed_from", "text"),
    Column("acl", "text"),
    Column("xattrs", "entries"),
    Column("xattrs_removed", "bool"),
    Column("erasure_coded", "bool"),
)
_NAMES: Final = tuple(column.name for column in COLUMNS)

# Indexed by Hadoop's numbers.
_TYPES: Final = ("file", "directory", "symlink")
_ACL_SCOPES: Final = ("", "default:")
_ACL_TYPES: Final = ("user", "group", "mask", "other")
_XATTR_SPACES: Final = ("user", "trusted", "security", "system", "raw")


@dataclass(frozen=True, slots=True)
class Edit:
    """One update. ``values``: in the order of :data:`COLUMNS`; empty for a delete. ``key_end``: a range's end."""

    op: Op
    path: str
    values: tuple[Value, ...] = ()
    key_end: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction. ``edits``: its updates, in order. ``at_ms``: its time by the NameNode's clock, in milliseconds
    since 1970; 0: unknown. ``checksum``: of its events as the NameNode sent them.
    """

    txid: int
    edits: tuple[Edit, ...]
    at_ms: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Edits:
    """The NameNode's answer to one call. ``first``, ``last``: the first and last transaction that it covers; -1: none.
    ``batches``: the transactions with events. ``synced``: the last durable transaction.
    """

    first: int
    last: int
    synced: int
    batches: tuple[Batch, ...]

    @classmethod
    def decode(cls, data: bytes) -> Edits:
        """Raises :class:`~wormhole.model.errors.DecodeError`."""
        try:
            found = EditsResponse.FromString(data).eventsList
            return cls(found.firstTxid, found.lastTxid, found.syncTxid, tuple(map(_batch, found.batch)))
        except (WireError, UnicodeDecodeError) as error:
            raise DecodeError(
                f"the NameNode's answer is not in the form of its events: {error}",
                hint="report this with the release of Hadoop",
            ) from error


def _batch(batch: Any) -> Batch:
    checksum = at_ms = 0
    edits: list[Edit] = []
    for one in batch.events:
        if not 0 <= one.type < len(_KINDS):
            raise DecodeError(
                f"transaction {batch.txid} has an event of kind {one.type}, which this release does not know",
                hint="install a release that knows this Hadoop",
                position=str(batch.txid),
            )
        checksum = crc32c(b"%d %d " % (checksum, one.type) + one.contents)
        kind, edits_of = _KINDS[one.type]
        event = kind.FromString(one.contents)
        edits += edits_of(event)
        at_ms = max(at_ms, _time_of(one.type, event))
    return Batch(batch.txid, tuple(edits), at_ms, checksum)


def table_of(path: str) -> str:
    """The first folder of a path; ``/`` for the root itself."""
    return path.split("/", 2)[1] or "/" if path.startswith("/") else path.split("/", 1)[0]


def _changed(op: Op, path: str, **known: Value) -> Edit:
    known["name"] = path.rpartition("/")[2]
    return Edit(op, path, tuple(known.get(name, UNAVAILABLE) for name in _NAMES))


def _created(event: Any) -> Iterator[Edit]:
    is_file = event.type == 0
    values: dict[str, Value] = dict.fromkeys(_NAMES)
    values |= {
        "event": "create",
        "type": _TYPES[event.type] if event.type < len(_TYPES) else str(event.type),
        "size": 0 if is_file else None,
        "owner": event.ownerName,
        "group": event.groupName,
        "permission": f"{event.perms.perm:o}",
        "replication": event.replication if is_file else None,
        "block_size": event.defaultBlockSize if is_file else None,
        "mtime_ms": event.ctime,
        "target": event.symlinkTarget if event.type == 2 else None,
        "erasure_coded": event.erasureCoded,
    }
    yield _changed(Op.UPSERT, event.path, **values)


def _closed(event: Any) -> Iterator[Edit]:
    yield _changed(Op.UPDATE, event.path, event="close", size=_size(event), mtime_ms=event.timestamp)


def _truncated(event: Any) -> Iterator[Edit]:
    yield _changed(Op.UPDATE, event.path, event="truncate", size=_size(event), mtime_ms=event.timestamp)


def _size(event: Any) -> Value:
    """The file's size; not available after a concatenation, which does not log it."""
    return UNAVAILABLE if event.fileSize < 0 else event.fileSize


def _appended(event: Any) -> Iterator[Edit]:
    yield _changed(Op.UPDATE, event.path, event="append")


def _unlinked(event: Any) -> Iterator[Edit]:
    yield from _removed(event.path)


def _removed(path: str) -> Iterator[Edit]:
    yield Edit(Op.DELETE, path)
    # "0" is the character after "/".
    yield Edit(Op.DELETE_RANGE, f"{path}/", key_end=f"{path}0")


def _renamed(event: Any) -> Iterator[Edit]:
    yield from _removed(event.srcPath)
    yield Edit(Op.DELETE, event.destPath)  # the rename may have replaced the target
    yield _changed(Op.UPSERT, event.destPath, event="rename", renamed_from=event.srcPath)


def _metadata(event: Any) -> Iterator[Edit]:
    known: dict[str, Value] = {}
    match event.type:
        case 0:  # times; -1: unchanged
            known = {"mtime_ms": event.mtime, "atime_ms": event.atime}
            known = {name: value for name, value in known.items() if value != -1}
        case 1:
            known = {"replication": event.replication}
        case 2:  # names; empty: unchanged
            known = {"owner": event.ownerName or UNAVAILABLE, "group": event.groupName or UNAVAILABLE}
        case 3:
            known = {"permission": f"{event.perms.perm:o}"}
        case 4:
            known = {"acl": ",".join(map(_acl, event.acls))}
        case 5:
            attributes = {_attribute(one): one.value for one in event.xAttrs}
            known = {"xattrs": attributes, "xattrs_removed": event.xAttrsRemoved}
    yield _changed(Op.UPDATE, event.path, event="metadata", **known)


def _acl(entry: Any) -> str:
    """An ACL entry as ``hdfs dfs -getfacl`` writes it."""
    rights = "".join(letter if entry.permissions & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
    return f"{_at(_ACL_SCOPES, entry.scope)}{_at(_ACL_TYPES, entry.type)}:{entry.name}:{rights}"


def _attribute(one: Any) -> bytes:
    return f"{_at(_XATTR_SPACES, one.namespace)}.{one.name}".encode()


def _at(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


def _time_of(kind: int, event: Any) -> int:
    return event.ctime if kind == 0 else event.timestamp if hasattr(event, "timestamp") else 0


# Indexed by Hadoop's numbers.
_KINDS: Final = (
    (class_of("CreateEventProto"), _created),
    (class_of("CloseEventProto"), _closed),
    (class_of("AppendEventProto"), _appended),
    (class_of("RenameEventProto"), _renamed),
    (class_of("MetadataUpdateEventProto"), _metadata),
    (class_of("UnlinkEventProto"), _unlinked),
    (class_of("TruncateEventProto"), _truncated),
)
