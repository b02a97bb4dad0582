from __future__ import annotations

import json
from pathlib import Path

import pytest

from publisher.sources.mysql import doctor as mysql_doctor
from publisher.sources.mysql.address import Address
from publisher.sources.mysql.datastore import MySqlDatastore
from publisher.sources.rocksdb import doctor as rocksdb_doctor
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.model.errors import UsageError
from wormhole.model.findings import Report, Severity
from wormholectl import doctor as commands
from wormholectl.doctor import examine


def test_the_exit_code_is_the_examinations(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def found(*arguments: object) -> int:
        asked.extend(arguments)
        return 1

    monkeypatch.setattr(commands, "examine", found)
    assert run("doctor", "rocksdb:///store", "--json", "--state-dir", "/state") == (1, "", "")
    assert asked == ["rocksdb:///store", Path("/state"), True, None]


def test_without_a_url_it_is_the_installation(admin: FakeAdmin) -> None:
    code, out, err = run("doctor", "-p", "h:7")
    assert (code, err) == (1, "")
    assert "PROBLEM  flows: held: mail/db1" in out
    assert "next: wormholectl why-lag mail/db1" in out
    code, out, _ = run("doctor", "-p", "h:7", "--json")
    assert (code, json.loads(out)["severity"]) == (1, "problem")


def test_of_an_installation_that_does_not_answer() -> None:
    code, out, err = run("doctor", "-p", "127.0.0.1:1")
    assert (code, err) == (3, "")
    assert "PROBLEM  publishers: the publisher at 127.0.0.1:1 does not answer" in out


def test_nothing_says_what_to_look_at() -> None:
    code, out, err = run("doctor")
    assert (code, out) == (2, "")
    assert "-c FILE.toml" in err


URL = "rocksdb:///store"


def report(*severities: Severity) -> Report:
    made = Report(URL, {"library": "9.8"})
    for severity in severities:
        made.add("recycling", severity, "files are reused", "links do not hold", "turn it off")
    return made


@pytest.mark.parametrize(
    ("severities", "code"),
    [((), 0), ((Severity.OK, Severity.WARN), 0), ((Severity.WARN, Severity.PROBLEM), 1)],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_the_exit_code_tells_of_problems(
    severities: tuple[Severity, ...], code: int, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_doctor, "check", lambda url, state_dir: report(*severities))
    assert examine(URL, Path("/state"), as_json) == code


def test_what_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(rocksdb_doctor, "check", lambda url, state_dir: report(Severity.OK, Severity.PROBLEM))
    examine(URL, Path("/state"), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [URL, "  library: 9.8", "ok       recycling: files are reused"]
    assert lines[5:] == [
        "PROBLEM  recycling: files are reused",
        "         links do not hold",
        "         next: turn it off",
        "1 problem, 0 notes",
    ]
    examine(URL, Path("/state"), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["severity"], len(told["findings"])) == (1, "problem", 2)


def test_other_sources_have_no_doctor() -> None:
    with pytest.raises(UsageError):
        examine("oracle://h/", Path("/state"), as_json=False)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_server_is_examined_with_the_account_of_the_url(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Address] = []

    def check(address: Address) -> Report:
        seen.append(address)
        return Report(address.url)

    monkeypatch.setattr(mysql_doctor, "check", check)
    (tmp_path / "password").write_text("top secret\n")
    assert examine(f"{kind}://reader@db1:3307", Path("/state"), False, tmp_path / "password") == 0
    assert (seen[0].user, seen[0].host, seen[0].port, seen[0].password) == ("reader", "db1", 3307, "top secret")
    assert capsys.readouterr().out.splitlines()[0] == f"{kind}://reader@db1:3307"


def test_an_installation_without_the_driver_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'pymysql'", name="pymysql")

    monkeypatch.setattr(MySqlDatastore, "examine", missing)
    with pytest.raises(UsageError) as caught:
        examine("mariadb://reader@db1", Path("/state"), as_json=False)
    assert caught.value.hint == "pip install 'wormhole-pubsub[publisher,mysql]'"
