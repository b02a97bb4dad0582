from __future__ import annotations

import errno
import io
import os
import sys
import tomllib
from pathlib import Path
from typing import IO, Any

import pytest

from datastores.mysql.datastore import MySqlDatastore
from tests.support.command_line import run
from tests.support.ports import free_port
from wormhole.config.datastores import datastore
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError
from wormhole.model.findings import Finding, Report, Severity
from wormholectl.exit_codes import BROKEN, UNREACHABLE
from wormholectl.init.commands import _wants_existing

FILES = {"shop.toml", "subscriber.py", "test_subscriber.py"}
MIRRORED = ["mysql://wormhole@127.0.0.1:1/shop", "--to"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def url() -> str:
    """A server that is not there."""
    return f"mysql://wormhole@127.0.0.1:{free_port()}/shop"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("url", "server", "database"),
    [
        ("mysql://u@h:1/shop", "mysql://u@h:1/", "shop"),
        ("mariadb://u@h/my%20shop?tls=off", "mariadb://u@h/?tls=off", "my shop"),
        ("mysql:///shop?socket=/s", "mysql:///?socket=/s", "shop"),
        ("mysql://u@h:1", "mysql://u@h:1", ""),
        ("mysql://u@h:1/", "mysql://u@h:1/", ""),
        ("mysql://u@h/shop/users", "mysql://u@h/shop/users", ""),  # `check_url` refuses it
        ("mysql://u@h/shop#x", "mysql://u@h/shop#x", ""),
        ("mysql://[/shop", "mysql://[/shop", ""),
        ("rocksdb:///var/lib/store", "rocksdb:///var/lib/store", ""),
    ],
)
def test_the_database_behind_a_server(url: str, server: str, database: str) -> None:
    assert datastore(url.partition(":")[0]).split_database(url) == (server, database)


def test_a_server_that_does_not_answer_is_said_and_no_hindrance(home: Path, url: str) -> None:
    code, out, err = run("init", url, "--dir", "new/folder")
    assert (code, err) == (UNREACHABLE, "")
    assert "not seen" in out
    assert "Connection refused" in out
    assert names(home / "new/folder") == FILES
    assert "(umask 077; cat > new/folder/shop.password)" in out
    assert "\n\nFirst the account's password, into a file that no other user can read:\n\n  (umask" in out
    assert "\n\nNext:\n\n  pytest" in out
    assert "wormholectl up -f new/folder/shop.toml --detach" in out
    assert run("config", "check", "new/folder/shop.toml")[0] == 0


def test_what_leads_to_the_server_is_kept(home: Path, url: str) -> None:
    key = home / "key.pem"
    key.write_text("no key")
    for option, ends in ((f"server_public_key={key}", BROKEN), ("unverified_server=may-read-password", UNREACHABLE)):
        code, _, _ = run("init", f"{url}?{option}", "--force")
        assert code == ends
        log = tomllib.loads((home / "shop.toml").read_text())["datasets"]["shop"]["copies"]["main"]["logs"]["db1"]
        assert option in log["source"]


def test_nothing_is_written_over(home: Path, url: str) -> None:
    (home / "subscriber.py").write_text("mine")
    code, _, err = run("init", url)
    assert code == 2
    assert "subscriber.py is there already: nothing was written" in err
    assert "--force" in err
    assert names(home) == {"subscriber.py"}
    assert run("init", url, "--force")[0] == UNREACHABLE
    assert names(home) == FILES
    assert "mine" not in (home / "subscriber.py").read_text()


def test_a_link_in_the_way_is_replaced_and_not_followed(home: Path, url: str) -> None:
    (home / "elsewhere").write_text("mine")
    (home / "subscriber.py").symlink_to("elsewhere")
    assert run("init", url, "--force")[0] == UNREACHABLE
    assert (home / "elsewhere").read_text() == "mine"
    assert not (home / "subscriber.py").is_symlink()


def test_a_full_disk_leaves_what_was_there(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "shop.toml").write_text("mine")
    full = OSError(errno.ENOSPC, "No space left on device")
    open_ = Path.open

    def limited(path: Path, *arguments: Any, **more: Any) -> IO[Any]:
        if path.name.startswith(".test_subscriber"):
            raise full
        opened: IO[Any] = open_(path, *arguments, **more)
        return opened

    monkeypatch.setattr(Path, "open", limited)
    code, _, err = run("init", url, "--force")
    assert code == 2
    assert "cannot be written to: No space left on device" in err
    assert names(home) == {"shop.toml"}
    assert (home / "shop.toml").read_text() == "mine"


def test_a_password_is_written_nowhere(home: Path, url: str) -> None:
    code, out, err = run("init", url.replace("wormhole@", "wormhole:a%20hole@"))
    assert code == UNREACHABLE
    assert err.count("warning: a password on the command line") == 1
    for text in (out, err, *(path.read_text() for path in home.iterdir())):
        assert "hole@" not in text.replace("wormhole@", "")
        assert "a hole" not in text
    log = tomllib.loads((home / "shop.toml").read_text())["datasets"]["shop"]["copies"]["main"]["logs"]["db1"]
    assert log["password_file"] == "shop.password"


@pytest.mark.parametrize("inside", [True, False])
def test_a_password_file_that_is_there_is_named(home: Path, url: str, inside: bool) -> None:
    file = home / ("out/p" if inside else "p")
    file.parent.mkdir(exist_ok=True)
    file.write_text("a hole")
    file.chmod(0o600)
    code, out, _ = run("init", url, "--dir", "out", "--password-file", os.path.relpath(file))
    assert code == UNREACHABLE
    assert "First the account's password" not in out
    found = tomllib.loads((home / "out/shop.toml").read_text())
    assert found["datasets"]["shop"]["copies"]["main"]["logs"]["db1"]["password_file"] == ("p" if inside else str(file))


def port_in(folder: Path) -> int:
    """The port of the subscriber that ``init`` wrote there."""
    (application,) = tomllib.loads((folder / "shop.toml").read_text())["applications"].values()
    (address,) = application["subscribers"].values()
    return int(address.rpartition(":")[2])


def test_a_port_in_use_is_left_alone(home: Path, url: str) -> None:
    import socket

    assert run("init", url)[0] == UNREACHABLE
    first = port_in(home)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", first))
            taken.listen()
        except OSError:
            pass  # another process has it: as good
        assert run("init", url, "--force")[0] == UNREACHABLE
    assert port_in(home) != first
    assert run("init", url, "--force")[0] == UNREACHABLE
    assert port_in(home) == first  # the same folder and application: the same port


def test_applications_whose_subscribers_do_not_run_yet_have_ports_of_their_own(home: Path, url: str) -> None:
    folders = [home / f"{number}" for number in range(4)]
    for folder in folders:
        run("init", url, "--dir", str(folder))
    run("init", url, "--dir", str(home / "other"), "--application", "search")
    assert len({port_in(folder) for folder in (*folders, home / "other")}) > 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mysql://db1/shop"], "names no user"),
        (["mysql://wormhole@db1/shop/users"], "must be mysql://user@host:3306"),
        (["oracle://wormhole@db1/shop"], "names no log"),
        (["rocksdb://var/lib/store"], "three slashes"),
        (["rocksdb:///etc/passwd"], "is a file, not a RocksDB"),
        (["mysql://wormhole@127.0.0.1:1/shop", "--application", "a b"], "must be a name"),
        (["mysql://wormhole@127.0.0.1:1/shop", "--password-file", "none"], "cannot be read"),
        (["rocksdb:///no/such/store", "--password-file", "none"], "a RocksDB has no password"),
        (["mysql://wormhole@127.0.0.1:1/shop", "--dir", "/dev/null/x"], "cannot be written to"),
        (["mysql://wormhole@127.0.0.1:1/shop", "--dir", "/proc"], "cannot be written to"),
        ([*MIRRORED, "fax://desk"], "no installed package has a sink for fax://"),
        ([*MIRRORED, "postgresql://w:hushhush@h/warehouse"], "--to-password-file names the file"),
        ([*MIRRORED, "jsonlines:relative"], "must be jsonlines:///absolute/folder"),
        ([MIRRORED[0], "--to-password-file", "secret"], "--to-password-file is for the store of --to"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_right_is_refused_and_nothing_is_written(home: Path, arguments: list[str], says: str) -> None:
    code, out, err = run("init", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err
    assert "hushhush" not in err
    assert not names(home)


def test_a_store_that_is_not_there_yet(home: Path) -> None:
    code, out, _ = run("init", "rocksdb:///no/such/shop")
    assert code == UNREACHABLE
    assert "there is no directory /no/such/shop" in out
    assert names(home) == FILES


def test_commands_are_quoted_for_a_shell(home: Path, url: str) -> None:
    _, out, _ = run("init", url, "--dir", "my files")
    assert "python 'my files/subscriber.py'" in out
    assert "wormholectl up -f 'my files/shop.toml' --detach" in out


@pytest.mark.parametrize(("typed", "start"), [("y\n", "existing"), ("\n", "latest"), ("", "latest")])
def test_a_person_is_asked_for_existing_rows(
    typed: str, start: str, home: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert _wants_existing(True, None) is (start == "existing")
    assert capsys.readouterr().err == "Send the rows that the tables hold already, too? [y/N] "
    assert not _wants_existing(False, None)
    assert _wants_existing(True, "existing")
    assert not _wants_existing(True, "latest")
    assert capsys.readouterr().err == "", "nobody is asked what is known"


def test_existing_rows_by_an_option(home: Path, url: str) -> None:
    code, out, err = run("init", url, "--start", "existing")
    assert (code, err) == (UNREACHABLE, "")
    assert "prints what is there, then what is committed" in out
    assert tomllib.loads((home / "shop.toml").read_text())["applications"]["cache"]["start"] == "existing"
    assert "class TableCopy" in (home / "subscriber.py").read_text()
    assert run("config", "check", "shop.toml")[0] == 0


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Severity.OK, 0),
        (Severity.WARN, 0),
        (Severity.PROBLEM, BROKEN),
        (UsageError("a wrong password"), BROKEN),
        (SourceUnavailable("nobody answers"), UNREACHABLE),
    ],
)
def test_the_exit_code_says_whether_a_publisher_could_run(
    found: Severity | WormholeError, code: int, home: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(_: object, url: str, *_more: object) -> Report:
        if isinstance(found, WormholeError):
            raise found
        return Report(url, findings=[Finding("log", found, "something")])

    monkeypatch.setattr(MySqlDatastore, "examine", examine)
    assert run("init", url)[0] == code
    assert names(home) == FILES


def test_one_login_serves_every_question(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person is asked for the password once."""
    logins: list[object] = []

    def examine(_: object, url: str, _folder: Path, login: object) -> Report:
        logins.append(login)
        return Report(url)

    monkeypatch.setattr(MySqlDatastore, "examine", examine)
    monkeypatch.setattr(MySqlDatastore, "server_objects", lambda _, _url, login: logins.append(login))
    assert run("init", url)[0] == 0
    assert len(logins) == 2
    assert logins[0] is logins[1]


def test_a_datastore_without_readable_rows_is_not_offered(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wormhole.config.datastores.reads_existing_rows", lambda scheme: False)
    code, out, err = run("init", url, "--start", "existing")
    assert (code, out, names(home)) == (2, "", set())
    assert "existing rows of MySQL and MariaDB cannot be read" in err
    assert "leave out --start" in err


# --- with a sink in place of a program


def test_a_sink_is_written_in_place_of_a_program(home: Path, url: str) -> None:
    secret = home / "target.password"
    sink = "postgresql://w@h:5432/warehouse"
    code, out, err = run("init", url, "--to", sink, "--to-password-file", str(secret), "--dir", "new")
    assert (code, err, names(home / "new")) == (UNREACHABLE, "", {"shop.toml"})
    found = tomllib.loads((home / "new/shop.toml").read_text())
    assert found["sinks"] == {"mirror": {"url": sink, "password_file": str(secret)}}
    assert found["applications"]["mirror"]["start"] == "existing"
    assert run("config", "check", "new/shop.toml")[0] == 0
    after = out.partition("\n\nNext:\n\n")[2]
    assert [line.split("   #")[0].strip() for line in after.splitlines()] == [
        "wormholectl sink check -c new/shop.toml",
        "wormholectl up -f new/shop.toml --detach",
        "wormholectl sink show -c new/shop.toml",
        "wormholectl verify mirror -c new/shop.toml",
    ]


@pytest.mark.parametrize("sink", ["jsonlines:///srv/lines", "redis://h"])
def test_a_store_whose_rows_cannot_be_compared_has_no_verify(home: Path, url: str, sink: str) -> None:
    _code, out, _err = run("init", url, "--to", sink)
    assert "wormholectl sink show" in out
    assert "verify" not in out


def test_a_sink_may_begin_with_the_next_change(home: Path, url: str) -> None:
    run("init", url, "--to", "jsonlines:///srv/lines", "--start", "latest", "--application", "search")
    found = tomllib.loads((home / "shop.toml").read_text())
    assert found["sinks"] == {"search": {"url": "jsonlines:///srv/lines"}}
    assert found["applications"]["search"]["start"] == "latest"
