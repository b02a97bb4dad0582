from __future__ import annotations

from spark_replay.replay.progress import Pace, Progress
from wormhole.cli.replaying import bar


def test_the_bar_says_how_far_how_fast_and_for_how_long() -> None:
    pace = Pace()
    pace.look(0.0, 0, 1000, 0, 0, (0, 2))
    text = bar(pace.look(10.0, 250, 1000, 12_340, 5 << 20, (1, 2)))
    assert text == "[######..................]  25%  12,340 updates  1,234/s  512 KiB/s  30s left  1 of 2 flows done"


def test_at_the_end_nothing_is_left() -> None:
    assert "left" not in bar(Progress(10, 10, 10, 10, 1.0, 1.0, 0.0, (1, 1)))
