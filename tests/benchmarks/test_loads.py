"""What the benchmarks of loads measure with; their full loads are for ``make bench``."""

from __future__ import annotations

import pytest

from benchmarks import many_flows
from benchmarks.caravans import worst_second
from benchmarks.cases import BenchmarkError, filled_store, throughput, values_read
from benchmarks.latency import Load, latency
from benchmarks.metered import Meter
from datastores.memory.source import MemorySource
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op

# --- caravans: what the caravans' benchmark computes and draws; its runs are for ``make bench`` ---


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


# --- latency ---


def test_every_delivery_is_measured_and_paid_for() -> None:
    found = latency(Load(applications=2, rate=40, size=100, seconds=1))
    assert 0 < found.p50_ms <= found.p99_ms <= found.worst_ms
    assert found.publisher_us > 0 < found.subscriber_us
    assert found.messages_per_s >= 2
    assert found.updates_per_batch >= 1
    assert found.publisher_switches_per_s > 0 < found.subscriber_switches_per_s


# --- many flows ---


def test_a_small_run_measures_everything() -> None:
    run = many_flows.many_flows(3, "local", rest_s=0.5, rate=50, load_s=0.5, settle=False)
    starts, rest, delays = run.starts, run.rest, run.delays
    assert min(starts.publisher, starts.subscriber, starts.publisher_again, starts.publisher_cpu_s) > 0
    assert rest.publisher_mb > 30
    assert rest.requests_per_s > 0  # it asks whether it has contact
    assert delays is not None
    assert 0 < delays.p50_ms <= delays.p99_ms <= delays.worst_ms


# --- values read: the headline's subscriber reads every value, and a run in which it did not is no figure ---


def test_values_are_checked_against_what_was_written() -> None:
    values_read({"values": [7]}, "values", 7)
    values_read({"values": [0]}, "transport", 7)
    with pytest.raises(BenchmarkError, match="read 6 values of 7"):
        values_read({"values": [6]}, "single values", 7)


@pytest.mark.parametrize("mode", ["values", "single values", "transport"])
def test_each_mode_receives_a_log(mode: str) -> None:
    with filled_store(20_000, 100, 10) as folder:
        assert throughput(folder, mode, 20_000, 100).updates_per_s > 0
