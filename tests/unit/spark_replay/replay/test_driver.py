from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from spark_replay.replay.driver import Driver
from spark_replay.replay.planning import plan
from spark_replay.replay.task import Ended, Outcome, Task
from tests.support.archives import marker_at
from tests.support.replay_plans import Listener, archived, flow, seen, setting, wish
from tests.support.scripted_replay import Refused, ScriptedReplay, replay_publisher
from wormhole.errors import ReplayError


class Pushing:
    slots = 2

    def __init__(self, *fails: str) -> None:
        self.rates: list[float] = []
        self._fails = fails

    def log(self, task: Task) -> Outcome:
        self.rates.append(task.rate)
        if task.shard in self._fails:
            return Outcome(Ended.FAILED, 1, None, 0, 0, "no")
        return Outcome(Ended.DONE, 1, task.until, 2, 20)

    def stop(self) -> None:
        pass


@pytest.fixture
def script() -> Iterator[ScriptedReplay]:
    with replay_publisher(ScriptedReplay(marker_at(0))) as found:
        yield found


def driver(folder: Path, script: ScriptedReplay, jobs: Any, told: Listener) -> Driver:
    store = archived(folder)
    looked = seen(flow("a", marker_at(0)), flow("b", marker_at(0)), reach=script.reach)
    asked = wish(rate=100.0)
    return Driver(asked, setting(store), plan(asked, setting(store), [looked]), lambda: [looked], jobs, told)


def test_what_one_flow_cannot_go_on_with_ends_that_one_only(tmp_path: Path, script: ScriptedReplay) -> None:
    jobs, told = Pushing("b"), Listener()
    reports = {one.flow: one.handed_over for one in driver(tmp_path, script, jobs, told).run()}
    assert reports == {"cache/a": True, "cache/b": False}
    assert jobs.rates == [50.0, 50.0], "the rate is of all tasks together"
    assert told.moved[-1].flows == (2, 2)


def test_all_flows_are_held_or_none(tmp_path: Path, script: ScriptedReplay) -> None:
    answer, begun = script.answer, []

    def second_is_refused(request: Any) -> Any:
        if request.WhichOneof("what") == "begin":
            begun.append(request.flow)
            if len(begun) == 2:
                raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "another has it")
        return answer(request)

    script.answer = second_is_refused  # type: ignore[method-assign]
    jobs = Pushing()
    with pytest.raises(ReplayError, match="another has it"):
        driver(tmp_path, script, jobs, Listener()).run()
    assert "cancel" in script.asked
    assert jobs.rates == []
