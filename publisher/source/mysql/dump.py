"""The binlog dump: a connection that became a stream of packets, received into one bounded buffer.

Commands and packets: MySQL's client/server protocol, "Replication Protocol" (COM_REGISTER_SLAVE, COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID);
MariaDB takes the place as a GTID position in the session variable ``@slave_connect_state`` instead of the third.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from socket import socket
from typing import Final

from pymysql import MySQLError
from pymysql.connections import Connection

from publisher.source.mysql.refusals import refusal
from wormhole.decode.mysql.gtid import GtidSet
from wormhole.errors import DecodeError, SourceUnavailable, WormholeError

__all__ = ["HEARTBEAT_S", "Dump", "FromFile", "FromGtids", "Start"]

HEARTBEAT_S: Final = 1.0
"""The server sends at least a heartbeat this often; see ``_SILENT_BEATS``."""

_SILENT_BEATS: Final = 10  # a server that is stopped for a moment (a snapshot, a busy disk) is not gone yet
_ROOM: Final = 1 << 20
_LARGEST_EVENT: Final = (1 << 30) + (1 << 16)  # max_allowed_packet is at most 1 GiB
_WRITE_TIMEOUT_S: Final = 86_400
_REGISTER_SLAVE: Final = 0x15
_BINLOG_DUMP: Final = 0x12
_BINLOG_DUMP_GTID: Final = 0x1E
_THROUGH_GTID: Final = 0x04
_FILE_HEADER: Final = 4
_NAME: Final = b"wormhole"


@dataclass(frozen=True, slots=True)
class FromFile:
    """Begin with the event at ``offset`` of the binlog file ``name``. The protocol has 32 bits for the offset."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class FromGtids:
    """Begin with the first transaction that is not in ``text``: a GTID set (MySQL) or a GTID position (MariaDB)."""

    text: str


Start = FromFile | FromGtids


class Dump:
    """Packets from the server: ``data[at:end]`` is received and not consumed; whoever decodes moves ``at``.

    Takes ``connection`` over: it is closed with the dump. Used by one thread; :meth:`close` only when no other method runs.
    """

    def __init__(self, connection: Connection, start: Start, *, server_id: int, mariadb: bool) -> None:
        """Raises :class:`~wormhole.errors.SourceUnavailable` and what `refusal` makes of the server's errors."""
        self.data = bytearray(_ROOM)
        self.at = 0
        self.end = 0
        self._connection = connection
        self._silent_s = 0.0
        try:
            self._prepare(start, server_id, mariadb)
        except MySQLError as error:
            self.close()
            raise _translated(error) from error
        except BaseException:
            self.close()
            raise
        self._socket: socket = connection._sock  # type: ignore[attr-defined]
        self._timeout: float | None = None

    def more(self, need: int, wait_s: float) -> bool:
        """Receive what there is, waiting up to ``wait_s`` seconds for the first byte; whether anything came.

        ``need``: bytes from ``at`` on that the caller cannot do without (0: any). Raises :class:`SourceUnavailable` when
        the connection ended or stayed silent for several heartbeats.
        """
        self._make_room(need)
        if wait_s != self._timeout:
            self._socket.settimeout(wait_s)
            self._timeout = wait_s
        try:
            with memoryview(self.data) as view:
                received = self._socket.recv_into(view[self.end :])
        except (TimeoutError, BlockingIOError):
            received = -1
        except OSError as error:
            # TLS without a byte to give has names of its own for the two above.
            if type(error).__name__ != "SSLWantReadError":
                raise SourceUnavailable(f"the binlog stream broke: {error}", hint="it is opened again") from error
            received = -1
        if received > 0:
            self.end += received
            self._silent_s = 0.0
            return True
        if received == 0:
            raise SourceUnavailable(
                "the server closed the binlog stream",
                hint="it is opened again; if this repeats: is the server id unique, was the thread killed?",
            )
        self._silent_s += wait_s
        if self._silent_s > _SILENT_BEATS * HEARTBEAT_S:
            raise SourceUnavailable(
                f"nothing came from the server for {self._silent_s:.0f} s, although it was asked for a heartbeat each {HEARTBEAT_S:g} s",
                hint="it is opened again; look at the network between here and the server",
            )
        return False

    def ended(self, at: int) -> WormholeError:
        """The error for the packet at ``at``, with which the server ends the stream: an ERR or an EOF packet."""
        body = bytes(self.data[at + 4 : min(self.end, at + 4 + int.from_bytes(self.data[at : at + 3], "little"))])
        if body[:1] != b"\xff" or len(body) < 3:
            return SourceUnavailable("the server ended the binlog stream", hint="it is opened again; is it shutting down?")
        text = body[3:]
        if text[:1] == b"#":
            text = text[6:]  # the SQL state
        return refusal(int.from_bytes(body[1:3], "little"), text.decode("utf-8", "replace"))

    def close(self) -> None:
        """Idempotent. The server notices with its next heartbeat."""
        self._connection._force_close()  # type: ignore[attr-defined]

    # --- inside ------------------------------------------------------------------------------------------------

    def _prepare(self, start: Start, server_id: int, mariadb: bool) -> None:
        connection = self._connection
        beat = int(HEARTBEAT_S * 1e9)
        settings = [
            # Replicas name themselves and their wishes in user variables; from 8.0.26 on MySQL knows both spellings.
            "@master_binlog_checksum = @@GLOBAL.binlog_checksum, @source_binlog_checksum = @@GLOBAL.binlog_checksum",
            f"@master_heartbeat_period = {beat}, @source_heartbeat_period = {beat}",
            # A reader waits for its slowest subscriber: the server must not take that for a dead connection.
            f"SESSION net_write_timeout = {_WRITE_TIMEOUT_S}",
        ]
        if mariadb:
            settings.append("@mariadb_slave_capability = 4")  # GTID events, and everything before them
        else:
            # With its own uuid no reader ends another one's dump.
            own = uuid.uuid4()
            settings.append(f"@slave_uuid = '{own}', @replica_uuid = '{own}'")
        with connection.cursor() as cursor:
            cursor.execute("SET " + ", ".join(settings))
            if mariadb and isinstance(start, FromGtids):
                cursor.execute(
                    "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0",
                    (start.text,),
                )
        self._command(_REGISTER_SLAVE, struct.pack("<IB", server_id, len(_NAME)) + _NAME + struct.pack("<BBHII", 0, 0, 0, 0, 0))
        connection._read_ok_packet()  # type: ignore[attr-defined]
        if isinstance(start, FromFile):
            self._command(_BINLOG_DUMP, struct.pack("<IHI", start.offset, 0, server_id) + start.name.encode())
        elif mariadb:
            self._command(_BINLOG_DUMP, struct.pack("<IHI", _FILE_HEADER, 0, server_id))
        else:
            known = GtidSet.parse(start.text).encode()
            head = struct.pack("<HIIQI", _THROUGH_GTID, server_id, 0, _FILE_HEADER, len(known))
            self._command(_BINLOG_DUMP_GTID, head + known)

    def _command(self, command: int, payload: bytes) -> None:
        self._connection._execute_command(command, payload)  # type: ignore[attr-defined]

    def _make_room(self, need: int) -> None:
        at, end = self.at, self.end
        if need > _LARGEST_EVENT:
            raise DecodeError(f"the server announces an event of {need} bytes", hint="the stream is damaged; it is opened again")
        # A buffer that grew for one large event is given back once that is consumed.
        size = _ROOM if need <= _ROOM and end - at < _ROOM else max(need, len(self.data))
        if size != len(self.data):
            data = bytearray(size)
            data[: end - at] = memoryview(self.data)[at:end]
            self.data, self.at, self.end = data, 0, end - at
        elif at == end:
            self.at = self.end = 0
        elif end == len(self.data) or at + need > len(self.data):
            self.data[: end - at] = self.data[at:end]
            self.at, self.end = 0, end - at


def _translated(error: MySQLError) -> WormholeError:
    code, text = (error.args[0], str(error.args[-1])) if len(error.args) > 1 else (0, str(error))
    return refusal(code, text)
