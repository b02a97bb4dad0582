"""Counts and checksums of updates, by window of commit time, to compare archived, sent and processed updates.

The checksum is the sum of the updates' hashes. So it does not depend on the order, and checksums of disjoint sets add
up. If exactly one update is missing, the difference is that update's hash. The hash of an update is the 64-bit hash of
its transaction, multiplied by the update's index + 1. So a transaction whose indexes count up costs one multiplication.
Hot: compiled where possible.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from wormhole.model.segment import Run

__all__ = [
    "WINDOW_S",
    "Tally",
    "added",
    "tally_columns",
    "tally_rows",
    "tally_run",
    "total",
    "update_hash",
    "window_of",
]

WINDOW_S: Final = 600
"""Length of a window in seconds; window ``n`` begins ``n`` such lengths after 1970.

Updates without a time are in window 0."""

_WINDOW_US: Final = 600_000_000
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_FIRST: Final = 0xBF58_476D_1CE4_E5B9
_SECOND: Final = 0x94D0_49BB_1331_11EB


class Tally(NamedTuple):
    """The number of updates, and the sum of their hashes modulo 2**64."""

    updates: int = 0
    hash: int = 0

    def plus(self, other: Tally) -> Tally:
        """The tally of the union of both sets, which have no update in common."""
        return Tally(self.updates + other.updates, (self.hash + other.hash) & _MASK)

    def minus(self, other: Tally) -> Tally:
        """The tally without the updates of ``other``; the count may be negative."""
        return Tally(self.updates - other.updates, (self.hash - other.hash) & _MASK)


def window_of(committed_at_us: int) -> int:
    """The window of a commit time in microseconds since 1970."""
    return committed_at_us // _WINDOW_US


@lru_cache(1024)
def _salt(source: str) -> int:
    return int.from_bytes(sha256(source.encode()).digest()[:8], "big")


def _mixed(number: int) -> int:
    """A 64-bit hash of a 64-bit number (the finaliser of splitmix64)."""
    number = ((number ^ (number >> 30)) * _FIRST) & _MASK
    number = ((number ^ (number >> 27)) * _SECOND) & _MASK
    return number ^ (number >> 31)


def update_hash(source: str, number: int, index: int) -> int:
    """The hash of update ``<source>:<number>:<index>``.

    A negative ``number`` is the two's complement of one of 64 bits."""
    return (_mixed((number & _MASK) ^ _salt(source)) * (index + 1)) & _MASK


def tally_columns(
    sources: Iterable[str],
    tx_source: array[int],
    tx_number: array[int],
    tx_committed_at_us: array[int],
    tx_end: array[int],
    indexes: array[int],
    first_index: int,
    updates: int,
) -> dict[int, Tally]:
    """The tallies by window of updates in columns like those of :class:`~wormhole.model.segment.Run` (arrays ``I``,
    ``Q``, ``q``, ``I``, ``I``).

    A single entry in ``tx_source`` or ``tx_committed_at_us`` is for all transactions, as in a batch body.
    """
    found: dict[int, Tally] = {}
    transactions, ended = len(tx_number), len(tx_end)
    if not transactions:
        return found
    # The .pxd declares the types of these names.
    salts, numbers, times, ends = array("Q", map(_salt, sources)), tx_number, tx_committed_at_us, tx_end
    tx_sources, index, first = tx_source, indexes, first_index
    many_sources, many_times, scattered = len(tx_source) > 1, len(tx_committed_at_us) > 1, len(indexes) > 0
    salt = salts[tx_sources[0] if len(tx_source) else 0]
    window = present = times[0] // _WINDOW_US
    count = sum_ = begin = 0
    for tx in range(transactions):
        end = ends[tx] if tx < ended else updates
        size = end - begin
        if size:
            if many_times:
                window = times[tx] // _WINDOW_US
                if window != present:
                    _note(found, present, count, sum_)
                    present, count, sum_ = window, 0, 0
            if many_sources:
                salt = salts[tx_sources[tx]]
            weight = size
            if scattered:
                for i in range(begin, end):
                    weight += index[i]
            else:
                weight += size * (size - 1) // 2
                if tx == 0:
                    weight += size * first
            count += size
            sum_ = (sum_ + _mixed(numbers[tx] ^ salt) * weight) & _MASK
        begin = end
    _note(found, present, count, sum_)
    return found


def _note(found: dict[int, Tally], window: int, count: int, sum_: int) -> None:
    if count:
        found[window] = found.get(window, Tally()).plus(Tally(count, sum_))


def tally_run(run: Run) -> dict[int, Tally]:
    """The tallies by window of all updates of a run."""
    return tally_columns(
        run.sources,
        run.tx_source,
        run.tx_number,
        run.tx_committed_at_us,
        run.tx_end,
        run.indexes,
        run.first_index,
        len(run.ends),
    )


def tally_rows(
    sources: Iterable[str], numbers: Iterable[int], indexes: Iterable[int], committed_at_us: Iterable[int | None]
) -> dict[int, Tally]:
    """The tallies by window of single updates, as in an archive: their ids in three parts, and their commit times."""
    found: dict[int, Tally] = {}
    present = count = sum_ = 0
    of: tuple[str, int] | None = None
    mixed = 0
    for source, number, index, at in zip(sources, numbers, indexes, committed_at_us, strict=True):
        window = (at or 0) // _WINDOW_US
        if window != present:
            _note(found, present, count, sum_)
            present, count, sum_ = window, 0, 0
        if of != (source, number):
            of = (source, number)
            mixed = _mixed((number & _MASK) ^ _salt(source))
        count += 1
        sum_ += mixed * (index + 1)
    _note(found, present, count, sum_ & _MASK)
    return {window: Tally(tally.updates, tally.hash & _MASK) for window, tally in found.items()}


def added(into: dict[int, Tally], more: Mapping[int, Tally]) -> None:
    """Add ``more`` to ``into``. The two have no update in common."""
    for window, tally in more.items():
        into[window] = into.get(window, Tally()).plus(tally)


def total(tallies: Mapping[int, Tally]) -> Tally:
    """The tally of all windows together."""
    return Tally(sum(one.updates for one in tallies.values()), sum(one.hash for one in tallies.values()) & _MASK)
