"""A flow's books: what was delivered and processed, by windows of commit time. Pure, but for the log's one line.

The publisher keeps them and stores them together with the datamarker, so what they count is exactly what lies before it. A page is of
one window and one filter. Delivered counts each acknowledged update once; processed is what subscribers tell of callbacks that
returned, repeats included. ``ranges`` say between which places of the log all this holds; ``partly`` where a replay delivered the last
change of each key only, or what a filter of its own left: what should have come there is not known, so it is neither counted nor lost. ``again``: where a replay delivered every change a second time, with what
had been missing the first time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from wormhole.position import LogPosition
from wormhole.wire.tally import WINDOW_S, Tally

__all__ = ["DELAY_LIMITS_S", "KEPT_WINDOWS", "Books", "Counted", "Page", "Range", "is_past"]

DELAY_LIMITS_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0, 604800.0)
"""Upper limits of the delays that are told apart; one more has none."""

KEPT_WINDOWS: Final = 1008
"""A week: updates that were committed before are not booked."""

_MOST_PAGES: Final = 2 * KEPT_WINDOWS  # of several filters together
_PROBLEMS: Final = 3
_LIVES: Final = 4
_RANGES: Final = 20
_RANGES_PAGE: Final = "ranges"
_PARTLY_PAGE: Final = "partly"
_AGAIN_PAGE: Final = "again"

Range = tuple[LogPosition, LogPosition]
"""After the first place, up to and with the second."""

Counted = tuple[int, int, int]
"""Of one window: updates whose callback returned, updates that were set aside, and the sum of the hashes of these."""


@dataclass(slots=True)
class Page:
    """``processed``, ``set_aside`` (with ``aside_hash``): repeats included. ``delays``: of delivered updates, how many were acknowledged so
    long after the window's end. ``lives``: what each subscriber's process told last, the latest one at the end. ``partly``: callbacks of
    what was not delivered as the log has it."""

    delivered: Tally = field(default_factory=Tally)
    processed: int = 0
    set_aside: int = 0
    aside_hash: int = 0
    delays: list[int] = field(default_factory=lambda: [0] * (len(DELAY_LIMITS_S) + 1))
    problems: list[str] = field(default_factory=list)
    lives: dict[int, Counted] = field(default_factory=dict)
    partly: int = 0

    def to_bytes(self) -> bytes:
        """The stored form."""
        lives = [[life, *counted] for life, counted in self.lives.items()]
        given = [*self.delivered, self.processed, self.set_aside, self.aside_hash, self.delays, self.problems]
        return json.dumps([*given, lives, self.partly], separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Page:
        """Inverse of :meth:`to_bytes`. Raises ``ValueError``."""
        try:
            updates, hash_, processed, aside, aside_hash, delays, problems, lives, partly = json.loads(data)
            counted = {int(life): (int(u), int(s), int(h)) for life, u, s, h in lives}
            if len(delays) != len(DELAY_LIMITS_S) + 1:
                raise ValueError(f"{len(delays)} delays")
            tally, told = Tally(int(updates), int(hash_)), (int(processed), int(aside), int(aside_hash))
            return cls(tally, *told, delays, list(map(str, problems)), counted, int(partly))
        except (TypeError, ValueError) as error:
            raise ValueError(f"no page of a flow's books: {error}") from error


class Books:
    """Of one flow. ``stored``: as :meth:`changed` gave it once. Where a page cannot be read (``unreadable``) all begin anew."""

    def __init__(self, stored: Mapping[str, bytes] | None = None) -> None:
        self.pages: dict[tuple[str, int], Page] = {}
        self.ranges: dict[str, list[Range]] = {}
        self.partly: dict[str, list[Range]] = {}
        self.again: dict[str, list[Range]] = {}
        self.unreadable: list[str] = []
        self._lives: dict[int, dict[int, Counted]] = {}
        self._changed: dict[str, tuple[str, int] | None] = {}
        for name, data in (stored or {}).items():
            try:
                self._load(name, data)
            except (ValueError, TypeError, KeyError, AttributeError):
                self.unreadable.append(name)
        if self.unreadable:  # what lacks a page would seem to have lost what that counted
            self.pages.clear()
            self.ranges.clear()
            self.partly.clear()
            self.again.clear()
            self._changed = dict.fromkeys(stored or ())

    def counted_to(self, filter_hash: str) -> LogPosition | None:
        """The place up to which deliveries under this filter are counted."""
        return max((end for _, end in self.ranges.get(filter_hash, ())), default=None)

    def acknowledged(
        self, filter_hash: str, begin: LogPosition, end: LogPosition, counted: Mapping[int, Tally], now_s: float
    ) -> None:
        """What lies between two datamarkers was acknowledged at ``now_s``. ``counted``: of it, what :meth:`counted_to` does not cover."""
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
                if window:
                    late = now_s - (window + 1) * WINDOW_S
                    page.delays[sum(late > limit for limit in DELAY_LIMITS_S)] += tally.updates

    def delivered_partly(self, filter_hash: str, begin: LogPosition, end: LogPosition) -> None:
        """Of what lies between two datamarkers only a part was delivered, because that was asked for."""
        if _covered(self.partly, filter_hash, begin, end):
            self._changed[_PARTLY_PAGE] = None

    def delivered_again_between(self, filter_hash: str, begin: LogPosition, end: LogPosition) -> None:
        """A replay delivered every change between two datamarkers; tell it before they are :meth:`acknowledged`. What is counted already came
        a second time."""
        counted_to = self.counted_to(filter_hash)
        if counted_to is not None and _covered(self.again, filter_hash, begin, min(end, counted_to)):
            self._changed[_AGAIN_PAGE] = None

    def told(
        self, filter_hash: str, life: int, windows: Mapping[int, Counted], now_s: float, *, partly: bool = False
    ) -> dict[int, int]:
        """What a subscriber processed or set aside in ``life``, all that came before in that life included. How much of each window that is
        more than was known. ``partly``: what is new are no deliveries that are counted."""
        more: dict[int, int] = {}
        for window, counted in windows.items():
            lives = self._lives.setdefault(window, {})
            base = lives.pop(life, (0, 0, 0))
            if counted[0] + counted[1] < base[0] + base[1]:
                base = (0, 0, 0)  # of windows that are long past subscribers forget
            lives[life] = counted
            while len(lives) > _LIVES:
                del lives[next(iter(lives))]
            more[window] = counted[0] + counted[1] - base[0] - base[1]
            page = self._page(filter_hash, window, now_s)
            if page is None:
                del self._lives[window]
                continue
            page.lives = lives
            if partly:
                page.partly += more[window]
                continue
            page.processed += counted[0] - base[0]
            page.set_aside += counted[1] - base[1]
            page.aside_hash = (page.aside_hash + counted[2] - base[2]) % (1 << 64)
        return more

    def seen(self, filter_hash: str, life: int, updates: Mapping[int, int], now_s: float) -> None:
        """Callbacks of so many updates returned in ``life``, and nobody acknowledged them before the epoch ended."""
        known = {window: self._lives.get(window, {}).get(life, (0, 0, 0)) for window in updates}
        grown = {window: (known[window][0] + more, *known[window][1:]) for window, more in updates.items() if more}
        self.told(filter_hash, life, grown, now_s)

    def delivered_again(self, filter_hash: str, window: int, hash_: int, now_s: float) -> None:
        """A parked update was delivered after all."""
        page = self._page(filter_hash, window, now_s)
        if page is not None:
            page.set_aside -= 1
            page.aside_hash = (page.aside_hash - hash_) % (1 << 64)

    def problem(self, filter_hash: str, window: int, text: str, now_s: float) -> None:
        """What was sent and what was processed differ."""
        page = self._page(filter_hash, window, now_s)
        if page is not None:
            page.problems = [*page.problems, text][-_PROBLEMS:]

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
        kept = {window for _, window in self.pages}
        for window in [window for window in self._lives if window not in kept]:
            del self._lives[window]

    def _load(self, name: str, data: bytes) -> None:
        into = {_RANGES_PAGE: self.ranges, _PARTLY_PAGE: self.partly, _AGAIN_PAGE: self.again}.get(name)
        if into is not None:
            given: dict[str, Any] = json.loads(data)
            for filter_hash, ranges in given.items():
                into[filter_hash] = [(LogPosition(*begin), LogPosition(*end)) for begin, end in ranges]
            return
        filter_hash, _, window = name.rpartition(".")
        page = Page.from_bytes(data)
        self.pages[filter_hash, int(window)] = page
        lives = self._lives.setdefault(int(window), {})
        for life, counted in page.lives.items():
            if life not in lives or sum(counted[:2]) > sum(lives[life][:2]):
                lives[life] = counted


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
        return [[[place.incarnation, place.file, place.offset] for place in both] for both in ranges]

    told = {filter_hash: places(ranges) for filter_hash, ranges in given.items()}
    return json.dumps(told, separators=(",", ":")).encode()


def _name(key: tuple[str, int]) -> str:
    return f"{key[0]}.{key[1]}"


def is_past(window: int, now_s: float) -> bool:
    """Whether books have nothing of the window any more."""
    return window != 0 and window < now_s // WINDOW_S - KEPT_WINDOWS
