"""``wormholectl doctor``, and the survey of publishers behind it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from datastores.mysql.datastore import MySqlDatastore
from datastores.mysql.doctor import examination as mysql_doctor
from datastores.mysql.server.address import Address
from datastores.rocksdb import doctor as rocksdb_doctor
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from tests.support.publisher_status import status
from tests.unit.wormhole.admin.test_discovery import static
from wormhole.admin.admin_service import Answer
from wormhole.model.errors import UsageError
from wormhole.model.findings import Finding, Report, Severity
from wormholectl.doctor.survey import clock_of, look
from wormholectl.shared.options import Where

# --- commands ---


def test_without_a_url_it_is_the_installation(admin: FakeAdmin) -> None:
    code, out, err = run("doctor", "-p", "h:7")
    assert (code, err) == (1, "")
    assert "PROBLEM  flows [flow-held]: held: mail/db1" in out
    assert "next: correct that, then wormholectl flows resume mail/db1" in out
    code, out, _ = run("doctor", "-p", "h:7", "--json")
    assert (code, json.loads(out)["severity"]) == (1, "problem")


def test_of_an_installation_that_does_not_answer() -> None:
    code, out, err = run("doctor", "-p", "127.0.0.1:1")
    assert (code, err) == (3, "")
    assert "PROBLEM  publishers [publisher-silent]: the publisher at 127.0.0.1:1 does not answer" in out


URL = "rocksdb:///store"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Severity]:
    """The severities that are found in the state folder /state."""
    severities: list[Severity] = []

    def check(url: str, state_dir: Path) -> Report:
        assert state_dir == Path("/state")
        report = Report(url, {"library": "9.8"})
        for severity in severities:
            report.add("recycling", severity, "files are reused", "links do not hold", "turn it off")
        return report

    monkeypatch.setattr(rocksdb_doctor, "check", check)
    return severities


def doctor(url: str, *options: str) -> tuple[int, str, str]:
    return run("doctor", url, "--state-dir", "/state", *options)


@pytest.mark.parametrize(
    ("severities", "code"),
    [((), 0), ((Severity.OK, Severity.WARN), 0), ((Severity.WARN, Severity.PROBLEM), 1)],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_exit_code_tells_of_problems(
    severities: tuple[Severity, ...], code: int, options: tuple[str, ...], found: list[Severity]
) -> None:
    found += severities
    assert doctor(URL, *options)[0] == code


def test_what_is_said(found: list[Severity]) -> None:
    found += (Severity.OK, Severity.PROBLEM)
    lines = doctor(URL)[1].splitlines()
    assert lines[:3] == [URL, "  library: 9.8", "ok       recycling: files are reused"]
    assert lines[5:] == [
        "PROBLEM  recycling: files are reused",
        "         links do not hold",
        "         next: turn it off",
        "1 problem, 0 notes",
    ]
    told = json.loads(doctor(URL, "--json")[1])
    assert (told["schema"], told["severity"], len(told["findings"])) == (1, "problem", 2)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_server_is_examined_with_the_account_of_the_url(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Address] = []

    def check(address: Address) -> Report:
        seen.append(address)
        return Report(address.url)

    monkeypatch.setattr(mysql_doctor, "check", check)
    (tmp_path / "password").write_text("top secret\n")
    code, out, _ = doctor(f"{kind}://reader@db1:3307", "--password-file", str(tmp_path / "password"))
    assert (seen[0].user, seen[0].host, seen[0].port, seen[0].password) == ("reader", "db1", 3307, "top secret")
    assert (code, out.splitlines()[0]) == (0, f"{kind}://reader@db1:3307")


CONFIG = """version = 1
[datasets.shop.copies.c.logs]
db1 = { source = "mysql://reader@db1:3306" }
[applications.a]
dataset = "shop"
start = "existing"
tables = ["shop.users", "shop.order*"]
[applications.b]
dataset = "shop"
start = "latest"
tables = ["shop.other"]
"""


def test_with_a_configuration_it_looks_at_the_rows_that_applications_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []

    def check_rows(_: Address, tables: Sequence[str]) -> list[Finding]:
        seen.append(tuple(tables))
        return [Finding("existing_rows", Severity.PROBLEM, "they may not be read", "none is sent", "GRANT SELECT")]

    monkeypatch.setattr(mysql_doctor, "check", lambda address: Report(address.url))
    monkeypatch.setattr(mysql_doctor, "check_existing_rows", check_rows)
    (tmp_path / "shop.toml").write_text(CONFIG)
    (tmp_path / "password").write_text("top secret\n")
    options = ("--password-file", str(tmp_path / "password"), "-c", str(tmp_path / "shop.toml"))
    code, out, _ = run("doctor", "mysql://reader@db1", *options)
    assert (code, seen) == (1, [("shop.users", "shop.order*")])
    assert "PROBLEM  existing_rows [account-lacks-rights]: they may not be read" in out
    code, _, err = run("doctor", "mysql://reader@db2", *options)
    assert (code, "shop.toml has no log at this URL" in err) == (0, True)
    assert len(seen) == 1


def test_logs_at_one_place_are_one_where_nothing_tells_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []
    second = '[datasets.crm.copies.c.logs]\ndb2 = { source = "mysql://reader@db1" }\n'

    def check_rows(_: Address, tables: Sequence[str]) -> list[Finding]:
        seen.append(tuple(tables))
        return []

    monkeypatch.setattr(mysql_doctor, "check", lambda address: Report(address.url))
    monkeypatch.setattr(mysql_doctor, "check_existing_rows", check_rows)
    other = '[applications.c]\ndataset = "crm"\nstart = "existing"\ntables = ["crm.*", "shop.users"]\n'
    (tmp_path / "shop.toml").write_text(CONFIG + second + other)
    (tmp_path / "password").write_text("top secret\n")
    options = ("--password-file", str(tmp_path / "password"), "-c", str(tmp_path / "shop.toml"))
    assert run("doctor", "mysql://reader@db1", *options)[0] == 0
    assert seen == [("shop.users", "shop.order*", "crm.*")]


def test_of_two_logs_it_examines_the_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls: list[str] = []

    def examine(_: object, url: str, *_given: object) -> Report:
        urls.append(url)
        return Report(url)

    monkeypatch.setattr(MySqlDatastore, "url_of_log", lambda _, url, log, configured="": f"{url}/?ca=/{log}")
    monkeypatch.setattr(MySqlDatastore, "examine", examine)
    monkeypatch.setattr(MySqlDatastore, "examine_existing_rows", lambda *_: [])
    (tmp_path / "shop.toml").write_text(CONFIG.replace("[app", 'db2 = { source = "mysql://reader@db1" }\n[app', 1))
    options = ("-c", str(tmp_path / "shop.toml"))
    code, _, err = run("doctor", "mysql://reader@db1", *options)
    assert (code, urls) == (2, [])
    assert "choose one with --log: shop/c/db1, shop/c/db2" in err
    assert run("doctor", "mysql://reader@db1", *options, "--log", "db2")[0] == 0
    assert urls == ["mysql://reader@db1/?ca=/db2"]


def test_without_the_driver_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'pymysql'", name="pymysql")

    monkeypatch.setattr(MySqlDatastore, "examine", missing)
    code, _, err = doctor("mariadb://reader@db1")
    assert (code, "pip install 'wormhole-pubsub[publisher,mysql]'" in err) == (2, True)


def test_with_a_configuration_it_looks_into_the_folder_of_binlog_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def check_folder(_: Address, folder: Path) -> list[Finding]:
        seen.append(folder)
        return [Finding("binlog_folder", Severity.WARN, "a file is missing", "a loss", "copy it")]

    monkeypatch.setattr(mysql_doctor, "check", lambda address: Report(address.url))
    monkeypatch.setattr(mysql_doctor, "check_binlog_folder", check_folder)
    (tmp_path / "password").write_text("top secret\n")
    listed = '[sources.there]\nsource = "mysql://reader@db1"\nbinlog_folder = "logs"\n'
    for log in ('source = "mysql://reader@db1", binlog_folder = "logs"', 'source = "there"'):
        text = f"version = 1\n[coordinator]\nstatic = true\n{listed}[datasets.shop.copies.c.logs]\ndb1 = {{ {log} }}\n"
        (tmp_path / "shop.toml").write_text(text)
        options = ("--password-file", str(tmp_path / "password"), "-c", str(tmp_path / "shop.toml"))
        code, out, _ = run("doctor", "mysql://reader@db1", *options)
        assert (code, "note     binlog_folder [log-kept-short]: a file is missing" in out) == (0, True)
    assert seen == [tmp_path / "logs"] * 2


# --- survey ---


class Page(BaseHTTPRequestHandler):
    """A health page whose clock is `ahead` seconds before ours."""

    ahead = 0.0

    def do_GET(self) -> None:
        self.send_response_only(200)
        self.send_header("Date", formatdate(time.time() + Page.ahead, usegmt=True))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def page() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def answer(address: str) -> Answer:
    told = status("db1")
    told.http_address = address
    return Answer("h:7", told)


@pytest.mark.parametrize("ahead", [0.0, 100.0, -100.0])
def test_a_clock_is_asked(ahead: float, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Page, "ahead", ahead)
    clock = clock_of(answer(page))
    assert (clock.name, clock.problem) == ("db-host", "")
    assert clock.ahead_s is not None
    assert abs(clock.ahead_s - ahead) <= 1.5


def test_a_clock_that_cannot_be_asked() -> None:
    clock = clock_of(answer("127.0.0.1:1"))
    assert clock.ahead_s is None
    assert "refused" in clock.problem


def test_one_publisher(page: str, admin: FakeAdmin, tmp_path: Path) -> None:
    admin.answers = [answer(page)]
    assert admin.answers[0].status is not None
    admin.answers[0].status.token_file = "/a/place/of/its/choice"
    admin.answers = [Answer("127.0.0.1:7", admin.answers[0].status)]
    seen = look(Where("127.0.0.1:7", folder=tmp_path))
    assert (seen.subject, seen.problem, seen.hosts, seen.logs) == ("127.0.0.1:7", "", (), ())
    assert [clock.name for clock in seen.clocks] == ["db-host"]
    assert [disk.path for disk in seen.disks] == [str(tmp_path)]
    assert seen.disks[0].free > 0


def test_a_static_installation_of_which_nothing_runs(tmp_path: Path) -> None:
    where = static(tmp_path, "127.0.0.1:0")
    (tmp_path / "state").mkdir()
    seen = look(where)
    assert (seen.problem, seen.answers, seen.logs) == ("", (), ("shop/main/db1",))
    assert [disk.path for disk in seen.disks] == [str(tmp_path / "state")]


def test_nothing_says_where_to_look() -> None:
    with pytest.raises(UsageError, match=r"-c FILE\.toml"):
        look(Where())
