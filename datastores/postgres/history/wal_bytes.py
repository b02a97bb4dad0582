"""The bytes of a server's write-ahead log, read as a standby reads them: they prove that an idle log is still the same.

A transaction that is long past cannot be the proof: the server would have to keep its log from there on, although
only other databases write.
"""

from __future__ import annotations

import struct
import time
from typing import Final

import google_crc32c

from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import connect
from datastores.postgres.server.lsn import format_lsn
from datastores.postgres.server.state import ServerState, check_same
from datastores.postgres.server.stream import HEADER_BYTES, LOG_DATA, Stream
from wormhole.model.errors import SourceUnavailable

__all__ = ["PROOF_BYTES", "checksum_of_log"]

PROOF_BYTES: Final = 4096
"""Bytes of log before a place. Each record in them has the place of the one before and a checksum of its own."""

_TIMEOUT_S: Final = 10.0
_START: Final = struct.Struct(">Q")


def checksum_of_log(address: Address, state: ServerState, timeline: int, begin: int, end: int) -> int:
    """CRC-32C of the log of the server in ``state`` from ``begin`` to ``end``, over a session of its own.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` when the server does not send it, and when the session
    reached another one: its bytes would prove that the log is lost.
    """
    connection = connect(address, walsender=True, timeout_s=_TIMEOUT_S)
    try:
        check_same(connection, address, state)
        connection.start_copy(f"START_REPLICATION PHYSICAL {format_lsn(begin)} TIMELINE {timeline}")
        stream = Stream(connection, begin)
        deadline = time.monotonic() + _TIMEOUT_S
        got = bytearray()
        while len(got) < end - begin:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            for message in stream.receive(left):
                if message[0] == LOG_DATA:
                    if _START.unpack_from(message, 1)[0] != begin + len(got):
                        break
                    got += message[HEADER_BYTES:]
    finally:
        connection.close()
    if len(got) < end - begin:
        raise SourceUnavailable(
            f"the server does not send its log from {format_lsn(begin)} to {format_lsn(end)}",
            hint="it is tried again",
        )
    return int(google_crc32c.value(bytes(got[: end - begin])))
