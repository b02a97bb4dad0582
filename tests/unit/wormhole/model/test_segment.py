"""What a segment says of its size."""

from __future__ import annotations

from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder

PLACE = LogPosition(1, 1, 0)


def test_size_and_updates_count_every_run() -> None:
    builder = RunsBuilder()
    builder.begin("s", 1, 0, PLACE)
    row = encode_row(Op.DELETE, (b"k",))
    builder.add(("a", "b"), Schema("t", (), ()), row)
    builder.add(("a",), Schema("t", (), ()), row)
    builder.end(LogPosition(1, 1, 9))
    segment = Segment(PLACE, LogPosition(1, 1, 9), builder.take(), None, 9)
    assert segment.updates == 3
    assert segment.runs["a"].updates == 2
    assert segment.size == 3 * (len(row) + 2 + 8) + 2 * 40


def test_a_segment_without_updates_takes_no_room() -> None:
    segment = Segment(PLACE, PLACE, {}, None, 100)
    assert (segment.size, segment.updates) == (0, 0)
