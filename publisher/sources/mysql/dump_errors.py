"""The errors with which a server ends a binlog dump, translated.

Numbers and texts: MySQL 8.0-9.x and MariaDB 10.6-11.x. 1236 is used for everything that can happen to a dump, only its
text tells which.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pymysql

from publisher.sources.mysql.connection import LONGEST_TEXT, translate
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
_THROWN_OUT: Final = 4052  # MariaDB: another reader came with this one's server id
_ANEW: Final = "find out what happened to the server, then start the application anew from a place you choose"
_REPLAY: Final = (
    "start from earliest, or replay the range from an archive; keep binlogs longer (binlog_expire_logs_seconds)"
)

_Make = Callable[[str], WormholeError]


def _purged(message: str) -> WormholeError:
    missing = re.search(r"missing transactions are '([^']*)'", message)
    ranges = missing[1] if missing else ""
    return PositionPurged(
        f"the server purged binlogs that are still needed: {message}",
        first_missing=ranges,
        last_missing=ranges,
        hint=_REPLAY,
    )


def _diverged(message: str) -> WormholeError:
    return Diverged(f"the place is not in the server's binlog: {message}", hint=_ANEW)


def _same_id(message: str) -> WormholeError:
    return SourceUnavailable(
        f"another replica showed the server the same id as this reader: {message}",
        hint="give each publisher (and replica) a range of its own with server_ids",
    )


def _gone(message: str) -> WormholeError:
    return SourceUnavailable(
        f"the server no longer lists the file that was read, after RESET MASTER or a purge: {message}",
        hint="it is opened again, which tells whether something is missing",
    )


def _corrupt(message: str) -> WormholeError:
    return DecodeError(
        f"the server cannot read its own binlog: {message}",
        hint="look into the server's error log; once the file is whole again the flow goes on, else start behind it",
    )


def _too_large(message: str) -> WormholeError:
    return UnsupportedLog(
        f"the server does not send an event of its binlog: {message}",
        hint="SET GLOBAL max_allowed_packet = 1073741824, then resume the flow",
    )


# A file's last event is cut: the server ended while it wrote it.
_TORN: Final = "truncated in the middle of event"

_READING: Final[tuple[tuple[str, _Make], ...]] = (
    (r"same server_(uuid|id)", _same_id),
    (r"purged required binary logs|too old|first log file name", _purged),
    (
        r"more GTIDs than the|position > file size|not in the master's binlog|binlog on the master is missing the GTID",
        _diverged,
    ),
    (r"could not find next log", _gone),
    (r"max_allowed_packet", _too_large),
    (r"bogus data|truncated|corrupt|impossible position|event read from binlog did not pass|checksum", _corrupt),
)


def is_torn(error: WormholeError) -> bool:
    """Whether the server refused because a binlog file ends in the middle of an event."""
    return isinstance(error, DecodeError) and _TORN in error.message


def dump_error(code: int, message: str) -> WormholeError:
    """The error to raise for error ``code`` that the server gave with ``message``, of which the beginning is shown."""
    message = message[:LONGEST_TEXT]
    if code == _THROWN_OUT:
        return _same_id(message)
    if code == _FATAL_READING:
        for pattern, make in _READING:
            if re.search(pattern, message, re.IGNORECASE):
                return make(message)
    return translate(pymysql.OperationalError(code, message), "the binlog dump")
