"""What the benchmark of many flows measures with and how it tells it; its full runs are for ``make bench``."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import many_flows_report as module
from benchmarks.many_flows import Delays, Rest, Run, Starts, configuration, many_flows
from wormhole.config import load


def test_its_configuration_is_accepted(tmp_path: Path) -> None:
    config = load(configuration(tmp_path, "127.0.0.1:2181/bench", 12, "zookeeper"))
    assert list(config.datasets["bench"].copies["main"].logs) == ["db"]
    assert config.publisher.markers == "zookeeper"


def test_a_small_run_measures_everything() -> None:
    run = many_flows(3, "local", rest_s=0.5, rate=50, load_s=0.5, settle=False)
    starts, rest, delays = run.starts, run.rest, run.delays
    assert min(starts.publisher, starts.subscriber, starts.publisher_again, starts.publisher_cpu_s) > 0
    assert rest.publisher_mb > 30
    assert rest.requests_per_s > 0  # it asks whether it has contact
    assert delays is not None
    assert 0 < delays.p50_ms <= delays.p99_ms <= delays.worst_ms


def _run(flows: int, p99_ms: float | None, mb: float, started_s: float) -> Run:
    delays = None if p99_ms is None else Delays(p99_ms / 2, p99_ms, p99_ms, 0.5, 0.1)
    return Run(flows, Starts(started_s, started_s, started_s, 1.0), Rest(2.0, 1.0, 7.0, mb), delays)


def test_every_target_is_beside_its_figure(capsys: pytest.CaptureFixture[str]) -> None:
    module._print([_run(1, 4.0, 80.0, 1.0)], [_run(1024, 8.0, 110.0, 2.5)], [_run(1000, None, 90.0, 2.5)])
    rows = capsys.readouterr().out.splitlines()
    assert any("subscriber's start" in row and "< 2 MISSED, < 3 met" in row for row in rows)
    assert any("at rest, publisher" in row and "< 3 met, < 5 met" in row for row in rows)
    assert any("each flow" in row and "29.3" in row and "< 16 MISSED, < 16 met" in row for row in rows)
    assert any("2.00 times one flow's p99: < 1.5 MISSED" in row for row in rows)
