"""A range that is missing from a log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

__all__ = ["LogGap", "LossKind"]


class LossKind(Enum):
    """The reason why a range cannot be delivered."""

    PURGED = "purged"
    """The log once held the range and no longer does."""
    NOT_LOGGED = "not_logged"
    """The range was written to the datastore without the log."""
    DIVERGED = "diverged"
    """The log is not the one that the datamarker came from."""


@dataclass(slots=True, frozen=True)
class LogGap:
    """A range that the log does not hold.

    ``first_missing`` and ``last_missing`` are logical positions of the source, inclusive; empty when unknown.
    ``message``: what happened and where. ``behind``: the ``delivered`` of a datamarker directly after the gap; empty:
    ``last_missing``. The two differ if a position is a set, because the range must not name transactions that were
    delivered before.
    """

    kind: LossKind
    first_missing: str
    last_missing: str
    message: str
    behind: str = ""

    @property
    def delivered(self) -> str:
        """The ``delivered`` of a datamarker directly after the gap; empty when unknown."""
        return self.behind or self.last_missing

    def reached(self, delivered: str) -> bool:
        """Whether a flow that received everything up to ``delivered`` has passed the gap. It may also have received the
        missing range while the log still held it.
        """
        if delivered.isdecimal() and self.delivered.isdecimal():
            return int(delivered) >= int(self.delivered)
        return bool(delivered) and delivered == self.delivered

    def without(self, delivered: str) -> LogGap:
        """The gap for a flow that received everything up to ``delivered``: it begins after that.

        The range can contain delivered transactions only if positions are numbers: another reader was at an earlier
        place when it met the gap.
        """
        first, last = self.first_missing, self.last_missing
        if not (delivered.isdecimal() and first.isdecimal() and last.isdecimal()):
            return self
        if not int(first) <= int(delivered) < int(last):
            return self
        begin = str(int(delivered) + 1)
        message = (
            f"{self.message}; of these {first} to {delivered} were delivered before, so {begin} to {last} are missing"
        )
        return replace(self, first_missing=begin, message=message)
