"""`up --detach` and `down`, and the command of one publisher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor import daemon
from monitor.processes import run_file
from monitor.state import LogKey
from publisher import daemon as publisher_daemon
from tests.support import stub_publisher
from tests.support.command_line import run
from tests.support.eventually import PATIENCE_S
from tests.unit.wormhole.config.test_check import DATASET, toml
from wormhole.host import logs
from wormhole.host.ready_file import process_started
from wormhole.model.errors import Fatal, Retryable, UsageError, WormholeError
from wormholectl.run import background as up_background
from wormholectl.run import up
from wormholectl.run.background import detached, down

# --- background ---


KEY = LogKey("shop", "main", "db1")
TELLS = "import os, sys; os.write(int(sys.argv[1]), sys.argv[2].encode())"


def reporting(monkeypatch: pytest.MonkeyPatch, told: object, code: str = TELLS) -> None:
    text = "" if told is None else json.dumps(told) + "\n"
    monkeypatch.setattr(
        up_background, "_command", lambda file, folder, to: [sys.executable, "-I", "-S", "-c", code, str(to), text]
    )


def test_it_returns_with_what_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reporting(monkeypatch, {"ready": True, "text": "2 publishers running", "waiting": []})
    detached(tmp_path / "shop.toml", None)
    assert capsys.readouterr() == ("2 publishers running\n", "")
    assert (tmp_path / ".wormhole" / "shop" / "up.log").exists()


def test_who_waits_at_a_terminal_knows_for_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reporting(monkeypatch, {"ready": True, "text": "1 publisher running", "waiting": []})
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    detached(tmp_path / "shop.toml", None)
    assert "up.log" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("told", "kind", "says"),
    [
        (
            {"ready": False, "text": "x", "waiting": ["shop/main/db1 is not ready"], "given_up": False, "undo": ""},
            Fatal,
            "db1 is not ready.*keeps trying",
        ),
        (
            {"ready": False, "text": "x", "waiting": ["shop/main/db1 has no password"], "given_up": True, "undo": ""},
            Fatal,
            "no password.*correct that, then `wormholectl down",
        ),
        (
            {"ready": False, "text": "x", "waiting": ["vm is drained"], "given_up": False, "undo": "`drain vm --undo`"},
            Fatal,
            "^vm is drained .*Next: `drain vm --undo`$",
        ),
        (
            {"failed": "wrong file", "hint": "mend it", "code": "config-invalid", "exit_code": 2},
            UsageError,
            r"wrong file \[config-invalid\]. Next: mend it",
        ),
        (
            {"failed": "nothing answers", "hint": None, "code": "no-publisher", "exit_code": 3},
            Retryable,
            r"nothing answers \[no-publisher\]$",
        ),
        (None, Fatal, "ended before it was ready: a word at the end"),
    ],
)
def test_it_says_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: object, kind: type[WormholeError], says: str
) -> None:
    reporting(monkeypatch, told, TELLS if told else "print('a word at the end')")
    with pytest.raises(kind, match=says):
        detached(tmp_path / "shop.toml", None)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".wormhole").write_text("")
    with pytest.raises(UsageError, match="cannot be written") as caught:
        detached(tmp_path / "shop.toml", None)
    assert "--data" in str(caught.value.hint)


def test_the_background_process_runs_the_same_command(tmp_path: Path) -> None:
    assert up_background._command(Path("shop.toml"), tmp_path, 7)[1:] == [
        *("-P", "-m", "wormholectl", "up", "-f", str(Path.cwd() / "shop.toml"), "--data", str(tmp_path)),
        *("--report-to", "7"),
    ]


class Left:
    """A data folder with an ``up`` in it, or what one left."""

    def __init__(self, folder: Path) -> None:
        self.file, self.folder = folder / "shop.toml", folder / ".wormhole" / "shop"
        self.running = self.folder / "monitor" / "running"
        self.running.mkdir(parents=True)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        file = run_file(self.running, KEY, "abc")
        file.write_text(json.dumps({"publisher": {"state_dir": str(self.folder)}}))
        process = subprocess.Popen(stub_publisher.command(file, KEY), stderr=subprocess.PIPE)
        assert process.stderr is not None
        assert process.stderr.readline() == b"serving\n"
        self.processes.append(process)
        return process

    def tell(self, pid: int, started: int | None, timeout: float = 20.0) -> None:
        told = {"pid": pid, "started": started, "monitor": str(self.running.parent), "stop_timeout": timeout}
        (self.folder / "up.json").write_text(json.dumps(told))


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    left = Left(tmp_path)
    yield left
    for process in left.processes:
        process.kill()
        process.communicate()


def test_down_ends_a_running_up(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    process = left.start()
    left.tell(process.pid, process_started(process.pid))
    down(left.file, None)
    assert process.poll() == 0
    assert capsys.readouterr().out == f"stopped {left.file}\n"
    down(left.file, None)
    assert capsys.readouterr().out.startswith(f"nothing runs for {left.file}: there is no ")


def test_down_of_a_file_that_never_was_is_a_wrong_request(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        down(tmp_path / "shpo.toml", None)


def test_down_ends_the_publishers_that_a_killed_up_left(left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    process = left.start()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        left.tell(stranger.pid, 1)  # it got the number of the `up` that is gone, and is not touched
        down(left.file, None)
        assert process.poll() == 0
        assert stranger.poll() is None
        stranger.kill()
    assert "stopped 1 publisher left by" in capsys.readouterr().out
    left.tell(os.getpid(), 1)
    down(left.file, None)
    assert capsys.readouterr().out == f"nothing runs for {left.file}\n"


def test_down_kills_a_left_publisher_that_does_not_end(left: Left) -> None:
    (left.folder / "behaviour").write_text("deaf")
    process = left.start()
    left.tell(os.getpid(), 1, timeout=0.1)
    down(left.file, None)
    assert process.wait(PATIENCE_S) == -9


def test_down_says_when_an_up_does_not_end(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_background, "_SPARE_S", 0.0)
    (left.folder / "behaviour").write_text("deaf")
    process = left.start()
    left.tell(process.pid, process_started(process.pid), timeout=0.1)
    with pytest.raises(Fatal, match="has not ended"):
        down(left.file, None)
    assert process.poll() is None


def test_a_file_that_makes_no_sense_is_reported(left: Left) -> None:
    (left.folder / "up.json").write_text("{}")
    with pytest.raises(UsageError, match=r"up\.json cannot be read"):
        down(left.file, None)


# --- commands ---


def test_the_publisher_gets_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(publisher_daemon, "run", lambda config, *log: ran.extend((len(config.datasets), *log)))
    monkeypatch.setattr(logs, "configure", ran.append)
    file = str(toml(tmp_path, DATASET))
    assert run("publisher", "run", "-c", file, "--log", "shop/main/db1", "--log-level", "debug") == (0, "", "")
    assert run("publisher", "run", "-c", file) == (0, "", "")
    assert ran == ["debug", 1, "shop", "main", "db1", "info", 1, "shop", "main", "db1"]


def test_the_monitor_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(daemon, "run", lambda path, *, leave: ran.extend((path, leave)))
    monkeypatch.setattr(logs, "configure", ran.append)
    assert run("monitor", "run", "-c", "host.toml", "--leave-running", "--log-level", "error") == (0, "", "")
    assert ran == ["error", Path("host.toml"), True]


@pytest.mark.parametrize("detach", [True, False])
def test_up_and_down_get_theirs(monkeypatch: pytest.MonkeyPatch, detach: bool) -> None:
    ran: list[object] = []
    monkeypatch.setattr(up_background, "detached", lambda *arguments: ran.append(("detached", *arguments)))
    monkeypatch.setattr(up_background, "down", lambda *arguments: ran.append(("down", *arguments)))
    monkeypatch.setattr(up, "foreground", lambda *arguments: ran.append(("foreground", *arguments)))
    options = ["-f", "shop.toml", "--data", "here"]
    assert run("up", *options, *(["--detach"] if detach else [])) == (0, "", "")
    assert run("down", *options) == (0, "", "")
    file, data = Path("shop.toml"), Path("here")
    started = ("detached", file, data) if detach else ("foreground", file, data, -1)
    assert ran == [started, ("down", file, data)]
