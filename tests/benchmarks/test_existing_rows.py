"""What the benchmark of existing rows prints; its runs are for ``make bench CASE=existing_rows``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import existing_rows, existing_rows_report
from benchmarks.existing_rows import TABLE, UNLIMITED, Backfill, Copy, budget_mib, configuration, quantile
from wormhole.config import load

_SERVER: Any = SimpleNamespace(url="mariadb://wormhole@127.0.0.1:3306/", password_file="/nonexistent/password")


def test_its_configuration_is_accepted(tmp_path: Path) -> None:
    path = configuration(tmp_path, _SERVER, [7401, 7402], UNLIMITED)
    config = load(path)
    assert [one.start for one in config.applications.values()] == ["latest", "existing"]
    assert all(one.tables == (TABLE,) for one in config.applications.values())
    assert config.datasets["bench"].existing_rows.rate == 100 << 30
    assert budget_mib(path) == 96


def test_a_quantile_is_a_value_and_of_nothing_is_none() -> None:
    assert quantile([3.0, 1.0, 2.0, 4.0], 0.5) == 3.0
    assert quantile(range(100), 0.99) == 99
    assert quantile([], 0.99) != quantile([], 0.99)


def test_ratios_are_of_the_same_run_and_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def server(rows: int) -> Iterator[Any]:
        yield _SERVER

    def backfill(server: Any, rows: int, applications: int, rate: str = "", **more: object) -> Backfill:
        rows_per_s = 150_000.0 if rate else 50_000.0
        p99 = 20.0 if rate else 7.0 if applications else 5.0
        return Backfill(
            applications, rows_per_s, 1, 0.5, 0.6, 2, p99, 1, 100.0 + 90 * applications, 1 + applications / 20
        )

    monkeypatch.setattr(existing_rows, "filled_server", server)
    monkeypatch.setattr(existing_rows, "row_bytes", lambda *_: 100.0)
    monkeypatch.setattr(existing_rows, "backfill", backfill)
    monkeypatch.setattr(existing_rows, "select_all", lambda *_: Copy(300_000.0, 0.4))
    monkeypatch.setattr(existing_rows, "pipe", lambda *_: Copy(100_000.0, 0.9))
    told = existing_rows_report.existing_rows_report(2, quick=True, rows=1000, profile=lambda _: None)
    printed = capsys.readouterr().out
    assert "rows/s, unlimited, of the pipe's: 1.50, aim 1 met" in printed
    lines = {line.split("  ")[0]: line for line in printed.splitlines() if "<=" in line}
    assert "<= 96 MiB met, <= 1.1 met" in lines["unlimited"]
    assert "<= 96 MiB MISSED, <= 1.1 MISSED" in lines["unlimited, 3 applications"]
    assert "1.40" in printed
    assert "<= 1.5 met" in printed
    assert len(told["backfills"]["unlimited"]) == 2
