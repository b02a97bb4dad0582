"""What the benchmark of the relay prints; its runs are for ``make bench CASE=relay``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.binlog import Shape
from benchmarks.relay import frames, smaller

_STACKS = """\
thread (0x1): "MainThread";run (a.py:1);poll (b.py:2) 6
thread (0x1): "MainThread";run (a.py:1);decode (c.py:3) 3
thread (0x2): "relay";write (d.py:4) 1
"""


def test_a_smaller_shape_has_whole_transactions() -> None:
    assert smaller(Shape("S", 100, 500, 2600), 0.5).rows == 1000
    assert smaller(Shape("S", 100, 500, 600), 0.1).rows == 500


def test_a_profile_names_what_is_on_the_processor(tmp_path: Path) -> None:
    profile = tmp_path / "stacks.txt"
    profile.write_text(_STACKS)
    assert frames(profile, 2) == [("poll (b.py:2)", 0.6), ("decode (c.py:3)", 0.3)]
    profile.write_text("")
    assert frames(profile) == []
