"""Keeps the incarnations of a log for later starts. An incarnation is one history of one installation of the capture.

Another incarnation begins in two cases: the database has another installation of the capture, or it lost transactions
that were read. A restored copy has the same installation. It is recognised by the checksum of the transaction before
the furthest place that was read.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from datastores.common.high_water import HighWater
from datastores.common.kept_state import keep, load_incarnations
from datastores.postgres.capture.session import LogState
from wormhole.ports.source_state import HISTORIES, SourceState

__all__ = ["Histories"]

_log = logging.getLogger(__name__)
_KEPT: Final = 256


class Histories:
    """The incarnations. Thread-safe. A change is stored before a caller gets a place of the new incarnation."""

    def __init__(self, state: SourceState, high_water: HighWater) -> None:
        """Read the stored incarnations. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
        self._state = state
        self._high_water = high_water
        self._lock = threading.Lock()
        self._known = load_incarnations(state, identity=str)

    @property
    def current(self) -> int:
        """The number of the last known incarnation; 0: none is known."""
        return int(self._known[-1]["number"]) if self._known else 0

    @property
    def read(self) -> int:
        """The number of the furthest transaction read in this incarnation; -1: none."""
        last = self._high_water.last
        if last is None or last.order.incarnation != self.current or not last.delivered.isdecimal():
            return -1
        return int(last.delivered)

    def observe(self, state: LogState, read: int) -> int:
        """The number of the log's incarnation. Begins a new one if the history changed. ``read``: the transaction whose
        checksum ``state`` holds. Raises :class:`~wormhole.model.errors.SourceUnavailable` if the change cannot be
        stored.
        """
        with self._lock:
            why = self._why(state, read)
            if why:
                number = self.current + 1
                if number > 1:
                    _log.error("another history of the log begins: %s", why)
                known = [*self._known[1 - _KEPT :], {"number": number, "identity": state.identity, "why": why}]
                keep(self._state, HISTORIES, {"incarnations": known})
                self._known = known
            return self.current

    def _why(self, state: LogState, read: int) -> str:
        if not self._known:
            return "the first"
        if self._known[-1]["identity"] != state.identity:
            return "the changes are recorded by another installation"
        last = self._high_water.last
        if last is None or last.order.incarnation != self.current or read < 0:
            return ""
        if last.order.offset > state.place and read > state.number:
            return f"the database ends with transaction {state.number}, and was read up to {read}"
        if last.delivered != str(read) or last.anchor is None or read < state.floor_number:
            return ""
        if state.proves(read) not in (None, last.anchor.checksum):
            return f"the database has another transaction {read} than the one that was read"
        return ""
