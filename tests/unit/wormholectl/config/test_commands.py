"""A file against what a ZooKeeper stores, or against what publishers of the static form run."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.unit.wormhole.config.test_check import DATASET, application, toml
from wormhole import __version__
from wormhole.config import bound, load, published
from wormhole.config.one_log import digest, of_one_log, write_running
from wormhole.coordination.connect import connect
from wormhole.coordination.current_user import current_user
from wormhole.coordination.port import MonitorInfo, SubscriberInfo
from wormhole.host.ready_file import ReadyFile, process_started, ready_path, write_ready

# --- commands: A file against what a ZooKeeper stores: shown, asked, stored whole, and kept in the history ---


def test_checking_a_configuration(tmp_path: Path) -> None:
    good = toml(tmp_path, DATASET, application("true"))
    assert run("config", "check", str(good)) == (0, f"{good}: right. Logs: shop/main/db1. Applications: cache.\n", "")
    code, out, _ = run("config", "check", str(good), "--json")
    certificates: dict[str, list[str]] = {"facts": [], "faults": []}
    about = {"logs": ["shop/main/db1"], "applications": ["cache"], "sinks": [], "certificates": certificates}
    assert json.loads(out) == {"schema": 1, "ok": True, "warnings": [], **about}
    bad = toml(tmp_path, DATASET, application("true"), "unknown_key = 1\n")
    code, out, _ = run("config", "check", str(bad), "--json")
    assert code == 2
    assert json.loads(out)["ok"] is False
    assert "unknown_key" in "".join(json.loads(out)["problems"])


HOST_LOG = '[datasets.shop.copies.main.logs.db1]\nsource = "rocksdb:///var/lib/shop"\nhost = "db-7"\n'
APPLICATION = '[applications.cache]\ndataset = "shop"\nstart = "latest"\n'


@pytest.fixture
def stored(zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says what is stored: one dataset, one application."""
    monkeypatch.delenv("WORMHOLE_COORDINATOR", raising=False)
    path = tmp_path / "shop.toml"
    write(path, zookeeper, HOST_LOG, APPLICATION)
    code, _, err = run("config", "apply", str(path), "--yes")
    assert code == 0, err
    return path


def write(path: Path, zookeeper: str, *tables: str) -> None:
    path.write_text("\n".join(["version = 1", f'[coordinator]\nzookeeper = "{zookeeper}"', *tables]))


def add(path: Path, text: str) -> None:
    path.write_text(f"{path.read_text()}\n{text}")


def output(*arguments: str) -> str:
    code, out, err = run(*arguments)
    assert code == 0, err
    return out


def told(path: Path, *options: str) -> dict[str, object]:
    code, out, err = run("config", "diff", str(path), "--json", *options)
    assert out, err
    found: dict[str, object] = json.loads(out)
    assert code == int(bool(found["differs"]))
    return found


def test_nothing_differs_after_it_was_applied(stored: Path) -> None:
    code, out, _ = run("config", "diff", str(stored))
    assert (code, out) == (0, f"{stored}: nothing differs from version 1\n")
    assert "nothing differs" in output("config", "apply", str(stored), "--yes")
    assert told(stored) == {
        "schema": 1, "file": str(stored), "version": 1, "differs": False, "changed": False, "settings": [], "kept": [],
        "warnings": told(stored)["warnings"],
    }  # fmt: skip


def test_a_difference_is_shown_setting_by_setting(stored: Path) -> None:
    add(stored, 'tables = ["users"]\n[applications.search]\ndataset = "shop"\nstart = "earliest"')
    code, out, _ = run("config", "diff", str(stored))
    assert code == 1
    assert out.splitlines() == [
        '+ applications.cache.tables = ["users"]',
        '+ applications.search.dataset = "shop"',
        '+ applications.search.start = "earliest"',
    ]
    settings = told(stored)["settings"]
    assert isinstance(settings, list)
    assert settings[0] == {"path": "applications.cache.tables", "kind": "added", "before": None, "after": ["users"]}


def test_nobody_who_can_be_asked_changes_nothing(stored: Path) -> None:
    add(stored, 'tables = ["users"]')
    code, out, err = run("config", "apply", str(stored))
    assert code == 2
    assert "applications.cache.tables" in out, "what it would change is shown before the question"
    assert "--yes" in err
    assert told(stored)["differs"]


def test_what_was_applied_is_stored_and_in_the_history(stored: Path) -> None:
    add(stored, 'tables = ["users"]')
    assert output("config", "apply", str(stored), "--yes").splitlines() == [
        '+ applications.cache.tables = ["users"]',
        f"{stored}: applied, version 2: applications.cache",
    ]
    first, second = json.loads(output("config", "history", "-c", str(stored), "--json"))["entries"]
    assert (first["who"], first["what"], first["target"]) == (current_user(), "config apply", "applications.cache")
    assert (first["before"], first["after"]) == ("", 'applications.cache.tables = ["users"]')
    assert second["target"] == "datasets.shop, applications.cache"
    lines = output("config", "history", "-c", str(stored), "-n", "1").splitlines()
    assert re.fullmatch(rf"\d{{4}}-.* {re.escape(current_user())}  config apply  applications.cache", lines[0])
    assert lines[1:] == ['  + applications.cache.tables = ["users"]']


def test_what_a_program_sees_of_applying(stored: Path) -> None:
    add(stored, 'tables = ["users"]')
    (applied,) = map(json.loads, output("config", "apply", str(stored), "--yes", "--json").splitlines())
    assert (applied["version"], applied["changed"], applied["differs"]) == (2, True, True)
    (again,) = map(json.loads, output("config", "apply", str(stored), "--yes", "--json").splitlines())
    assert (again["version"], again["changed"], again["differs"]) == (2, False, False)


def test_what_is_shown_can_be_applied(stored: Path, zookeeper: str, tmp_path: Path) -> None:
    shown = output("config", "show", "-c", zookeeper)
    assert f"# version 1 at {zookeeper}" in shown
    other = tmp_path / "other.toml"
    other.write_text(shown)
    assert load(other).datasets == published(load(stored).datasets)
    code, out, _ = run("config", "diff", str(other), "-c", zookeeper)
    assert (code, out) == (0, f"{other}: nothing differs from version 1\n")
    plain = json.loads(output("config", "show", "-c", zookeeper, "--json"))
    assert plain["applications"] == {"cache": {"dataset": "shop", "start": "latest"}}
    assert (plain["schema"], plain["version"], list(plain["datasets"])) == (1, 1, ["shop"])


def test_what_the_file_lacks_stays_or_is_pruned(stored: Path, zookeeper: str) -> None:
    write(stored, zookeeper, HOST_LOG)
    code, out, _ = run("config", "diff", str(stored))
    assert code == 0
    assert "applications.cache stays" in out
    assert told(stored)["kept"] == ["applications.cache"]
    code, out, _ = run("config", "diff", str(stored), "--prune")
    assert (code, out.splitlines()[0]) == (1, '- applications.cache.dataset = "shop"')
    output("config", "apply", str(stored), "--prune", "--yes")
    assert json.loads(output("config", "show", "-c", zookeeper, "--json"))["applications"] == {}


def test_a_connected_subscriber_of_what_is_pruned_is_reported(stored: Path, zookeeper: str) -> None:
    write(stored, zookeeper, HOST_LOG)

    async def while_connected() -> dict[str, object]:
        client = connect(zookeeper)
        await client.start()
        await client.register_subscriber(SubscriberInfo("cache", "a", "127.0.0.1:7001"))
        await client.register_monitor(MonitorInfo("db-7", 1, "", 1.0))
        found = await asyncio.to_thread(told, stored, "--prune")
        await client.stop()
        return found

    warnings = asyncio.run(while_connected())["warnings"]
    assert warnings == [
        "applications.cache is removed while subscribers are connected: they are let go; its datamarkers stay"
    ]


def test_the_static_form_has_nowhere_to_apply_to_but_shows_itself(tmp_path: Path) -> None:
    path = tmp_path / "static.toml"
    path.write_text(
        f"version = 1\n{HOST_LOG}{APPLICATION}[applications.cache.subscribers]\na = "
        '"127.0.0.1:7001"\n[publisher]\nstate_dir = "state"'
    )
    code, _, err = run("config", "apply", str(path))
    assert code == 2
    assert "nowhere to publish" in err
    assert json.loads(output("config", "show", "-c", str(path), "--json"))["applications"]["cache"]["dataset"] == "shop"
    assert output("config", "history", "-c", str(path)) == "no change yet\n"


def test_a_zookeeper_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    write(path, '127.0.0.1:1/root"\nconnect_timeout = "300ms', HOST_LOG)
    code, out, err = run("config", "diff", str(path))
    assert (code, out) == (3, "")
    assert "does not answer" in err


# --- running ---


LOG = '[datasets.shop.copies.main.logs.{}]\nsource = "rocksdb:///var/lib/{}"\n'
DB1, DB2 = LOG.format("db1", "db1"), LOG.format("db2", "db2")
CACHE = '[applications.cache]\ndataset = "shop"\nstart = "latest"\nsubscribers = { a = "127.0.0.1:7001" }\n'
HEAD = 'version = 1\n[publisher]\nstate_dir = "state"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "static.toml"


def runs(file: Path, *texts: str, log: str = "db1", managed: bool = False, version: str = __version__) -> None:
    """As a publisher that this process is: with the file itself, or with what a monitor made of it."""
    file.write_text("".join((HEAD, *texts)))
    config = load(file)
    if managed:
        config = of_one_log(bound(config, config.datasets), "shop", "main", log)
    ready = ready_path(config.publisher.state_dir, "shop", "main", log)
    ready.parent.mkdir(parents=True)
    write_running(config, ready.parent, "shop", "main", log)
    started = process_started(os.getpid()) or 0
    running = digest(config, "shop", "main", log)
    write_ready(ready, ReadyFile(os.getpid(), started, "127.0.0.1:1", "", version, running))


def next_step(file: Path) -> list[str]:
    return [
        "this takes effect when the publishers are restarted",
        f"  next: where `wormholectl up` runs them: wormholectl down -f {file}, then wormholectl up -f {file}",
    ]


def diff(file: Path, *texts: str) -> tuple[int, list[str], str]:
    file.write_text("".join((HEAD, *texts)))
    code, out, err = run("config", "diff", str(file))
    return code, out.splitlines(), err


@pytest.mark.parametrize("managed", [False, True])
def test_a_file_against_what_runs(file: Path, managed: bool) -> None:
    runs(file, DB1, CACHE, managed=managed)
    assert diff(file, "# another comment\n", CACHE, DB1) == (
        0,
        [f"{file}: nothing differs from what the publishers of this host run"],
        "",
    )
    changed = CACHE.replace('"latest"', '"earliest"\nwhere = "true"')
    search = CACHE.replace("cache", "search").replace("7001", "7002")
    code, lines, err = diff(file, 'heartbeat = "9s"\n', DB1.replace("/var", "/srv"), changed, search)
    assert (code, lines) == (
        1,
        [
            '~ applications.cache.start = "latest" -> "earliest"',
            '+ applications.cache.where = "true"',
            '+ applications.search.dataset = "shop"',
            '+ applications.search.start = "latest"',
            '+ applications.search.subscribers.a = "127.0.0.1:7002"',
            "~ publisher.heartbeat = 3.0 -> 9.0",
            '~ sources.shop/main/db1.source = "rocksdb:///var/lib/db1" -> "rocksdb:///srv/lib/db1"',
            *next_step(file),
        ],
    )

    assert err == (
        "warning: applications.cache.start changes nothing: its datamarkers count since it was first served; "
        "to start anew, give it another name\n"
    )


def test_the_same_for_programs(file: Path) -> None:
    runs(file, DB1, CACHE)
    file.write_text(HEAD + DB1 + CACHE.replace("7001", "7009"))
    code, out, _ = run("config", "diff", str(file), "--json", "-c", str(file))
    found = json.loads(out)
    assert (code, found["version"], found["differs"], found["changed"]) == (1, None, True, False)
    path = "applications.cache.subscribers.a"
    assert found["settings"] == [
        {"path": path, "kind": "changed", "before": "127.0.0.1:7001", "after": "127.0.0.1:7009"}
    ]


def test_a_log_that_is_new_and_one_that_is_gone(file: Path) -> None:
    runs(file, DB1, CACHE)
    new = [
        '+ datasets.shop.copies.main.logs.db2.kind = "rocksdb"',
        '+ datasets.shop.copies.main.logs.db2.source = "shop/main/db2"',
        '+ sources.shop/main/db2.source = "rocksdb:///var/lib/db2"',
        *next_step(file),
    ]
    assert diff(file, DB1, DB2, CACHE)[:2] == (1, new)
    assert diff(file, DB1, DB2, 'host = "elsewhere"\n', CACHE)[0] == 0, "another host's"
    runs(file, DB1, DB2, CACHE, log="db2")
    assert diff(file, DB1, CACHE)[:2] == (1, [one.replace("+", "-") for one in new])


def test_what_is_not_known(file: Path) -> None:
    code, _, err = diff(file, DB1, CACHE)
    assert (code, f"no publisher of {file} runs on this host" in err) == (3, True)
    code, _, err = run("config", "diff", str(file), "--prune")
    assert (code, "the static form stores nothing" in err) == (2, True)
    runs(file, DB1, CACHE, version="0.0.1")
    code, _, err = diff(file, DB1, CACHE)
    assert (code, "shop/main/db1 does not say what it runs: it is of release 0.0.1" in err) == (3, True)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('relay = "hold"\n', 'relay = "off"\n', "Flows that are behind what the datastore still has lose the rest"),
        ('relay = "cache"\n', 'relay = "off"\n', "is off then: what"),
        ('relay = "cache"\n', 'relay = "cache"\nrelay_folder = "elsewhere"\n', "begins anew in"),
        ("", 'relay_budget = "2GiB"\n', "relay_budget of shop/main/db1 gets smaller"),
        ('relay = "hold"\n', 'relay = "cache"\n', ""),
        ('relay = "off"\n', 'relay = "hold"\n', ""),
    ],
)
def test_what_becomes_of_a_relay_is_told(file: Path, before: str, after: str, expected: str) -> None:
    postgres = '[datasets.shop.copies.main.logs.db1]\nsource = "postgres://w@db/shop"\n'
    runs(file, f"{postgres}{before}", CACHE)
    file.write_text(f"{HEAD}{postgres}{after}{CACHE}")
    _, out, _ = run("config", "diff", str(file), "--json")
    warnings = json.loads(out)["warnings"]
    assert [expected in one for one in warnings] == ([True] if expected else [])
