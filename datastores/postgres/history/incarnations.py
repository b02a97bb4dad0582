"""Keeps the incarnations of a log for later starts. An incarnation is one history of one server.

An LSN has a meaning only in one timeline of one server. Another incarnation begins when the URL leads to another server
(with another system identifier), or when the server was promoted or recovered to a point in time (with another
timeline). It also begins when the server lost log that was read. A restored copy of its files has the same identifier
and timeline.

Each ended incarnation is kept with the place up to which it was read. The delivered log may extend past every
datamarker, and may be in no log any more.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from datastores.common.high_water import HighWater
from datastores.common.kept_state import keep, load_incarnations
from datastores.postgres.server.state import ServerState
from wormhole.ports.source_state import HISTORIES, SourceState

__all__ = ["History", "Incarnations"]

_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class History:
    """One incarnation. ``why``: why it began; empty for the first one.

    ``read``: the logical position up to which it was read before it ended; empty: unknown. ``gone``: the server of this
    incarnation lost the end of the log that was read.
    """

    number: int
    system: str
    timeline: int
    why: str = ""
    read: str = ""
    gone: bool = False


class Incarnations:
    """The incarnations. Thread-safe. A change is stored before a caller gets a place of the new incarnation. Reads do
    not wait for the write.
    """

    def __init__(self, state: SourceState, high_water: HighWater | None = None) -> None:
        """``state``: stores the incarnations. ``high_water``: how far the log was read. Raises
        :class:`~wormhole.model.errors.SourceUnavailable`.
        """
        self._state = state
        self._high_water = high_water
        self._lock = threading.Lock()  # one change at a time
        # Oldest first. The tuple is replaced, never changed.
        self._known = load_incarnations(state, timeline=int)

    @property
    def current(self) -> History | None:
        """The last known incarnation of the log; ``None``: none is known."""
        known = self._known
        return _history(known[-1]) if known else None

    def find(self, number: int) -> History | None:
        """The incarnation with this number; ``None``: it is not known here."""
        return next((_history(one) for one in self._known if one["number"] == number), None)

    def ended_since(self, number: int) -> list[History]:
        """The ended incarnations with this number and later ones, oldest first."""
        return [_history(one) for one in self._known[:-1] if one["number"] >= number]

    def observe(self, state: ServerState, lost: str = "") -> History:
        """The incarnation of the server's log. Begins a new one if the history changed.

        ``lost``: why the log's end differs from the one that was read; empty: it does not. Raises
        :class:`~wormhole.model.errors.SourceUnavailable` if a new one cannot be stored, and the other transient errors
        of the source's state.
        """
        with self._lock:
            last = self.current
            why = _why(last, state) or lost
            if last is not None and not why:
                return last
            begun = History(1 if last is None else last.number + 1, state.system, state.timeline, why)
            self._begin(begun, gone=bool(lost))
            return begun

    def _begin(self, history: History, *, gone: bool = False) -> None:
        """Store a new incarnation. ``gone``: the server lost the end of the log that was read in the previous one."""
        known = [
            *(self._ended(one, gone=gone) if one is self._known[-1] else one for one in self._known[1 - _KEPT :]),
            {
                "number": history.number,
                "system": history.system,
                "timeline": history.timeline,
                "why": history.why,
            },
        ]
        keep(self._state, HISTORIES, {"incarnations": known})
        self._known = known

    def _ended(self, one: dict[str, Any], *, gone: bool) -> dict[str, Any]:
        last = self._high_water.last if self._high_water is not None else None
        if last is None or last.order.incarnation != one["number"]:
            return one
        return {**one, "read": last.delivered, "gone": gone}


def _history(one: dict[str, Any]) -> History:
    return History(
        int(one["number"]),
        str(one["system"]),
        int(one["timeline"]),
        str(one.get("why", "")),
        str(one.get("read", "")),
        bool(one.get("gone", False)),
    )


def _why(last: History | None, state: ServerState) -> str:
    if last is None:
        return ""
    if state.system != last.system:
        return f"the server is another one (system {state.system}, it was {last.system})"
    if state.timeline != last.timeline:
        return f"the server is on timeline {state.timeline}, it was on {last.timeline}: a failover, or a recovery"
    return ""
