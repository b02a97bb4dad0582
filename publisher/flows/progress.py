"""Detects that the log grows but is not read. By every other measure such a publisher looks healthy.

Pure: the lead caravan's place, how much log is behind it, and time (seconds, monotonic) are arguments.
"""

from __future__ import annotations

from typing import Final

from wormhole.model.position import LogPosition

__all__ = ["Progress"]

# The log may end with bytes that are not a complete record: a record that is being written, a file's first bytes, or
# an old log in a recycled file. Their size does not grow.
_GROWTHS: Final = 2


class Progress:
    """The progress of the lead caravan. :meth:`measured` is called about once a second."""

    def __init__(self) -> None:
        self._seen: object = None
        self._behind = 0
        self._growths = 0
        self._since: float | None = None

    def measured(
        self, place: LogPosition | None, behind: int | None, now: float, *, read: int = 0, waits: bool = False
    ) -> None:
        """Note the lead's ``place`` (``None``: no reader is open) and the bytes of log ``behind`` it (``None``: not
        known).

        ``read``: bytes that the lead has read so far; they also grow within a large transaction. ``waits``: whether the
        lead is not permitted to read now.
        """
        seen = (place, read)
        if place is None:
            self._growths = _GROWTHS
            self._since = now if self._since is None else self._since
        elif seen != self._seen or not behind or waits:
            self._behind, self._growths, self._since = behind or 0, 0, None
        else:
            if behind > self._behind:
                self._growths += 1
            self._behind = behind
            if self._since is None and self._growths:
                self._since = now
        self._seen = seen

    def stuck_s(self, now: float) -> float | None:
        """For how many seconds the log has grown unread, or had no reader; ``None`` while the lead makes progress."""
        if self._since is None or self._growths < _GROWTHS:
            return None
        return now - self._since
