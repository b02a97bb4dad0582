"""``wormholectl sink check`` and ``sink show``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.fake_admin import FakeAdmin


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
