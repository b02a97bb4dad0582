"""Counts the callbacks of a shard that returned, by windows of commit time. The publisher gets these counts with each
acknowledgement. Pure.

The counts include repeats. With the same ``life`` they only rise, over epochs and streams. So a report may be lost with
its stream, or with a publisher that dies before it stores the report: the next report has the same counts or higher
ones. A second count has the updates that were rolled back and are delivered again, because a callback failed or the
epoch ended. The difference of the two counts contains each update once.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from wormhole.audit.delivery_counts import KEPT_LIVES
from wormhole.audit.window_counts import ProcessedCount
from wormhole.model.reads import is_read_source
from wormhole.wire.body import ParsedBody
from wormhole.wire.tally import window_of

__all__ = ["MOST_WINDOWS", "NO_COUNTS", "Counts", "CountsReport", "windows_in"]

MOST_WINDOWS: Final = 1100
"""The most windows that are kept for one shard: a week, as at publishers, and some more. The earliest windows are
dropped first."""


@dataclass(slots=True, frozen=True)
class CountsReport:
    """The counts for one report. ``windows``: those that changed after ``since`` of :meth:`Counts.report`; ``at``: the
    ``since`` of the next report."""

    life: int
    windows: Mapping[int, ProcessedCount]
    at: int = 0


@dataclass(slots=True)
class _Window:
    """The counts of one window. ``rolled_back``: how many of ``updates`` and ``aside`` together are delivered again;
    ``before``: ``updates`` and ``aside`` together at the last acknowledgement or rollback; ``at``: the number of the
    last change.
    """

    updates: int = 0
    aside: int = 0
    aside_hash: int = 0
    rolled_back: int = 0
    before: int = 0
    at: int = 0


class Counts:
    """The delivery counts of one shard in this process. ``life``: 0 if the flow counts nothing."""

    __slots__ = ("_at", "_begun", "_passing", "_windows", "epochs", "life")

    def __init__(self, life: int | None = None) -> None:
        self.life = _new_life() if life is None else life
        """A random number."""
        self.epochs: tuple[int, ...] = ()
        """The last few epochs in which the shard was assigned in this life."""
        self._begun = 0  # the last epoch in which callbacks ran
        self._at = 0  # the number of changes
        self._windows: OrderedDict[int, _Window] = OrderedDict()  # in the order of their last changes
        self._passing: dict[int, _Window] = {}  # windows that changed since the last acknowledgement or rollback

    def assigned(self, epoch: int) -> None:
        """Note that the shard was assigned, whether or not a callback of the epoch ever runs."""
        self.epochs = (*self.epochs, epoch)[-KEPT_LIVES:]

    def begin(self, epoch: int) -> None:
        """Begin an epoch; no callback of an earlier epoch runs any more. Publishers remember a limited number of lives.
        If they may have forgotten this life, another life begins, because its counts would otherwise be added twice.
        """
        if epoch - self._begun > KEPT_LIVES:
            self.life = _new_life()
            self.epochs = (epoch,)
            self._windows.clear()
            self._passing.clear()
        self._begun = epoch
        self.rolled_back()

    def processed(self, windows: Mapping[int, int]) -> None:
        """Count callbacks that returned, by the window of their updates."""
        for window, updates in windows.items():
            self._of(window).updates += updates
        if len(self._windows) > 2 * MOST_WINDOWS:
            self.forget()

    def set_aside(self, window: int, hash_: int) -> None:
        """Count an update as parked or skipped. Its batch is also counted by :meth:`processed`."""
        counts = self._of(window)
        counts.updates -= 1
        counts.aside += 1
        counts.aside_hash = (counts.aside_hash + hash_) % (1 << 64)

    def rolled_back(self) -> None:
        """Count the updates since the last acknowledged datamarker as rolled back: they are delivered again."""
        for window in list(self._passing):
            counts = self._of(window)
            counts.rolled_back += counts.updates + counts.aside - counts.before
        self.acknowledged()

    def acknowledged(self) -> None:
        """Note that all updates counted so far are acknowledged."""
        for counts in self._passing.values():
            counts.before = counts.updates + counts.aside
        self._passing.clear()

    def report(self, since: int = 0) -> CountsReport:
        """The windows that changed after ``since`` (0: all). Afterwards only the latest windows are kept."""
        found: dict[int, ProcessedCount] = {}
        for window in reversed(self._windows):
            counts = self._windows[window]
            if counts.at <= since:
                break
            found[window] = ProcessedCount(max(0, counts.updates), counts.aside, counts.aside_hash, counts.rolled_back)
        self.forget()
        return CountsReport(self.life, found, self._at)

    def forget(self) -> None:
        """Forget the earliest windows beyond the number that is remembered."""
        if len(self._windows) > MOST_WINDOWS:
            for window in sorted(filter(None, self._windows))[: len(self._windows) - MOST_WINDOWS]:
                del self._windows[window]
                self._passing.pop(window, None)

    def _of(self, window: int) -> _Window:
        counts = self._windows.get(window)
        if counts is None:
            counts = self._windows[window] = _Window()
        else:
            self._windows.move_to_end(window)
        self._passing[window] = counts
        self._at += 1
        counts.at = self._at
        return counts


def windows_in(body: ParsedBody, updates: int | None = None) -> dict[int, int]:
    """The number of updates of each window among the first ``updates`` of a body (``None``: in the whole body). Rows of
    a backfill are in no window, because they are not changes.
    """
    count = len(body.updates) if updates is None else updates
    reads = {number for number, source in enumerate(body.sources) if is_read_source(source)}
    if not count or len(reads) == len(body.sources):
        return {}
    if reads:
        return _windows_without(reads, body, count)
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


def _windows_without(reads: Set[int], body: ParsedBody, count: int) -> dict[int, int]:
    """Like :func:`windows_in`, without the transactions whose source is one of ``reads``."""
    found: dict[int, int] = {}
    sources: Sequence[int] = body.tx_source[:]
    for ordinal in range(count):
        tx = body.transaction_of(ordinal)
        if (sources[tx] if len(sources) > 1 else sources[0] if sources else 0) not in reads:
            window = window_of(body.committed_at_us(tx))
            found[window] = found.get(window, 0) + 1
    return found


def _new_life() -> int:
    return secrets.randbits(63) + 1


NO_COUNTS: Final = Counts(life=0)
"""The counts of a flow that is not accepted yet."""
