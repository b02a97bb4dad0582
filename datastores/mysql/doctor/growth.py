"""Measures how fast a server writes its log, from the sizes of the binlog files and the times when they were begun."""

from __future__ import annotations

import random
import struct
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from datastores.mysql.log.dump import Dump, FromFile
from datastores.mysql.server.address import Address
from datastores.mysql.server.connection import connect
from datastores.mysql.server.settings import BinaryLog, Settings
from wormhole.model.errors import SourceUnavailable, WormholeError
from wormhole.model.findings import LogGrowth

__all__ = ["begun_s", "growth_of", "measure_growth"]

_DAY_S: Final = 86_400.0
_LEAST_S: Final = 600.0
_WAIT_S: Final = 10.0
_PACKET: Final = struct.Struct("<I")  # a packet's header: three bytes length, one byte number
_EVENT: Final = struct.Struct("<BIB")  # the beginning of a packet with an event: zero, time, type
_DESCRIPTION: Final = 15  # the event type of a format description, the first event of each file
_FOLLOWS: Final = 4  # the offset after a file's magic bytes


def measure_growth(address: Address, settings: Settings, *, timeout_s: float) -> LogGrowth:
    """The growth over about the last day. Reads the beginnings of a few files."""
    if not settings.flag("log_bin"):
        return LogGrowth(unknown="the server writes no binary log (log_bin=OFF)")

    def begun(file: BinaryLog) -> float:
        # This dump has its own server id, because a server ends another reader's dump with the same id.
        number = random.randrange(1 << 31, 1 << 32)
        connection = connect(address, timeout_s=min(timeout_s, _WAIT_S))
        with closing(
            Dump(connection, FromFile(file.name, _FOLLOWS), server_id=number, mariadb=settings.mariadb)
        ) as dump:
            return begun_s(dump)

    try:
        return growth_of(settings.logs, begun, time.time())
    except WormholeError as error:
        return LogGrowth(unknown=f"the binlog cannot be read: {error.message}")


def growth_of(files: Sequence[BinaryLog], begun: Callable[[BinaryLog], float], now_s: float) -> LogGrowth:
    """The growth since the last of ``files`` that was begun at least a day ago, or else since the first file.

    ``begun``: returns the time when a file was begun, in seconds since 1970. It is called for few files.
    """
    if not files:
        return LogGrowth(unknown="the account may not see the binlog files")
    later = bisect_left(files, True, key=lambda file: begun(file) > now_s - _DAY_S)
    first = max(0, later - 1)
    seconds = now_s - begun(files[first])
    if seconds < _LEAST_S:
        return LogGrowth(unknown="its binlog files are younger than ten minutes")
    count = len(files) - first
    how = f"sizes and times of {count} binlog file{'s' if count > 1 else ''}"
    return LogGrowth(sum(file.size for file in files[first:]), seconds, how)


def begun_s(dump: Dump) -> float:
    """The time when the dump's file was begun, from its format description. The dump must begin with the file.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if no format description arrives.
    """
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        if len(dump.data) - dump.at < _PACKET.size + _EVENT.size:
            dump.more(_PACKET.size + _EVENT.size, _WAIT_S)
            continue
        length = _PACKET.unpack_from(dump.data, dump.at)[0] & 0xFFFFFF
        body = dump.at + _PACKET.size
        if len(dump.data) - body < length:
            dump.more(_PACKET.size + length, _WAIT_S)
            continue
        failed, when, kind = _EVENT.unpack_from(dump.data, body)
        if failed:
            raise dump.refused(dump.data[body : body + length])
        if kind == _DESCRIPTION and when:
            return float(when)
        dump.at = body + length
    raise SourceUnavailable("the beginning of a binlog file did not come", hint="try again")
