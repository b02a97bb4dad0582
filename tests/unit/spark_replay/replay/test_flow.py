from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from spark_replay.archive.compact import Group, merge
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay import flow as flow_module
from spark_replay.replay.flow import ReplayFlow
from spark_replay.replay.flow_plans import plan
from spark_replay.replay.publisher import TIMEOUT_S
from spark_replay.replay.rate import Shares
from spark_replay.replay.request import FindPublishers, FoundPublisher
from spark_replay.replay.task import Ended, Task, TaskOutcome, push_log
from tests.support.archives import manifest_of, marker_at, put, tx, write_archive
from tests.support.replay_plans import Listener, archived, flow, seen, setting, wish
from tests.support.scripted_replay import Refused, ScriptedReplay, replay_publisher, takes_all
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, ReplayError, StreamBroken, WormholeError
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_from_message
from wormhole.wire.v1 import admin_pb2


class Pushing:
    """In place of Spark: what each task came to, by a function of the task."""

    def __init__(self, does: Callable[[Task], TaskOutcome]) -> None:
        self.tasks: list[Task] = []
        self._does = does

    def log(self, task: Task) -> TaskOutcome:
        self.tasks.append(task)
        return self._does(task)


def done(task: Task) -> TaskOutcome:
    return TaskOutcome(Ended.DONE, 4, task.until, 5, 50)


@pytest.fixture
def script() -> Iterator[ScriptedReplay]:
    with replay_publisher(ScriptedReplay(marker_at(1))) as found:
        yield found


def run_of(
    store: ArchiveStore,
    script: ScriptedReplay,
    jobs: Any,
    *,
    found: admin_pb2.FlowStatus | None = None,
    patience_s: float = 0.0,
    lease_s: float = 30.0,
    rate: float = 0.0,
) -> ReplayFlow:
    """``found``: the flow, once it is looked for."""
    looked = seen(flow("a", marker_at(1)), reach=script.reach)
    (one,) = plan(wish(shards=("a",)), setting(store), [looked])
    later = looked if found is None else seen(found, reach=script.reach)
    look: FindPublishers = lambda wanted: [later]  # noqa: E731
    asked = wish(patience_s=patience_s, lease_s=lease_s)
    return ReplayFlow(one, asked, setting(store), look, jobs, Listener(), Shares(rate, rate))


def begun(*given: Any, **more: Any) -> ReplayFlow:
    """The same, held."""
    run = run_of(*given, **more)
    run.begin()
    return run


def test_a_flow_is_held_pushed_and_handed_over(tmp_path: Path, script: ScriptedReplay) -> None:
    jobs = Pushing(done)
    run = begun(archived(tmp_path), script, jobs)
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
    assert (run.done_rows(), run.pushed) == (run.rows, (5, 50))


def test_it_goes_on_until_the_log_reaches_back(tmp_path: Path, script: ScriptedReplay) -> None:
    store = archived(tmp_path)
    script.purged = [admin_pb2.PurgedLog(message="cut")]

    def grows(task: Task) -> TaskOutcome:
        if task.until == marker_at(3):
            write_archive(tmp_path / "archive", {"a": [[tx(put(b"new", b"v"))]]})
        return done(task)

    jobs = Pushing(grows)
    assert begun(store, script, jobs).run().handed_over
    assert [(task.begin, task.until) for task in jobs.tasks] == [
        (marker_at(1), marker_at(3)),
        (marker_at(3), marker_at(4)),
    ]


class Folding(Pushing):
    """In place of Spark, for the last change of each key: the files that each job was to read."""

    def __init__(self, does: Callable[[Task], TaskOutcome]) -> None:
        super().__init__(does)
        self.files: list[list[str]] = []

    def latest(self, task: Task, chosen: ShardFiles, *, by_values: bool) -> TaskOutcome:
        self.files.append([entry.name for entry in chosen.files])
        return self.log(task)


def test_the_last_of_each_key_is_read_from_the_files_that_there_are_now(tmp_path: Path, script: ScriptedReplay) -> None:
    store = archived(tmp_path)
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"new", b"v"))]]})
    manifest = manifest_of(store)
    run = run_of(store, script, jobs := Folding(done))
    run.plan.mode = "latest"
    run.begin()
    planned = [entry.name for entry in run.plan.files]
    assert merge(store, Group("a", manifest.files[:2])).state == "merged"
    assert run.run().handed_over
    (read,) = jobs.files
    assert (len(planned), len(read), read[-1]) == (3, 2, planned[-1])


@pytest.mark.parametrize("error", [ArchiveUnavailable, ArchiveError])
def test_files_that_were_merged_while_they_were_read_are_read_where_they_went(
    tmp_path: Path, script: ScriptedReplay, error: type[WormholeError]
) -> None:
    store = archived(tmp_path)
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"new", b"v"))]]})
    manifest = manifest_of(store)

    def merges(task: Task) -> TaskOutcome:
        if len(jobs.files) == 1:
            assert merge(store, Group("a", manifest.files[:2])).state == "merged"
            raise error("it is not there any more")
        return done(task)

    run = run_of(store, script, jobs := Folding(merges))
    run.plan.mode = "latest"
    run.begin()
    assert run.run().handed_over
    assert [len(files) for files in jobs.files] == [3, 2]


def test_storage_that_is_away_for_a_moment_while_the_archive_should_grow_is_waited_for(
    tmp_path: Path, script: ScriptedReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_module, "_AGAIN_S", 0.0)
    store, away = archived(tmp_path), [ArchiveUnavailable("the bucket does not answer")]
    script.purged = [admin_pb2.PurgedLog(message="cut")]

    def grows(task: Task) -> TaskOutcome:
        write_archive(tmp_path / "archive", {"a": [[tx(put(b"new", b"v"))]]})
        monkeypatch.setattr(ArchiveStore, "read", fails_once)
        return done(task)

    read = ArchiveStore.read

    def fails_once(store: ArchiveStore, shard: str) -> Any:
        if away:
            raise away.pop()
        monkeypatch.setattr(ArchiveStore, "read", read)
        return read(store, shard)

    assert begun(store, script, Pushing(grows), patience_s=60.0).run().handed_over
    assert not away


@pytest.mark.parametrize("first", [None, marker_at(0)])
def test_the_publisher_keeps_where_the_snapshot_ends_whose_rows_come_first(
    tmp_path: Path, script: ScriptedReplay, first: Datamarker | None
) -> None:
    asked: list[admin_pb2.ReplayRequest] = []
    script.after = lambda request, _: asked.append(request)
    run = run_of(archived(tmp_path), script, Pushing(done))
    run.plan.first = first
    run.begin()
    (one,) = asked
    assert one.begin.HasField("snapshot") == (first is not None)
    assert first is None or marker_from_message(one.begin.snapshot) == run.plan.range.begin


# --- a publisher that was started again


def test_a_publisher_that_was_started_again_before_the_end_gets_the_flow_opened_once_more(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    script.refuses["finish"] = [Refused(grpc.StatusCode.ABORTED, "the epoch is over: a restart")]
    jobs = Pushing(lambda task: replace(done(task), epoch=4 + len(jobs.tasks)))
    run = begun(archived(tmp_path), script, jobs)
    report = run.run()
    assert (report.handed_over, report.marker) == (True, str(marker_at(3).order))
    assert [(task.begin, task.until) for task in jobs.tasks] == [
        (marker_at(1), marker_at(3)),
        (marker_at(3), marker_at(3)),
    ]
    assert script.asked == ["begin", "finish", "finish"]
    assert script.finished == [5, 6]


async def test_a_task_with_nothing_left_to_push_opens_the_flow_and_lets_go(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    script.refuses["finish"] = [Refused(grpc.StatusCode.ABORTED, "the epoch is over: a restart")]
    script.marker, script.epoch = marker_at(3), 4
    jobs = Pushing(lambda task: push_log(task) if task.begin == task.until else done(task))
    run = await asyncio.to_thread(lambda: run_of(archived(tmp_path), script, jobs, patience_s=60.0))
    await asyncio.to_thread(run.begin)
    async with scripted_subscriber("cache", "s1") as subscriber:
        script.address = subscriber.address
        running = asyncio.create_task(asyncio.to_thread(run.run))
        assert await takes_all(subscriber) == []
        assert (await running).handed_over
    assert script.finished == [4, 5]


@pytest.mark.parametrize(
    ("found", "handed_over"),
    [
        (flow("a", marker_at(3)), True),
        (flow("a", marker_at(2)), False),
        (flow("a", marker_at(3), replay=admin_pb2.ReplayStatus(replay="x")), False),
    ],
)
def test_a_flow_that_is_live_behind_the_replay_was_handed_over(
    tmp_path: Path, script: ScriptedReplay, found: admin_pb2.FlowStatus, handed_over: bool
) -> None:
    script.refuses["finish"] = [Refused(grpc.StatusCode.FAILED_PRECONDITION, "no replay of yours")]
    assert begun(archived(tmp_path), script, Pushing(done), found=found).run().handed_over is handed_over


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.FAILED_PRECONDITION,
    ],
)
def test_whatever_a_renewal_comes_to_does_not_end_who_renews(
    tmp_path: Path, script: ScriptedReplay, code: grpc.StatusCode
) -> None:
    script.refuses["renew"] = [Refused(code, "no")]
    run = begun(archived(tmp_path), script, Pushing(done))
    run.renew()
    run.renew()
    assert script.asked == ["begin", "renew", "renew"]


def test_an_archive_that_does_not_grow_ends_in_a_loss_with_its_range(tmp_path: Path, script: ScriptedReplay) -> None:
    gap = admin_pb2.PurgedLog(message="cut", first_missing="7", last_missing="9")
    script.purged = [gap, gap]
    run = begun(archived(tmp_path), script, Pushing(done))
    report = run.run()
    assert not report.handed_over
    assert "7 to 9 exists nowhere any more" in report.message
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
    run = begun(
        archived(tmp_path), script, Pushing(lambda task: TaskOutcome(ended, 1, None, 0, 0, "the handler gave up"))
    )
    report = run.run()
    assert script.asked[-1] == asked
    assert text in report.message
    assert report.hint == "correct that; then `wormholectl replay --resume r` goes on"
    assert report.state == "needs_replay"


def test_a_flow_that_cannot_be_begun_raises(tmp_path: Path, script: ScriptedReplay) -> None:
    script.refuses["begin"] = [Refused(grpc.StatusCode.FAILED_PRECONDITION, "another has it")]
    run = run_of(archived(tmp_path), script, Pushing(done))
    with pytest.raises(ReplayError, match="another has it"):
        run.begin()


def test_a_stopped_driver_leaves_the_flow_to_its_lease(tmp_path: Path, script: ScriptedReplay) -> None:
    run = begun(archived(tmp_path), script, Pushing(done))
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


def test_the_next_step_is_reported_before_what_goes_on_and_only_where_something_does(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    failed = TaskOutcome(Ended.FAILED, 1, None, 0, 0, "it is damaged", "restore it")
    run = begun(archived(tmp_path), script, Pushing(lambda task: failed))
    assert run.run().hint == "restore it; then `wormholectl replay --resume r` goes on"
    script.state_after = "live"
    run = begun(archived(tmp_path), script, Pushing(lambda task: failed))
    report = run.run()
    assert (report.hint, "it is live again" in report.message) == ("restore it", True)


def test_a_paused_flow_is_given_to_spark_again_when_it_is_no_longer_paused(
    tmp_path: Path, script: ScriptedReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_module, "_AGAIN_S", 0.01)
    ends = [Ended.PAUSED, Ended.DONE]

    def paused(_: admin_pb2.ReplayRequest, reply: admin_pb2.ReplayReply) -> None:
        reply.flow.paused = "maria" if script.asked.count("renew") in (1, 2) else ""

    script.after = paused
    jobs = Pushing(lambda task: TaskOutcome(ends.pop(0), 4, task.until, 5, 50))
    assert begun(archived(tmp_path), script, jobs).run().handed_over
    assert script.asked == ["begin", "renew", "renew", "renew", "finish"]
    first, second = jobs.tasks
    assert first.name != second.name


def test_a_stopped_driver_does_not_wait_for_a_paused_flow(tmp_path: Path, script: ScriptedReplay) -> None:
    script.paused = "maria"
    script.after = lambda _, reply: setattr(reply.flow, "paused", "maria")

    def stopped(task: Task) -> TaskOutcome:
        run.stopped.set()
        return TaskOutcome(Ended.PAUSED, 0, None, 0, 0)

    run = begun(archived(tmp_path), script, Pushing(stopped))
    assert "the driver was stopped, the flow is paused by maria" in run.run().message


class Withdrawing(Pushing):
    """Keeps which tasks were withdrawn."""

    def __init__(self, does: Callable[[Task], TaskOutcome]) -> None:
        super().__init__(does)
        self.withdrawn: list[Task] = []

    def withdraw(self, task: Task) -> None:
        self.withdrawn.append(task)


@pytest.fixture
def other() -> Iterator[ScriptedReplay]:
    """The next publisher of the log."""
    with replay_publisher(ScriptedReplay(marker_at(1))) as found:
        yield found


WENT_DOWN = Refused(grpc.StatusCode.UNAVAILABLE, "it went down")
ANOTHERS = Refused(grpc.StatusCode.NOT_FOUND, "another publisher has the address, and no such flow")


def moves(run: ReplayFlow, other: ScriptedReplay) -> None:
    run._find_publishers = lambda wanted: [seen(flow("a", marker_at(1)), reach=other.reach)]


@pytest.mark.parametrize("refused", [WENT_DOWN, ANOTHERS])
@pytest.mark.parametrize("opened", [False, True])
def test_a_task_is_withdrawn_when_its_publisher_is_elsewhere(
    tmp_path: Path, script: ScriptedReplay, other: ScriptedReplay, opened: bool, refused: Refused
) -> None:
    """Also one that has the flow open: it would dial the former address for as long as its patience lasts."""

    def waits(task: Task) -> TaskOutcome:
        if len(jobs.tasks) == 1:
            script.opener, script.updates = (f"{task.name}.1", 7) if opened else ("", 0)
            run.renew()
            assert run.pushing is opened
            moves(run, other)
            script.refuses["renew"] = [refused]
            run.renew()
            assert jobs.withdrawn == [task]
            run.renew()
            assert jobs.withdrawn == [task, task], "Spark may have got it only then"
            raise ReplayError("Spark gave the task up: cancelled")
        run.renew()
        assert task not in jobs.withdrawn
        return done(task)

    run = begun(archived(tmp_path), script, jobs := Withdrawing(waits), patience_s=60.0)
    report = run.run()
    assert (report.handed_over, report.updates) == (True, 12 if opened else 5)
    assert [task.publisher.address for task in jobs.tasks] == [script.reach, other.reach]
    assert other.finished == [4]


@pytest.mark.parametrize("ended", [Ended.UNREACHABLE, Ended.FAILED])
def test_a_task_that_ended_at_the_former_address_is_followed_by_one_at_the_present_one(
    tmp_path: Path, script: ScriptedReplay, other: ScriptedReplay, ended: Ended
) -> None:
    def ends(task: Task) -> TaskOutcome:
        moves(run, other)
        return done(task) if len(jobs.tasks) == 2 else TaskOutcome(ended, 4, None, 0, 0, "it is not there")

    run = begun(archived(tmp_path), script, jobs := Pushing(ends))
    assert run.run().handed_over
    assert [task.publisher.address for task in jobs.tasks] == [script.reach, other.reach]


def test_a_publisher_that_hangs_is_looked_for_before_a_lease_is_over(
    tmp_path: Path, script: ScriptedReplay, other: ScriptedReplay
) -> None:
    goes_on = threading.Event()
    run = begun(archived(tmp_path), script, Pushing(done), lease_s=1.0)
    moves(run, other)
    script.before["renew"] = lambda _: goes_on.wait(TIMEOUT_S / 2)
    try:
        run.renew()
        assert "renew" not in script.asked
        run.renew()
    finally:
        goes_on.set()
    assert other.asked == ["renew"]


def test_a_flow_ends_with_the_next_step_when_its_publisher_is_away_for_longer_than_the_patience(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    """Also one that waits for a slot: of many flows each would wait after the one before."""

    def waits(task: Task) -> TaskOutcome:
        script.refuses = {"renew": [WENT_DOWN] * 2, "cancel": [WENT_DOWN]}
        run.renew()
        run.renew()
        assert task in jobs.withdrawn
        raise ReplayError("Spark gave the task up: cancelled")

    def gone(wanted: Any) -> list[FoundPublisher]:
        raise StreamBroken("there is no ready file", hint="start it", code="no-publisher")

    run = begun(archived(tmp_path), script, jobs := Withdrawing(waits))
    run._find_publishers = gone
    report = run.run()
    assert "it went down" in report.message
    assert "there is no ready file; what became of it is not known" in report.message
    assert (report.hint, report.code) == ("start it; then `wormholectl replay --resume r` goes on", "no-publisher")


def test_a_task_gets_its_share_of_the_rate_as_soon_as_it_has_the_flow_open(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    def opened(task: Task) -> TaskOutcome:
        run.renew()
        assert (script.rate, script.asked.count("renew")) == (0.0, 1)
        script.opener = f"{task.name}.1"
        run.renew()
        assert (script.rate, script.asked.count("renew")) == (100.0, 3)
        return done(task)

    run = begun(archived(tmp_path), script, Pushing(opened), rate=100.0)
    assert run.run().handed_over


@pytest.mark.parametrize(
    ("has", "started_s", "hint"),
    [
        ("", 7.5, "see; then `wormholectl replay --resume r` goes on"),
        ("", 8.0, "`wormholectl replay --app cache --shards a --from 1/1/100 --where 'a b'`"),
        ("other", 7.5, "`wormholectl replay --app cache --shards a --from 1/1/100 --where 'a b'`"),
    ],
)
def test_what_was_not_taken_up_is_reported_with_what_pushes_it(
    tmp_path: Path, script: ScriptedReplay, has: str, started_s: float, hint: str
) -> None:
    script.has, script.started_s, script.state = has, started_s, "live"
    script.refuses["begin"] = [Refused(grpc.StatusCode.FAILED_PRECONDITION, "it is gone", "see")]
    run = taken_up(run_of(archived(tmp_path), script, jobs := Pushing(done)))
    run.begin()
    run.renew()
    report = run.run()
    assert (report.handed_over, report.state, report.message) == (False, "live", "it was not resumed: it is gone")
    assert hint in report.hint
    assert (script.asked, jobs.tasks) == (["begin", "begin"], [])


def test_what_an_earlier_release_begins_in_place_of_a_replay_that_ended_is_given_back(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    script.started_s, script.state_after = 8.0, "live"
    run = taken_up(run_of(archived(tmp_path), script, jobs := Pushing(done)))
    run.begin()
    report = run.run()
    assert (report.handed_over, "no replay 'r' of it any more" in report.message) == (False, True)
    assert (script.asked, jobs.tasks) == (["begin", "cancel", "begin"], [])


def taken_up(run: ReplayFlow) -> ReplayFlow:
    """The replay of a plan that was made from a publisher's report."""
    run.plan.begun, run.plan.started_s = True, 7.5
    run._request = replace(run._request, where="a b")
    return run
