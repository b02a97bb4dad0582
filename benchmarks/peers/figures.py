"""Computes the figures of the table from the measured runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.measure import Run

__all__ = ["Figures", "figures", "microseconds_a_row", "ratio", "spread"]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of each round: rows a second from the first row to the last, microseconds of processor time a row,
    and MiB of memory.
    """

    rows_per_s: tuple[float, ...]
    us_a_row: tuple[float, ...]
    peak_mib: tuple[float, ...] = ()


def microseconds_a_row(small: Run, large: Run) -> float:
    """Microseconds for each row that ``large`` read beyond ``small``: what both do once is not counted."""
    return (large.cpu_s - small.cpu_s) / (large.rows - small.rows) * 1e6


def figures(rounds: Sequence[tuple[Run, Run]]) -> Figures:
    """The figures of pairs of runs over N and 2N rows; the rate is that of the large run."""
    return Figures(
        tuple(large.rows / large.seconds for _, large in rounds),
        tuple(microseconds_a_row(small, large) for small, large in rounds),
        tuple(large.peak_mib for _, large in rounds),
    )


def ratio(ours: Figures, theirs: Figures) -> tuple[float, ...]:
    """The ratio of both rates in each round."""
    return tuple(one / other for one, other in zip(ours.rows_per_s, theirs.rows_per_s, strict=False))


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median, and the least and the greatest."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} - {high:,.{digits}f})"
