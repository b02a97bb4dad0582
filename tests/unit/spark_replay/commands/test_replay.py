"""The options of ``wormholectl replay``, and what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.commands.show_replay import Teller, bar, show_cancelled, show_plan, show_reports
from spark_replay.replay import job
from spark_replay.replay.estimate import Estimate
from spark_replay.replay.flow_plans import no_subscriber_takes, plan
from spark_replay.replay.job import Replay, Replayed
from spark_replay.replay.progress import Pace, ReplayProgress
from spark_replay.replay.request import FlowReport
from tests.support.archives import marker_at
from tests.support.cli_schema import check
from tests.support.command_line import run
from tests.support.replay_plans import archived, flow, seen, setting, wish
from wormhole.host.where import Where

# --- replay ---


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


# --- show replay ---


GOING = ReplayProgress(5, 10, 5, 500, 1.0, 100.0, None, (0, 1))


def test_the_bar_says_how_far_how_fast_and_for_how_long() -> None:
    pace = Pace()
    pace.look(0.0, 0, 1000, 0, 0, (0, 2))
    assert bar(pace.look(10.0, 250, 1000, 12_340, 5 << 20, (1, 4), 2)) == (
        "[######..................]  25%  12,340 updates  1,234/s  512 KiB/s  30s left  "
        "1 of 4 flows done, 2 pushing, 1 waiting"
    )


def test_at_the_end_nothing_is_left() -> None:
    assert "left" not in bar(ReplayProgress(10, 10, 10, 10, 1.0, 1.0, 0.0, (1, 1)))


def test_programs_get_objects_only_and_people_lines_beside_what_they_redirect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for as_json in (True, False):
        teller = Teller("r-1", as_json=as_json)
        teller.says("starting Spark")
        teller.moves(GOING)
        teller.moves(GOING)
        teller.close()
        out, err = capsys.readouterr()
        if as_json:
            for line in out.splitlines():
                assert check("replay-progress", line)["progress"]["share"] == 0.5
            assert err == "starting Spark\n"
        else:
            assert out == ""
            assert len(err.splitlines()) == 2, "a line now and then, no bar"


def test_a_plan_with_a_snapshot_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = archived(tmp_path)
    looked = seen(flow("a", marker_at(0)), flow("b", marker_at(0)))
    plans = plan(wish(), setting(store), [looked])
    counted = {one.shard: Estimate(one.shard, 400_000, 60 << 20, 100_000) for one in plans}
    show_plan(plans, counted, 2, 0.0, as_json=True)
    planned = check("replay-plan", capsys.readouterr().out)
    assert ([one["flow"] for one in planned["flows"]], planned["problem"]) == (["cache/a", "cache/b"], "")
    plans[0].snapshot_rows = 40_000_000
    show_plan(plans, counted, 2, 0.0, as_json=True)
    assert check("replay-plan", capsys.readouterr().out)["seconds"] > 10 * planned["seconds"], "its rows are pushed too"
    show_plan(plans, counted, 2, 1 << 20, as_json=True)
    assert check("replay-plan", capsys.readouterr().out)["seconds"] >= 120, "no faster than it may"
    show_plan(plans, counted, 2, 0.0, as_json=False)
    told = capsys.readouterr().out
    assert "40,000,000" in told
    assert "not now" not in told


def test_a_plan_says_when_nobody_would_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans = plan(wish(), setting(archived(tmp_path)), [seen(flow("a", marker_at(0)), connected=False)])
    counted, away = {"a": Estimate("a", 3, 100, 2)}, no_subscriber_takes("cache", plans)
    show_plan(plans, counted, 2, 0.0, away, as_json=True)
    assert "no subscriber of cache is connected" in check("replay-plan", capsys.readouterr().out)["problem"]
    show_plan(plans, counted, 2, 0.0, away, as_json=False)
    assert "not now: the updates cannot be delivered" in capsys.readouterr().out


def test_what_became_of_each_flow(capsys: pytest.CaptureFixture[str]) -> None:
    reports = [
        FlowReport("cache/a", "log", True, "live", "1/1/300", 5, 50),
        FlowReport(
            "cache/b",
            "latest",
            False,
            "needs_replay",
            "1/1/0",
            0,
            0,
            "the handler gave up",
            "mend it",
            "handler-failed",
        ),
    ]
    show_reports("r-1", reports, as_json=True)
    check("replay-ended", capsys.readouterr().out)
    show_reports("r-1", reports, as_json=False)
    assert "cache/b: the handler gave up [handler-failed]\n  next: mend it" in capsys.readouterr().out


def test_what_was_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    show_cancelled("r-1", [("cache/a", "live")], as_json=True)
    check("replay-cancelled", capsys.readouterr().out)
    show_cancelled("r-1", [("cache/a", "live")], as_json=False)
    assert capsys.readouterr().out.split() == ["FLOW", "STATE", "cache/a", "live"]
