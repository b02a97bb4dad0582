"""The driver of a replay, beside the publisher that it takes a flow over from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from spark_replay.archive.store import ArchiveStore
from spark_replay.replay import driver as driver_module
from spark_replay.replay.driver import Driver
from spark_replay.replay.flow_plans import plan
from spark_replay.replay.progress import ReplayProgress
from spark_replay.replay.publisher import Reach, ReplayClient, TicketLostError
from spark_replay.replay.request import FoundPublisher
from spark_replay.replay.task import Ended, Task, TaskOutcome
from tests.support.archives import marker_at, put, tx, write_archive
from tests.support.eventually import PATIENCE_S
from tests.support.ports import free_port
from tests.support.replay_plans import Listener, archived, flow, seen, setting, wish
from tests.support.scripted_replay import Refused, ScriptedReplay, replay_publisher
from tests.support.state_folders import TOKEN, local_admin
from wormhole.model.errors import EpochRefused, ReplayError, StreamBroken, UsageError
from wormhole.wire.v1 import admin_pb2

# --- driver ---


def eventually_now(holds: Callable[[], bool]) -> bool:
    """Wait for it in a thread."""
    ends = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < ends:
        time.sleep(0.01)
    return holds()


class Pushing:
    """``executors``: how many there are; ``None``: it is no cluster."""

    executors: int | None = None

    def __init__(self, *fails: str) -> None:
        self.rates: list[float] = []
        self._fails = fails

    def log(self, task: Task) -> TaskOutcome:
        self.rates.append(task.rate)
        if task.shard in self._fails:
            return TaskOutcome(Ended.FAILED, 1, None, 0, 0, "no")
        return TaskOutcome(Ended.DONE, 1, task.until, 2, 20)

    def stop(self) -> None:
        pass


@pytest.fixture
def script() -> Iterator[ScriptedReplay]:
    with replay_publisher(ScriptedReplay(marker_at(0))) as found:
        yield found


def driver_of(store: ArchiveStore, looked: list[FoundPublisher], jobs: Any, told: Listener, **more: Any) -> Driver:
    asked = wish(**more)
    planned = plan(asked, setting(store), looked)
    return Driver(
        asked, setting(store), planned, lambda wanted: [one for one in looked if wanted(one.status)], jobs, told
    )


def driver(folder: Path, script: ScriptedReplay, jobs: Any, told: Listener, other: str = "") -> Driver:
    """``other``: the publisher of shard ``b``, where it has a log of its own."""
    store = archived(folder)
    looked = [seen(flow("a", marker_at(0)), *(() if other else (flow("b", marker_at(0)),)), reach=script.reach)]
    if other:
        looked.append(seen(flow("b", marker_at(0)), reach=other))
        looked[1].status.log = "db2"
    return driver_of(store, looked, jobs, told, rate=100.0)


def test_what_one_flow_cannot_go_on_with_ends_that_one_only(tmp_path: Path, script: ScriptedReplay) -> None:
    jobs, told = Pushing("b"), Listener()
    reports = {one.flow: one.handed_over for one in driver(tmp_path, script, jobs, told).run()}
    assert reports == {"cache/a": True, "cache/b": False}
    assert jobs.rates == [50.0, 50.0], "of publishers that tell no shares"
    assert told.moved[-1].flows == (2, 2)


def test_all_flows_are_held_or_none(tmp_path: Path, script: ScriptedReplay) -> None:
    begun: list[str] = []

    def second_is_refused(request: admin_pb2.ReplayRequest) -> None:
        begun.append(request.flow)
        if len(begun) == 2:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "another has it")

    script.before["begin"] = second_is_refused
    jobs = Pushing()
    with pytest.raises(ReplayError, match="another has it"):
        driver(tmp_path, script, jobs, Listener()).run()
    assert "cancel" in script.asked
    assert jobs.rates == []


def test_a_flow_that_is_taken_up_stays_the_replays_although_another_cannot_be_held(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    script.refuses["begin"] = [Refused(grpc.StatusCode.PERMISSION_DENIED, "not yours")]
    resumed = driver(tmp_path, script, Pushing(), Listener())
    for run in resumed.runs:
        run.plan.begun = True
    with pytest.raises(UsageError, match="not yours"):
        resumed.run()
    assert "cancel" not in script.asked


def test_a_flow_whose_replay_ended_meanwhile_is_left_out_and_reported(tmp_path: Path, script: ScriptedReplay) -> None:
    script.started_s = 7.5
    script.refuses["begin"] = [Refused(grpc.StatusCode.FAILED_PRECONDITION, "no replay any more", "it was finished")]
    jobs, told = Pushing(), Listener()
    resumed = driver(tmp_path, script, jobs, told)
    for run in resumed.runs:
        run.plan.begun, run.plan.started_s = True, 7.5
    lost, other = resumed.run()
    assert (lost.handed_over, other.handed_over, len(jobs.rates)) == (False, True, 1)
    assert lost.message == "it was not resumed: no replay any more"
    assert told.said == [f"{lost.flow}: {lost.message}"]
    assert "cancel" not in script.asked


def test_what_is_submitted_while_everything_ends_is_ended_too(tmp_path: Path, script: ScriptedReplay) -> None:
    submitted, ended = threading.Event(), threading.Event()

    class Late(Pushing):
        def log(self, task: Task) -> TaskOutcome:
            assert stopped.wait(PATIENCE_S)
            submitted.set()
            assert ended.wait(PATIENCE_S), "nobody ends it"
            return super().log(task)

        def stop(self) -> None:
            stopped.set()  # nothing runs yet that could be ended
            if submitted.is_set():
                ended.set()

    class Interrupts(Listener):
        def moves(self, progress: ReplayProgress) -> None:
            raise KeyboardInterrupt

    stopped = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        driver(tmp_path, script, Late(), Interrupts()).run()
    assert ended.is_set()


def test_progress_is_shown_before_anything_is_pushed(
    tmp_path: Path, script: ScriptedReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "_LOOK_S", PATIENCE_S)

    class Waits(Pushing):
        def log(self, task: Task) -> TaskOutcome:
            assert eventually_now(lambda: bool(listener.moved))
            return super().log(task)

    listener = Listener()
    driver(tmp_path, script, Waits(), listener).run()
    assert listener.moved[0].updates == 0


def test_what_nobody_thought_of_costs_no_other_flow_its_lease(
    tmp_path: Path, script: ScriptedReplay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_module, "_LOOK_S", 0.02)

    class Waits(Pushing):
        def log(self, task: Task) -> TaskOutcome:
            assert eventually_now(lambda: script.asked.count("renew") > 1)
            return super().log(task)

    both = driver(tmp_path, script, Waits(), Listener())

    def breaks() -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(both.runs[0], "renew", breaks)
    assert all(one.handed_over for one in both.run())
    assert f"{both.runs[0].plan.flow}: internal error" in caplog.text


def test_a_publisher_that_hangs_costs_no_other_flow_its_lease(tmp_path: Path, script: ScriptedReplay) -> None:
    renewed = threading.Event()
    script.before["renew"] = lambda _: renewed.wait(PATIENCE_S)
    with replay_publisher(ScriptedReplay(marker_at(0))) as other:

        class Waits(Pushing):
            def log(self, task: Task) -> TaskOutcome:
                assert eventually_now(lambda: other.asked.count("renew") > 1)
                renewed.set()
                return super().log(task)

        reports = driver(tmp_path, script, Waits(), Listener(), other.reach).run()
    assert all(one.handed_over for one in reports), reports


def test_leases_are_kept_while_other_flows_are_begun(tmp_path: Path, script: ScriptedReplay) -> None:
    begun: list[str] = []

    def slow(request: admin_pb2.ReplayRequest) -> None:
        begun.append(request.flow)
        if len(begun) == 2:
            assert eventually_now(lambda: "renew" in script.asked)

    script.before["begin"] = slow
    assert all(one.handed_over for one in driver(tmp_path, script, Pushing(), Listener()).run())


def test_what_nobody_thought_of_ends_one_flow_and_is_reported(tmp_path: Path, script: ScriptedReplay) -> None:
    class Breaks(Pushing):
        def log(self, task: Task) -> TaskOutcome:
            if task.shard == "b":
                raise ZeroDivisionError("oh")
            return super().log(task)

    reports = {one.flow: one for one in driver(tmp_path, script, Breaks(), Listener()).run()}
    assert reports["cache/a"].handed_over
    assert "internal error: ZeroDivisionError" in reports["cache/b"].message
    assert "cancel" in script.asked


def test_flows_follow_the_publisher_of_their_log_together(
    tmp_path: Path, script: ScriptedReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the host of the former one is gone, each would wait in vain for as long as a connection may take."""
    monkeypatch.setattr(driver_module, "_LOOK_S", 0.01)
    asked: list[str] = []

    def gone(request: Any) -> Any:
        asked.append(request.flow)
        raise Refused(grpc.StatusCode.UNAVAILABLE, "its host is gone")

    with replay_publisher(ScriptedReplay(marker_at(0))) as other:
        flows = driver(tmp_path, script, Pushing(), Listener())
        flows.begin()
        script.answer = gone  # type: ignore[method-assign]
        for run in flows.runs:
            run._find_publishers = lambda wanted: [seen(reach=other.reach)]
        with flows._leases():
            assert eventually_now(lambda: len(other.asked) >= len(flows.runs))
    assert len(asked) == 1


def of_many(folder: Path, script: ScriptedReplay, jobs: Any, told: Listener, flows: int, **more: Any) -> Driver:
    shards = [f"s{number}" for number in range(flows)]
    store = write_archive(folder / "archive", {name: [[tx(put(b"k", b"v"))]] for name in shards})
    looked = [seen(*(flow(name, marker_at(0)) for name in shards), reach=script.reach)]
    return driver_of(store, looked, jobs, told, **more)


def test_spark_is_given_as_many_flows_as_are_permitted_and_the_next_one_when_one_ends(
    tmp_path: Path, script: ScriptedReplay
) -> None:
    threads: list[int] = []
    looked = threading.Event()

    class Counting(Listener):
        """The driver's first look, when it has started every flow that it may."""

        def moves(self, progress: ReplayProgress) -> None:
            if not looked.is_set():
                threads.append(sum(thread.name.startswith("replay_") for thread in threading.enumerate()))
                looked.set()
            super().moves(progress)

    class Rounds(Pushing):
        """Ends no flow before the first look, and then four at a time."""

        def __init__(self) -> None:
            super().__init__("s1", "s6")
            self.given: list[str] = []
            self._lock, self._round = threading.Lock(), threading.Barrier(4)

        def log(self, task: Task) -> TaskOutcome:
            with self._lock:
                self.given.append(task.shard)
            assert looked.wait(PATIENCE_S)
            self._round.wait(PATIENCE_S)
            if task.shard == "s2":
                raise ReplayError("Spark gave the task up")
            return super().log(task)

    jobs = Rounds()
    twelve = of_many(tmp_path, script, jobs, Counting(), 12, at_once=4)
    largest = {run.plan.shard for run in twelve.runs[:4]}
    lost = {one.flow for one in twelve.run() if not one.handed_over}
    assert lost == {"cache/s1", "cache/s2", "cache/s6"}
    assert threads == [4]
    assert set(jobs.given[:4]) == largest


def test_a_flow_is_pushed_once_a_task_has_opened_it_and_waits_before(
    tmp_path: Path, script: ScriptedReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "_LOOK_S", 0.02)
    told = Listener()

    class Slots(Pushing):
        """One, for the first."""

        def log(self, task: Task) -> TaskOutcome:
            if task.shard == "s0":
                assert eventually_now(lambda: bool(told.moved))
                assert {one.pushing for one in told.moved} == {0}
                names.append(task.name)
                assert eventually_now(lambda: (told.moved[-1].pushing, told.moved[-1].waiting) == (1, 2))
            else:
                assert eventually_now(lambda: any(one.flows[0] for one in told.moved))
            return super().log(task)

    names: list[str] = []

    def opened(request: admin_pb2.ReplayRequest, reply: admin_pb2.ReplayReply) -> None:
        reply.replay.opener = f"{names[0]}.1" if names and request.flow == "cache/s0" else "of-another-driver.1"

    script.after = opened
    assert all(one.handed_over for one in of_many(tmp_path, script, Slots(), told, 3).run())
    assert (told.moved[-1].flows, told.moved[-1].pushing, told.moved[-1].waiting) == ((3, 3), 0, 0)


def test_when_the_cluster_has_no_executor_it_is_said_once_and_whose_move_it_is(
    tmp_path: Path, script: ScriptedReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "_LOOK_S", 0.01)
    told = Listener()

    class Scaled(Pushing):
        executors = 0

        def log(self, task: Task) -> TaskOutcome:
            assert eventually_now(lambda: len(told.moved) > 2)
            assert len(told.said) == 1
            self.executors = 4
            assert eventually_now(lambda: len(told.said) == 2)
            return super().log(task)

    assert of_many(tmp_path, script, Scaled(), told, 1).run()[0].handed_over
    gone, again = told.said
    assert "no executor: 1 flows wait for one and stay held" in gone
    assert "cluster manager" in gone
    assert again == "the cluster runs 4 executors again"


# --- publisher ---


def test_a_replay_from_begin_to_finish(tmp_path: Path) -> None:
    with (
        local_admin(tmp_path) as (local, target),
        replay_publisher(ScriptedReplay(marker_at(1)), target=target) as script,
    ):
        with ReplayClient(Reach(script.reach), "cache/a", "r", local=local) as client:
            assert client.begin(admin_pb2.BeginReplay(preview=True)).flow.flow == "cache/a"
            assert client.ticket == ""
            client.begin(admin_pb2.BeginReplay())
            assert client.ticket == "t"
            opened = client.open().opened
            client.advance(opened.epoch, marker_at(4), updates=3, size=9)
            assert client.renew().replay.updates == 3
            assert not client.finish(opened.epoch, marker_at(4)).HasField("replay")
            client.cancel("me@here")
        assert script.asked == ["begin", "begin", "open", "advance", "renew", "finish", "cancel"]
        assert script.marker == marker_at(4)
        assert script.tokens == [f"Bearer {TOKEN}"] * 3, "only begin and cancel carry it"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.ABORTED, EpochRefused),
        (grpc.StatusCode.UNAUTHENTICATED, TicketLostError),
        (grpc.StatusCode.INVALID_ARGUMENT, UsageError),
        (grpc.StatusCode.NOT_FOUND, UsageError),
        (grpc.StatusCode.FAILED_PRECONDITION, ReplayError),
        (grpc.StatusCode.UNIMPLEMENTED, ReplayError),
        (grpc.StatusCode.UNAVAILABLE, StreamBroken),
    ],
)
def test_each_refusal_says_whose_move_it_is(code: grpc.StatusCode, kind: type[Exception]) -> None:
    with replay_publisher(ScriptedReplay(marker_at(1))) as script:
        script.refuses["renew"] = [Refused(code, "it is so", "do that")]
        with ReplayClient(Reach(script.reach), "cache/a", "r") as client, pytest.raises(kind) as caught:
            client.renew()
    assert caught.value.hint  # type: ignore[attr-defined]
    assert caught.value.flow == "cache/a"  # type: ignore[attr-defined]


def test_a_publisher_that_is_not_there_may_come_back() -> None:
    with ReplayClient(Reach(f"127.0.0.1:{free_port()}"), "cache/a", "r") as client:
        with pytest.raises(StreamBroken, match="does not answer"):
            client.renew()


def test_a_call_on_what_another_thread_closed_may_be_made_again() -> None:
    with (
        replay_publisher(ScriptedReplay(marker_at(1))) as script,
        ReplayClient(Reach(script.reach), "cache/a", "r") as client,
    ):
        client.renew()
        assert client._channel is not None
        client._channel.close()
        with pytest.raises(StreamBroken, match="was let go"):
            client.renew()
