"""Text and errors about times in a log, shared by the sources."""

from __future__ import annotations

import time

from wormhole.model.errors import PositionPurged
from wormhole.model.position import Datamarker

__all__ = ["begins_later", "time_text"]


def time_text(us: int) -> str:
    """Microseconds since 1970 as people read them, in UTC."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(us // 1_000_000))} UTC"


def begins_later(begin: Datamarker, begun_us: int) -> PositionPurged:
    """The error for a time before the beginning of the log. ``begin``: where the log begins. ``begun_us``: about when
    its first transaction was committed, in microseconds since 1970; 0: unknown.
    """
    since = f", about {time_text(begun_us)}" if begun_us else ", at a time that is not known"
    return PositionPurged(
        f"the log begins at {begin}{since}",
        last_missing=begin.delivered,
        hint="use earliest or a later time, or replay from an archive",
    )
