"""The binlog dump: a connection on which the server streams packets, received into one bounded buffer.

Commands and packets: MySQL's client/server protocol, "Replication Protocol" (COM_REGISTER_SLAVE, COM_BINLOG_DUMP,
COM_BINLOG_DUMP_GTID). Instead of the third command MariaDB uses a GTID position in the session variable
``@slave_connect_state``.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
import uuid
from dataclasses import dataclass
from typing import Any, Final

from pymysql.connections import Connection

from datastores.mysql.decode.gtid import GtidSet
from datastores.mysql.log.dump_errors import dump_error
from datastores.mysql.server.connection import bound, translating
from wormhole.model.errors import SourceSilent, SourceUnavailable, WormholeError

__all__ = ["HEARTBEAT_S", "Dump", "FromFile", "FromGtids", "Start"]

HEARTBEAT_S: Final = 1.0
"""The interval, in seconds, of the server's heartbeats in a silent stream; see ``_SILENT_BEATS``."""

_SILENT_BEATS: Final = 10  # missing heartbeats; a server may pause (a snapshot, a busy disk) without being gone
_PIECE: Final = 128 << 10  # the most bytes decoded together, which takes about a millisecond
_LEAST_PROGRESS: Final = 4 << 10  # the least bytes of an incomplete event to arrive in the time of ``_SILENT_BEATS``
_WRITE_TIMEOUT_S: Final = 86_400
_REGISTER_SLAVE: Final = 0x15
_BINLOG_DUMP: Final = 0x12
_BINLOG_DUMP_GTID: Final = 0x1E
_THROUGH_GTID: Final = 0x04
_FILE_HEADER: Final = 4
_LONGEST_NAME: Final = 60  # the most bytes that every server accepts


@dataclass(frozen=True, slots=True)
class FromFile:
    """Begin with the event at ``offset`` of the binlog file ``name``. The protocol limits the offset to 32 bits."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class FromGtids:
    """Begin with the first transaction that is not in ``text``: a GTID set (MySQL) or a GTID position (MariaDB)."""

    text: str


Start = FromFile | FromGtids


class Dump:
    """Packets from the server. ``data`` from ``at`` on is received but not consumed; the decoder advances ``at``.

    The dump owns ``connection`` and closes it. ``checksums``: whether the stream's first event has a checksum.
    ``inside``: the caller is consuming an event in parts, so that a part is not mistaken for a whole event. Used by one
    thread. While another method runs, :meth:`close` must not be called.
    """

    def __init__(self, connection: Connection[Any], start: Start, *, server_id: int, mariadb: bool) -> None:
        """Raises :class:`~wormhole.model.errors.SourceUnavailable`, and the errors of `dump_error`."""
        self._mariadb = mariadb
        self._begin(connection, start, server_id)

    def restart(self, connection: Connection[Any], start: Start, *, server_id: int) -> None:
        """Continue from ``start`` on another connection, which the dump then owns. The present connection is closed.

        Raises as the constructor."""
        self.close()
        self._begin(connection, start, server_id)

    def _clear(self) -> None:
        self.data = b""
        self.at = 0
        self.checksums = False
        self.inside = False
        self._gathered = bytearray()  # the received bytes of an event larger than `_PIECE`
        self._silent_s = 0.0  # seconds of waiting since the last progress
        self._unfinished = 0  # bytes received since the last progress
        self._timeout: float | None = None

    def _begin(self, connection: Connection[Any], start: Start, server_id: int) -> None:
        self._clear()
        self._connection: Any = connection
        try:
            bound(connection)
            with translating("the binlog dump"):
                self._prepare(start, server_id, self._mariadb)
        except BaseException:
            self.close()
            raise

    @property
    def arrived(self) -> int:
        """The bytes received but not consumed, including those of an incomplete event."""
        return len(self._gathered) or len(self.data) - self.at

    def more(self, need: int, wait_s: float) -> bool:
        """Receive available bytes, waiting up to ``wait_s`` seconds in all. Returns whether ``data`` grew.

        ``need``: the bytes from ``at`` on that the caller needs (0: one more). Raises :class:`SourceUnavailable` if the
        connection ended, or if no event was complete within the time of several heartbeats.
        """
        if self.at and not self.inside:
            self._progressed()
        gathered = self._gathered
        if self.at:
            self.data, self.at = self.data[self.at :], 0
        have = len(gathered) or len(self.data)
        want = need or len(self.data) + 1
        until = time.monotonic() + wait_s
        left = wait_s
        while have < want:
            piece = self._receive(max(_PIECE, min(want - have, 4 * _PIECE)), left)
            if not piece:
                return False
            have += len(piece)
            if not gathered and have >= want:
                self.data += piece  # the usual case: one copy, or none if the last event ended with its piece
            else:
                gathered += piece if gathered else self.data + piece
            self._unfinished += len(piece)
            if self._unfinished >= _LEAST_PROGRESS:
                self._progressed()
            # A server that sends byte by byte gets no more time than a silent one.
            now = time.monotonic()
            self._silent_s += max(0.0, left - max(0.0, until - now))
            left = max(0.0, until - now)
            if have < want or self.inside:
                self._check_silence()
        if gathered:
            self.data = bytes(gathered)
            self._gathered = bytearray()
        return True

    def _receive(self, size: int, wait_s: float) -> bytes:
        if wait_s != self._timeout:
            self._socket.settimeout(wait_s)
            self._timeout = wait_s
        try:
            piece = self._socket.recv(size)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            self._silent_s += wait_s
            self._check_silence()
            return b""
        except OSError as error:
            raise SourceUnavailable(f"the binlog stream broke: {error}", hint="it is opened again") from error
        if not piece:
            raise SourceUnavailable(
                "the server closed the binlog stream",
                hint="it is opened again; if this repeats: was the thread killed, has another replica the same "
                "server id?",
            )
        return piece

    def _progressed(self) -> None:
        """Reset the measured silence, because an event is complete or enough of a large one arrived."""
        self._silent_s, self._unfinished = 0.0, 0

    def _check_silence(self) -> None:
        if self._silent_s > _SILENT_BEATS * HEARTBEAT_S:
            raise SourceSilent(
                f"no whole event came from the server in {self._silent_s:.0f} s of waiting, although it was asked for "
                f"a heartbeat each {HEARTBEAT_S:g} s",
                hint="it is opened again; look at the network between here and the server",
            )

    @staticmethod
    def refused(payload: bytes) -> WormholeError:
        """The error for an ERR packet with this payload."""
        text = payload[3:]
        if text[:1] == b"#":
            text = text[6:]  # without the SQL state
        return dump_error(int.from_bytes(payload[1:3], "little"), text.decode("utf-8", "replace"))

    def close(self) -> None:
        """Close the connection. Idempotent. The server notices with its next heartbeat."""
        self._connection._force_close()

    # --- inside ------------------------------------------------------------------------------------------------

    def _prepare(self, start: Start, server_id: int, mariadb: bool) -> None:
        connection = self._connection
        beat = int(HEARTBEAT_S * 1e9)
        settings = [
            # A replica states its properties in user variables. From 8.0.26 on MySQL accepts both names.
            "@master_binlog_checksum = @@GLOBAL.binlog_checksum, @source_binlog_checksum = @@GLOBAL.binlog_checksum",
            f"@master_heartbeat_period = {beat}, @source_heartbeat_period = {beat}",
            # A reader waits for its slowest subscriber. The server must not time out meanwhile.
            f"SESSION net_write_timeout = {_WRITE_TIMEOUT_S}",
        ]
        if mariadb:
            settings.append("@mariadb_slave_capability = 4")  # GTID events, and everything before them
        else:
            # With a uuid of its own, no reader ends another reader's dump.
            own = uuid.uuid4()
            settings.append(f"@slave_uuid = '{own}', @replica_uuid = '{own}'")
        with connection.cursor() as cursor:
            cursor.execute("SET " + ", ".join(settings))
            if mariadb and isinstance(start, FromGtids):
                cursor.execute(
                    "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0",
                    (start.text,),
                )
            cursor.execute("SELECT @master_binlog_checksum AS checksum")
            row = cursor.fetchone()
            self.checksums = row is not None and str(row["checksum"]).upper() == "CRC32"
        name = f"wormhole:{os.getpid()}@{socket.gethostname()}".encode()[:_LONGEST_NAME]  # shown by SHOW REPLICAS
        self._command(
            _REGISTER_SLAVE, struct.pack("<IB", server_id, len(name)) + name + struct.pack("<BBHII", 0, 0, 0, 0, 0)
        )
        connection._read_ok_packet()
        if isinstance(start, FromFile):
            self._command(_BINLOG_DUMP, struct.pack("<IHI", start.offset, 0, server_id) + start.name.encode())
        elif mariadb:
            self._command(_BINLOG_DUMP, struct.pack("<IHI", _FILE_HEADER, 0, server_id))
        else:
            known = GtidSet.parse(start.text).encode()
            head = struct.pack("<HIIQI", _THROUGH_GTID, server_id, 0, _FILE_HEADER, len(known))
            self._command(_BINLOG_DUMP_GTID, head + known)
        self._socket: socket.socket = connection._sock

    def _command(self, command: int, payload: bytes) -> None:
        self._connection._execute_command(command, payload)
