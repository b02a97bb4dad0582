"""The loss that stops a flow: a missing range of its log, or an unreadable record in the marker store."""

from __future__ import annotations

from dataclasses import dataclass

from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker

__all__ = ["FlowLoss"]


@dataclass(slots=True, eq=False)
class FlowLoss:
    """See the module. Other modules read the attributes and change them only through the methods."""

    open: tuple[LogGap, Datamarker] | None = None
    """The missing log about which the application was asked, and where the log continues after it."""
    repair: str = ""
    """The rows that a repair of the missing log would read, for operators."""
    count: int = 0
    """How many times log was missing."""
    unreadable: bool = False
    """Whether the marker store holds no valid record of the flow."""

    def ask(self, gap: LogGap, resume: Datamarker, repair: str) -> None:
        """Note that the application is asked about ``gap``."""
        self.open, self.repair = (gap, resume), repair
        self.count += 1

    def close(self) -> None:
        """End the question: no answer of the application is awaited any more."""
        self.open, self.repair = None, ""

    def found_unreadable(self, unreadable: bool) -> None:
        """Set whether the flow's record is unreadable."""
        self.unreadable = unreadable
