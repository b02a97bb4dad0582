"""What the benchmark of many flows measures with and how it tells it; its full runs are for ``make bench``."""

from __future__ import annotations

from benchmarks.many_flows import many_flows


def test_a_small_run_measures_everything() -> None:
    run = many_flows(3, "local", rest_s=0.5, rate=50, load_s=0.5, settle=False)
    starts, rest, delays = run.starts, run.rest, run.delays
    assert min(starts.publisher, starts.subscriber, starts.publisher_again, starts.publisher_cpu_s) > 0
    assert rest.publisher_mb > 30
    assert rest.requests_per_s > 0  # it asks whether it has contact
    assert delays is not None
    assert 0 < delays.p50_ms <= delays.p99_ms <= delays.worst_ms
