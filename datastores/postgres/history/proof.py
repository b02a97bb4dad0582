"""Makes and checks anchors, which prove that the log before a place is the log that was read.

The anchor of a place right after a transaction is that transaction: its commit's LSN, its number and its commit time.
The server sends all three again when it begins to decode at the commit. A log that was restored and continued otherwise
has another transaction there, or none.

If the publication had no transaction for a long time, the anchor is the bytes of the log before the place, read through
physical replication. An old transaction as the anchor would force the server to keep its log from there on.
"""

from __future__ import annotations

import logging
import struct
import time
from typing import Final

import google_crc32c

from datastores.common.next_steps import REPAIR
from datastores.postgres.history.timelines import Timelines
from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import connect
from datastores.postgres.server.lsn import format_lsn
from datastores.postgres.server.state import ServerState, check_same
from datastores.postgres.server.stream import HEADER_BYTES, LOG_DATA, Stream
from wormhole.model.errors import Diverged, SourceUnavailable
from wormhole.model.position import LOG_BYTES, Anchor, Datamarker, LogPosition

__all__ = [
    "ANEW",
    "GONE",
    "PROOF_BYTES",
    "check_log_bytes",
    "checksum_of_log",
    "diverged",
    "log_bytes_anchor",
    "transaction_anchor",
]

_log = logging.getLogger(__name__)

ANEW: Final = (
    f"find out whether the server was restored from a backup or failed over to a copy that lagged. If it was: {REPAIR}"
)
GONE: Final = (
    "look in the application's data for changes that were committed there and take them back, then `wormholectl flows "
    "accept-loss APP/SHARD`: it goes on behind its datamarker, with what the server has"
)
"""The next step for a flow if the log lacks changes that were delivered after its datamarker."""
_SMALLEST_FILE: Final = 1 << 20  # the smallest WAL file; sizes are powers of two
_FEWEST_BYTES: Final = 512


def transaction_anchor(source: str, commit: int, checksum: int, incarnation: int) -> Anchor:
    """The anchor of a place right after a transaction. ``source``: system and timeline, the prefix of the id."""
    return Anchor(f"{source}:{commit}", checksum, LogPosition(incarnation, 0, commit))


def log_bytes_anchor(address: Address, state: ServerState, timelines: Timelines, place: LogPosition) -> Anchor | None:
    """The anchor of a place without a recent transaction before it.

    ``None``: the server does not send the bytes of its log, or the place is at the beginning of a WAL file. A slot at
    the place keeps the whole file with the place. All bytes of the anchor are in that file, because the previous file
    may be removed in spite of the slots.
    """
    end = place.offset
    begin = max(end - PROOF_BYTES, end - end % _SMALLEST_FILE)
    if end - begin < _FEWEST_BYTES:
        return None
    try:
        checksum = checksum_of_log(address, state, timelines.of(end), begin, end)
    except SourceUnavailable as error:
        _log.warning("the bytes of the log before %s cannot be read: %s", format_lsn(end), error.message)
        return None
    return Anchor(_id(state.system, timelines, end), checksum, LogPosition(place.incarnation, 0, begin))


def check_log_bytes(address: Address, state: ServerState, timelines: Timelines, marker: Datamarker, place: int) -> None:
    """Compare the log's bytes with the anchor of ``marker``. ``place``: the LSN of the marker in this log.

    Raises :class:`~wormhole.model.errors.Diverged` if they differ, and
    :class:`~wormhole.model.errors.SourceUnavailable` if they cannot be read.
    """
    anchor = marker.anchor
    assert anchor is not None
    begin, end = anchor.begin.offset, anchor.log_bytes_end
    if anchor.id != _id(state.system, timelines, end) or not 0 <= end - begin <= PROOF_BYTES or end > place:
        raise diverged(marker, "the marker is of another server, or of another timeline")
    if checksum_of_log(address, state, timelines.of(end), begin, end) != anchor.checksum:
        raise diverged(marker, f"the log before {format_lsn(end)} is not the one that was read")


def diverged(marker: Datamarker, why: str, **missing: str) -> Diverged:
    """The error for a marker that is not of this log. ``missing``: the range that the log lacks, if known."""
    text = f"the datamarker {marker} is not of this log: {why}"
    return Diverged(text, position=str(marker.order), hint=ANEW, **missing)


def _id(system: str, timelines: Timelines, end: int) -> str:
    return f"{LOG_BYTES}{system}:{timelines.of(end)}:{end}"


PROOF_BYTES: Final = 4096
"""The bytes of log in an anchor. A record in them has the previous record's LSN and its own checksum."""

_TIMEOUT_S: Final = 10.0
_START: Final = struct.Struct(">Q")


def checksum_of_log(address: Address, state: ServerState, timeline: int, begin: int, end: int) -> int:
    """The CRC-32C of the log from ``begin`` to ``end``, read in a session of its own from the server in ``state``.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if the server does not send the log, or if the session
    reached another server, whose bytes would wrongly show that the log is lost.
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
            hint="a retry follows",
        )
    return int(google_crc32c.value(bytes(got[: end - begin])))
