"""Used by all requests of operators: finds the flow and the person, checks that this publisher owns the log, and writes
the history of changes.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import grpc

from publisher.flows.applications import Applications
from publisher.flows.ownership import Ownership
from publisher.flows.refused_error import RefusedError
from publisher.push.flow import PublisherFlow
from wormhole.coordination.port import Coordinator, HistoryEntry
from wormhole.host.clock import Clock
from wormhole.model.errors import WormholeError
from wormhole.model.position import flow_name
from wormhole.ports.marker_store import FlowKey, ReplayState

__all__ = ["Operators", "flow_key", "needs_replay", "not_now", "paused_by", "person"]

_log = logging.getLogger(__name__)

_RECORD_S: Final = 5.0
_LONGEST_NAME: Final = 100
_LONGEST_FLOW: Final = 1024
_COMPARED: Final = 1000  # the most names that are searched for a similar name


class Operators:
    """See the module."""

    def __init__(
        self,
        applications: Applications,
        ownership: Ownership,
        flows: Mapping[FlowKey, PublisherFlow],
        coordinator: Coordinator,
        clock: Clock,
    ) -> None:
        self._applications = applications
        self._ownership = ownership
        self._flows = flows
        self._coordinator = coordinator
        self._clock = clock

    def check_serving(self) -> None:
        """Raise :class:`~publisher.flows.refused_error.RefusedError` while the publisher does not know its flows, or if
        another publisher owns the log.
        """
        if not self._applications.known.is_set():
            raise RefusedError(
                grpc.StatusCode.UNAVAILABLE,
                "the publisher does not know its applications yet",
                hint="try again soon",
                code="in-progress",
            )
        if not self._ownership.ours():
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "another publisher has taken this log over",
                hint="ask that one: `wormholectl publishers` lists them",
                code="owner-elsewhere",
            )

    def no_flow(self, key: FlowKey, more: Sequence[str] = ()) -> RefusedError:
        """The error for an unknown flow. It suggests similar names of served flows and of ``more``."""
        name = flow_name(*key)
        names = sorted({*(flow.name for flow in self._flows.values()), *more})
        close = difflib.get_close_matches(name, names[:_COMPARED], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "`wormholectl flows` lists those that there are"
        return RefusedError(
            grpc.StatusCode.NOT_FOUND, f"there is no flow {name!r} in this log", hint=hint, code="flow-unknown"
        )

    async def record(self, who: str, what: str, target: str, old: str, new: str) -> list[str]:
        """Add the change to the history. Returns a note for the operator if that failed."""
        entry = HistoryEntry(self._clock.wall(), who, what, target, old, new)
        try:
            async with asyncio.timeout(_RECORD_S):
                await self._coordinator.record(entry)
        except (WormholeError, TimeoutError) as error:
            why = str(error) or "no answer"
            _log.error("the history misses that %s did %s to %s: %s", who, what, target, why)
            return [f"the change is made, but the history misses it: {why}"]
        return []

    def now(self) -> float:
        """The time for history and stored requests, in seconds since 1970."""
        return self._clock.wall()

    async def subscribers(self, application: str) -> list[str]:
        """Ids of the application's registered subscribers. Raises the coordination service's errors."""
        return sorted(info.id for info in await self._coordinator.subscribers() if info.application == application)


def flow_key(text: str) -> FlowKey:
    """The key of the flow with the name ``text``.

    Raises :class:`~publisher.flows.refused_error.RefusedError` if ``text`` does not have the form of a flow's name.
    """
    application, slash, shard = text.partition("/")
    if not (application and slash and shard) or len(text) > _LONGEST_FLOW:
        raise RefusedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{text[:_LONGEST_NAME]!r} is no name of a flow",
            hint="write APP/SHARD",
            code="flow-unknown",
        )
    return application, shard


def not_now(flow: PublisherFlow, why: str, hint: str | None = None) -> RefusedError:
    """The error for a request that the flow's state does not permit."""
    return RefusedError(grpc.StatusCode.FAILED_PRECONDITION, f"{flow.name}: {why}", hint=hint)


def person(who: str, certificate: str) -> str:
    """The text for a person in the history: ``who``, which the client states itself, and the certificate's name."""
    said = "".join(letter for letter in who if letter.isprintable())[:_LONGEST_NAME] or "an operator"
    return f"{said} (certificate {certificate})" if certificate else said


def paused_by(who: str, now: float) -> str:
    """The stored text for a person who paused a flow or a backfill. ``now``: seconds since 1970."""
    return f"{who} at {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC"


def needs_replay(flow: PublisherFlow) -> bool:
    """Whether the flow waits for a replay, because the log does not hold its datamarker."""
    replay = flow.control.replay
    return replay is not None and replay.state is ReplayState.NEEDS_REPLAY
