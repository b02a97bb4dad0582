from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.replay import job
from spark_replay.replay.job import Replay, Replayed
from spark_replay.replay.request import FlowReport
from tests.support.command_line import run
from wormhole.host.where import Where


class Asked:
    """In place of the job: notes what it is given."""

    def __init__(self) -> None:
        self.replays: list[Replay] = []
        self.cancelled: list[str] = []
        self.handed_over = True

    def run(self, _: Where, replay: Replay, observer: object) -> Replayed:
        self.replays.append(replay)
        report = FlowReport("cache/db1", "log", self.handed_over, "live", "", 0, 0)
        return Replayed("r-1", [report], [])

    def cancel(self, _: Where, replay: str) -> list[tuple[str, str]]:
        self.cancelled.append(replay)
        return []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(job, "run_replay", found.run)
    monkeypatch.setattr(job, "cancel_replay", found.cancel)
    return found


def test_what_was_asked_is_handed_on(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORMHOLE_ARCHIVE", "s3://b/a /srv/archive")
    asked.handed_over = False
    status, _, _ = run("replay", "--app", "cache", "--shards", "a*,b", "--rate", "2MB/s", "--since", "2h", "-p", "h:1")
    (one,) = asked.replays
    assert (status, one.archives) == (1, ("s3://b/a", "/srv/archive"))
    assert (one.shards, one.rate, one.since, one.mode) == (("a*", "b"), 2_000_000, "2h", "auto")
    assert (one.patience_s, one.lease_s) == (Replay().patience_s, Replay().lease_s)


def test_a_snapshot_is_found_from_any_folder(asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("s", "s3://bucket/s"):
        assert run("replay", "--app", "cache", "--snapshot", given, "-p", "h:1")[0] == 0
    assert [one.snapshot for one in asked.replays] == [str(tmp_path / "s"), "s3://bucket/s"]


def test_cancelling_needs_nothing_but_the_id(asked: Asked) -> None:
    assert run("replay", "--cancel", "r-1", "-p", "h:1")[0] == 0
    assert asked.cancelled == ["r-1"]


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
