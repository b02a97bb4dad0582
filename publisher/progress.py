"""Whether the log is read: a publisher that lives and reads nothing looks healthy from everywhere else.

Pure: the lead caravan's place, how much log is behind it, and time (seconds, monotonic) are arguments.
"""

from __future__ import annotations

from typing import Final

from wormhole.position import LogPosition

__all__ = ["Progress"]

# The log may end with what no reader can take yet: a record that is being written, a file's first bytes. It does not grow, and is small.
_MUCH: Final = 1 << 20
_GROWTHS: Final = 2


class Progress:
    """Fed about once a second."""

    def __init__(self) -> None:
        self._place: LogPosition | None = None
        self._behind = 0
        self._growths = 0
        self._since: float | None = None

    def measured(self, place: LogPosition | None, behind: int | None, now: float) -> None:
        """The lead is at ``place`` (``None``: there is none) and ``behind`` bytes of log follow it (``None``: not known)."""
        if place != self._place or not behind:
            self._place, self._behind, self._growths, self._since = place, behind or 0, 0, None
            return
        if behind > self._behind:
            self._growths += 1
        self._behind = behind
        if self._since is None and (self._growths or behind >= _MUCH):
            self._since = now

    def stuck_s(self, now: float) -> float | None:
        """For how long the log was ahead, and grew or had much, while nothing of it was read; ``None``: progress is made."""
        if self._since is None or (self._growths < _GROWTHS and self._behind < _MUCH):
            return None
        return now - self._since
