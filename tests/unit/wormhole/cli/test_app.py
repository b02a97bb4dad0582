from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.wormhole.cli.test_operate import DATASET, application, toml
from wormhole import __version__
from wormhole.cli import tail as tail_module
from wormhole.cli.app import app
from wormhole.cli.guard import DEBUG
from wormhole.cli.tail import TailEvents, TailOptions
from wormhole.errors import DecodeError

COMMANDS = [
    ["tail"],
    ["doctor"],
    ["flows"],
    ["caravans"],
    ["subscribers"],
    ["publisher", "run"],
    ["config", "check"],
    ["config", "apply"],
    ["filters", "explain"],
]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (DEBUG, "WORMHOLE_COORDINATOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_version_lists_the_compiled_modules() -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith(f"wormholectl {__version__} (Python 3.")
    assert "compiled modules: " in out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Example" in out
    assert f"wormholectl {' '.join(command)}" in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tail", "rocksdb://x/y"], 2, "names no log"),
        (["tail", "rocksdb:///x", "--filter", "key = 1"], 2, "column 5: a single ="),
        (["tail", "rocksdb:///x", "--limit", "0"], 2, "--limit"),
        (["tail", "rocksdb:///no/such/store"], 3, "there is no directory /no/such/store"),
        (["doctor", "rocksdb:///no/such/store"], 3, "there is no directory /no/such/store"),
        (["flows"], 2, "--publisher HOST:PORT"),
        (["caravans", "--publisher", "127.0.0.1:1"], 3, "does not answer"),
        (["subscribers", "--tls-ca", "x", "-p", "h:1"], 2, "belong together"),
        (["publisher", "run", "-c", "/no/such.toml"], 2, "no such configuration file"),
        (["config", "apply", "/no/such.toml"], 2, "no such configuration file"),
        (["config", "check", "/no/such.toml"], 2, "no such configuration file"),
        (["dance"], 2, "dance"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_wrong_is_said_on_standard_error(arguments: list[str], code: int, says: str) -> None:
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_tail_that_left_something_out_says_so_once_and_ends_with_a_problem(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tail(url: str, options: TailOptions, events: TailEvents, password_file: Path | None) -> int:
        for place in ("1/1/4", "1/1/99"):
            events.broken(DecodeError("shop.audit has no names", hint="skip_tables", position=place))
        return 0

    monkeypatch.setattr(tail_module, "tail", tail)
    assert run("tail", "rocksdb:///x", *options) == (
        1,
        "",
        "warning: not shown: shop.audit has no names (position 1/1/4). Next: skip_tables\n",
    )


def test_checking_a_configuration(tmp_path: Path) -> None:
    good = toml(tmp_path, DATASET, application("true"))
    assert run("config", "check", str(good)) == (0, f"{good}: right. Logs: shop/main/db1. Applications: cache.\n", "")
    code, out, _ = run("config", "check", str(good), "--json")
    assert json.loads(out) == {"schema": 1, "ok": True, "logs": ["shop/main/db1"], "applications": ["cache"]}
    bad = toml(tmp_path, DATASET, application("true"), "unknown_key = 1\n")
    code, out, _ = run("config", "check", str(bad), "--json")
    assert code == 2
    assert json.loads(out)["ok"] is False
    assert "unknown_key" in "".join(json.loads(out)["problems"])


def test_a_filter_is_explained_without_a_log() -> None:
    code, out, _ = run("filters", "explain", 'not status != "paid"', "--json")
    found = json.loads(out)
    assert (code, found["normal"], found["log"]) == (0, 'status == b"paid"', None)
    code, _, err = run("filters", "explain", "a == 1", "-c", "shop.toml", "--value-format", "json")
    assert (code, "with --config" in err) == (2, True)
    code, _, err = run("filters", "explain", "status == 1", "--source", "rocksdb:///none")
    assert code == 2
    assert "column 1: the field status needs values" in err
