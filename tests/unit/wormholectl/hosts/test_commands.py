"""``wormholectl hosts``: the hosts of an installation, and sources that a host adopts."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from monitor.folder_lock import FolderLock
from tests.support.command_line import run
from tests.support.contenders import contending
from wormhole.admin.discovery import with_coordinator
from wormhole.config import Config, CoordinatorConfig, load, parse, source_of, unlisted
from wormhole.coordination.current_user import current_user
from wormhole.coordination.port import LogGroup, MonitorInfo, StoredConfig
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.host.ready_file import ReadyFile, process_started, ready_path, write_ready
from wormhole.ports.datastore import Standing
from wormholectl.hosts.status import known_hosts, lock_holder
from wormholectl.shared.options import Where

# --- commands ---


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


# --- adopt: from sources that stand in ZooKeeper to the host's own list ---


RECORD = {
    "copies": {
        "main": {
            "logs": {
                "db1": {"source": "mysql://w@h:1", "password_file": "/etc/w", "host": "db-7"},
                "db2": {"source": "mysql://w@other:1", "host": "db-8"},
            }
        }
    }
}


@pytest.fixture
def host(tmp_path: Path, zookeeper: str) -> Path:
    """The file of db-7, and a ZooKeeper that an earlier release wrote."""

    async def write() -> None:
        client = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper))
        await client.start()
        await client._nodes.put(client._paths.dataset("shop"), json.dumps(RECORD).encode())
        await client.stop()

    asyncio.run(write())
    path = tmp_path / "host.toml"
    path.write_text(
        f'# ours\nversion = 1\n[monitor]\nhost = "db-7"\n[coordinator]\nzookeeper = "{zookeeper}"  # the fleet\'s\n'
    )
    path.chmod(0o666)
    return path


def output(*command: str) -> str:
    code, out, err = run(*command)
    assert code == 0, err
    return out


async def stored(config: Config) -> StoredConfig:
    client = ZooKeeperCoordinator(config.coordinator)
    await client.start()
    try:
        return await client.configuration()
    finally:
        await client.stop()


def test_a_host_adopts_what_is_its_own(host: Path) -> None:
    before = host.read_text()
    shown = output("hosts", "adopt", "-c", str(host), "--print")
    assert '[sources."shop/main/db1"]' in shown
    assert "other" not in shown
    assert host.read_text() == before
    output("hosts", "adopt", "-c", str(host), "--yes")
    config = load(host)
    assert host.read_text().startswith(before.rstrip("\n")), "what stood there stays, comments too"
    assert host.stat().st_mode & 0o777 == 0o644
    assert config.sources is not None
    assert (*config.sources,) == ("shop/main/db1",)
    assert config.sources["shop/main/db1"].password_file == Path("/etc/w")
    assert "nothing to adopt" in output("hosts", "adopt", "-c", str(host), "--yes")
    assert [*unlisted(config, asyncio.run(stored(config)).datasets)] == ["shop/main/db2"]


def test_a_host_that_has_nothing_there_lists_nothing(host: Path) -> None:
    host.write_text(host.read_text().replace("db-7", "db-9"))
    output("hosts", "adopt", "-c", str(host), "--yes")
    assert load(host).sources == {}


def test_a_source_that_zookeeper_holds_no_more_is_named(host: Path) -> None:
    """`config apply` came first: the host would read nothing, and adopting would seem to have worked."""
    named = {"copies": {"main": {"logs": {"db1": {"source": "shop/main/db1", "kind": "mysql", "host": "db-7"}}}}}

    coordinator = load(host).coordinator

    async def apply() -> None:
        client = ZooKeeperCoordinator(coordinator)
        await client.start()
        await client._nodes.put(client._paths.dataset("shop"), json.dumps(named).encode())
        await client.stop()

    asyncio.run(apply())
    for expected in ("added 0 sources", "nothing to adopt"):
        code, out, err = run("hosts", "adopt", "-c", str(host), "--yes")
        assert code == 0
        assert expected in out
        assert "warning: shop/main/db1 names the source 'shop/main/db1', which this file does not list" in err


def test_a_file_that_cannot_be_added_to_stays(host: Path) -> None:
    before = "sources = {}\n" + host.read_text()
    host.write_text(before)
    code, _, err = run("hosts", "adopt", "-c", str(host), "--yes")
    assert (code, host.read_text()) == (2, before)
    assert "TOML" in err


def test_the_static_form_has_its_sources_itself(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[datasets.shop.copies.main.logs.db1]\nsource = 'mysql://w@h:1'\n"
    )
    assert source_of(load(path), "shop", "main", "db1").source == "mysql://w@h:1"
    code, _, err = run("hosts", "adopt", "-c", str(path))
    assert code == 2
    assert "static form" in err


# --- status: the hosts of an installation ---


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
