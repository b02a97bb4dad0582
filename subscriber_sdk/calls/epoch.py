"""The state of one epoch (one assignment of a flow to this subscriber), shared by all parts that work on the epoch."""

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
    """The application left its loop over updates, so this update is not processed."""


class Epoch:
    """One epoch of one flow. ``rested``: called when nothing is left to do until something arrives."""

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
        """The datamarker to which a rollback returns."""
        self.acked: Datamarker | None = None
        """The last marker acknowledged in this epoch."""
        self.ending: Ending | None = None
        """Why no new work is begun; ``None`` while the epoch continues."""
        self.cause = ""
        """The reason for :attr:`ending` in words; empty while the epoch continues."""
        self.stopped = False
        """Whether this subscriber stopped work on the epoch, and only waits for the end of the epoch."""
        self.halted: FlowHalted | None = None
        """Why the flow is halted; ``None`` unless its retries are exhausted."""
        self.away: Exception | None = None
        """The last error by which the application's database was unavailable; ``None``: there was none."""
        self.resting = False
        """Whether nothing is left to do until something arrives."""
        self._rested = rested
        self._over = asyncio.Event()

    @property
    def state(self) -> str:
        """The state's name in the metric ``wormhole_subscriber_flows``."""
        if self.ending is not None:
            return "ending"
        if self.halted is not None:
            return "halted"
        return "stopped" if self.stopped else "resting" if self.resting else "working"

    def end(self, ending: Ending, cause: str = "") -> bool:
        """End the epoch: no new work begins, and running callbacks may finish. Returns false if the epoch had ended
        before; its first reason stays."""
        if self.ending is not None:
            return False
        self.ending = ending
        self.cause = cause or ending.value
        self._over.set()
        return True

    def acknowledged(self, marker: Datamarker, *, sent: bool = True) -> None:
        """Note that ``marker`` was acknowledged: everything before it is processed. ``sent``: whether the
        acknowledgement goes to the publisher; false if the stream has ended meanwhile.
        """
        self.marker = marker
        if sent:
            self.acked = marker

    def rest(self) -> None:
        """Note that nothing is left to do until something arrives."""
        self.resting = True
        self._rested()

    async def pause(self, seconds: float) -> None:
        """Wait for this time, or until the epoch ends."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass
