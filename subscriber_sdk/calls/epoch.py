"""The state of one epoch of a flow, and whether it continues: what the parts that work on it share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from subscriber_sdk.subscriber import FlowHalted
from wormhole.model.position import Datamarker

__all__ = ["Ending", "Epoch", "LoopLeft"]


class Ending(Enum):
    """Why a flow's epoch ends here."""

    REVOKED = "revoked"
    LEAVING = "this subscriber leaves"
    CUT = "a newer epoch was assigned"
    LOST = "the connection to the publisher was lost"


class LoopLeft(Exception):  # noqa: N818 - no failure
    """Nobody asks for another update, so this one is not processed."""


class Epoch:
    """One epoch of one flow. ``rested``: called when it comes to rest."""

    __slots__ = (
        "_over",
        "_rested",
        "acked",
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
        """Where a rollback leads to."""
        self.acked: Datamarker | None = None
        """The last marker acknowledged in this epoch."""
        self.ending: Ending | None = None
        """Why nothing new is begun; ``None`` while the epoch continues."""
        self.cause = ""
        """The same in words; empty while the epoch continues."""
        self.stopped = False
        """Whether it was given up here: it only waits for its end."""
        self.halted: FlowHalted | None = None
        """Why it is halted, when its retries are exhausted."""
        self.resting = False
        """Whether nothing is left to do until something arrives."""
        self._rested = rested
        self._over = asyncio.Event()

    @property
    def state(self) -> str:
        """Its state as ``wormhole_subscriber_flows`` counts it."""
        if self.ending is not None:
            return "ending"
        if self.halted is not None:
            return "halted"
        return "stopped" if self.stopped else "resting" if self.resting else "working"

    def end(self, ending: Ending, cause: str = "") -> bool:
        """No new work is begun; what runs may finish. The first reason stays: whether this was it."""
        if self.ending is not None:
            return False
        self.ending = ending
        self.cause = cause or ending.value
        self._over.set()
        return True

    def acknowledged(self, marker: Datamarker) -> None:
        """Everything before ``marker`` was processed."""
        self.marker = self.acked = marker

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
