"""``config diff`` in the static form: a file against what publishers of this host wrote that they run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.command_line import run
from wormhole import __version__
from wormhole.config import bound, load
from wormhole.config.one_log import digest, of_one_log, write_running
from wormhole.host.ready_file import ReadyFile, process_started, ready_path, write_ready

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
