"""Reads the timelines of a server's log: its histories since each promotion or recovery."""

from __future__ import annotations

from dataclasses import dataclass

from datastores.postgres.server.address import Address
from datastores.postgres.server.connection import connect, understood
from datastores.postgres.server.lsn import parse_lsn

__all__ = ["Timelines", "read_timelines"]


@dataclass(frozen=True, slots=True)
class Timelines:
    """The present and the earlier timelines, oldest first, each with the LSN at which the next one branched off."""

    current: int
    switches: tuple[tuple[int, int], ...] = ()

    def of(self, lsn: int) -> int:
        """The timeline of the byte before ``lsn``."""
        return next((timeline for timeline, end in self.switches if lsn <= end), self.current)

    def end_of(self, timeline: int) -> int | None:
        """The end of an earlier timeline in this log; ``None``: it is the present one, or not part of this log."""
        return next((end for known, end in self.switches if known == timeline), None)

    def holds(self, timeline: int, lsn: int) -> bool:
        """Whether the log of ``timeline`` up to ``lsn`` is part of this log."""
        return timeline == self.current or any(known == timeline and lsn <= end for known, end in self.switches)


def read_timelines(address: Address, timeline: int) -> Timelines:
    """The history of the server's present timeline. Raises
    :class:`~wormhole.model.errors.SourceUnavailable`.
    """
    if timeline == 1:
        return Timelines(1)
    connection = connect(address, walsender=True)
    try:
        with understood(address):
            ((_, content),) = connection.query(f"TIMELINE_HISTORY {timeline}")
            return Timelines(timeline, parse_history(content or ""))
    finally:
        connection.close()


def parse_history(content: str) -> tuple[tuple[int, int], ...]:
    """Read a timeline's history file: lines of timeline, LSN and reason. Other lines are comments."""
    fields = [line.split(None, 2) for line in content.splitlines()]
    return tuple((int(one[0]), parse_lsn(one[1])) for one in fields if len(one) >= 2 and one[0].isdecimal())
