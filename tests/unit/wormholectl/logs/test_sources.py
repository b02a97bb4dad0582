from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wormhole.model.errors import UsageError
from wormhole.ports.datastore import Login
from wormholectl.exit_codes import WRONG
from wormholectl.logs.sources import datastore_at, login_of, source_kind, split_database, tables_within

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("url", "kind", "package"),
    [
        ("rocksdb:///var/lib/store", "rocksdb", "rocksdb"),
        ("mysql://u@h", "mysql", "mysql"),
        ("mariadb://u@h:3307/?tls=off", "mariadb", "mysql"),
    ],
)
def test_what_is_a_log(url: str, kind: str, package: str) -> None:
    assert source_kind(url) == kind
    assert datastore_at(url).requirement == f"wormhole-pubsub[publisher,{package}]"


@pytest.mark.parametrize(
    "url",
    ["rocksdb://host/path", "rocksdb:relative", "mysql://h/x", "/path", "", "mysql:", "oracle://h", "http://[x", "mysql://u:top secret@h/x"],  # noqa: E501
)  # fmt: skip
def test_what_names_no_log_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="names no log") as caught:
        datastore_at(url)
    assert "top secret" not in str(caught.value)


def test_a_password_that_breaks_its_url_is_told_how_to_be_written() -> None:
    with pytest.raises(UsageError, match="names no log") as caught:
        datastore_at("postgres://u:top/sec#ret@h/shop")
    assert "sec" not in str(caught.value).replace("--password", "")
    assert "--password-file; within a URL a password has %40 for @" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        datastore_at("postgres://u@h")
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("patterns", "within"),
    [
        ([], ["my [[]shop].*"]),
        (["users", "us*"], ["my [[]shop].users", "my [[]shop].us*"]),
        (["my [shop].users", "my [[]shop].*"], ["my [shop].users", "my [[]shop].*"]),
    ],
)
def test_table_patterns_within_a_database(patterns: list[str], within: list[str]) -> None:
    assert tables_within("my [shop]", patterns) == within
    assert tables_within("", patterns) == patterns


def test_a_table_of_another_database_than_the_urls_is_refused() -> None:
    for pattern in ("other.users", "*.users"):
        with pytest.raises(UsageError, match=r"names the database 'shop', and --table '.*users' is not in it"):
            tables_within("shop", ["users", pattern])


def test_the_database_of_a_url() -> None:
    assert split_database("mysql://u@h/shop?tls=off") == ("mysql://u@h/?tls=off", "shop")
    assert split_database("rocksdb:///var/lib/store") == ("rocksdb:///var/lib/store", "")
    assert split_database("oracle://h/x") == ("oracle://h/x", "")


@pytest.fixture
def without_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of a server whose driver other processes do not find."""
    (tmp_path / "pymysql.py").write_text("raise ModuleNotFoundError('No module named pymysql', name='pymysql')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    config = tmp_path / "shop.toml"
    config.write_text(
        'version = 1\ncoordinator.static = true\npublisher.state_dir = "state"\n'
        'datasets.shop.copies.main.logs.db1.source = "mysql://u@127.0.0.1"\n'
        'applications.cache = { dataset = "shop", start = "latest", subscribers.one = "127.0.0.1:7400" }\n'
    )
    return config


@pytest.mark.parametrize(
    "command",
    [
        ["publisher", "run", "-c", "shop.toml"],
        ["tail", "mysql://u@127.0.0.1"],
        ["doctor", "mysql://u@127.0.0.1"],
        ["init", "mysql://u@127.0.0.1", "--dir", "project"],
    ],
    ids=lambda command: command[0],
)
def test_a_driver_that_is_missing_is_named_with_the_way_to_install_it(without_driver: Path, command: list[str]) -> None:
    done = run(without_driver, *command)
    assert done.returncode == WRONG
    assert done.stderr.splitlines() == [
        "error [extra-missing]: this command needs pymysql, which is not installed",
        "  next: pip install 'wormhole-pubsub[publisher,mysql]'",
    ]


def test_a_configuration_is_checked_without_the_driver(without_driver: Path) -> None:
    assert run(without_driver, "config", "check", "shop.toml").returncode == 0


def run(config: Path, *command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "wormholectl", *command]
    return subprocess.run(words, cwd=config.parent, capture_output=True, text=True)


def test_a_store_of_files_takes_no_password() -> None:
    assert login_of("rocksdb:///store", None) == Login()
    with pytest.raises(UsageError, match="no password"):
        login_of("rocksdb:///store", Path("/password"))


def test_a_password_on_the_command_line_is_warned_about_and_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    login_of("mysql://u:top%20secret@h", None)
    told = capsys.readouterr()
    assert told.err.startswith("warning: a password on the command line can be read by every user")
    assert "secret" not in told.out + told.err
    login_of("mysql://u@h", None)
    assert capsys.readouterr().err == ""


def test_only_a_person_is_asked_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "secret"

    monkeypatch.setattr("getpass.getpass", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    login = login_of("mysql://u@h", Path("/p"))
    assert (login.password_file, login.user_files) == (Path("/p"), True)
    assert login.prompt is not None
    assert [login.prompt("Password?"), login.prompt("Password?")] == ["secret", "secret"]
    assert asked == ["Password?"]
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert login_of("mysql://u@h", None).prompt is None
