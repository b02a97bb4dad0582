"""Reads a log without delivering it: to prove that a datamarker belongs to the log, and to find places."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from datastores.common.next_steps import REPAIR
from datastores.mysql.history.delivered import MariaDelivered, MySqlDelivered
from datastores.mysql.log.prepared_xa import Prepared
from datastores.mysql.log.walk import LogWalk
from wormhole.model.errors import Diverged, Retryable, SourceUnavailable, WormholeError
from wormhole.model.position import Anchor, Datamarker, LogPosition

__all__ = ["ANEW", "fails_again", "find_next", "last_marker", "pass_to", "see_beginning", "see_file"]

ANEW: Final = f"find out what happened to the server. If the log is another one: {REPAIR}"
_STUCK_S: Final = 15.0
_PROGRESS: Final = 64 << 10  # the least bytes of an event that must arrive in that time
_POLL_S: Final = 0.1


def pass_to(walk: LogWalk, order: LogPosition, anchor: Anchor | None) -> None:
    """Walk to ``order``, which is in the log, and collect the prepared transactions.

    Raises :class:`Diverged` if the walk does not pass ``anchor``, or if ``order`` is within a transaction.
    """
    _silence(walk, True)
    seen: Anchor | None = None
    found = anchor is None
    stalled = _Stalled(walk)
    while walk.place != order or walk.inside or not (walk.file.described or order.offset <= 4):
        if walk.place > order:
            raise Diverged(f"{order} is no transaction's end in this log", position=str(order), hint=ANEW)
        walk.one_packet()
        stalled.check(order)
        last = walk.anchor
        if anchor is None or found or last is None or last is seen:
            continue
        seen = last
        if last.begin == anchor.begin and last != anchor:
            raise Diverged(f"the transaction before {order} was {anchor} and is {last}", position=str(order), hint=ANEW)
        found = last == anchor
    if not found or walk.encoder.in_transaction:
        raise Diverged(f"{anchor or order} is no transaction's end in this log", position=str(order), hint=ANEW)
    _silence(walk, False)


def see_file(walk: LogWalk) -> None:
    """Walk until the file's fingerprint (see `Incarnations.check_file`) and its beginning are known.

    The walk is unusable afterwards."""
    _go_on(walk, lambda: walk.file.described)


def see_beginning(walk: LogWalk) -> None:
    """Walk until the file's fingerprint is complete. A file of an old server has no list of GTIDs. The walk is unusable
    afterwards."""
    _silence(walk, True)
    _go_on(walk, lambda: walk.file.identified or walk.encoder.in_transaction or walk.anchor is not None)


def find_next(walk: LogWalk) -> LogPosition:
    """The beginning of the next transaction, which must exist. The walk is unusable afterwards."""
    _silence(walk, True)
    _go_on(walk, lambda: walk.encoder.in_transaction or walk.anchor is not None)
    last = walk.anchor
    return walk.open_place if last is None else last.begin


def fails_again(walk: LogWalk, failed: LogPosition, error: WormholeError) -> bool:
    """Whether the log fails with the same error when it is read again up to ``failed``. The walk is unusable
    afterwards."""
    encoder, message = walk.encoder, str(error)
    stalled = _Stalled(walk)
    try:
        while walk.place <= failed or walk.inside:
            walk.step(1, _POLL_S)  # in small parts: some errors occur only after a part was returned
            stalled.check(failed)
            if any(str(broken) == message for broken in walk.broken.values()):
                return True
            walk.broken.clear()
            walk.gap = None
            encoder.take()
            encoder.transactions.take_passed()
    except Retryable:
        return False
    except WormholeError as again:
        return str(again) == message
    return False


def last_marker(
    walk: LogWalk,
    wanted: LogPosition,
    delivered: MySqlDelivered | MariaDelivered,
    prepared: Prepared,
    until_us: int = sys.maxsize,
) -> Datamarker:
    """The datamarker at the last transaction's end at or before ``wanted``, which is in the log, and before any
    transaction committed after ``until_us``. The walk is unusable afterwards.

    ``delivered``: the logical position at the walk's beginning, which is updated.
    """
    _silence(walk, True)
    encoder = walk.encoder
    place, seen, oldest, committed_at_us = walk.place, walk.anchor, prepared.oldest, 0
    stalled = _Stalled(walk)
    while walk.place < wanted or walk.inside:
        walk.one_packet()
        stalled.check(wanted)
        if walk.place > wanted or walk.inside or encoder.in_transaction:
            continue
        last = walk.anchor
        if last is not None and last is not seen:
            if encoder.last_committed_at_us > until_us:
                break
            seen, committed_at_us = last, encoder.last_committed_at_us
            source, _, number = last.id.rpartition(":")
            delivered.add((source,), (0,), (int(number),))
        place, oldest = walk.place, prepared.oldest
    read_from = place if oldest is None else min(place, oldest)
    return Datamarker(place, str(delivered), read_from, seen, committed_at_us)


def _go_on(walk: LogWalk, reached: Callable[[], bool]) -> None:
    """Read packet by packet until ``reached`` is true."""
    stalled = _Stalled(walk)
    while not reached():
        walk.one_packet()
        stalled.check(walk.place)


def _silence(walk: LogWalk, silent: bool) -> None:
    walk.encoder.suppress = walk.encoder.single = silent


class _Stalled:
    """Raises if a server does not send log that it has, because further waiting would hide the fault.

    A large event moves the place only at its end. Until then enough arriving bytes count as progress.
    """

    def __init__(self, walk: LogWalk) -> None:
        self._walk = walk
        self._place = walk.place
        self._arrived = walk.arrived
        self._moved_at = time.monotonic()

    def check(self, wanted: LogPosition) -> None:
        place, arrived = self._walk.place, self._walk.arrived
        if place != self._place or arrived >= self._arrived + _PROGRESS:
            self._place, self._arrived = place, arrived
            self._moved_at = time.monotonic()
        elif time.monotonic() - self._moved_at > _STUCK_S:
            raise SourceUnavailable(
                f"the server does not send what it has between {place} and {wanted}", hint="a retry follows"
            )
