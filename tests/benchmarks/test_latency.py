"""What the benchmark of latency measures with and how it tells it; its loads are for ``make bench CASE=latency``."""

from __future__ import annotations

from benchmarks.latency import Load, latency


def test_every_delivery_is_measured_and_paid_for() -> None:
    found = latency(Load(applications=2, rate=40, size=100, seconds=1))
    assert 0 < found.p50_ms <= found.p99_ms <= found.worst_ms
    assert found.publisher_us > 0 < found.subscriber_us
    assert found.messages_per_s >= 2
    assert found.updates_per_batch >= 1
    assert found.publisher_switches_per_s > 0 < found.subscriber_switches_per_s
