"""What a flow lacks and needs to continue: a range of its log, or its record in the marker store."""

from __future__ import annotations

from dataclasses import dataclass

from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker

__all__ = ["FlowLoss"]


@dataclass(slots=True, eq=False)
class FlowLoss:
    """Other modules read the attributes and call the methods."""

    open: tuple[LogGap, Datamarker] | None = None
    """The missing log about which the application was asked, and where the log continues after it."""
    repair: str = ""
    """The rows that a repair of it would read, for operators."""
    count: int = 0
    """The number of times that log was missing."""
    unreadable: bool = False
    """Whether the marker store holds no valid record of the flow."""

    def ask(self, gap: LogGap, resume: Datamarker, repair: str) -> None:
        """The application is asked."""
        self.open, self.repair = (gap, resume), repair
        self.count += 1

    def close(self) -> None:
        """No answer is awaited any more."""
        self.open, self.repair = None, ""

    def found_unreadable(self, unreadable: bool) -> None:
        """Whether the flow's record could not be read."""
        self.unreadable = unreadable
