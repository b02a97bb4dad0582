"""Whether the log is read. A publisher that runs and reads nothing looks healthy by every other measure.

Pure: the lead caravan's place, how much log is behind it, and time (seconds, monotonic) are arguments.
"""

from __future__ import annotations

from typing import Final

from wormhole.model.position import LogPosition

__all__ = ["Progress"]

# The log may end with bytes that are no record: a record that is being written, a file's first bytes, or the remains of
# an older log in a recycled file. None of these grows.
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

        ``read``: bytes that it has read so far, which grow within a large transaction too. ``waits``: whether it may
        not read now.
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
        """For how long the log has grown while nothing of it was read, or while no reader was open; ``None``: the
        reader makes progress."""
        if self._since is None or self._growths < _GROWTHS:
            return None
        return now - self._since
