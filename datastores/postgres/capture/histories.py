"""The incarnations of a log, kept for later starts. The incarnation of a place is one history of one installation.

Another incarnation begins when the database has another installation, and when it lost transactions that were read: a
restored copy of a database has the same identity. The furthest place that was read shows the latter, by the checksum of
the transaction before that place.
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
    """Thread-safe. Every change is kept before a place of the new incarnation is given to a caller."""

    def __init__(self, state: SourceState, high_water: HighWater) -> None:
        """Read what is kept. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
        self._state = state
        self._high_water = high_water
        self._lock = threading.Lock()
        self._known = load_incarnations(state, identity=str)

    @property
    def current(self) -> int:
        """The number of the log's incarnation when it was last seen; 0 before that."""
        return int(self._known[-1]["number"]) if self._known else 0

    @property
    def read(self) -> int:
        """The number of the furthest transaction that was read in this incarnation; -1: none."""
        last = self._high_water.last
        if last is None or last.order.incarnation != self.current or not last.delivered.isdecimal():
            return -1
        return int(last.delivered)

    def observe(self, state: LogState, read: int) -> int:
        """The number of the log's incarnation; begins a new one if the history changed. ``read``: the transaction that
        ``state`` was asked for. Raises :class:`~wormhole.model.errors.SourceUnavailable` when that cannot be kept.
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
