"""The configuration that each benchmark writes is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import caravans, existing_rows, many_flows, operate, replay
from wormhole.config import load

_SERVER: Any = SimpleNamespace(url="mariadb://wormhole@127.0.0.1:3306/", password_file="/nonexistent/password")


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: caravans.configuration(folder, [7401, 7402], ["latest", "1/4/100"], "max = 2", "1MiB"),
        lambda folder: existing_rows.configuration(folder, _SERVER, [7401, 7402], existing_rows.UNLIMITED),
        lambda folder: many_flows.configuration(folder, "127.0.0.1:2181/bench", 12, "zookeeper"),
        lambda folder: operate.configuration(folder, 7480, 7401, [f'source = "rocksdb://{folder}/store"']),
        lambda folder: replay.configuration(folder, 7401, 7402),
    ],
    ids=["caravans", "existing rows", "many flows", "operate", "replay"],
)
def test_it_is_accepted(write: Callable[[Path], Path], tmp_path: Path) -> None:
    assert load(write(tmp_path)).applications
