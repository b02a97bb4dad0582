"""``wormholectl sink check`` and ``sink show``."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import pytest

from sinks.commands.progress import show_progress
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin
from wormhole.host.where import Where
from wormhole.wire.v1 import admin_pb2


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file with a sink for the application of the fake publisher, and one whose folder is missing."""
    (tmp_path / "lines").mkdir()
    file = tmp_path / "shop.toml"
    file.write_text(
        f"version = 1\n[sinks.cache]\nurl = 'jsonlines://{tmp_path}/lines'\n"
        f"[sinks.more]\napplication = 'none'\nurl = 'jsonlines://{tmp_path}/missing'\n"
    )
    return file


def test_every_sink_of_a_file_is_checked_and_one_that_is_named(config: Path) -> None:
    code, out, _ = run("sink", "check", "-c", str(config), "--json")
    found = {one["sink"]: one for one in check("sink-check", out)["sinks"]}
    assert (code, found["cache"]["severity"]) == (3, "ok")
    assert [one["code"] for one in found["more"]["findings"]] == ["target-unavailable"]
    code, out, _ = run("sink", "check", "cache", "-c", str(config))
    assert (code, "missing" in out) == (0, False)
    assert "sink cache: JSON lines, at least once, application cache" in out


@pytest.mark.parametrize(
    ("sink", "code"),
    [
        ("url = 'nats://me@127.0.0.1:1'\npassword_file = 'missing'", "login-refused"),
        ("url = 'nats://127.0.0.1:1'\ncredentials_file = 'missing'", "login-refused"),
        ("url = 'tls://127.0.0.1:1'\nca_file = 'empty'", "certificate-refused"),
        ("url = 'rediss://127.0.0.1:1'\ntls_cert = 'empty'\ntls_key = 'empty'", "certificate-refused"),
        ("url = 'redis://127.0.0.1:1'\nhold_folder = 'missing'", "wrong-request"),
        ("url = 'nats://127.0.0.1:1'\nhold_folder = 'missing'", "wrong-request"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_problem_of_its_sink(config: Path, sink: str, code: str) -> None:
    (config.parent / "empty").touch()
    config.write_text(f"{config.read_text()}[sinks.other]\n{sink}\n")
    _, out, _ = run("sink", "check", "-c", str(config), "--json")
    found = {one["sink"]: one for one in check("sink-check", out)["sinks"]}
    assert found["cache"]["severity"] == "ok"
    assert [one["code"] for one in found["other"]["findings"]] == [code]


def test_a_path_and_a_query_that_may_be_secret_are_not_shown(config: Path) -> None:
    config.write_text("version = 1\n[sinks.hook]\nurl = 'https://a.example/secret?t=secret'\nsecret_file = 'missing'\n")
    code, out, err = run("sink", "check", "-c", str(config))
    assert (code, "https://a.example\n" in out, "/secret" in out + err) == (2, True, False)


def test_sinks_are_shown_with_their_flows_and_stores(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeAdmin().install(monkeypatch)
    code, out, _ = run("sink", "show", "-c", str(config), "--json")
    told = check("sink-show", out)
    first, second = told["sinks"]
    assert (code, told["flows_unknown"]) == (3, None)
    assert {flow["flow"] for flow in first["flows"]} == {"cache/db1"}
    assert (second["flows"], second["store"]["severity"]) == ([], "problem")
    _, out, _ = run("sink", "show", "-c", str(config))
    title, *rows = (line.split() for line in out.splitlines())
    assert (title[0], [row[0] for row in rows[:2]]) == ("SINK", ["cache", "more"])
    assert "1 live" in out


def test_sinks_are_shown_though_no_publisher_answers(config: Path) -> None:
    (config.parent / "missing").mkdir()
    code, out, err = run("sink", "show", "-c", str(config))
    assert (code, "cache" in out) == (3, True)
    assert "warning: " in err


def test_a_file_without_sinks_has_none_to_show(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("version = 1\n")
    assert run("sink", "show", "-c", str(file)) == (0, "no sinks\n", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Rounds(threading.Event):
    """Ends after the states were seen, each in a round."""

    def __init__(self, backfill: admin_pb2.BackfillStatus, *states: str) -> None:
        super().__init__()
        self.backfill = backfill
        self.states = list(states)

    def wait(self, timeout: float | None = None) -> bool:
        if self.states:
            self.backfill.state = self.states.pop(0)
            return False
        return True


def test_a_terminal_shows_the_progress_of_existing_rows_until_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = FakeAdmin().install(monkeypatch)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    backfill = admin.status.flows[0].backfill
    backfill.MergeFrom(admin_pb2.BackfillStatus(generation=1, rows=1200, share=0.5))
    show_progress("cache", Where(), Rounds(backfill, "done", "running", "running", "done", "done"))
    shown = terminal.getvalue()
    assert shown.count("[############............]  50%") == 2
    assert shown.count("\n") == 1, "rows that were sent before are no news"
    assert shown.endswith("1 of 1 flow ended\n")
