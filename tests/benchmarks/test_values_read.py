"""The headline's subscriber reads every value, and a run in which it did not is no figure."""

from __future__ import annotations

import pytest

from benchmarks.cases import BenchmarkError, filled_store, throughput, values_read


def test_values_are_checked_against_what_was_written() -> None:
    values_read({"values": [7]}, "values", 7)
    values_read({"values": [0]}, "transport", 7)
    with pytest.raises(BenchmarkError, match="read 6 values of 7"):
        values_read({"values": [6]}, "single values", 7)


@pytest.mark.parametrize("mode", ["values", "single values", "transport"])
def test_each_mode_receives_a_log(mode: str) -> None:
    with filled_store(20_000, 100, 10) as folder:
        assert throughput(folder, mode, 20_000, 100).updates_per_s > 0
