"""Whether the log is read: a publisher that lives and reads nothing looks healthy from everywhere else.

Pure: the lead caravan's place, how much log is behind it, and time (seconds, monotonic) are arguments.
"""

from __future__ import annotations

from typing import Final

from wormhole.model.position import LogPosition

__all__ = ["Progress"]

# The log may end with what is no record: one that is being written, a file's first bytes, the remains of an older log
# in a recycled file. None of that grows.
_GROWTHS: Final = 2


class Progress:
    """Fed about once a second."""

    def __init__(self) -> None:
        self._seen: object = None
        self._behind = 0
        self._growths = 0
        self._since: float | None = None

    def measured(
        self, place: LogPosition | None, behind: int | None, now: float, *, read: int = 0, waits: bool = False
    ) -> None:
        """The lead is at ``place`` (``None``: no reader is open) and ``behind`` bytes of log follow it (``None``: not
        known).

        ``read``: bytes that it read so far, which rise inside a large transaction too; ``waits``: it may not read just
        now.
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
        """For how long the log grew while nothing of it was read, or no reader was open; ``None``: progress is made."""
        if self._since is None or self._growths < _GROWTHS:
            return None
        return now - self._since
