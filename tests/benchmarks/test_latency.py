"""What the benchmark of latency measures with and how it tells it; its loads are for ``make bench CASE=latency``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import latency_report as module
from benchmarks.latency import Latency, Load, latency


def test_every_delivery_is_measured_and_paid_for() -> None:
    found = latency(Load(applications=2, rate=40, size=100, seconds=1))
    assert 0 < found.p50_ms <= found.p99_ms <= found.worst_ms
    assert found.publisher_us > 0 < found.subscriber_us
    assert found.messages_per_s >= 2
    assert found.updates_per_batch >= 1
    assert found.publisher_switches_per_s > 0 < found.subscriber_switches_per_s


def test_every_load_has_a_row_with_what_is_wanted_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = Latency(1.0, 2.0, 3.0, 0.5, 0.4, 10.0, 9.0, 100.0, 2.5, 1.0, 500.0, 400.0, 80.0, 1.5)
    asked: list[Load] = []

    def measured(load: Load, profile: object) -> Latency:
        asked.append(load)
        return replace(one, publisher_cores=0.5 + load.filtered / 100)

    monkeypatch.setattr(module, "latency", measured)
    rows = module.latency_report(2, 1.0, lambda name: None)
    assert [load.applications for load in asked] == 2 * [1, 1, 20, 40, 100, 1]
    assert [len(row["runs"]) for row in rows] == 6 * [2]
    assert rows[-1]["percent_of_a_core_each"] == pytest.approx([1.0, 1.0])
    printed = capsys.readouterr().out
    assert "20 x 2,000/s of 2,500 B" in printed
    assert "1.00 (1.00 - 1.00) % of a core" in printed
