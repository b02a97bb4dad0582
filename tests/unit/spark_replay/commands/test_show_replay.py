from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.commands.show_replay import Teller, bar, show_cancelled, show_plan, show_reports
from spark_replay.replay.estimate import Estimate
from spark_replay.replay.flow_plans import nobody_takes, plan
from spark_replay.replay.progress import Pace, ReplayProgress
from spark_replay.replay.request import FlowReport
from tests.support.archives import marker_at
from tests.support.cli_schema import check
from tests.support.replay_plans import archived, flow, seen, setting, wish

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
    counted, nobody = {"a": Estimate("a", 3, 100, 2)}, nobody_takes("cache", plans)
    show_plan(plans, counted, 2, 0.0, nobody, as_json=True)
    assert "no subscriber of cache is connected" in check("replay-plan", capsys.readouterr().out)["problem"]
    show_plan(plans, counted, 2, 0.0, nobody, as_json=False)
    assert "not now: nobody would take the updates" in capsys.readouterr().out


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
