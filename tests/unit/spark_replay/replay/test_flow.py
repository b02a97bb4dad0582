from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from spark_replay.archive.compact import Group, merge
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay.flow import FlowRun
from spark_replay.replay.planning import plan
from spark_replay.replay.task import Ended, Outcome, Task
from spark_replay.replay.wish import Seen
from tests.support.archives import marker_at, put, tx, write_archive
from tests.support.replay_plans import Listener, archived, flow, seen, setting, wish
from tests.support.scripted_replay import Refused, ScriptedReplay, replay_publisher
from wormhole.errors import ArchiveError, ReplayError
from wormhole.wire.v1 import admin_pb2


class Pushing:
    """In place of Spark: what each task came to, by a function of the task."""

    def __init__(self, does: Callable[[Task], Outcome]) -> None:
        self.tasks: list[Task] = []
        self._does = does

    def log(self, task: Task) -> Outcome:
        self.tasks.append(task)
        return self._does(task)


def done(task: Task) -> Outcome:
    return Outcome(Ended.DONE, 4, task.until, 5, 50)


@pytest.fixture
def script() -> Iterator[ScriptedReplay]:
    with replay_publisher(ScriptedReplay(marker_at(1))) as found:
        yield found


def run_of(store: ArchiveStore, script: ScriptedReplay, jobs: Any, **more: Any) -> FlowRun:
    looked = seen(flow("a", marker_at(1)), reach=script.reach)
    (one,) = plan(wish(shards=("a",)), setting(store), [looked])
    look: Callable[[], list[Seen]] = lambda: [looked]  # noqa: E731
    return FlowRun(one, wish(patience_s=0.0), setting(store, **more), look, jobs, Listener(), 0.0)


def test_a_flow_is_held_pushed_and_handed_over(tmp_path: Path, script: ScriptedReplay) -> None:
    jobs = Pushing(done)
    run = run_of(archived(tmp_path), script, jobs)
    run.begin()
    run.renew()
    report = run.run()
    assert script.asked == ["begin", "renew", "finish"]
    assert (report.handed_over, report.state, report.marker, report.updates) == (
        True,
        "live",
        str(marker_at(3).order),
        5,
    )
    assert (jobs.tasks[0].ticket, jobs.tasks[0].until) == ("t", marker_at(3))
    assert run.done_rows() == run.rows


def test_it_goes_on_until_the_log_reaches_back(tmp_path: Path, script: ScriptedReplay) -> None:
    store = archived(tmp_path)
    script.purged = [admin_pb2.PurgedLog(message="cut")]

    def grows(task: Task) -> Outcome:
        if task.until == marker_at(3):
            write_archive(tmp_path / "archive", {"a": [[tx(put(b"new", b"v"))]]})
        return done(task)

    jobs = Pushing(grows)
    run = run_of(store, script, jobs)
    run.begin()
    assert run.run().handed_over
    assert [(task.begin, task.until) for task in jobs.tasks] == [
        (marker_at(1), marker_at(3)),
        (marker_at(3), marker_at(4)),
    ]


class Folding(Pushing):
    """In place of Spark, for the last change of each key: the files that each job was to read."""

    def __init__(self, does: Callable[[Task], Outcome]) -> None:
        super().__init__(does)
        self.files: list[list[str]] = []

    def latest(self, task: Task, chosen: ShardFiles, *, by_values: bool) -> Outcome:
        self.files.append([entry.name for entry in chosen.files])
        return self.log(task)


def test_the_last_of_each_key_is_read_from_the_files_that_there_are_now(tmp_path: Path, script: ScriptedReplay) -> None:
    store = archived(tmp_path)
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"new", b"v"))]]})
    manifest = store.read("a")
    assert manifest is not None

    def merges(task: Task) -> Outcome:
        if len(jobs.tasks) > 1:
            return done(task)
        assert merge(store, Group("a", manifest.files[:2])).state == "merged"
        raise ArchiveError("the manifest names it, and it is not there")

    jobs = Folding(merges)
    run = run_of(store, script, jobs)
    run.plan.mode = "latest"
    run.begin()
    assert run.run().handed_over
    before, after = jobs.files
    assert (before[-1], len(before), len(after)) == (after[-1], 3, 2)

    run = run_of(store, script, always := Folding(fails))
    run.plan.mode = "latest"
    run.begin()
    assert "it is damaged" in run.run().message
    assert len(always.files) == 1, "nothing changed: it is not tried again"


def fails(task: Task) -> Outcome:
    raise ArchiveError("it is damaged")


def test_an_archive_that_does_not_grow_ends_in_a_loss_with_its_range(tmp_path: Path, script: ScriptedReplay) -> None:
    gap = admin_pb2.PurgedLog(message="cut", first_missing="7", last_missing="9")
    script.purged = [gap, gap]
    run = run_of(archived(tmp_path), script, Pushing(done))
    run.begin()
    report = run.run()
    assert not report.handed_over
    assert "7 to 9 is nowhere any more" in report.message
    assert script.asked[-2:] == ["finish", "finish"]


@pytest.mark.parametrize(
    ("ended", "asked", "text"),
    [
        (Ended.FAILED, "cancel", "the handler gave up; it needs a replay"),
        (Ended.UNREACHABLE, "cancel", "it needs a replay"),
        (Ended.SUPERSEDED, "cancel", "it needs a replay"),
    ],
)
def test_what_cannot_go_on_is_given_back_and_says_so(
    tmp_path: Path, script: ScriptedReplay, ended: Ended, asked: str, text: str
) -> None:
    run = run_of(archived(tmp_path), script, Pushing(lambda task: Outcome(ended, 1, None, 0, 0, "the handler gave up")))
    run.begin()
    report = run.run()
    assert script.asked[-1] == asked
    assert text in report.message
    assert report.hint == "mend that; then `wormholectl replay --resume r` goes on"
    assert report.state == "needs_replay"


def test_a_flow_that_cannot_be_begun_raises(tmp_path: Path, script: ScriptedReplay) -> None:
    script.refuses["begin"] = [Refused(grpc.StatusCode.FAILED_PRECONDITION, "another has it")]
    run = run_of(archived(tmp_path), script, Pushing(done))
    with pytest.raises(ReplayError, match="another has it"):
        run.begin()


def test_a_stopped_driver_leaves_the_flow_to_its_lease(tmp_path: Path, script: ScriptedReplay) -> None:
    run = run_of(archived(tmp_path), script, Pushing(done))
    run.begin()
    run.stopped.set()
    assert "for the length of its lease" in run.run().message
    assert "cancel" not in script.asked


def test_a_flow_that_goes_back_is_not_done_before_it_is_opened(tmp_path: Path, script: ScriptedReplay) -> None:
    run = run_of(archived(tmp_path), script, Pushing(done))
    script.marker = marker_at(3)  # where it stood: the first task sets it back
    run.begin()
    run.renew()
    assert run.done_rows() == 1
    script.epoch, script.marker = 1, marker_at(2)
    run.renew()
    assert run.done_rows() == 2


def test_what_was_pushed_is_told_although_the_publisher_was_not_asked_meanwhile(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    run = run_of(archived(tmp_path), script, Pushing(done))
    run.begin()
    run.run()
    assert run.pushed == (5, 50)


def test_the_next_step_is_told_before_what_goes_on_and_only_where_something_does(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    failed = Outcome(Ended.FAILED, 1, None, 0, 0, "it is damaged", "restore it")
    run = run_of(archived(tmp_path), script, Pushing(lambda task: failed))
    run.begin()
    assert run.run().hint == "restore it; then `wormholectl replay --resume r` goes on"
    script.state_after = "live"
    run = run_of(archived(tmp_path), script, Pushing(lambda task: failed))
    run.begin()
    report = run.run()
    assert (report.hint, "it is live again" in report.message) == ("restore it", True)
