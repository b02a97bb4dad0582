"""The incarnations of a log, kept for later starts: of which history of which server a place is.

An LSN means something in one timeline of one server only. Another incarnation begins when the server behind the URL is
another (its system identifier), when it was promoted or recovered to a point in time (its timeline), and when it lost
log that was read of it: a copy of its files that was put back has the same identifier and the same timeline.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

from publisher.sources.kept_state import HISTORIES, keep, load
from publisher.sources.postgres.server_state import ServerState
from wormhole.ports.source_state import SourceState

__all__ = ["History", "Incarnations"]

_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class History:
    """One incarnation. ``why`` it began; empty for the first."""

    number: int
    system: str
    timeline: int
    why: str = ""


class Incarnations:
    """Thread-safe. Every change is kept before a place of the new incarnation can be handed out. Questions do not wait
    for that.
    """

    def __init__(self, state: SourceState) -> None:
        """``state``: where they are kept. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
        self._state = state
        self._lock = threading.Lock()  # one change at a time
        # Oldest first. Replaced as a whole, and never changed.
        self._known: list[dict[str, Any]] = load(state, HISTORIES).get("incarnations", [])

    @property
    def current(self) -> History | None:
        """The log's as it was last seen; ``None`` before that."""
        known = self._known
        return _history(known[-1]) if known else None

    def find(self, number: int) -> History | None:
        """The incarnation with this number, if it was seen here."""
        return next((_history(one) for one in self._known if one["number"] == number), None)

    def observe(self, state: ServerState, lost: str = "") -> History:
        """The incarnation that the server's log is in. ``lost``: why its end is not what was read of it; empty: it is.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` when it cannot be kept, and what else the state of the
        source raises that passes by itself.
        """
        with self._lock:
            last = self.current
            why = _why(last, state) or lost
            if last is not None and not why:
                return last
            begun = History(1 if last is None else last.number + 1, state.system, state.timeline, why)
            self._begin(begun)
            return begun

    def _begin(self, history: History) -> None:
        known = [
            *self._known[1 - _KEPT :],
            {
                "number": history.number,
                "system": history.system,
                "timeline": history.timeline,
                "why": history.why,
            },
        ]
        keep(self._state, HISTORIES, {"incarnations": known})
        self._known = known


def _history(one: dict[str, Any]) -> History:
    return History(int(one["number"]), str(one["system"]), int(one["timeline"]), str(one.get("why", "")))


def _why(last: History | None, state: ServerState) -> str:
    if last is None:
        return ""
    if state.system != last.system:
        return f"the server is another one (system {state.system}, it was {last.system})"
    if state.timeline != last.timeline:
        return f"the server is on timeline {state.timeline}, it was on {last.timeline}: a failover, or a recovery"
    return ""
