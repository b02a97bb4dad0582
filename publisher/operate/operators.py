"""What every request of an operator has in common: which flow it is about, who asks, whether this publisher is the one
to ask, and the history of what was done.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from typing import Final

import grpc

from publisher.flows.refused_error import RefusedError
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from wormhole.coordination.port import HistoryEntry
from wormhole.model.errors import WormholeError
from wormhole.model.position import flow_name
from wormhole.ports.marker_store import FlowKey

__all__ = ["check_serving", "flow_key", "no_flow", "not_now", "person", "record"]

_log = logging.getLogger(__name__)

_RECORD_S: Final = 5.0
_LONGEST_NAME: Final = 100
_LONGEST_FLOW: Final = 1024
_COMPARED: Final = 1000  # names, for what was meant


def check_serving(publisher: Publisher) -> None:
    """Raises :class:`~publisher.flows.refused_error.RefusedError` while the publisher does not know its flows, or when
    another publisher owns them.
    """
    if not publisher.applications.known.is_set():
        raise RefusedError(
            grpc.StatusCode.UNAVAILABLE,
            "the publisher does not know its applications yet",
            hint="try again soon",
            code="in-progress",
        )
    if not publisher.ownership.ours():
        raise RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "another publisher has taken this log over",
            hint="ask that one: `wormholectl publishers` lists them",
            code="owner-elsewhere",
        )


def flow_key(text: str) -> FlowKey:
    """The flow that is called ``text``.

    Raises :class:`~publisher.flows.refused_error.RefusedError` for what is no name of one.
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


def no_flow(publisher: Publisher, key: FlowKey, more: list[str] | None = None) -> RefusedError:
    """There is none of that name. ``more``: names beside those that are served, for what was meant."""
    name = flow_name(*key)
    names = sorted({*(flow.name for flow in publisher.assigner.flows.values()), *(more or ())})
    close = difflib.get_close_matches(name, names[:_COMPARED], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`wormholectl flows` lists those that there are"
    return RefusedError(
        grpc.StatusCode.NOT_FOUND, f"there is no flow {name!r} in this log", hint=hint, code="flow-unknown"
    )


def not_now(flow: PublisherFlow, why: str, hint: str | None = None) -> RefusedError:
    """What the flow's state does not permit."""
    return RefusedError(grpc.StatusCode.FAILED_PRECONDITION, f"{flow.name}: {why}", hint=hint)


def person(who: str, certificate: str) -> str:
    """Who did it, as history keeps it: what the client says of itself, and whose certificate it was."""
    said = "".join(letter for letter in who if letter.isprintable())[:_LONGEST_NAME] or "somebody"
    return f"{said} (certificate {certificate})" if certificate else said


async def record(publisher: Publisher, who: str, what: str, target: str, old: str, new: str) -> list[str]:
    """Keep what was done in the history; returns what the operator should know when that failed."""
    entry = HistoryEntry(publisher.clock.wall(), who, what, target, old, new)
    try:
        async with asyncio.timeout(_RECORD_S):
            await publisher.coordinator.record(entry)
    except (WormholeError, TimeoutError) as error:
        why = str(error) or "no answer"
        _log.error("the history misses that %s did %s to %s: %s", who, what, target, why)
        return [f"the change is made, but the history misses it: {why}"]
    return []
