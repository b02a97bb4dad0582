from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from wormhole.model.errors import UsageError
from wormholectl.sources import extra_of, login_of, package_of, source_kind


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
    assert (package_of(kind), extra_of(kind)) == (package, f"publisher,{package}")


@pytest.mark.parametrize(
    "url",
    ["rocksdb://host/path", "rocksdb:relative", "mysql://h/x", "/path", "", "mysql:", "oracle://h", "http://[x", "mysql://u:top secret@h/x"],
)  # fmt: skip
def test_what_names_no_log_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="names no log") as caught:
        source_kind(url)
    assert "top secret" not in str(caught.value)


def test_a_store_of_files_takes_no_password() -> None:
    assert login_of("rocksdb:///store", None) == {}
    with pytest.raises(UsageError, match="no password"):
        login_of("rocksdb:///store", Path("/password"))


def test_a_password_on_the_command_line_is_warned_about_and_never_shown(capsys: pytest.CaptureFixture[str]) -> None:
    login_of("mysql://u:top%20secret@h", None)
    told = capsys.readouterr()
    assert told.err.startswith("warning: a password on the command line can be read by every user")
    assert "secret" not in told.out + told.err
    login_of("mysql://u@h", None)
    assert capsys.readouterr().err == ""


def test_only_a_person_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert login_of("mysql://u@h", Path("/p")) == {
        "password_file": Path("/p"),
        "my_cnf": True,
        "prompt": getpass.getpass,
    }
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert login_of("mysql://u@h", None)["prompt"] is None
