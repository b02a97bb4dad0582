"""What the benchmark of existing rows prints; its runs are for ``make bench CASE=existing_rows``."""

from __future__ import annotations

from benchmarks.existing_rows import quantile


def test_a_quantile_is_a_value_and_of_nothing_is_none() -> None:
    assert quantile([3.0, 1.0, 2.0, 4.0], 0.5) == 3.0
    assert quantile(range(100), 0.99) == 99
    assert quantile([], 0.99) != quantile([], 0.99)
