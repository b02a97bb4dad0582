"""The hosts of an installation."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.folder_lock import FolderLock
from wormhole.config import parse
from wormhole.coordination.port import MonitorInfo, StoredConfig
from wormholectl.hosts.status import known_hosts, lock_holder


def test_who_holds_a_lock_is_asked_without_taking_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    with FolderLock(path, "this"):
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None


def test_a_log_belongs_to_each_of_its_candidate_hosts() -> None:
    text = """version = 1
[datasets.shop.copies.main.logs]
db1 = { source = "db1", kind = "mysql", hosts = ["alpha", "beta"] }
db2 = { source = "db2", kind = "mysql", host = "beta" }
db3 = { source = "db3", kind = "mysql" }
"""
    stored = StoredConfig(parse(text, "test").datasets, {}, 1)
    live = MonitorInfo("gamma", 1, "", 0.0, {})
    assert {name: logs for name, (_, logs) in known_hosts(stored, [live]).items()} == {
        "alpha": ("shop/main/db1",),
        "beta": ("shop/main/db1", "shop/main/db2"),
        "gamma": (),
    }
    assert known_hosts(stored, [live], static=True)["gamma"] == (live, ("shop/main/db3",))
