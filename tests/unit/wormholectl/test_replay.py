from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import run
from wormholectl import replay_job
from wormholectl.options import Where
from wormholectl.replay_job import Request


def noting(asked: list[Request], status: int) -> Callable[[Where, Request], int]:
    def replay(_: Where, asking: Request) -> int:
        asked.append(asking)
        return status

    return replay


def test_what_was_asked_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []
    monkeypatch.setattr(replay_job, "replay", noting(asked, 1))
    monkeypatch.setenv("WORMHOLE_ARCHIVE", "s3://b/a /srv/archive")
    status, _, _ = run("replay", "--app", "cache", "--shards", "a*,b", "--rate", "2MB/s", "--since", "2h", "-p", "h:1")
    assert (status, asked[0].archives) == (1, ("s3://b/a", "/srv/archive"))
    assert (asked[0].shards, asked[0].rate, asked[0].since, asked[0].mode) == (("a*", "b"), 2_000_000, "2h", "auto")


def test_a_snapshot_is_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Request] = []
    monkeypatch.setattr(replay_job, "replay", noting(asked, 0))
    monkeypatch.chdir(tmp_path)
    for given in ("s", "s3://bucket/s"):
        run("replay", "--app", "cache", "--snapshot", given, "-p", "h:1")
    assert [one.snapshot for one in asked] == [str(tmp_path / "s"), "s3://bucket/s"]


def test_cancelling_needs_nothing_but_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def cancel(_: Where, number: str, as_json: bool) -> int:
        asked.append((number, as_json))
        return 0

    monkeypatch.setattr(replay_job, "cancel", cancel)
    assert run("replay", "--cancel", "r-1", "-p", "h:1")[0] == 0
    assert asked == [("r-1", False)]


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--resume", "r", "--cancel", "r"),
        ("--resume", "r", "--since", "2h"),
        ("--app", "cache", "--snapshot", "s", "--since", "2h"),
        ("--cancel", "r", "--snapshot", "s"),
        ("--app", "cache", "--rate", "fast"),
        ("--app", "cache", "--rate", "9" * 400 + "MB/s"),
        ("--app", "cache", "--patience", "long"),
        ("--app", "cache", "--lease", "0s"),
        ("--app", "cache", "--lease", "2h"),
    ],
)
def test_what_does_not_fit_together_is_refused(options: tuple[str, ...]) -> None:
    status, _, error = run("replay", *options)
    assert status == 2
    assert "next:" in error
