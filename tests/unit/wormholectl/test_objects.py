"""``wormholectl objects`` and what ``init`` makes; tests/integration/test_postgres_commands.py has a server."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastores.mysql.datastore import MySqlDatastore
from tests.support.command_line import run
from tests.unit.wormholectl.init.test_commands import Terminal
from wormhole.model.errors import SourceUnavailable
from wormhole.model.findings import Report, Severity
from wormhole.ports.datastore import Login, ServerObjects
from wormholectl.exit_codes import BROKEN

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

    def examine(self, url: str) -> Report:
        report = Report(url)
        if self.objects.missing:
            report.add("objects", Severity.PROBLEM, "something is missing", "nothing can be read", MADE)
        return report

    def run(self, _url: str, _login: object, statements: Sequence[str]) -> None:
        if self.refuses:
            raise SourceUnavailable("no right to that", hint="run: make it;")
        self.ran += statements
        self.objects = ServerObjects((), (DROPPED,), left_out=self.objects.left_out)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    server = Server()
    monkeypatch.chdir(tmp_path)
    replaced: dict[str, Any] = {
        "server_objects": lambda _, url, login, _tables=(): server.find(url, login),
        "run_statements": lambda _, *given: server.run(*given),
        "url_of_log": lambda _, url, log, configured="": f"{url}/?ca=/{log}",
        "examine": lambda _, url, *_given: server.examine(url),
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
    assert run("objects", "create", URL, "--log", "one")[1] == "nothing is missing for the log one\n"
    code, out, err = run("objects", "drop", URL, "--yes")
    assert (code, out.splitlines()[-1], err) == (0, "dropped", "warning: 3 MiB are kept\n")
    assert server.ran == [MADE, DROPPED]
    server.objects = ServerObjects((MADE,), ())
    assert run("objects", "drop", URL)[:2] == (0, "nothing is there\n")


@pytest.mark.parametrize(("missing", "made"), [((), []), ((MADE,), [MADE])])
def test_a_named_table_that_cannot_be_published_is_an_error_and_the_others_are_made(
    server: Server, missing: tuple[str, ...], made: list[str]
) -> None:
    server.objects = ServerObjects(missing, (), left_out="it leaves out public.keyless (no key)")
    code, out, err = run("objects", "create", URL, "--tables", "public.*", "--yes")
    assert (code, server.ran, "nothing is missing" in out) == (BROKEN, made, False)
    assert "public.keyless (no key)" in err
    server.objects = replace(server.objects, missing=())
    assert run("objects", "create", URL, "--yes")[0] == 0, "it was not asked for"


def test_other_logs_are_named_and_left_alone(server: Server) -> None:
    nothing = server.objects = ServerObjects((MADE,), (), others=("slot=two",))
    code, out, _ = run("objects", "create", URL, "--yes")
    assert (code, "The objects of other logs stay: slot=two" in out) == (0, True)
    server.objects = nothing
    code, out, err = run("objects", "drop", URL, "--log", "one", "--yes")
    assert (code, out) == (2, "")
    assert "nothing is there for the log one; of other logs there is slot=two" in err
    assert "--log NAME" in err


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
    code, _, err = run("objects", "create", "mysql://app@db2:3306", "-c", "shop.toml", "--yes")
    assert (code, "shop.toml has no log at mysql://app@db2:3306" in err) == (2, True)
    code, _, err = run("objects", "create", URL, "-c", "shop.toml", "--log", "db8", "--yes")
    assert (code, "choose one with --log: shop/main/db7" in err) == (2, True)
    assert server.ran == []


def test_of_two_logs_at_one_place_the_named_one_counts(server: Server) -> None:
    Path("shop.toml").write_text(
        f'version = 1\n[coordinator]\nstatic = true\n[datasets.shop.copies.main.logs.one]\nsource = "{URL}"\n'
        f'[datasets.crm.copies.main.logs.two]\nsource = "{URL}"\n[applications.cache]\ndataset = "crm"\n'
        'start = "latest"\nsubscribers = { one = "127.0.0.1:7400" }\n'
    )
    server.objects = ServerObjects((), (DROPPED,))
    code, _, err = run("objects", "drop", URL, "-c", "shop.toml", "--yes")
    assert (code, server.ran, server.asked) == (2, [], [])
    assert "shop.toml has several logs at mysql://app@db1:3306" in err
    assert "--log: shop/main/one, crm/main/two" in err
    for name, receives in (("one", False), ("two", True), ("crm/main/two", True)):
        code, _, err = run("objects", "drop", URL, "-c", "shop.toml", "--log", name, "--yes")
        assert (code, "gives this log to cache" in err) == (0, receives)
    assert server.asked == [f"{URL}/?ca=/{name}" for name in ("one", "two", "two")]


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
    code, out, _ = run("init", URL, "--log", "two")
    assert (code, server.ran) == (BROKEN, [])
    assert f"Nothing was made. Run the statements, or: wormholectl objects create {URL} --log two" in out
    for answer in ("n\n", "y\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}"))
        from wormholectl.init.commands import _made

        _made(MySqlDatastore(), URL, Login(), server.objects, False, URL)
    assert server.ran == [MADE]
    server.objects = ServerObjects((MADE,), ())
    code, out, _ = run("init", URL, "--yes", "--force")
    assert (code, "\nmade\n" in out, server.ran) == (0, True, [MADE, MADE])
    server.objects = ServerObjects((MADE,), ())
    server.refuses = True
    code, out, _ = run("init", URL, "--yes", "--force")
    assert (code, "not all was made: no right to that\nnext:\n  run: make it;\n" in out) == (BROKEN, True)
    server.objects = ServerObjects((), (DROPPED,))
    assert "make it" not in run("init", URL, "--yes", "--force")[1]


def test_init_gives_a_log_no_name_that_another_publisher_has(server: Server) -> None:
    """Two configurations of one database: each log is named after the database if nothing else is said."""
    server.objects = ServerObjects((), (DROPPED,), publisher="process 7 moves them", in_use="process 7 moves them")
    code, out, err = run("init", URL, "--yes")
    assert (code, out, list(Path().iterdir())) == (2, "", [])
    assert "the log db1 of another configuration is served already: process 7 moves them" in err
    assert "--log NAME gives this log another name" in err
    Path("db1.toml").write_text("ours")
    assert run("init", URL, "--force")[0] == 0, "it is ours"
    Path("db1.toml").unlink()
    server.objects = ServerObjects((), (DROPPED,))
    code, out, _ = run("init", URL, "--force", "--log", "two")
    assert code == 0
    assert "What the publisher of the log two needs is there already. If it is another configuration's" in out
    assert "[datasets.db1.copies.main.logs.two]" in Path("db1.toml").read_text()
