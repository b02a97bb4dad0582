from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from monitor.folder_lock import FolderLock
from tests.support.command_line import run
from tests.support.contenders import contending
from wormhole.admin.discovery import with_coordinator
from wormhole.coordination.current_user import current_user
from wormhole.coordination.port import LogGroup
from wormhole.host.ready_file import ReadyFile, process_started, ready_path, write_ready
from wormhole.ports.datastore import Standing
from wormholectl.shared.options import Where

LOG = "[datasets.shop.copies.main.logs.{}]\nsource = 'rocksdb:///store'\nhost = '{}'\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[publisher]\nstate_dir = 'state'\n[monitor]\nhost = 'alpha'\n"
        + LOG.format("db1", "alpha")
        + LOG.format("db2", "beta")
    )
    return path


def with_monitor(file: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """What the commands say while a monitor of alpha runs."""
    ready = ready_path(file.parent / "state", "shop", "main", "db1")
    ready.parent.mkdir(parents=True)
    write_ready(ready, ReadyFile(os.getpid(), process_started(os.getpid()) or 0, "127.0.0.1:1", "", "0.1.0", ""))
    with FolderLock(file.parent / "state" / "monitor" / "monitor.lock", "a monitor"):
        return [run(*command, "-c", str(file)) for command in commands]


def test_who_runs_and_who_does_not(file: Path) -> None:
    (code, out, err), (_, told, _) = with_monitor(file, ["hosts"], ["hosts", "--json"])
    assert (code, err) == (1, "")
    head, alpha, beta = out.splitlines()
    assert head.split() == ["HOST", "MONITOR", "UP", "SINCE", "PUBLISHERS", "DRAINED", "CAUSE"]
    assert alpha.split() == ["alpha", "yes", "-", "1", "running", "no"]
    assert beta.split()[:2] == ["beta", "none"]
    assert beta.endswith("shop/main/db2 not run: start `wormholectl monitor run` there")
    one, other = json.loads(told)["hosts"]
    assert one["monitor"] == {"address": None, "pid": os.getpid(), "started": None}
    assert (one["publishers"], one["logs"], one["drained"]) == ({"shop/main/db1": "running"}, ["shop/main/db1"], False)
    assert (other["host"], other["monitor"], other["logs"]) == ("beta", None, ["shop/main/db2"])


def test_drain_and_back(file: Path) -> None:
    asked, drained, listed, back, history = with_monitor(
        file,
        ["drain", "alpha"],
        ["drain", "alpha", "--yes"],
        ["hosts"],
        ["drain", "alpha", "--undo", "--yes", "--json"],
        ["hosts", "--json"],
    )
    assert asked[0] == 2
    assert asked[1].splitlines()[0] == "alpha is in use and would be drained"
    assert "shop/main/db1" in asked[1]
    assert "--yes" in asked[2]
    assert (drained[0], drained[2]) == (0, "")
    assert "alpha is drained" in drained[1]
    assert f"by {current_user()}" in listed[1]
    told = json.loads(back[1])
    assert (told["before"]["drained"], told["after"]["drained"], told["notes"]) == (True, False, [])
    assert json.loads(history[1])["hosts"][0]["drained"] is False
    kept = with_coordinator(Where("", str(file)), lambda coordinator: coordinator.history())
    assert [(one.what, one.target, one.before, one.after) for one in kept] == [
        ("drain --undo", "alpha", "drained", "in use"),
        ("drain", "alpha", "in use", "drained"),
    ]


def test_a_drained_host_needs_no_monitor(file: Path) -> None:
    drained, listed = with_monitor(file, ["drain", "beta", "--yes"], ["hosts"])
    assert "no monitor runs there now" in drained[1]
    assert listed[0] == 0


def test_other_commands_report_a_drained_host(file: Path) -> None:
    _, _, _, (code, _, err), (lag_code, lag, _) = with_monitor(
        file,
        ["drain", "beta", "--yes"],
        ["hosts"],
        ["drain", "alpha", "--yes"],
        ["flows"],
        ["lag", "cache"],
    )
    assert (code, lag_code) == (3, 3)
    sentence = (
        f"host beta is drained by {current_user()}: shop/main/db2 is not served, and the flows there are not known"
    )
    assert sentence in err
    assert "alpha" not in err, "its publisher still runs"
    assert sentence in lag


def test_drain_says_who_takes_over(zookeeper: str, tmp_path: Path) -> None:
    shop = tmp_path / "shop.toml"
    shop.write_text(
        f"version = 1\n[coordinator]\nzookeeper = '{zookeeper}'\n"
        "[datasets.shop.copies.main.logs]\n"
        "db1 = { source = 'mysql://w@127.0.0.1:3306', hosts = ['alpha', 'beta'] }\n"
        "db2 = { source = 'mysql://w@127.0.0.1:3307', host = 'alpha' }\n"
    )
    assert run("config", "apply", str(shop), "--yes")[0] == 0
    with contending(zookeeper, LogGroup("shop", "main", "db1"), main_alpha=Standing("M"), main_beta=Standing("M")):
        _, alpha, _ = run("drain", "alpha", "-c", zookeeper)
        _, beta, _ = run("drain", "beta", "-c", zookeeper)
        code, told, _ = run("drain", "alpha", "-c", zookeeper, "--yes", "--json")
    assert alpha.splitlines()[1:] == [
        "its publishers (shop/main/db1, shop/main/db2) would stop",
        "shop/main/db1: main@beta takes it over",
        "shop/main/db2: no process then reads it",
    ]
    assert beta.splitlines()[1:] == [
        "its publishers (shop/main/db1) would stop",
        "shop/main/db1: main@alpha serves it",
    ]
    assert code == 0
    assert "shop/main/db1: main@beta takes it over" in json.loads(told)["notes"]


def test_drain_says_what_the_one_lacks_that_takes_over(zookeeper: str, tmp_path: Path) -> None:
    """One that has everything comes first, whatever is preferred."""
    shop = tmp_path / "shop.toml"
    shop.write_text(
        f"version = 1\n[coordinator]\nzookeeper = '{zookeeper}'\n"
        "[datasets.shop.copies.main.logs]\n"
        "db1 = { source = 'mysql://w@127.0.0.1:3306', hosts = ['alpha', 'beta', 'gamma'] }\n"
    )
    assert run("config", "apply", str(shop), "--yes")[0] == 0
    group, lacks = LogGroup("shop", "main", "db1"), Standing("M", lacking="U:5-9")
    with contending(zookeeper, group, main_alpha=Standing("M"), main_beta=lacks, main_gamma=lacks):
        _, told, _ = run("drain", "alpha", "-c", zookeeper)
    assert told.splitlines()[2] == (
        "shop/main/db1: main@beta takes it over after its patience, and its flows are held as diverged: it lacks "
        "U:5-9, which was delivered"
    )
    with contending(zookeeper, group, main_alpha=Standing("M"), main_beta=lacks, main_gamma=Standing("M")):
        _, told, _ = run("drain", "alpha", "-c", zookeeper)
    assert told.splitlines()[2] == "shop/main/db1: main@gamma takes it over"
