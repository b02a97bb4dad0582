"""Delivery counts of one flow: what was delivered and processed, by windows of commit time. Pure.

The publisher stores them together with the datamarker, so they count exactly the updates before it. There is one page
for each window and filter. An acknowledged update is counted once as delivered. Subscribers report every callback that
returned, repeats included. Callbacks beyond the delivered updates are repeats, except callbacks of updates that are not
acknowledged yet (``unacknowledged``) or never will be (``moved_past``).

Pages of ranges record between which places of the log the counts are valid (:class:`RangeKind`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from wormhole.audit.window_counts import DELAY_LIMITS_S, Mismatch, ProcessedCount, WindowCounts, place_numbers
from wormhole.model.json_input import read_json
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, Tally

__all__ = [
    "KEPT_LIVES",
    "KEPT_WINDOWS",
    "DeliveryCounts",
    "Range",
    "RangeKind",
    "is_ahead",
    "is_past",
    "moved_page",
]

KEPT_WINDOWS: Final = 1008
"""The number of windows that are kept: a week. Updates that were committed earlier are not counted."""

KEPT_LIVES: Final = 16
"""How many lives' reports are remembered.

Each epoch belongs to one life. A process that returns after more lives than these begins another life.
"""

_MOST_PAGES: Final = 2 * KEPT_WINDOWS  # pages of all filters together
_MISMATCHES: Final = 20
_RANGES: Final = 20
_MOVES_PAGE: Final = "silent"  # its other fields are of earlier releases
_MOVED_PAGE: Final = "moved"
_WINDOWS_A_DAY: Final = 144

Range = tuple[LogPosition, LogPosition]
"""From the first place (exclusive) to the second (inclusive)."""

_Key = tuple[str, int]  # filter and window


class RangeKind(Enum):
    """The meaning of a range. The value is the name of the stored page."""

    COUNTED = "ranges"
    """Every delivered update is counted."""
    PARTIAL = "partly"
    """A replay delivered only the last change of each key, or only what a filter of its own selected: counts cannot be
    compared.
    """
    REDELIVERED = "again"
    """Counted, and a replay delivered every change a second time, including missing ones."""


def moved_page(epoch: int) -> dict[str, bytes]:
    """The page to store when the flow is moved forwards before ``epoch`` while its counts are not loaded."""
    return {_MOVED_PAGE: json.dumps(epoch).encode()}


class DeliveryCounts:
    """The delivery counts of one flow. ``stored``: the pages that :meth:`changed` returned.

    If a page cannot be read (``unreadable``) all counts begin at 0 again.
    """

    def __init__(self, stored: Mapping[str, bytes] | None = None) -> None:
        self.windows: dict[_Key, WindowCounts] = {}
        self.ranges: dict[RangeKind, dict[str, list[Range]]] = {kind: {} for kind in RangeKind}
        """By filter."""
        self.moved_in = 0
        """The epoch before which the flow was moved forwards last; 0: never."""
        self.unreadable: list[str] = []
        self._lives: dict[int, dict[int, ProcessedCount]] = {}
        self._changed: dict[str, _Key | None] = {}
        moved = self._read(stored or {})
        self._unacknowledged = {key: counts for key, counts in self.windows.items() if counts.unacknowledged}
        self._mismatched = {key: counts for key, counts in self.windows.items() if counts.mismatches}
        if moved:
            self.moved_past(moved)
            self._changed[_MOVED_PAGE] = None

    def counted_to(self, filter_hash: str) -> LogPosition | None:
        """The place up to which deliveries under this filter are counted."""
        return max((end for _, end in self.ranges[RangeKind.COUNTED].get(filter_hash, ())), default=None)

    def acknowledged(
        self,
        filter_hash: str,
        begin: LogPosition,
        end: LogPosition,
        counted: Mapping[int, Tally],
        now_s: float,
        sent_until: LogPosition | None = None,
    ) -> None:
        """The updates between two datamarkers were acknowledged at ``now_s``. ``counted``: those of them that
        :meth:`counted_to` does not cover.

        ``sent_until``: no update after it was sent in an earlier epoch; ``None``: that is not known.
        """
        known = self.ranges[RangeKind.COUNTED].setdefault(filter_hash, [])
        if not known or begin > known[-1][1]:
            known.append((begin, end))
            del known[:-_RANGES]
            self._changed[RangeKind.COUNTED.value] = None
        elif end > known[-1][1]:  # otherwise an idle flow acknowledged the same datamarker again
            known[-1] = (known[-1][0], end)
            self._changed[RangeKind.COUNTED.value] = None
        for window, tally in counted.items():
            counts = self._counts(filter_hash, window, now_s)
            counts.delivered = counts.delivered.plus(tally)
            counts.unacknowledged = max(0, counts.unacknowledged - tally.updates)
            if window:
                late = now_s - (window + 1) * WINDOW_S
                counts.delays[sum(late > limit for limit in DELAY_LIMITS_S)] += tally.updates
        if self._unacknowledged and sent_until is not None and end >= sent_until:
            for key in [key for key in self._unacknowledged if key[0] == filter_hash]:
                self._unacknowledged.pop(key).unacknowledged = 0
                self._changed[_name(key)] = key

    def processed_unacknowledged(self, filter_hash: str, window: int, updates: int, now_s: float) -> None:
        """At most ``updates`` of the reported updates are not acknowledged yet.

        The numbers of several epochs are not added: each epoch begins at the same datamarker.
        """
        counts = self._counts(filter_hash, window, now_s)
        if updates > counts.unacknowledged:
            counts.unacknowledged = updates
            self._unacknowledged[filter_hash, window] = counts

    def processed_further(self, filter_hash: str, window: int, updates: int, now_s: float) -> None:
        """:meth:`processed_unacknowledged`, but added to its count: a reported pass continued without a further
        report.
        """
        before = self._counts(filter_hash, window, now_s).unacknowledged
        self.processed_unacknowledged(filter_hash, window, before + updates, now_s)

    def processed_moved_past(self, filter_hash: str, window: int, updates: int, now_s: float) -> None:
        """At most ``updates`` of the reported updates are not delivered, and perhaps never will be."""
        self._counts(filter_hash, window, now_s).moved_past += updates

    def moved_past(self, epoch: int) -> None:
        """The flow was moved forwards before ``epoch``: reported updates that are not acknowledged may be among those
        that are never delivered.
        """
        self.moved_in = epoch
        self._changed[_MOVES_PAGE] = None
        for key, counts in self._unacknowledged.items():
            counts.moved_past, counts.unacknowledged = counts.moved_past + counts.unacknowledged, 0
            self._changed[_name(key)] = key
        self._unacknowledged.clear()

    def partially_delivered(self, filter_hash: str, begin: LogPosition, end: LogPosition) -> None:
        """Only a part of the updates between two datamarkers was delivered, as requested."""
        self._add_range(RangeKind.PARTIAL, filter_hash, begin, end)

    def redelivered(
        self, filter_hash: str, begin: LogPosition, end: LogPosition, lacking: Collection[int] = ()
    ) -> None:
        """Every change between two datamarkers was delivered. Call it before :meth:`acknowledged`.

        Changes that are counted already were delivered a second time. ``lacking``: windows in which not every callback
        returned.
        """
        counted_to = self.counted_to(filter_hash)
        if counted_to is None or begin >= counted_to:
            return
        self._add_range(RangeKind.REDELIVERED, filter_hash, begin, min(end, counted_to))
        for key, counts in self._mismatched.items():
            if key[0] == filter_hash and key[1] not in lacking:
                for one in counts.mismatches:
                    if begin <= one.redelivered_to < min(end, one.end):
                        one.redelivered_to = min(end, one.end)
                        self._changed[_name(key)] = key

    def is_news(self, life: int, window: int, counted: ProcessedCount) -> bool:
        """Whether some of these counts were not reported yet."""
        return counted.all > self._lives.get(window, {}).get(life, ProcessedCount()).all

    def reported(
        self,
        filter_hash: str,
        life: int,
        windows: Mapping[int, ProcessedCount],
        now_s: float,
        *,
        partial: bool = False,
    ) -> dict[int, int]:
        """Record everything that a subscriber processed or set aside in ``life`` so far.

        Returns how much of each window is new. ``partial``: the new counts are of a partial replay.
        """
        new: dict[int, int] = {}
        for window, counted in windows.items():
            lives = self._lives.setdefault(window, {})
            base = lives.pop(life, ProcessedCount())
            if counted.all < base.all:
                base = ProcessedCount()  # subscribers forget windows that are long past
            lives[life] = counted
            while len(lives) > KEPT_LIVES:
                del lives[next(iter(lives))]
            new[window] = counted.all - base.all
            counts = self._counts(filter_hash, window, now_s)
            counts.lives = lives
            if partial:
                counts.partial += new[window]
            else:
                counts.processed += counted.updates - base.updates
                counts.set_aside += counted.aside - base.aside
                counts.aside_hash = (counts.aside_hash + counted.aside_hash - base.aside_hash) % (1 << 64)
        return new

    def parked_delivered(self, filter_hash: str, window: int, hash_: int, now_s: float) -> None:
        """Record that a parked update was delivered after all."""
        counts = self._counts(filter_hash, window, now_s)
        counts.set_aside -= 1
        counts.aside_hash = (counts.aside_hash - hash_) % (1 << 64)

    def mismatch(self, filter_hash: str, window: int, found: Mismatch, now_s: float) -> None:
        """Record that the sent and the processed updates differ."""
        counts = self._counts(filter_hash, window, now_s)
        self._mismatched[filter_hash, window] = counts
        known = counts.mismatches
        known.append(found)
        if len(known) > _MISMATCHES:
            repaired = next((i for i, one in enumerate(known) if one.is_repaired), None)
            if repaired is not None:
                del known[repaired]
            else:
                known[:2] = [known[0].joined(known[1])]

    def changed(self, now_s: float) -> dict[str, bytes]:
        """The pages that changed since the last call, by name. Pages that are too old are empty."""
        self._prune(now_s)
        names, self._changed = self._changed, {}
        return {name: self._page(name, key) for name, key in names.items()}

    def select(self, first: int, last: int | None) -> Iterator[tuple[str, int, WindowCounts]]:
        """Filter, window and counts, in order, of windows from ``first`` to ``last``."""
        for (filter_hash, window), counts in sorted(self.windows.items(), key=lambda item: item[0]):
            if first <= window and (last is None or window <= last):
                yield filter_hash, window, counts

    # -- inside

    def _counts(self, filter_hash: str, window: int, now_s: float) -> WindowCounts:
        """The counts of a window. Those of a window that is too old are not kept."""
        if is_past(window, now_s):
            return WindowCounts()
        key = (filter_hash, window)
        self._changed[_name(key)] = key
        counts = self.windows.get(key)
        if counts is None:
            counts = self.windows[key] = WindowCounts()
        return counts

    def _add_range(self, kind: RangeKind, filter_hash: str, begin: LogPosition, end: LogPosition) -> None:
        if begin >= end:
            return
        known = self.ranges[kind].setdefault(filter_hash, [])
        if known and begin <= known[-1][1] and known[-1][0] <= end:
            first, last = known.pop()
            begin, end = min(begin, first), max(end, last)
        known.append((begin, end))
        del known[:-_RANGES]
        self._changed[kind.value] = None

    def _prune(self, now_s: float) -> None:
        gone = [key for key in self.windows if is_past(key[1], now_s)]
        if len(self.windows) - len(gone) > _MOST_PAGES:
            gone = sorted(self.windows, key=lambda key: key[1])[:-_MOST_PAGES]
        for key in gone:
            del self.windows[key]
            self._changed[_name(key)] = key
        for kept in (self._unacknowledged, self._mismatched):
            for key in kept.keys() - self.windows.keys():
                del kept[key]
        windows = {window for _, window in self.windows}
        for window in self._lives.keys() - windows:
            del self._lives[window]

    def _page(self, name: str, key: _Key | None) -> bytes:
        if name == _MOVES_PAGE:
            return json.dumps([0, self.moved_in, []], separators=(",", ":")).encode()
        if name in _RANGE_PAGES:
            return _ranges_to_bytes(self.ranges[RangeKind(name)])
        counts = None if key is None else self.windows.get(key)
        return b"" if counts is None else counts.to_bytes()

    def _read(self, stored: Mapping[str, bytes]) -> int:
        """Read all pages. Returns the epoch of :func:`moved_page`, or 0."""
        moved = 0
        for name, data in stored.items():
            try:
                if name == _MOVED_PAGE:
                    moved = int(read_json(data))
                else:
                    self._read_page(name, data)
            except (ValueError, TypeError, KeyError, AttributeError):
                self.unreadable.append(name)
        if self.unreadable:  # without a page, the updates that it counted would seem to be lost
            self.windows.clear()
            self.ranges = {kind: {} for kind in RangeKind}
            self._changed = dict.fromkeys(stored)
        return moved

    def _read_page(self, name: str, data: bytes) -> None:
        if name in _RANGE_PAGES:
            given: dict[str, Any] = read_json(data)
            for filter_hash, ranges in given.items():
                read = [(LogPosition(*begin), LogPosition(*end)) for begin, end in ranges]
                self.ranges[RangeKind(name)][filter_hash] = read
            return
        if name == _MOVES_PAGE:
            _, moved_in, _ = read_json(data)
            self.moved_in = int(moved_in)
            return
        filter_hash, _, number = name.rpartition(".")
        window, counts = int(number), WindowCounts.from_bytes(data)
        self.windows[filter_hash, window] = counts
        lives = self._lives.setdefault(window, {})
        for life, counted in counts.lives.items():
            if life not in lives or counted.all > lives[life].all:
                lives[life] = counted


_RANGE_PAGES: Final = frozenset(kind.value for kind in RangeKind)


def _ranges_to_bytes(by_filter: Mapping[str, Iterable[Range]]) -> bytes:
    places = {
        filter_hash: [[place_numbers(begin), place_numbers(end)] for begin, end in ranges]
        for filter_hash, ranges in by_filter.items()
    }
    return json.dumps(places, separators=(",", ":")).encode()


def _name(key: _Key) -> str:
    return f"{key[0]}.{key[1]}"


def is_ahead(window: int, now_s: float) -> bool:
    """Whether the window begins more than a day from now. No clock is so far off."""
    return window > now_s // WINDOW_S + _WINDOWS_A_DAY


def is_past(window: int, now_s: float) -> bool:
    """Whether delivery counts no longer have the window."""
    return window != 0 and window < now_s // WINDOW_S - KEPT_WINDOWS
