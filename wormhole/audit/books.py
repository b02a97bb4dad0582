"""A flow's books: what was delivered and processed, by windows of commit time. Pure.

The publisher keeps them and stores them together with the datamarker, so what they count is exactly what lies before
it. A page is of one window and one filter. Delivered counts each acknowledged update once; processed is what
subscribers tell of callbacks that returned, repeats included. So what is above the delivered ones are repeats, but for
two things that are counted apart: ``ahead``, callbacks that were told of updates which are not acknowledged yet, and
``unheard``, callbacks that may have run in a process that was cut off.

``ranges`` say between which places of the log all this holds; ``partly`` where a replay delivered the last change of
each key only, or what a filter of its own left: what should have come there is not known, so it is neither counted nor
lost. ``again``: where every change was delivered a second time, with what had been missing the first time. ``silent``:
what somebody may have processed who was cut off together with the publisher, by the epoch in which that was.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from wormhole.audit.book_page import DELAY_LIMITS_S, Counted, Page, Problem, place_numbers
from wormhole.model.json_input import read_json
from wormhole.model.position import LogPosition
from wormhole.wire.tally import WINDOW_S, Tally

__all__ = [
    "KEPT_LIVES",
    "KEPT_WINDOWS",
    "Books",
    "Range",
    "is_ahead",
    "is_past",
    "moves_past",
]

KEPT_WINDOWS: Final = 1008
"""A week: updates that were committed before are not booked."""

KEPT_LIVES: Final = 16
"""Of how many lives it is remembered what they told.

Each epoch is of one: who comes back after more of them begins another life.
"""

_MOST_PAGES: Final = 2 * KEPT_WINDOWS  # of several filters together
_PROBLEMS: Final = 20
_RANGES: Final = 20
_RANGES_PAGE: Final = "ranges"
_PARTLY_PAGE: Final = "partly"
_AGAIN_PAGE: Final = "again"
_SILENT_PAGE: Final = "silent"
_MOVED_PAGE: Final = "moved"
_WINDOWS_A_DAY: Final = 144
_FORGOTTEN: Final = 0  # stands for lives, and for epochs, that are not told apart any more

Range = tuple[LogPosition, LogPosition]
"""After the first place, up to and with the second."""


def moves_past(epoch: int) -> dict[str, bytes]:
    """A flow is moved forwards before ``epoch``, by somebody who may not have read its books: the page that tells who
    does.
    """
    return {_MOVED_PAGE: json.dumps(epoch).encode()}


class Books:
    """Of one flow. ``stored``: as :meth:`changed` gave it once.

    Where a page cannot be read (``unreadable``) all begin anew.
    """

    def __init__(self, stored: Mapping[str, bytes] | None = None) -> None:
        self.pages: dict[tuple[str, int], Page] = {}
        self.ranges: dict[str, list[Range]] = {}
        self.partly: dict[str, list[Range]] = {}
        self.again: dict[str, list[Range]] = {}
        self.silent: dict[int, tuple[str, Range]] = {}
        self.heard_to = 0
        """Up to and with this epoch all is told, or known not to be; 0: these books are new."""
        self.moved_in = 0
        """The epoch before which the flow was moved forwards last; 0: never."""
        self.unreadable: list[str] = []
        self._moves_in = 0
        self._lives: dict[int, dict[int, Counted]] = {}
        self._changed: dict[str, tuple[str, int] | None] = {}
        for name, data in (stored or {}).items():
            try:
                self._load(name, data)
            except (ValueError, TypeError, KeyError, AttributeError):
                self.unreadable.append(name)
        if self.unreadable:  # what lacks a page would seem to have lost what that counted
            for kept in (self.pages, self.ranges, self.partly, self.again, self.silent):
                kept.clear()
            self._changed = dict.fromkeys(stored or ())
        self._ahead = {key for key, page in self.pages.items() if page.ahead}
        self._unheard = {life for page in self.pages.values() for life in page.unheard}
        self._broken = {key for key, page in self.pages.items() if page.problems}
        if self._moves_in:
            self.moved_past(self._moves_in)
            self._changed[_MOVED_PAGE] = None

    def counted_to(self, filter_hash: str) -> LogPosition | None:
        """The place up to which deliveries under this filter are counted."""
        return max((end for _, end in self.ranges.get(filter_hash, ())), default=None)

    def acknowledged(
        self,
        filter_hash: str,
        begin: LogPosition,
        end: LogPosition,
        counted: Mapping[int, Tally],
        now_s: float,
        sent_until: LogPosition | None = None,
    ) -> None:
        """What lies between two datamarkers was acknowledged at ``now_s``. ``counted``: of it, what :meth:`counted_to`
        does not cover.

        ``sent_until``: nothing behind it was sent in an earlier epoch; ``None``: that is not known."""
        known = self.ranges.setdefault(filter_hash, [])
        if known and begin <= known[-1][1]:
            known[-1] = (known[-1][0], max(end, known[-1][1]))
        else:
            known.append((begin, end))
            del known[:-_RANGES]
        self._changed[_RANGES_PAGE] = None
        for window, tally in counted.items():
            page = self._page(filter_hash, window, now_s)
            if page is not None:
                page.delivered = page.delivered.plus(tally)
                page.ahead = max(0, page.ahead - tally.updates)
                if window:
                    late = now_s - (window + 1) * WINDOW_S
                    page.delays[sum(late > limit for limit in DELAY_LIMITS_S)] += tally.updates
        if self._ahead and sent_until is not None and end >= sent_until:
            for key in [key for key in self._ahead if key[0] == filter_hash]:
                self.pages[key].ahead = 0
                self._changed[_name(key)] = key
                self._ahead.discard(key)

    def processed_ahead(self, filter_hash: str, window: int, updates: int, now_s: float) -> None:
        """Of what was told so many updates, at most, are not delivered yet. Those of several epochs are not added up:
        each begins at the same datamarker.
        """
        page = self._page(filter_hash, window, now_s)
        if page is not None and updates > page.ahead:
            page.ahead = updates
            self._ahead.add((filter_hash, window))

    def moved_past(self, epoch: int) -> None:
        """The flow was moved forwards before ``epoch``: what was told of updates that are not delivered yet is perhaps
        of those that never will be.
        """
        self.moved_in = epoch
        self._changed[_SILENT_PAGE] = None
        for key in self._ahead:
            page = self.pages[key]
            page.stray, page.ahead = page.stray + page.ahead, 0
            self._changed[_name(key)] = key
        self._ahead.clear()

    def processed_further(self, filter_hash: str, window: int, updates: int, now_s: float) -> None:
        """As :meth:`processed_ahead`, added to it: a reported pass continued without a further report."""
        page = self.pages.get((filter_hash, window))
        self.processed_ahead(filter_hash, window, updates + (0 if page is None else page.ahead), now_s)

    def processed_astray(self, filter_hash: str, window: int, updates: int, now_s: float) -> None:
        """Of what was told so many updates, at most, are not delivered, and perhaps never will be."""
        page = self._page(filter_hash, window, now_s)
        if page is not None:
            page.stray += updates

    def delivered_partly(self, filter_hash: str, begin: LogPosition, end: LogPosition) -> None:
        """Of what lies between two datamarkers only a part was delivered, because that was asked for."""
        if _covered(self.partly, filter_hash, begin, end):
            self._changed[_PARTLY_PAGE] = None

    def delivered_again_between(
        self, filter_hash: str, begin: LogPosition, end: LogPosition, lacking: Collection[int] = ()
    ) -> None:
        """Every change between two datamarkers was delivered; tell it before they are :meth:`acknowledged`. What is
        counted already came a second time. ``lacking``: windows in which callbacks of it did not return.
        """
        counted_to = self.counted_to(filter_hash)
        if counted_to is None or begin >= counted_to:
            return
        if _covered(self.again, filter_hash, begin, min(end, counted_to)):
            self._changed[_AGAIN_PAGE] = None
        for key in self._broken:
            if key[0] == filter_hash and key[1] not in lacking:
                for problem in self.pages[key].problems:
                    if begin <= problem.redone < min(end, problem.end):
                        problem.redone = min(end, problem.end)
                        self._changed[_name(key)] = key

    def is_news(self, life: int, window: int, counted: Counted) -> bool:
        """Whether that much was not told yet."""
        return counted.all > self._lives.get(window, {}).get(life, Counted()).all

    def told(
        self, filter_hash: str, life: int, windows: Mapping[int, Counted], now_s: float, *, partly: bool = False
    ) -> dict[int, int]:
        """What a subscriber processed or set aside in ``life``, all that came before in that life included. How much of
        each window that is more than was known. ``partly``: what is new are no deliveries that are counted.
        """
        more: dict[int, int] = {}
        for window, counted in windows.items():
            lives = self._lives.setdefault(window, {})
            base = lives.pop(life, Counted())
            if counted.all < base.all:
                base = Counted()  # of windows that are long past subscribers forget
            lives[life] = counted
            while len(lives) > KEPT_LIVES:
                del lives[next(iter(lives))]
            more[window] = counted.all - base.all
            page = self._page(filter_hash, window, now_s)
            if page is None:
                del self._lives[window]
                continue
            page.lives = lives
            if partly:
                page.partly += more[window]
                continue
            page.processed += counted.updates - base.updates
            page.set_aside += counted.aside - base.aside
            page.aside_hash = (page.aside_hash + counted.aside_hash - base.aside_hash) % (1 << 64)
        return more

    def cut_off(self, filter_hash: str, life: int, windows: Mapping[int, int], now_s: float) -> None:
        """So many callbacks at most may have run in ``life`` beyond what it told."""
        for window, updates in windows.items():
            page = self._page(filter_hash, window, now_s) if updates else None
            if page is not None:
                page.unheard[life] = updates  # whatever was unheard before, it told as it took the flow
                self._unheard.add(life)
                if len(page.unheard) > KEPT_LIVES:
                    oldest = next(one for one in page.unheard if one != _FORGOTTEN)
                    page.unheard[_FORGOTTEN] = page.unheard.get(_FORGOTTEN, 0) + page.unheard.pop(oldest)

    def silent_in(self, epoch: int, filter_hash: str, begin: LogPosition, end: LogPosition) -> None:
        """Somebody may have processed what lies between, and nobody told."""
        if end <= begin:
            return
        self.silent[epoch] = (filter_hash, (begin, end))
        while len(self.silent) > _RANGES:
            del self.silent[min(self.silent)]
        self._changed[_SILENT_PAGE] = None

    def heard(self, life: int, epochs: Iterable[int]) -> None:
        """``life``, which had the flow in ``epochs``, tells all that it ever did."""
        if life in self._unheard:
            self._unheard.discard(life)
            for key, page in self.pages.items():
                if page.unheard.pop(life, None) is not None:
                    self._changed[_name(key)] = key
        for epoch in epochs:
            if self.silent.pop(epoch, None) is not None:
                self._changed[_SILENT_PAGE] = None

    def all_heard_to(self, epoch: int) -> None:
        """What may have been processed up to and with ``epoch`` is told or noted."""
        if epoch > self.heard_to:
            self.heard_to = epoch
            self._changed[_SILENT_PAGE] = None

    def delivered_again(self, filter_hash: str, window: int, hash_: int, now_s: float) -> None:
        """A parked update was delivered after all."""
        page = self._page(filter_hash, window, now_s)
        if page is not None:
            page.set_aside -= 1
            page.aside_hash = (page.aside_hash - hash_) % (1 << 64)

    def problem(self, filter_hash: str, window: int, problem: Problem, now_s: float) -> None:
        """What was sent and what was processed differ."""
        page = self._page(filter_hash, window, now_s)
        if page is not None:
            page.problems.append(problem)
            self._broken.add((filter_hash, window))
            if len(page.problems) > _PROBLEMS:
                repaired = next((i for i, one in enumerate(page.problems) if one.is_repaired), None)
                if repaired is not None:
                    del page.problems[repaired]
                else:
                    page.problems[:2] = [page.problems[0].joined(page.problems[1])]

    def changed(self, now_s: float) -> dict[str, bytes]:
        """The pages to store, by name, since this was asked last; those that are too old are empty."""
        self._prune(now_s)
        names, self._changed = self._changed, {}
        found: dict[str, bytes] = {}
        for name, key in names.items():
            if name == _RANGES_PAGE:
                found[name] = _ranges_to_bytes(self.ranges)
            elif name == _PARTLY_PAGE:
                found[name] = _ranges_to_bytes(self.partly)
            elif name == _AGAIN_PAGE:
                found[name] = _ranges_to_bytes(self.again)
            elif name == _SILENT_PAGE:
                found[name] = self._silent_to_bytes()
            elif name == _MOVED_PAGE:
                found[name] = b""  # done
            else:
                page = self.pages.get(key) if key is not None else None
                found[name] = b"" if page is None else page.to_bytes()
        return found

    def select(self, first: int, last: int | None) -> Iterator[tuple[str, int, Page]]:
        """Filter, window and page, in order, of windows from ``first`` to ``last``."""
        for (filter_hash, window), page in sorted(self.pages.items(), key=lambda item: item[0]):
            if first <= window and (last is None or window <= last):
                yield filter_hash, window, page

    # -- inside

    def _page(self, filter_hash: str, window: int, now_s: float) -> Page | None:
        if is_past(window, now_s):
            return None
        key = (filter_hash, window)
        self._changed[_name(key)] = key
        page = self.pages.get(key)
        if page is None:
            page = self.pages[key] = Page()
        return page

    def _prune(self, now_s: float) -> None:
        gone = [key for key in self.pages if is_past(key[1], now_s)]
        if len(self.pages) - len(gone) > _MOST_PAGES:
            gone = sorted(self.pages, key=lambda key: key[1])[:-_MOST_PAGES]
        for key in gone:
            del self.pages[key]
            self._changed[_name(key)] = key
            self._ahead.discard(key)
            self._broken.discard(key)
        kept = {window for _, window in self.pages}
        for window in [window for window in self._lives if window not in kept]:
            del self._lives[window]

    def _load(self, name: str, data: bytes) -> None:
        into = {_RANGES_PAGE: self.ranges, _PARTLY_PAGE: self.partly, _AGAIN_PAGE: self.again}.get(name)
        if into is not None:
            given: dict[str, Any] = read_json(data)
            for filter_hash, ranges in given.items():
                into[filter_hash] = [(LogPosition(*begin), LogPosition(*end)) for begin, end in ranges]
            return
        if name == _MOVED_PAGE:
            self._moves_in = int(read_json(data))
            return
        if name == _SILENT_PAGE:
            heard_to, moved_in, silent = read_json(data)
            for epoch, filter_hash, begin, end in silent:
                self.silent[int(epoch)] = (str(filter_hash), (LogPosition(*begin), LogPosition(*end)))
            self.heard_to, self.moved_in = int(heard_to), int(moved_in)
            return
        filter_hash, _, window = name.rpartition(".")
        page = Page.from_bytes(data)
        self.pages[filter_hash, int(window)] = page
        lives = self._lives.setdefault(int(window), {})
        for life, counted in page.lives.items():
            if life not in lives or counted.all > lives[life].all:
                lives[life] = counted

    def _silent_to_bytes(self) -> bytes:
        ranges = [
            [epoch, filter_hash, place_numbers(begin), place_numbers(end)]
            for epoch, (filter_hash, (begin, end)) in self.silent.items()
        ]
        return json.dumps([self.heard_to, self.moved_in, ranges], separators=(",", ":")).encode()


def _covered(by_filter: dict[str, list[Range]], filter_hash: str, begin: LogPosition, end: LogPosition) -> bool:
    """Note the range; whether there is one."""
    if begin >= end:
        return False
    known = by_filter.setdefault(filter_hash, [])
    if known and begin <= known[-1][1] and known[-1][0] <= end:
        begin, end = min(begin, known[-1][0]), max(end, known[-1][1])
        del known[-1]
    known.append((begin, end))
    del known[:-_RANGES]
    return True


def _ranges_to_bytes(given: Mapping[str, Iterable[Range]]) -> bytes:
    def places(ranges: Iterable[Range]) -> Collection[object]:
        return [[place_numbers(place) for place in both] for both in ranges]

    told = {filter_hash: places(ranges) for filter_hash, ranges in given.items()}
    return json.dumps(told, separators=(",", ":")).encode()


def _name(key: tuple[str, int]) -> str:
    return f"{key[0]}.{key[1]}"


def is_ahead(window: int, now_s: float) -> bool:
    """Whether the window is not to come for more than a day: no clock is so wrong."""
    return window > now_s // WINDOW_S + _WINDOWS_A_DAY


def is_past(window: int, now_s: float) -> bool:
    """Whether books have nothing of the window any more."""
    return window != 0 and window < now_s // WINDOW_S - KEPT_WINDOWS
