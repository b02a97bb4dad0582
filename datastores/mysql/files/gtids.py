"""Reads the GTIDs of a binlog file: the list of those logged before it, and those of its own transactions.

A file's list and its transactions together must equal the next file's list. If they do, no transaction is missing
between the two files. This proves nothing about transactions without GTID, which are in no list.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

from datastores.mysql.decode import events
from datastores.mysql.decode.gtid import GtidSet, MariaPosition, source_text
from datastores.mysql.decode.rare_events import parse_gtid_tagged
from wormhole.model.errors import DecodeError

__all__ = [
    "BEGINNINGS",
    "FileGtids",
    "Gtid",
    "covers",
    "grew",
    "gtid_of",
    "is_in",
    "listed",
    "parse_listed",
    "position_of",
    "together",
]

BEGINNINGS: Final = frozenset({events.GTID, events.ANONYMOUS_GTID, events.GTID_TAGGED, events.MARIADB_GTID})
"""The events that begin a transaction."""

_LIST_COUNT: Final = (1 << 28) - 1  # the upper four bits are flags

Gtid = tuple[str, int]
"""``uuid`` or ``uuid:tag`` (MariaDB: ``domain-server``), and the transaction's number."""


class FileGtids(Protocol):
    """The GTIDs logged up to a place."""

    def add(self, gtid: Gtid) -> None:
        """Add the next transaction."""

    def differs(self, following: str) -> str:
        """The difference between these GTIDs and the list of the next file; empty: there is none."""


def gtid_of(event: bytes) -> Gtid | None:
    """The GTID in ``event``, one of `BEGINNINGS` without its checksum; ``None``: it has none.

    Raises :class:`DecodeError`.
    """
    kind, body = event[4], event[events.HEADER :]
    if kind == events.GTID_TAGGED:
        tagged = parse_gtid_tagged(body)
        return tagged.source, tagged.number
    if len(body) < (12 if kind == events.MARIADB_GTID else 25):
        raise DecodeError(f"{events.name_of(kind)}: it is cut")
    if kind == events.MARIADB_GTID:
        sequence, domain = struct.unpack_from("<QI", body)
        return f"{domain}-{int.from_bytes(event[5:9], 'little')}", sequence
    return (_source(body[1:17]), int.from_bytes(body[17:25], "little")) if kind == events.GTID else None


@lru_cache(maxsize=64)
def _source(uuid: bytes) -> str:
    return source_text(uuid)


def listed(event: bytes) -> str:
    """The text of a file's list. ``event``: the list's event without checksum. Raises :class:`DecodeError`."""
    body = event[events.HEADER :]
    if event[4] == events.PREVIOUS_GTIDS:
        return str(GtidSet.decode(body))
    count = int.from_bytes(body[:4], "little") & _LIST_COUNT
    if len(body) < 4 + 16 * count:
        raise DecodeError(f"{events.name_of(event[4])}: it is cut")
    gtids = (struct.unpack_from("<IIQ", body, 4 + 16 * i) for i in range(count))
    return ",".join("-".join(map(str, gtid)) for gtid in sorted(gtids))


def parse_listed(text: str, *, mariadb: bool) -> FileGtids:
    """Parse the text of a file's list. Raises :class:`~wormhole.model.errors.PositionError`."""
    return _MariaGtids(text) if mariadb else _MySqlGtids(text)


def position_of(text: str) -> str:
    """MariaDB: the last GTID of each domain in a file's list, which has one GTID for each domain and server."""
    last: dict[int, tuple[int, int]] = {}
    for domain, server, sequence in _entries(text):
        last[domain] = max(last.get(domain, (0, 0)), (sequence, server))
    return ",".join(f"{domain}-{server}-{sequence}" for domain, (sequence, server) in sorted(last.items()))


def covers(delivered: str, text: str, *, mariadb: bool) -> bool:
    """Whether ``delivered`` contains everything in the list ``text`` of a file."""
    if not mariadb:
        return GtidSet.parse(text).issubset(GtidSet.parse(delivered))
    have = MariaPosition.parse(delivered)
    return all(have.covers(domain, sequence) for domain, _, sequence in _entries(text))


def together(delivered: str, text: str, *, mariadb: bool) -> str:
    """The union of ``delivered`` and the list ``text`` of a file."""
    if not mariadb:
        return str(GtidSet.parse(delivered).union(GtidSet.parse(text)))
    both = MariaPosition.parse(position_of(text))
    for domain, (server, sequence) in MariaPosition.parse(delivered).domains().items():
        if not both.covers(domain, sequence):
            both.advance(domain, server, sequence)
    return str(both)


def is_in(delivered: str, *, mariadb: bool) -> Callable[[Gtid], bool]:
    """A function that returns whether a transaction is in ``delivered``."""
    if not mariadb:
        have = GtidSet.parse(delivered)
        return lambda gtid: have.contains(*gtid)
    position = MariaPosition.parse(delivered)
    return lambda gtid: position.covers(int(gtid[0].partition("-")[0]), gtid[1])


def grew(before: str, first: Gtid | None, after: str, *, mariadb: bool) -> bool:
    """Whether ``after``, the list of a later file, contains the list ``before`` and its file's ``first``
    transaction."""
    if not mariadb:
        early = GtidSet.parse(before)
        if first is not None and early.contains(*first):
            return False
        if first is not None:
            early.add(*first)
        return early.issubset(GtidSet.parse(after))
    then = {f"{domain}-{server}": sequence for domain, server, sequence in _entries(after)}
    if first is not None and not first[1] <= then.get(first[0], 0):
        return False
    domains = {source.partition("-")[0] for source in then}  # a missing domain was deleted (see `_MariaGtids.differs`)
    return all(
        sequence <= then.get(f"{domain}-{server}", 0)
        for domain, server, sequence in _entries(before)
        if str(domain) in domains
    )


class _MySqlGtids:
    def __init__(self, text: str) -> None:
        self._set = GtidSet.parse(text)

    def add(self, gtid: Gtid) -> None:
        self._set.add(*gtid)

    def differs(self, following: str) -> str:
        then = GtidSet.parse(following)
        if missing := then.subtract(self._set):
            return f"{missing} is missing"
        surplus = self._set.subtract(then)
        return f"{surplus} is not in the history that follows" if surplus else ""


class _MariaGtids:
    def __init__(self, text: str) -> None:
        self._last = {f"{domain}-{server}": sequence for domain, server, sequence in _entries(text)}
        self._added: set[str] = set()

    def add(self, gtid: Gtid) -> None:
        self._last[gtid[0]] = gtid[1]
        self._added.add(gtid[0])

    def differs(self, following: str) -> str:
        then = {f"{domain}-{server}": sequence for domain, server, sequence in _entries(following)}
        for source, sequence in then.items():
            known = self._last.get(source, 0)
            if known < sequence:
                first = f"{source}-{known + 1}"
                return f"{first}{f' to {source}-{sequence}' if known + 1 < sequence else ''} is missing"
        # A domain without any transaction in this file may have been deleted (FLUSH BINARY LOGS DELETE_DOMAIN_ID).
        for source in sorted(self._last):
            if self._last[source] > then.get(source, 0) and (source in then or source in self._added):
                return f"{source}-{self._last[source]} is not in the history that follows"
        return ""


def _entries(text: str) -> list[tuple[int, int, int]]:
    found = []
    for part in filter(None, text.split(",")):
        ((domain, (server, sequence)),) = MariaPosition.parse(part).domains().items()
        found.append((domain, server, sequence))
    return found
