"""What the benchmark of operation measures with and how it tells it; its runs are for ``make bench CASE=operate``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import operate_report as module
from benchmarks.operate import MODULES, Imported, Rest, Start, configuration, imported, resident_mb, rocksdb_log
from wormhole.config import load


def test_its_configuration_is_accepted(tmp_path: Path) -> None:
    with rocksdb_log(tmp_path / "store") as log:
        log.write()
        config = load(configuration(tmp_path, 7480, 7401, [log.keys, f'source = "rocksdb://{tmp_path}/other"']))
    assert list(config.datasets["bench"].copies["main"].logs) == ["db0", "db1"]
    assert config.monitor.listen == "127.0.0.1:7480"


def test_memory_is_in_megabytes_and_the_anonymous_part_is_a_part() -> None:
    resident, anonymous = resident_mb(os.getpid())
    assert 5 < anonymous < resident < 5000
    bare = imported("")
    assert 3 < bare.resident_mb < resident
    assert bare.seconds > 0


def test_every_figure_is_beside_its_limit_and_a_missed_mark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    limits = {name: [Imported(0.7, 50.0)] for name in MODULES}
    module._print_times({"RocksDB": [Start(0.8, 2.5)]}, [0.9], [0.1, 0.2, 0.1], limits)
    module._print_rests({"monitor": Rest(0.5, 61.0, 40.0), "publisher, each": Rest(1.5, 90.0, 50.0)}, limits)
    rows = capsys.readouterr().out.splitlines()
    assert any("first start" in row and "0.80" in row and "0.70" in row and "< 0.9 met" in row for row in rows)
    assert any("after kill -9" in row and "2.50" in row and "< 0.9 MISSED" in row for row in rows)
    assert any("wormholectl --help" in row and "0.10  (0.10 - 0.20)" in row and "< 0.15 met" in row for row in rows)
    assert any("import subscriber_sdk" in row and "0.70" in row and "< 0.25 MISSED" in row for row in rows)
    assert any("monitor" in row and "61.0" in row and "MISSED" in row for row in rows)
    assert any("publisher, each" in row and "90.0" in row for row in rows)
