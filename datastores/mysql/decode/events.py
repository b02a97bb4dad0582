"""Binlog events: type numbers, the header's layout, and the check of a format description.

The layout of an event, version 4 of the format (MySQL Internals, "Binlog Event"; MariaDB's numbers from its "Binlog
Event Header" page)::

    header := timestamp (4, seconds) type (1) server_id (4) length (4, of the whole event) end_log_pos (4) flags (2)
    event  := header post-header payload [CRC-32 of all before it (4)]     all integers little endian
"""

from __future__ import annotations

from typing import Final

from wormhole.model.errors import DecodeError

__all__ = [
    "ANNOTATE_ROWS",
    "ANONYMOUS_GTID",
    "ARTIFICIAL",
    "BINLOG_CHECKPOINT",
    "CHECKSUM",
    "DELETE_ROWS_COMPRESSED",
    "DELETE_ROWS_COMPRESSED_V1",
    "DELETE_ROWS_V1",
    "DELETE_ROWS_V2",
    "FL_COMPLETED_XA",
    "FL_GROUP_COMMIT_ID",
    "FL_PREPARED_XA",
    "FL_STANDALONE",
    "FL_TRANSACTIONAL",
    "FORMAT_DESCRIPTION",
    "GTID",
    "GTID_LIST",
    "GTID_TAGGED",
    "HEADER",
    "HEARTBEAT",
    "HEARTBEAT_V2",
    "IGNORABLE",
    "IGNORABLE_EVENT",
    "INCIDENT",
    "INTVAR",
    "MARIADB_GTID",
    "NAMES",
    "PARTIAL_UPDATE_ROWS",
    "PREVIOUS_GTIDS",
    "QUERY",
    "QUERY_COMPRESSED",
    "RAND",
    "ROTATE",
    "ROWS_QUERY",
    "START_ENCRYPTION",
    "STOP",
    "TABLE_MAP",
    "TRANSACTION_CONTEXT",
    "TRANSACTION_PAYLOAD",
    "UPDATE_ROWS_COMPRESSED",
    "UPDATE_ROWS_COMPRESSED_V1",
    "UPDATE_ROWS_V1",
    "UPDATE_ROWS_V2",
    "USER_VAR",
    "VIEW_CHANGE",
    "WRITE_ROWS_COMPRESSED",
    "WRITE_ROWS_COMPRESSED_V1",
    "WRITE_ROWS_V1",
    "WRITE_ROWS_V2",
    "XA_PREPARE",
    "XID",
    "check_post_headers",
    "name_of",
]

HEADER: Final = 19
CHECKSUM: Final = 4

# Header flags.
ARTIFICIAL: Final = 0x20
"""The server made the event for this stream. It is in no file."""
IGNORABLE: Final = 0x80
"""A reader that does not know the type may skip the event."""

QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
INTVAR: Final = 5
RAND: Final = 13
USER_VAR: Final = 14
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
TABLE_MAP: Final = 19
WRITE_ROWS_V1: Final = 23
UPDATE_ROWS_V1: Final = 24
DELETE_ROWS_V1: Final = 25
INCIDENT: Final = 26
HEARTBEAT: Final = 27
IGNORABLE_EVENT: Final = 28
ROWS_QUERY: Final = 29
WRITE_ROWS_V2: Final = 30
UPDATE_ROWS_V2: Final = 31
DELETE_ROWS_V2: Final = 32
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
TRANSACTION_CONTEXT: Final = 36
VIEW_CHANGE: Final = 37
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
HEARTBEAT_V2: Final = 41
GTID_TAGGED: Final = 42
# Types of MariaDB only.
ANNOTATE_ROWS: Final = 160
BINLOG_CHECKPOINT: Final = 161
MARIADB_GTID: Final = 162
GTID_LIST: Final = 163
START_ENCRYPTION: Final = 164
QUERY_COMPRESSED: Final = 165
WRITE_ROWS_COMPRESSED_V1: Final = 166
UPDATE_ROWS_COMPRESSED_V1: Final = 167
DELETE_ROWS_COMPRESSED_V1: Final = 168
WRITE_ROWS_COMPRESSED: Final = 169
UPDATE_ROWS_COMPRESSED: Final = 170
DELETE_ROWS_COMPRESSED: Final = 171

# Flags of MariaDB's GTID event (``flags2``).
FL_STANDALONE: Final = 1
"""The next event is the whole group. No commit follows it."""
FL_GROUP_COMMIT_ID: Final = 2
FL_TRANSACTIONAL: Final = 4
FL_PREPARED_XA: Final = 64
FL_COMPLETED_XA: Final = 128

NAMES: Final = {
    QUERY: "QUERY",
    STOP: "STOP",
    ROTATE: "ROTATE",
    INTVAR: "INTVAR",
    RAND: "RAND",
    USER_VAR: "USER_VAR",
    FORMAT_DESCRIPTION: "FORMAT_DESCRIPTION",
    XID: "XID",
    TABLE_MAP: "TABLE_MAP",
    WRITE_ROWS_V1: "WRITE_ROWS_V1",
    UPDATE_ROWS_V1: "UPDATE_ROWS_V1",
    DELETE_ROWS_V1: "DELETE_ROWS_V1",
    INCIDENT: "INCIDENT",
    HEARTBEAT: "HEARTBEAT",
    IGNORABLE_EVENT: "IGNORABLE",
    ROWS_QUERY: "ROWS_QUERY",
    WRITE_ROWS_V2: "WRITE_ROWS",
    UPDATE_ROWS_V2: "UPDATE_ROWS",
    DELETE_ROWS_V2: "DELETE_ROWS",
    GTID: "GTID",
    ANONYMOUS_GTID: "ANONYMOUS_GTID",
    PREVIOUS_GTIDS: "PREVIOUS_GTIDS",
    TRANSACTION_CONTEXT: "TRANSACTION_CONTEXT",
    VIEW_CHANGE: "VIEW_CHANGE",
    XA_PREPARE: "XA_PREPARE",
    PARTIAL_UPDATE_ROWS: "PARTIAL_UPDATE_ROWS",
    TRANSACTION_PAYLOAD: "TRANSACTION_PAYLOAD",
    HEARTBEAT_V2: "HEARTBEAT_V2",
    GTID_TAGGED: "GTID_TAGGED",
    ANNOTATE_ROWS: "ANNOTATE_ROWS",
    BINLOG_CHECKPOINT: "BINLOG_CHECKPOINT",
    MARIADB_GTID: "GTID (MariaDB)",
    GTID_LIST: "GTID_LIST",
    START_ENCRYPTION: "START_ENCRYPTION",
    QUERY_COMPRESSED: "QUERY_COMPRESSED",
    WRITE_ROWS_COMPRESSED_V1: "WRITE_ROWS_COMPRESSED_V1",
    UPDATE_ROWS_COMPRESSED_V1: "UPDATE_ROWS_COMPRESSED_V1",
    DELETE_ROWS_COMPRESSED_V1: "DELETE_ROWS_COMPRESSED_V1",
    WRITE_ROWS_COMPRESSED: "WRITE_ROWS_COMPRESSED",
    UPDATE_ROWS_COMPRESSED: "UPDATE_ROWS_COMPRESSED",
    DELETE_ROWS_COMPRESSED: "DELETE_ROWS_COMPRESSED",
}

# The encoder relies on these post-header lengths by type: six-byte table ids, and two bytes more for version 2 of rows.
_POST_HEADERS: Final = {
    QUERY: 13,
    TABLE_MAP: 8,
    WRITE_ROWS_V1: 8,
    UPDATE_ROWS_V1: 8,
    DELETE_ROWS_V1: 8,
    WRITE_ROWS_V2: 10,
    UPDATE_ROWS_V2: 10,
    DELETE_ROWS_V2: 10,
    PARTIAL_UPDATE_ROWS: 10,
    MARIADB_GTID: 19,
}


def name_of(kind: int) -> str:
    """An event type's name and number, for messages."""
    return f"{NAMES.get(kind, 'unknown')} event (type {kind})"


def check_post_headers(lengths: bytes) -> None:
    """Check a format description's post-header lengths, one for each type from 1 on; 0: the type is never
    written. Raises :class:`DecodeError` if the layout of a decoded event differs.
    """
    for kind, length in _POST_HEADERS.items():
        if kind <= len(lengths) and lengths[kind - 1] not in {0, length}:
            raise DecodeError(
                f"FORMAT_DESCRIPTION event: the post-header of the {name_of(kind)} has {lengths[kind - 1]} "
                f"bytes instead of {length}",
                hint="read from a server of MySQL 8.0 or MariaDB 10.6 on, which writes version 4 of the binlog format",
            )
