"""Translates the errors with which a server ends a binlog dump.

The numbers and texts are those of MySQL 8.0 to 9.x and MariaDB 10.6 to 11.x. Every failure of a dump has the number
1236, and only the text distinguishes the failures.
"""

from __future__ import annotations

import re
from typing import Final

import pymysql

from datastores.common.next_steps import REPAIR
from datastores.mysql.server.connection import LONGEST_TEXT, translate
from wormhole.model.errors import (
    DecodeError,
    Diverged,
    PositionPurged,
    SourceUnavailable,
    UnsupportedLog,
    WormholeError,
)

__all__ = ["dump_error", "is_torn"]

_FATAL_READING: Final = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG
_THROWN_OUT: Final = 4052  # MariaDB: another reader began a dump with this server id
_ANEW: Final = f"find out what happened to the server. If the log is another one: {REPAIR}"
_REPLAY: Final = (
    "`wormholectl repair` sends what the tables hold, or replay the range from an archive; keep binlogs longer "
    "(binlog_expire_logs_seconds)"
)

_SAME_ID: Final = "another replica showed the server the same id as this reader"
_RANGES: Final = "give each publisher (and replica) a range of its own with server_ids"

# The last event of a file is incomplete, because the server crashed while writing it.
_TORN: Final = "truncated in the middle of event"

# A part of the server's text, the error to raise, its message and next step. The first match applies.
_READING: Final[tuple[tuple[str, type[WormholeError], str, str], ...]] = (
    (r"same server_(uuid|id)", SourceUnavailable, _SAME_ID, _RANGES),
    (
        r"purged required binary logs|too old|first log file name",
        PositionPurged,
        "the server purged binlogs that are still needed",
        _REPLAY,
    ),
    (
        r"more GTIDs than the|position > file size|not in the master's binlog|binlog on the master is missing the GTID",
        Diverged,
        "the place is not in the server's binlog",
        _ANEW,
    ),
    (
        r"could not find next log",
        SourceUnavailable,
        "the server no longer lists the file that was read, after RESET MASTER or a purge",
        "it is opened again, which shows whether something is missing",
    ),
    (
        r"anonymous transaction",
        UnsupportedLog,
        "the server does not send transactions from before it had GTIDs",
        "SET GLOBAL gtid_mode = ON_PERMISSIVE, then resume the flow; set it ON again once its datamarker has GTIDs",
    ),
    (
        r"max_allowed_packet",
        UnsupportedLog,
        "the server does not send an event of its binlog",
        "SET GLOBAL max_allowed_packet = 1073741824, then resume the flow",
    ),
    (
        r"bogus data|truncated|corrupt|impossible position|event read from binlog did not pass|checksum",
        DecodeError,
        "the server cannot read its own binlog",
        "look into the server's error log; once the file is whole again the flow goes on, else start behind it",
    ),
)


def is_torn(error: WormholeError) -> bool:
    """Whether the server refused because a binlog file ends within an event."""
    return isinstance(error, DecodeError) and _TORN in error.message


def dump_error(code: int, message: str) -> WormholeError:
    """The error for the server's error ``code`` with ``message``, of which the beginning is shown."""
    message = message[:LONGEST_TEXT]
    if code == _THROWN_OUT:
        return SourceUnavailable(f"{_SAME_ID}: {message}", hint=_RANGES, code="log-shared")
    for pattern, kind, what, hint in _READING if code == _FATAL_READING else ():
        if re.search(pattern, message, re.IGNORECASE):
            error = kind(f"{what}: {message}", hint=hint)
            if isinstance(error, PositionPurged):
                missing = re.search(r"missing transactions are '([^']*)'", message)
                error.first_missing = error.last_missing = missing[1] if missing else ""
            return error
    return translate(pymysql.OperationalError(code, message), "the binlog dump")
