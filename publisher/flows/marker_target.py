"""Finds the place in the log to which an operator sets a flow's datamarker, and its distance from the former place. A
place that the log does not hold is refused.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from publisher.flows.lag_and_headroom import LogWatch
from wormhole.config import EXISTING
from wormhole.model.errors import PositionError, PositionPurged
from wormhole.model.position import Datamarker
from wormhole.model.units import parse_time
from wormhole.ports.log_source import LogSource

__all__ = ["by_start", "by_text", "by_time", "distance", "located"]

_REPLAY = "what the log no longer holds comes back only by a mass replay from an archive or a backup"


def by_text(source: LogSource, text: str) -> Callable[[], Datamarker]:
    """Returns a function that finds a place written like an application's ``start``."""
    return lambda: source.locate(text)


def by_time(source: LogSource, at_s: float, now: float) -> Callable[[], Datamarker]:
    """Returns a function that finds the last place before which every transaction was committed by ``at_s``. ``at_s``
    and ``now`` are seconds since 1970.

    Raises :class:`~wormhole.model.errors.PositionError` unless ``at_s`` is in the past.
    """
    if not math.isfinite(at_s) or not 0 < at_s <= now:
        raise PositionError(
            f"{at_s:g} is no time in the past", hint="give seconds since 1970 in UTC, not later than now"
        )
    return lambda: source.locate_time(round(at_s * 1e6))


def by_start(source: LogSource, start: str, now: float) -> Callable[[], Datamarker]:
    """Returns a function that finds where an application with this ``start`` begins. A time stands for the first
    transaction at or after it.

    Raises :class:`~wormhole.model.errors.PositionError` for a time later than ``now``, in seconds since 1970.
    """
    at_us = parse_time(start)
    if at_us is None:
        return by_text(source, "latest" if start == EXISTING else start)
    if at_us > now * 1e6:
        raise PositionError(
            f"start = {start!r} is in the future", hint="it is served from then on; for all from now on write latest"
        )

    def find() -> Datamarker:
        try:
            return source.locate_time(at_us - 1)  # a transaction of exactly that time is delivered
        except PositionPurged as error:
            error.message = f"start = {start!r} is before what the log holds: {error.message}"
            raise

    return find


async def located(source: LogSource, find: Callable[[], Datamarker]) -> Datamarker:
    """Call ``find`` in a thread and return its result. Raises the errors of ``find``. If the log no longer holds the
    place, the error names where the log begins."""
    try:
        return await asyncio.to_thread(find)
    except PositionPurged as error:
        there = await asyncio.to_thread(_beginning, source)
        raise PositionPurged(
            error.message if there in error.message else f"{error.message}; {there}",
            first_missing=error.first_missing,
            last_missing=error.last_missing,
            hint=f"use earliest or a later time; {_REPLAY}",
        ) from error


def _beginning(source: LogSource) -> str:
    """The sentence about the place where the log begins, and its time."""
    try:
        source.locate_time(1)
    except PositionPurged as error:
        return error.message
    return f"the log begins at {source.earliest()}"


def distance(watch: LogWatch, shard: str, old: Datamarker, new: Datamarker, now: float) -> list[str]:
    """The distance between the old and the new place of a flow, as a sentence. ``now``: seconds since 1970."""
    if new.order == old.order:
        return ["it is there already: what is not acknowledged is delivered again in a new epoch"]
    back = new.order < old.order
    first, last = (new, old) if back else (old, new)
    far, near = watch.lag(shard, first, now), watch.lag(shard, last, now)
    parts = []
    if far.transactions is not None and near.transactions is not None:
        parts.append(f"about {max(0, far.transactions - near.transactions)} transactions of its shard")
    if far.bytes is not None and near.bytes is not None:
        parts.append(f"{far.bytes - near.bytes} bytes of log")
    what = " in ".join(parts) or ("what lies between (it is not known how much)")
    if back:
        return [f"{what}: delivered again, marked as replayed"]
    return [f"{what}: jumped over, never delivered"]
