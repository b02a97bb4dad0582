"""docs/failover.md: its configuration is right, and its commands run, in the order of the page, beside publishers that
contend for the log."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.support.command_line import can_be_typed, run
from tests.support.contenders import contending, is_there
from tests.support.eventually import until
from tests.support.pages import Page
from wormhole.config import check_candidates, parse, preference
from wormhole.coordination.port import LogGroup
from wormhole.ports.datastore import Standing

PAGE = Page("docs/failover.md", {})
HOST, SHOP = PAGE.blocks("toml")[:2]
DATASET = SHOP[SHOP.index("[datasets.") :]
GROUP = LogGroup("shop", "@failover", "db1")


def test_the_candidates_are_those_that_it_says() -> None:
    assert parse(SHOP, "docs/failover.md").coordinator == parse(HOST, "docs/failover.md").coordinator
    config = parse(f"{HOST}\n{DATASET}", "docs/failover.md")
    shop = config.datasets["shop"]
    assert config.monitor.host_name == "db-7"
    check_candidates(config, "shop", "main", "db1")
    ranked = [
        preference(shop, copy, "db1", host) for copy, host in (("main", "db-7"), ("main", "db-8"), ("west", "db-9"))
    ]
    assert ranked == [0, 1, 2]
    assert (shop.group("main"), shop.group("west")) == (GROUP.group, GROUP.group)
    assert shop.failover is not None
    assert shop.failover.patience == 30.0


def test_its_commands_run_in_the_order_of_the_page(
    zookeeper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.toml").write_text(f'version = 1\n[coordinator]\nzookeeper = "{zookeeper}"\n{DATASET}')
    lines = [line for block in PAGE.blocks("sh") for line in block.splitlines()]
    assert len(lines) == 6
    standings = {"main_db-7": Standing("M"), "main_db-8": Standing("M"), "west_db-9": Standing("W")}
    said = {}
    with contending(zookeeper, GROUP, **standings):
        for line in lines:
            can_be_typed(line)
            code, out, err = run(*shlex.split(line)[1:])
            said[line] = out
            asks = line.startswith(("wormholectl publishers -c", "wormholectl doctor"))
            assert code == (3 if asks else 0), err  # these publishers answer nobody
            assert "Traceback" not in err
            if " move " in line:
                until(lambda: is_there(zookeeper, GROUP, "main@db-7"), "the former owner stands by")
        told = json.loads(run("publishers", "-c", "shop.toml", "--json")[1])
    listed, moved, drained = (said[one] for one in lines[1:4])
    for name in ("main@db-8", "west@db-9"):
        assert f"shop/@failover/db1  main@db-7  {name}" in listed
    assert "main@db-8 owns shop/@failover/db1" in moved
    assert "shop/main/db1: main@db-7 takes it over" in drained
    [log] = told["logs"]
    assert (log["log"], log["owner"]["name"]) == ("shop/@failover/db1", "main@db-8")
