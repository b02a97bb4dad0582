"""``wormholectl objects`` and what ``init`` makes; tests/integration/test_postgres_commands.py has a server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from publisher.sources.mysql.datastore import MySqlDatastore
from tests.support.command_line import run
from tests.unit.wormholectl.test_init import Terminal
from wormhole.model.errors import SourceUnavailable
from wormhole.model.findings import Report
from wormhole.ports.datastore import ServerObjects

URL = "mysql://app@db1:3306"
MADE, DROPPED = "make it;", "drop it;"


class Server:
    """A datastore that needs one thing. ``asked``: the URLs that were looked at."""

    def __init__(self) -> None:
        self.objects = ServerObjects((MADE,), (), kept="3 MiB are kept")
        self.asked: list[str] = []
        self.ran: list[str] = []
        self.refuses = False

    def find(self, url: str, _login: object) -> ServerObjects:
        self.asked.append(url)
        return self.objects

    def run(self, _url: str, _login: object, statements: Sequence[str]) -> None:
        if self.refuses:
            raise SourceUnavailable("no right to that", hint="run: make it;")
        self.ran += statements


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    server = Server()
    monkeypatch.chdir(tmp_path)
    replaced: dict[str, Any] = {
        "server_objects": lambda _, *given: server.find(*given),
        "run_statements": lambda _, *given: server.run(*given),
        "url_of_log": lambda _, url, log, configured="": f"{url}/?ca=/{log}",
        "examine": lambda _, url, *_given: Report(url),
        "configured_url": lambda _, url, _login: url,
    }
    for name, method in replaced.items():
        monkeypatch.setattr(MySqlDatastore, name, method)
    return server


def test_statements_are_shown_and_run_on_yes_only(server: Server) -> None:
    code, out, err = run("objects", "create", URL, "--log", "one")
    assert (code, MADE in out, "--yes" in err, server.ran) == (2, True, True, [])
    code, out, _ = run("objects", "create", URL, "--yes")
    assert (code, out.splitlines()[-1], server.ran) == (0, "made", [MADE])
    assert server.asked == [f"{URL}/?ca=/one", URL]
    server.objects = ServerObjects((), (DROPPED,), kept="3 MiB are kept")
    assert run("objects", "create", URL)[:2] == (0, "nothing is missing\n")
    code, out, err = run("objects", "drop", URL, "--yes")
    assert (code, out.splitlines()[-1], err) == (0, "dropped", "warning: 3 MiB are kept\n")
    assert server.ran == [MADE, DROPPED]
    server.objects = ServerObjects((MADE,), ())
    assert run("objects", "drop", URL)[:2] == (0, "nothing is there\n")


def test_what_is_used_is_not_dropped(server: Server) -> None:
    server.objects = ServerObjects((), (DROPPED,), in_use="process 7 reads it")
    code, out, err = run("objects", "drop", URL, "--yes")
    assert (code, DROPPED in out, server.ran) == (2, True, [])
    assert "nothing was dropped: process 7 reads it" in err


def test_the_log_of_a_configuration_gives_the_name(server: Server) -> None:
    Path("shop.toml").write_text(
        f'version = 1\n[coordinator]\nstatic = true\n[datasets.shop.copies.main.logs.db7]\nsource = "{URL}"\n'
    )
    run("objects", "create", URL, "-c", "shop.toml")
    assert server.asked == [f"{URL}/?ca=/db7"]


def test_who_receives_the_log_is_warned_about(server: Server) -> None:
    server.objects = ServerObjects((), (DROPPED,))
    Path("shop.toml").write_text(
        f'version = 1\n[coordinator]\nstatic = true\n[datasets.shop.copies.main.logs.db7]\nsource = "{URL}"\n'
        '[applications.cache]\ndataset = "shop"\nstart = "latest"\nsubscribers = { one = "127.0.0.1:7400" }\n'
    )
    code, _, err = run("objects", "drop", URL, "-c", "shop.toml")
    assert (code, "warning: shop.toml gives this log to cache" in err) == (2, True)


def test_a_datastore_that_needs_nothing(tmp_path: Path) -> None:
    code, _, err = run("objects", "create", f"rocksdb://{tmp_path}")
    assert (code, "needs nothing there" in err) == (2, True)


def test_init_makes_them_on_yes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("init", URL)
    assert (code, "Nothing was made" in out, server.ran) == (0, True, [])
    for answer in ("n\n", "y\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}"))
        from wormholectl.init import _made

        _made(MySqlDatastore(), URL, None, yes=False)
    assert server.ran == [MADE]
    code, out, _ = run("init", URL, "--yes", "--force")
    assert (code, "\nmade\n" in out, server.ran) == (0, True, [MADE, MADE])
    server.refuses = True
    code, out, _ = run("init", URL, "--yes", "--force")
    assert (code, "not all was made: no right to that" in out) == (0, True)
    server.objects = ServerObjects((), (DROPPED,))
    assert "make it" not in run("init", URL, "--yes", "--force")[1]
