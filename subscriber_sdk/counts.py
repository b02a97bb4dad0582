"""How many callbacks of a shard returned, by windows of commit time: what the publisher books with each acknowledgement.

The counts only go up, repeats included, for as long as the same ``life`` stands beside them. So an acknowledgement that is lost with its
stream, or whose publisher dies before it is stored, takes nothing away: the next one tells the same and more. A life ends when the shard
was given back, for then everything was told. Pure.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wormhole.wire.body import ParsedBody
from wormhole.wire.tally import window_of

__all__ = ["MOST_WINDOWS", "NOTHING_TOLD", "Counts", "Told", "windows_in"]

MOST_WINDOWS: Final = 1100
"""Windows that are remembered of one shard: a week, which is what publishers keep, and some. The earliest go first."""


@dataclass(slots=True, frozen=True)
class Told:
    """``windows``: of each that changed since it was told last, updates whose callback returned, those that were set aside, and the sum
    of the hashes of these."""

    life: int
    windows: Mapping[int, tuple[int, int, int]]


NOTHING_TOLD: Final = Told(0, {})


class Counts:
    """Of one shard in this process."""

    __slots__ = ("_changed", "_windows", "life")

    def __init__(self) -> None:
        self.life = _new_life()
        """A random number, never 0."""
        self._windows: dict[int, list[int]] = {}
        self._changed: set[int] = set()

    def processed(self, windows: Mapping[int, int]) -> None:
        """So many callbacks returned of updates in each window."""
        for window, updates in windows.items():
            self._of(window)[0] += updates

    def set_aside(self, window: int, hash_: int) -> None:
        """An update that counts as processed was parked, or passed over."""
        counts = self._of(window)
        counts[0] -= 1
        counts[1] += 1
        counts[2] = (counts[2] + hash_) % (1 << 64)

    def tell(self) -> Told:
        """What is to be told with the next acknowledgement."""
        told = Told(
            self.life, {window: (max(0, updates), aside, hash_) for window, (updates, aside, hash_) in self._taken()}
        )
        if len(self._windows) > MOST_WINDOWS:
            for window in sorted(self._windows)[:-MOST_WINDOWS]:
                del self._windows[window]
        return told

    def again(self) -> None:
        """Another epoch begins: nobody knows whether what was told in the one before was stored."""
        self._changed.update(self._windows)

    def renew(self) -> None:
        """Everything was told: another life begins."""
        self.life = _new_life()
        self._windows.clear()
        self._changed.clear()

    def _of(self, window: int) -> list[int]:
        self._changed.add(window)
        return self._windows.setdefault(window, [0, 0, 0])

    def _taken(self) -> list[tuple[int, list[int]]]:
        taken = [(window, self._windows[window]) for window in sorted(self._changed)]
        self._changed.clear()
        return taken


def windows_in(body: ParsedBody, updates: int | None = None) -> dict[int, int]:
    """How many updates of each window are among the first ``updates`` of a body, or all of it."""
    count = len(body.updates) if updates is None else updates
    if not count:
        return {}
    if body.window is not None:
        return {body.window: count}
    times: Sequence[int] = body.tx_committed_at_us[:]
    if len(times) == 1:
        return {window_of(times[0]): count}
    found: dict[int, int] = {}
    begin = 0
    for tx, at in enumerate(times):
        end = min(count, body.tx_end[tx]) if tx < len(body.tx_end) else count
        if end > begin:
            window = window_of(at)
            found[window] = found.get(window, 0) + end - begin
            begin = end
    return found


def _new_life() -> int:
    return secrets.randbits(63) + 1
