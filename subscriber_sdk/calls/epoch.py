"""The state of one epoch of a flow, and whether it continues. The parts that work on the epoch share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from subscriber_sdk.subscriber import FlowHalted
from wormhole.model.position import Datamarker

__all__ = ["Ending", "Epoch", "LoopLeft"]


class Ending(Enum):
    """Why an epoch of a flow ends at this subscriber."""

    REVOKED = "revoked"
    LEAVING = "this subscriber leaves"
    CUT = "a newer epoch was assigned"
    LOST = "the connection to the publisher was lost"


class LoopLeft(Exception):  # noqa: N818 - no failure
    """The loop that takes updates was left, so this update is not processed."""


class Epoch:
    """One epoch of one flow. ``rested``: called when it comes to rest."""

    __slots__ = (
        "_over",
        "_rested",
        "acked",
        "away",
        "cause",
        "ending",
        "halted",
        "marker",
        "number",
        "resting",
        "shard",
        "stopped",
    )

    def __init__(self, shard: str, number: int, marker: Datamarker, rested: Callable[[], None] = lambda: None) -> None:
        self.shard = shard
        self.number = number
        self.marker = marker
        """The place to which a rollback leads."""
        self.acked: Datamarker | None = None
        """The last marker acknowledged in this epoch."""
        self.ending: Ending | None = None
        """Why no new work is begun; ``None`` while the epoch continues."""
        self.cause = ""
        """The same in words; empty while the epoch continues."""
        self.stopped = False
        """Whether this subscriber gave it up, so that it only waits for its end."""
        self.halted: FlowHalted | None = None
        """Why it is halted, when its retries are exhausted."""
        self.away: Exception | None = None
        """Why the application's database was unavailable when it was last."""
        self.resting = False
        """Whether nothing is left to do until something arrives."""
        self._rested = rested
        self._over = asyncio.Event()

    @property
    def state(self) -> str:
        """Its state, as in the metric ``wormhole_subscriber_flows``."""
        if self.ending is not None:
            return "ending"
        if self.halted is not None:
            return "halted"
        return "stopped" if self.stopped else "resting" if self.resting else "working"

    def end(self, ending: Ending, cause: str = "") -> bool:
        """Begin no new work. Running callbacks may finish. Returns whether this is the first end, whose reason
        stays."""
        if self.ending is not None:
            return False
        self.ending = ending
        self.cause = cause or ending.value
        self._over.set()
        return True

    def acknowledged(self, marker: Datamarker, *, sent: bool = True) -> None:
        """Everything before ``marker`` was processed. ``sent``: whether the publisher gets the ack, because the stream
        has not ended meanwhile.
        """
        self.marker = marker
        if sent:
            self.acked = marker

    def rest(self) -> None:
        """Nothing is left to do until something arrives."""
        self.resting = True
        self._rested()

    async def pause(self, seconds: float) -> None:
        """Wait, but not beyond the epoch's end."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass
