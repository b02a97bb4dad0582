"""What the caravans' benchmark computes and draws; its runs are for ``make bench``."""

from __future__ import annotations

from benchmarks.caravans import worst_second
from benchmarks.metered import Meter
from datastores.memory.source import MemorySource
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op


def test_the_worst_second_is_looked_for_everywhere() -> None:
    assert worst_second([]) == 0
    assert worst_second([(0.0, 5), (0.9, 5), (1.5, 7), (3.0, 1)]) == 12
    assert worst_second([(2.0, 3), (0.0, 9)]) == 9


def test_a_meter_counts_what_each_reader_read() -> None:
    meter = Meter(MemorySource(log="log", sharding=Sharding("log")))
    start = meter.latest()
    end = meter.commit([(Op.UPSERT, "t", b"k", {"value": b"v"})])
    for _ in range(2):
        reader = meter.open(start)
        assert reader.read(1 << 20, 0) is not None
        assert reader.read(1 << 20, 0) is None
        reader.close()
    assert [(number, size) for _, number, size in meter.reads] == [(1, end.order.offset), (2, end.order.offset)]
