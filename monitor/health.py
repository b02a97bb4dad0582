"""Finds the faults of this host for the health answers of its monitor. Pure.

A monitor that answers is healthy itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from monitor.state import HostState, Phase, ProcessState, PublisherState
from wormhole.wire.conditions import log_condition

__all__ = ["Health", "health"]

_SILENT_S: Final = 10.0  # a publisher is polled every one to three seconds


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a host. ``reasons``: one sentence for each fault; empty when ready."""

    reasons: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether every configured publisher runs and makes progress, and every sink runs."""
        return not self.reasons


def health(state: HostState, now: float) -> Health:
    """The faults of this host. ``now``: seconds since 1970.

    An unreachable coordination service is not a fault, because publishers continue with the last good configuration. A
    drained host, and a standby whose log another publisher owns, are not faults either.
    """
    reasons = [] if state.configuration else ["no configuration was read yet"]
    for _, publisher in sorted(state.publishers.items()):
        reasons += (f"publisher {publisher.key} {what}" for what in _wrong(publisher, now))
    for _, sink in sorted(state.sinks.items()):
        reasons += (f"sink {sink.key.name} {what}" for what in _dead(sink, "`wormholectl sink check`, and its log"))
    return Health(tuple(reasons))


def _wrong(publisher: PublisherState, now: float) -> Iterator[str]:
    yield from _dead(publisher, "`wormholectl publishers`, and its log")
    if publisher.phase is Phase.RUNNING:
        silent_s, status = publisher.silent_s(now), publisher.status
        if silent_s > _SILENT_S:
            yield f"did not answer for {silent_s:.0f} s{_cause(publisher)}"
        elif status is not None and (found := log_condition(status)).fault:
            yield f"delivers nothing of its log: {found}"


def _dead(process: ProcessState, look: str) -> Iterator[str]:
    match process.phase:
        case Phase.GIVEN_UP:
            yield f"was given up, it ended too often{_cause(process)}. Next: {look}"
        case Phase.BACKING_OFF:
            yield f"ended and is restarted{_cause(process)}"
        case Phase.STARTING:
            yield f"is starting{_cause(process)}"
        case Phase.RUNNING | Phase.STOPPING | Phase.DRAINED:
            pass


def _cause(process: ProcessState) -> str:
    return f": {process.problem}" if process.problem else ""
