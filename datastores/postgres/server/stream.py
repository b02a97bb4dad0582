"""The stream of a walsender's messages, and the answers that the walsender expects.

The server ends a session that sends no answer for ``wal_sender_timeout``. A reader pauses while its applications are
slow. If its session ended, a new one would decode everything since the slot's restart place again. So a thread of the
source sends the answers, even while readers pause.
"""

from __future__ import annotations

import re
import select
import struct
import threading
import time
from typing import Final

import psycopg
from psycopg import pq

from datastores.postgres.server.connection import Connection, ServerError, drop_notifications
from wormhole.model.errors import DecodeError, SourceSilent, WormholeError

__all__ = ["HEADER_BYTES", "KEEPALIVE", "LOG_DATA", "Stream", "keepalive_end"]

LOG_DATA: Final = ord("w")
"""The first byte of a message with log. The log begins after `HEADER_BYTES`."""
KEEPALIVE: Final = ord("k")
HEADER_BYTES: Final = 25

_STATUS: Final = struct.Struct(">cQQQqB")
_END: Final = struct.Struct(">Q")
_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01, in microseconds since 1970
_SILENCE_S: Final = 120.0  # twice the default of wal_sender_timeout; the server requests an answer after half of it
_REPLY_AT: Final = 17
_KEEPALIVE_BYTES: Final = 18
_MOST_BYTES: Final = 512 << 10
_MESSAGE_COST: Final = 64
_INTERNAL: Final = frozenset({"XX000", "XX001"})
# A server's messages about an unreadable record (xlogreader.c). Up to version 14 they have no prefix.
_UNREADABLE: Final = re.compile(
    r"could not find record|checksum in record|contrecord|record (length|offset|with)|resource manager ID|"
    r"magic number|info bits|pageaddr|out-of-sequence|block_id|(decompress|restore) image"
)
_DAMAGED: Final = (
    "a file of the server's pg_wal is damaged: put it back from the server's archive or a standby, then restart the "
    "publisher. Without a copy stop the publisher, run `wormholectl objects drop` and `objects create`, and start it: "
    "flows report what they lack with its range"
)


class Stream:
    """A session after ``START_REPLICATION``. One thread calls ``receive``, another one calls ``answer``.

    All received log is confirmed at once, because the slot belongs to the session and ends with it. A server that shuts
    down waits until all log that it sent is confirmed.
    """

    def __init__(self, connection: Connection, begin: int) -> None:
        self._connection = connection
        self.encoding = connection.encoding
        self._pgconn = connection.pgconn
        self._lock = threading.Lock()  # libpq takes one call at a time
        self._received = begin
        self._closed = False
        self._given_up: WormholeError | None = None
        self._heard_s = self._asked_s = time.monotonic()

    def receive(self, wait_s: float) -> list[bytes]:
        """The messages received so far, up to some hundred KiB. Waits up to ``wait_s`` seconds for the first message.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` if the session ended, and
        :class:`~wormhole.model.errors.DecodeError` for bytes that are no log and for log that the server cannot read.
        """
        found = self._take()
        if found or wait_s <= 0:
            return found
        if self._wait(wait_s):
            return self._take()
        if time.monotonic() - self._heard_s > _SILENCE_S:
            raise SourceSilent(
                f"the server sent nothing for {_SILENCE_S:g} s, not even a keepalive",
                hint="check the network between; a retry follows",
            )
        return []

    def answer(self) -> None:
        """Send the server an answer with the confirmed place, which keeps the session open.

        Requests a reply from a server that was silent for long. With a long ``wal_sender_timeout``, or without one, a
        server sends nothing on its own. Never waits and never raises: the reader notices an ended session.
        """
        with self._lock:
            if not self._closed:
                self._answer(asks=time.monotonic() - self._heard_s > _SILENCE_S / 4)

    def give_up(self, error: WormholeError, *, paused_s: float) -> None:
        """Close the session if its reader has not called for ``paused_s``. The reader's next call raises ``error``.

        A server that shuts down waits until its log is received, but a reader may pause for any time.
        """
        with self._lock:
            if not self._closed and time.monotonic() - self._asked_s >= paused_s:
                self._given_up = error
                self._close()

    def close(self) -> None:
        """Close the session. Idempotent; may be called from any thread."""
        with self._lock:
            if not self._closed:
                self._close()

    def _close(self) -> None:
        self._closed = True
        self._connection.close()

    def _wait(self, wait_s: float) -> bool:
        with self._lock:
            if self._closed:
                return False
            poll = select.poll()
            poll.register(self._pgconn.socket, select.POLLIN)
        return bool(poll.poll(wait_s * 1000))

    def _take(self) -> list[bytes]:
        found: list[bytes] = []
        with self._lock:
            self._asked_s = time.monotonic()
            if self._given_up is not None:
                raise self._given_up
            if self._closed:
                return found
            try:
                take = self._pgconn.get_copy_data
                size, data = take(1)
                if size == 0:
                    self._pgconn.consume_input()
                    size, data = take(1)
                    drop_notifications(self._pgconn)
                room = _MOST_BYTES
                while size > 0:
                    message = bytes(data)
                    found.append(message)
                    room -= size + _MESSAGE_COST
                    if message[0] == KEEPALIVE and len(message) == _KEEPALIVE_BYTES:
                        self._keep_alive(message)
                    elif message[0] != LOG_DATA or size <= HEADER_BYTES:
                        raise DecodeError(
                            f"the server sends {size} bytes that begin with {message[:1]!r}, which is no part of a log",
                            hint="check that the address leads to a PostgreSQL server, with nothing in between; when "
                            "the server was upgraded, upgrade the publisher too",
                            code="peer-not-database",
                        )
                    if room <= 0:
                        break
                    size, data = take(1)
            except psycopg.Error:
                raise self._connection.broken() from None
            if size < 0:
                self._given_up = self._ended()  # libpq returns the reason only once
                if not found:
                    raise self._given_up
            if found:
                self._heard_s = time.monotonic()
        return found

    def _keep_alive(self, message: bytes) -> None:
        self._received = max(self._received, keepalive_end(message))
        if message[_REPLY_AT]:
            self._answer()

    def _answer(self, *, asks: bool = False) -> None:
        now_us = time.time_ns() // 1000 - _EPOCH_US
        at = self._received
        try:
            self._pgconn.put_copy_data(_STATUS.pack(b"r", at, at, at, now_us, asks))
            self._pgconn.flush()
        except psycopg.Error:
            pass  # the reader gets the same error

    def _ended(self) -> WormholeError:
        try:
            result = self._pgconn.get_result()
        except psycopg.Error:
            return self._connection.broken()
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            return ServerError("the server ended the sending of its log", hint="it is opened again")
        error = self._connection.refusal(result)
        if error.sqlstate in _INTERNAL and _UNREADABLE.search(error.message):
            # A new session would read everything before the damage again and end at the same place.
            return DecodeError(f"the server cannot read its own log: {error.message}", hint=_DAMAGED)
        return error


def keepalive_end(message: bytes) -> int:
    """The LSN in a keepalive message. The server has sent every commit before it."""
    end: int = _END.unpack_from(message, 1)[0]
    return end
