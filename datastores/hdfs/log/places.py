"""Places in the edits, and the proof that a datamarker is of these edits.

The offset of a place is the number of the last transaction before it. A NameNode that was restored from an older image
keeps its identity and uses transaction numbers again. So only the content of a transaction proves that the log is the
same. A datamarker's anchor is the number and the checksum of the last transaction with events before it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Final

from datastores.hdfs.decode.events import Batch, Edits
from datastores.hdfs.java.name_node import NameNode
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["BEYOND", "SOURCE", "EditLog", "is_ours", "marker_at", "place_after"]

_log = logging.getLogger(__name__)

SOURCE: Final = "hdfs"
"""The prefix of a transaction's number in the ids of updates."""
BEYOND: Final = (1 << 62) - 1
"""A transaction number that no NameNode reaches."""
_INCARNATION: Final = 1
_FILE: Final = 1
_BACK: Final = 1000
_AGAIN_S: Final = 1.0
_BEGIN_S: Final = 60.0
_FIND_OUT: Final = (
    "find out from what the NameNode was restored; bring the application up to date, then `wormholectl flows "
    "accept-loss APP/SHARD` goes on at the earliest place of the log, and `wormholectl markers set APP/SHARD PLACE` at "
    "another one"
)


def place_after(txid: int) -> LogPosition:
    """The place after a transaction."""
    return LogPosition(_INCARNATION, _FILE, txid)


def is_ours(place: LogPosition) -> bool:
    """Whether a place has the form of this log's places."""
    return (place.incarnation, place.file) == (_INCARNATION, _FILE)


def marker_at(txid: int, last: Batch | None, at_us: int) -> Datamarker:
    """The datamarker after transaction ``txid``. ``last``: the last transaction with events up to it, if known."""
    place = place_after(txid)
    anchor = Anchor(f"{SOURCE}:{last.txid}", last.checksum, place_after(last.txid - 1)) if last else None
    return Datamarker(place, str(txid), place, anchor, at_us)


def _unproven(marker: Datamarker, known: int) -> Problem:
    return Problem(
        f"transaction {known}, by which {marker} is proven, was purged: whether the NameNode was restored meanwhile is "
        "not known",
        "if it was, bring the applications up to date; keep more edits with `dfs.namenode.num.extra.edits.retained`",
        code="place-unproven",
    )


class EditLog:
    """The edits of one NameNode, by transaction. Thread-safe.

    ``first``, ``last``: the first and the last transaction known to be readable. ``silent``: why the NameNode did not
    answer the last call; empty: it did. ``unproven``: the problem of the last place that could not be proven; ``None``:
    there was none.
    """

    def __init__(self, name_node: NameNode) -> None:
        self._name_node = name_node
        self._stopped = threading.Event()
        self._begun = 0.0
        self.first = 1
        self.last = 0
        self.silent = ""
        self.unproven = NO_PROBLEM

    def stop(self) -> None:
        """End the waits."""
        self._stopped.set()

    def edits(self, txid: int) -> Edits:
        """One call (:meth:`datastores.hdfs.java.name_node.NameNode.edits`)."""
        try:
            found = self._name_node.edits(txid)
        except SourceUnavailable as error:
            self.silent = error.text
            raise
        self.last, self.silent = max(found.synced, 0), ""
        return found

    def end(self) -> int:
        """The last durable transaction. Raises as :meth:`edits`."""
        if (synced := self.edits(BEYOND).synced) <= 0:
            raise SourceUnavailable("the NameNode does not write edits yet", hint="it is starting; a retry follows")
        return synced

    def begin(self) -> int:
        """The oldest readable transaction; if none is readable, the next one. Raises as :meth:`edits`."""
        first = self.edits(1).first
        self.first = first if first > 0 else self.end() + 1
        self._begun = time.monotonic()
        return self.first

    def marker(self, txid: int) -> Datamarker:
        """The datamarker after a transaction, with an anchor if a transaction with events is near. Raises as
        :meth:`edits`."""
        last, at_us = None, 0
        for batch in self._between(max(1, txid - _BACK), txid):
            last, at_us = batch, max(at_us, batch.at_ms * 1000)
        return marker_at(txid, last, at_us)

    def time_from(self, txid: int) -> int | None:
        """The first known time at or after transaction ``txid``, in microseconds since 1970; ``None``: no time is
        known. Raises as :meth:`edits`.
        """
        return next((batch.at_ms * 1000 for batch in self._between(txid, BEYOND) if batch.at_ms), None)

    def prove(self, marker: Datamarker) -> None:
        """Check that a datamarker is of these edits. If no transaction can show that, :attr:`unproven` has the reason.

        Raises :class:`~wormhole.model.errors.Diverged`, :class:`~wormhole.model.errors.PositionPurged`, and as
        :meth:`edits`.
        """
        txid, anchor = marker.order.offset, marker.anchor
        if not is_ours(marker.order) or (anchor is not None and not is_ours(anchor.begin)):
            raise self._diverged(marker, "it is of another log")
        end = self.end()
        if end < txid and not self._stopped.wait(_AGAIN_S):
            end = self.end()  # for a short time, a NameNode that becomes active may have another end
        if end < txid:
            raise self._diverged(marker, f"the edits end at transaction {end}")
        if anchor is None:
            self._check_reach(txid)
            return
        known = anchor.begin.offset + 1
        piece = self.edits(known)
        if piece.first < 0:
            raise SourceUnavailable("the NameNode does not read its edits just now", hint="a retry follows")
        if piece.first > known:
            self._check_reach(txid)
            self.unproven = _unproven(marker, known)
            _log.warning("%s", self.unproven)
            return
        later = self._between(piece.last + 1, txid)
        found = [(one.txid, one.checksum) for one in (*piece.batches, *later) if one.txid <= txid]
        if found != [(known, anchor.checksum)]:
            raise self._diverged(marker, f"transaction {known} or one after it is another one")
        if time.monotonic() - self._begun > _BEGIN_S:
            self.begin()

    def purged(self, after: int, first: int) -> PositionPurged:
        """The error for a place whose following transactions were purged up to ``first``, the next readable one."""
        return PositionPurged(
            f"transactions {after + 1} to {first - 1} were purged from the NameNode",
            first_missing=str(after + 1),
            last_missing=str(first - 1),
            position=str(place_after(after)),
            hint="`wormholectl flows accept-loss APP/SHARD` goes on without them, and an archive that holds them can "
            "replay them; keep more edits with `dfs.namenode.num.extra.edits.retained`",
        )

    def _check_reach(self, txid: int) -> None:
        """Check that the transactions after ``txid`` are still readable."""
        if (first := self.begin()) > txid + 1:
            raise self.purged(txid, first)

    def _between(self, first: int, last: int) -> Iterator[Batch]:
        """The readable transactions with events in a range."""
        at = first
        while at <= last:
            found = self.edits(at)
            if found.last < at:
                return
            yield from (batch for batch in found.batches if batch.txid <= last)
            at = found.last + 1

    @staticmethod
    def _diverged(marker: Datamarker, why: str) -> Diverged:
        return Diverged(
            f"the datamarker {marker} is not of this NameNode's edits: {why}",
            first_missing=str(marker.anchor.begin.offset + 1 if marker.anchor else marker.order.offset),
            last_missing=marker.delivered,
            position=str(marker.order),
            hint=_FIND_OUT,
        )
