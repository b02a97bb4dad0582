from __future__ import annotations

from pathlib import Path

import pytest

from monitor import daemon
from publisher import daemon as publisher_daemon
from tests.support.command_line import run
from tests.unit.wormhole.config.test_check import DATASET, toml
from wormhole.host import logs
from wormholectl.run import background as up_background
from wormholectl.run import up


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
