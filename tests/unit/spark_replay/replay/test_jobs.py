from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from spark_replay.frames import ShardFiles
from spark_replay.replay.jobs import Jobs
from tests.support.archives import manifest_of, marker_at, put, tx, write_archive
from tests.unit.spark_replay.replay.test_task import task
from wormhole.model.errors import ReplayError

TASK: Any = SimpleNamespace(flow="cache/a", replay="r", name="t", begin=marker_at(0))


class Context:
    """A Spark that gives up."""

    defaultParallelism = 3  # noqa: N815 - Spark's name

    def __init__(
        self,
        said: str = "a stack\nJob aborted: Task 0 failed 4 times, most recent failure: worker exited\n at java",
    ) -> None:
        self.said = said
        self.cancelled = 0
        self.properties: list[tuple[str, str]] = []
        self.tasks: list[Any] = []
        self.groups: list[str] = []
        self.ended: list[str] = []

    def setJobGroup(self, group: str, *_: object, **__: object) -> None:
        self.groups.append(group)

    def cancelJobGroup(self, group: str) -> None:
        self.ended.append(group)

    def parallelize(self, *_: object) -> Context:
        return self

    def map(self, does: Any) -> Context:
        self.tasks.append(does)
        return self

    def collect(self) -> list[Any]:
        raise Py4JError(self.said)

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties.append((name, value))

    def cancelAllJobs(self) -> None:
        self.cancelled += 1


def test_a_task_that_spark_gave_up_is_reported_in_one_line() -> None:
    context = Context()
    jobs = Jobs(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
    with pytest.raises(ReplayError, match="most recent failure: worker exited") as caught:
        jobs.log(TASK)
    assert caught.value.hint
    jobs.stop()
    assert (jobs.slots, context.cancelled) == (3, 1)


@pytest.mark.parametrize("does", [lambda jobs: jobs.warm(), lambda jobs: jobs.log(TASK)])
def test_an_executor_with_another_release_is_named(does: Callable[[Jobs], None]) -> None:
    """Before flows are held, and on an executor that comes later."""
    fault = "executor h7 cannot run tasks of Wormhole: it has wormhole-pubsub 0.0.9, the driver 0.1.0; its Python is p"
    jobs = Jobs(SimpleNamespace(sparkContext=Context(f"Job aborted\nRuntimeError: {fault}\n at")))  # type: ignore[arg-type]
    with pytest.raises(ReplayError) as caught:
        does(jobs)
    assert caught.value.message == fault
    assert "wormholectl spark pack" in str(caught.value.hint)


def test_a_push_of_last_changes_takes_along_what_it_needs_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_replay.replay.jobs.checked", lambda function: function)
    store = write_archive(tmp_path / "archive", {"a": [[tx(put(b"k", b"v"))]]})
    manifest = manifest_of(store)
    jobs = Jobs(SimpleNamespace(sparkContext=(context := Context())))  # type: ignore[arg-type]
    with pytest.raises(ReplayError):
        jobs.latest(task(store, "127.0.0.1:1"), ShardFiles("a", manifest.files), by_values=True)
    (alone,) = context.tasks
    given = alone.args[1]
    assert {f"{id_:016x}" for id_ in given.schemas} == set(manifest.files[0].schemas)
    assert given.by_values is True


def test_each_flow_has_a_pool_of_its_own_that_is_served_in_the_order_in_which_flows_came() -> None:
    jobs = Jobs(SimpleNamespace(sparkContext=(context := Context())))  # type: ignore[arg-type]
    for flow in ("cache/large", "cache/small", "cache/large"):
        with pytest.raises(ReplayError):
            jobs.log(SimpleNamespace(flow=flow, replay="r", name="t"))  # type: ignore[arg-type]
    names = [value for name, value in context.properties if name == "spark.scheduler.pool"]
    assert names[0] == names[2] < names[1]


def test_to_withdraw_a_task_ends_no_later_one_of_its_flow() -> None:
    """The thread of the leases withdraws the one while that of the flow gives Spark the next one."""
    jobs = Jobs(SimpleNamespace(sparkContext=(context := Context())))  # type: ignore[arg-type]
    first, second = (SimpleNamespace(flow="cache/a", replay="r", name=name) for name in ("1", "2"))
    for one in (first, second):
        with pytest.raises(ReplayError):
            jobs.log(one)  # type: ignore[arg-type]
    jobs.withdraw(first)  # type: ignore[arg-type]
    assert context.ended == context.groups[:1] != context.groups[1:]


@pytest.mark.parametrize("local", [True, False])
def test_the_executors_of_a_cluster_are_counted_without_the_driver(local: bool) -> None:
    tracker = SimpleNamespace(getExecutorInfos=lambda: ["driver", "0", "1"])
    scala = SimpleNamespace(isLocal=lambda: local, statusTracker=lambda: tracker)
    context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: scala))
    assert Jobs(SimpleNamespace(sparkContext=context)).executors == (None if local else 2)  # type: ignore[arg-type]


def test_of_a_spark_that_has_ended_no_executors_are_known() -> None:
    def ended() -> object:
        raise Py4JError("the context was stopped")

    assert Jobs(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=ended)))).executors is None  # type: ignore[arg-type]
