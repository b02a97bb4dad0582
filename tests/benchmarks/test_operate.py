"""What the benchmark of operation measures with and how it tells it; its runs are for ``make bench CASE=operate``."""

from __future__ import annotations

import os

from benchmarks.operate import imported, resident_mb


def test_memory_is_in_megabytes_and_the_anonymous_part_is_a_part() -> None:
    resident, anonymous = resident_mb(os.getpid())
    assert 5 < anonymous < resident < 5000
    bare = imported("")
    assert 3 < bare.resident_mb < resident
    assert bare.seconds > 0
