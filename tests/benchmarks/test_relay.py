"""What the benchmark of the relay prints; its runs are for ``make bench CASE=relay``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import relay, relay_report
from benchmarks.peers.binlog import Shape
from benchmarks.relay import Delays, Delivered, Recorded, frames, smaller

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


def test_ratios_are_of_the_same_run_and_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def opened(kind: str, shape: Shape) -> Iterator[Any]:
        yield SimpleNamespace(kind=kind)

    rates = iter([1000.0, 2000.0, 3000.0] * 2)

    def recorded(log: Any, folder: Path, compression: str, profile: Path | None = None) -> Recorded:
        if profile is not None:
            profile.write_text(_STACKS)
        part = 0.5 if compression == "none" else 1.0
        return Recorded(Delivered(900.0, 1, 1.2, 0.5), int(500 / part), 1000)

    def again(log: Any, folder: Path, compression: str, profile: Path | None = None) -> Delivered:
        if profile is not None:
            profile.write_text(_STACKS)
        return Delivered(3000.0, 1, 0.8, 0.0)

    @contextmanager
    def delays(kind: str, seconds: float) -> Iterator[Callable[[bool], Delays]]:
        yield lambda with_relay: Delays(2.0, 13.0 if with_relay else 10.0)

    monkeypatch.setattr(relay, "opened", opened)
    monkeypatch.setattr(relay, "delivered", lambda log: Delivered(next(rates), 1, 1.0, 0.5))
    monkeypatch.setattr(relay, "recorded", recorded)
    monkeypatch.setattr(relay, "from_relay", again)
    monkeypatch.setattr(relay, "delays", delays)
    told = relay_report.relay_report(3, scale=0.1, seconds=1, shapes=["S1", "latency"], only="mariadb")
    printed = capsys.readouterr().out
    assert [one["compression"] for one in told["throughput"]] == ["zstd", "none"]
    assert "0.45  (0.30 - 0.90), aim 0.9 MISSED" in printed
    assert "1.50  (1.00 - 3.00), aim 1 met" in printed
    assert "1.30  (1.30 - 1.30), aim 1.2 MISSED" in printed
    assert "poll (b.py:2) 60%" in printed
    assert [one["kind"] for one in told["latency"]] == ["mariadb"]
