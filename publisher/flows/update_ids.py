"""Ids of updates as operators write them, ``SOURCE:NUMBER:INDEX``: what is one, and whether a datamarker is behind it."""

from __future__ import annotations

import re
from typing import Final

from publisher.sources.mysql.decode.gtid import GtidSet, MariaPosition
from wormhole.model.errors import PositionError, UsageError
from wormhole.model.position import Datamarker

__all__ = ["check_update_id", "is_behind"]

_LONGEST: Final = 200
# The source is a database's id, a server's uuid (with a tag, or with the number of a binlog file), or domain-server.
_ID: Final = re.compile(r"([!-9;-~]+(?::[!-9;-~]+)?):(\d{1,20}):(\d{1,10})")


def check_update_id(text: str) -> None:
    """Raises :class:`~wormhole.model.errors.UsageError` for what no update is called."""
    if len(text) > _LONGEST or not _ID.fullmatch(text):
        raise UsageError(
            f"{text[:_LONGEST]!r} is no id of an update",
            hint="an id is SOURCE:NUMBER:INDEX, as in the subscriber's log and in what `flows` says of a halted flow",
        )


def is_behind(update_id: str, marker: Datamarker) -> bool:
    """Whether the update ends at or before the marker, as far as its id and the marker's logical position can tell."""
    match = _ID.fullmatch(update_id)
    if match is None:
        return False
    source, number, delivered = match[1], int(match[2]), marker.delivered
    if "/" in source:  # a transaction without GTID: named after its file and where it begins there
        file = source.rpartition("/")[2]
        return file.isdecimal() and (int(file), number) < (marker.order.file, marker.order.offset)
    if delivered.isdecimal():  # RocksDB: sequence numbers
        return number <= int(delivered)
    try:
        domain = source.partition("-")[0]
        if domain.isdecimal() and source.count("-") == 1:
            return MariaPosition.parse(delivered).covers(int(domain), number)
        return GtidSet.parse(delivered).contains(source, number)
    except PositionError:
        return False
