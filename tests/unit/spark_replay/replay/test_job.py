"""A replay's job: what is asked for, what runs, and what is shown of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from spark_replay.frames import ShardFiles
from spark_replay.replay import flow_plans, job, mode_selection
from spark_replay.replay.job import Replay, run_replay, setting_of
from spark_replay.replay.jobs import Jobs
from spark_replay.replay.progress import Counter, Pace
from spark_replay.spark import session
from tests.support.archives import manifest_of, marker_at, put, tx, write_archive
from tests.support.replay_plans import archived, seen, setting, wish
from tests.unit.spark_replay.replay.test_task import task
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer, Proven
from wormhole.config import ArchiveConfig, TlsFiles, load
from wormhole.coordination.port import StoredConfig
from wormhole.host.where import Where
from wormhole.model.errors import ReplayError, StreamBroken, UnknownApplication, UsageError
from wormhole.wire.v1 import admin_pb2

# --- job ---


CONFIG = """version = 1
[coordinator]
static = true
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///store"
[applications.cache]
dataset = "shop"
start = "earliest"
"""


def test_what_is_configured_of_an_application_and_its_archive(tmp_path: Path) -> None:
    config = tmp_path / "wormhole.toml"
    config.write_text(CONFIG)
    where = Where(coordinator=str(config))
    with pytest.raises(UnknownApplication, match="cahe") as caught:
        setting_of(where, "cahe")
    assert "cache" in str(caught.value.hint)
    with pytest.raises(UsageError, match="has no archive"):
        setting_of(where, "cache")


def test_executors_are_started_before_a_flow_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[str] = []

    class Jobs:
        def __init__(self, *_: object) -> None:
            pass

        def warm(self) -> None:
            came.append("executors")

    def start(wish: object, setting: object, plans: object, look: object, jobs: Jobs, told: object) -> Any:
        return SimpleNamespace(run=lambda: came.append("held"))

    for module, names in (
        (session, ("check_spark", "spark_session", "local_slots")),
        (flow_plans, flow_plans.__all__),
        (mode_selection, mode_selection.__all__),
    ):
        for name in names:
            monkeypatch.setattr(module, name, MagicMock())
    monkeypatch.setattr(flow_plans, "no_subscriber_takes", lambda *_: None)
    monkeypatch.setattr(flow_plans, "plan", lambda *_: [])
    monkeypatch.setattr(job, "Jobs", Jobs)
    monkeypatch.setattr(job, "Driver", start)
    for name in ("_Look", "setting_of", "_request"):
        monkeypatch.setattr(job, name, MagicMock(return_value=MagicMock(snapshot="")))
    run_replay(Where(), Replay("cache"), MagicMock())
    assert came == ["executors", "held"]


def kept(folder: Path) -> Path:
    """A configuration with an archive."""
    archive = '[datasets.shop.archive]\nto = "kept"\n[applications.archive]\ndataset = "shop"\nstart = "earliest"\n'
    (folder / "wormhole.toml").write_text(CONFIG + archive)
    write_archive(folder / "kept", {}, dataset="shop")
    return folder / "wormhole.toml"


def test_certificates_are_found_where_the_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kept(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = TlsFiles(cert=Path("a.crt"), key=Path("a.key"), ca=Path("ca.pem"))
    setting = setting_of(Where(coordinator=config.name, tls=given), "cache")
    assert setting.tls is not None
    assert (setting.tls.cert, setting.store.to) == (tmp_path / "a.crt", str(tmp_path / "kept"))


def test_a_file_says_where_its_archive_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not ZooKeeper, where others may write: rows of a forged archive would be pushed."""
    config = kept(tmp_path)
    honest = load(config)
    forged = honest.datasets["shop"].model_copy(update={"archive": ArchiveConfig(to=str(tmp_path / "forged"))})
    stored = StoredConfig({"shop": forged}, honest.applications, 1)
    monkeypatch.setattr(job, "with_coordinator", lambda *_: stored)
    assert setting_of(Where(coordinator=str(config)), "cache").store.to == str(tmp_path / "kept")


def test_a_publisher_is_found_again_although_another_is_silent_or_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(log: str) -> Answer:
        return Answer(f"{log}:1", admin_pb2.PublisherStatus(dataset="shop", copy="main", log=log))

    def proven(answer: Answer) -> Proven:
        if answer.address == "db2:1":
            raise UsageError("nothing shows that it is the publisher")
        return Proven(None, answer.address)

    monkeypatch.setattr(admin_service, "ask", lambda _: [answer("db1"), answer("db2"), Answer("db3:1", None, "silent")])
    monkeypatch.setattr(admin_service, "proven", proven)
    look = job._Look(Where())
    assert [one.reach.address for one in look(lambda status: status.log == "db1")] == ["db1:1"]
    with pytest.raises(UsageError):
        look(lambda status: status.log == "db2")
    with pytest.raises(StreamBroken, match="silent"):
        look(lambda status: status.log == "db3")
    with pytest.raises(StreamBroken, match="silent"):
        look.all()


# --- jobs ---


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


# --- progress ---


def test_rates_and_what_is_left_come_of_the_last_seconds() -> None:
    pace = Pace()
    assert pace.look(0.0, 0, 1000, 0, 0, (0, 2)).left_s is None
    now = pace.look(10.0, 500, 1000, 50, 5000, (1, 2))
    assert (now.updates_per_s, now.bytes_per_s, now.left_s, now.share) == (5.0, 500.0, 10.0, 0.5)
    for second in range(11, 61):
        now = pace.look(float(second), 500, 1000, 50, 5000, (1, 2))
    assert (now.updates_per_s, now.left_s) == (0.0, None)


def test_nothing_to_do_is_done() -> None:
    assert Pace().look(0.0, 0, 0, 0, 0, (0, 0)).share == 1.0


def test_a_count_goes_on_where_its_publisher_began_anew() -> None:
    counter = Counter()
    assert [counter.seen(value) for value in (3, 7, 2, 2, 9)] == [3, 7, 9, 9, 16]
    assert counter.value == 16


# --- request ---


def test_what_is_configured_is_reported_to_tasks(tmp_path: Path) -> None:
    found = setting(archived(tmp_path))
    assert found.source_kind == "rocksdb"
    assert not found.formats.open()


def test_a_publisher_is_known_by_its_log_wherever_it_is(tmp_path: Path) -> None:
    found = setting(archived(tmp_path))
    assert found.log_of(seen(reach="h:1").status) == found.log_of(seen(reach="h:2").status) == ("orders", "main", "db1")
    assert wish().start.text == ""


def test_a_log_is_the_same_whichever_copy_of_the_failover_serves_it(tmp_path: Path) -> None:
    found = setting(archived(tmp_path), failover=("main", "west"))
    assert (
        found.log_of(seen(copy="main").status)
        == found.log_of(seen(copy="west").status)
        != found.log_of(seen(copy="other").status)
    )
    assert [found.archives(copy) for copy in ("main", "west", "other")] == [True, True, False]
