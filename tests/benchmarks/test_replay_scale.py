"""What the benchmark of a replay's growth measures and in which order; its runs are for ``make bench
CASE=replay_scale``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import processor, replay_scale
from benchmarks.made_archive import MadeArchive, _write_shard
from benchmarks.processor import between, kind_of
from benchmarks.replay_scale import Plan, measure, read_points
from spark_replay.archive.reader import open_file
from spark_replay.archive.verify import verify
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.replay import task as tasks
from spark_replay.replay.keyed import LastChanges
from tests.support.archives import manifest_of
from wormhole.model.position import Datamarker, LogPosition
from wormhole.wire.body import build_body, parse_body


def made(folder: Path) -> MadeArchive:
    archive = MadeArchive(folder, count=400, size=10, shards=2, keys=40)
    for ordinal in range(archive.shards):
        _write_shard(archive, ordinal)
    return archive


def test_a_made_archive_is_one_that_the_archiver_could_have_written(tmp_path: Path) -> None:
    archive = made(tmp_path)
    assert verify(archive.store, deep=True).problems == []
    keys, places = set(), []
    for manifest in archive.store.manifests().values():
        assert sum(entry.rows for entry in manifest.files) == 200
        with open_file(archive.store, manifest.shard, manifest.files[0]) as file:
            bodies = [build_body(run, 1) for segment in file.segments() for run in segment.runs.values()]
            parsed = [parse_body(body.data) for body in bodies if body is not None]
            assert sum(len(one.tx_number) for one in parsed) == 40, "of each transaction this shard has five"
            for batch in file.batches():
                keys |= set(batch.column("key").to_pylist())
                places += batch.column("place").to_pylist()
    assert len(keys) == 40, "every key comes"
    assert len(set(places)) == 400


def test_a_made_archive_is_in_whole_transactions(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no whole transactions"):
        MadeArchive(tmp_path, count=401, size=10, shards=2, keys=40)
    archive = Plan(1_000_000).archive(64, tmp_path)
    assert (archive.count, archive.keys) == (999_680, 199_936)


def test_an_archive_that_was_made_ends_where_the_log_does(tmp_path: Path) -> None:
    archive = made(tmp_path)
    place = LogPosition(1, 4, 500)
    for _ in range(2):  # and again in another run
        replay_scale._extend(archive.store, Datamarker(place, "10", place))
    assert {manifest.end.order for manifest in archive.store.manifests().values()} == {place}
    assert verify(archive.store).problems == []


@pytest.mark.parametrize(("mode", "pushed"), [("log", 200), ("latest", 20)])
def test_a_task_without_a_push_makes_all_that_would_be_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, pushed: int
) -> None:
    monkeypatch.setattr(tasks, "_run", tasks._run)  # which the next line replaces, and the test's end puts back
    from benchmarks import unpushed, unpusher

    monkeypatch.setattr(tasks, "_run", unpushed._run)

    class Jobs:
        def log(self, task: tasks.Task) -> tasks.TaskOutcome:
            return tasks.push_log(task)

        def latest(self, task: tasks.Task, chosen: ShardFiles, *, by_values: bool) -> tasks.TaskOutcome:
            schemas = schemas_of(task.store, [chosen])
            return tasks.push_latest(replace(task, schemas=schemas), LastChanges(task.store, chosen, by_values))

    archive = made(tmp_path)
    manifest = manifest_of(archive.store, "db.0of2")
    outcome = unpusher._push(Jobs(), archive.store, manifest, mode)  # type: ignore[arg-type]
    assert (outcome.ended, outcome.updates) == (tasks.Ended.DONE, pushed)


def test_a_run_goes_on_with_what_is_not_measured_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(1000, shards=(2,), modes=("log",), masters=("local[1]",), runs=2)
    worlds, seen = [], []

    @contextmanager
    def world(archive: MadeArchive) -> Iterator[Any]:
        worlds.append(archive.shards)
        yield None

    def measured(world: Any, sparks: Any, used: Any, point: replay_scale.Point) -> dict[str, Any]:
        seen.append(point)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return {"seconds": 1.0}

    monkeypatch.setattr(replay_scale, "_world", world)
    monkeypatch.setattr(replay_scale, "_measured", measured)
    monkeypatch.setattr(processor, "_EVERY_S", 60.0)
    path, for_ever = tmp_path / "points.jsonl", time.monotonic() + 1e6
    with pytest.raises(KeyboardInterrupt):
        measure(plan, path, tmp_path, for_ever, lambda name: None)
    assert len(read_points(path)) == 1
    measure(plan, path, tmp_path, for_ever, lambda name: None)
    assert [row["point"]["run"] for row in read_points(path)] == [0, 0, 0, 1, 1, 1]
    assert seen[1:3] == [seen[1], seen[1]], "the one that was cut is measured again, and no other"
    assert worlds == [2, 2, 2]
    measure(plan, path, tmp_path, for_ever, lambda name: None)
    measure(Plan(2000), path, tmp_path, time.monotonic() - 1, lambda name: None)
    assert len(read_points(path)) == 6


def test_processor_seconds_are_those_between_two_moments() -> None:
    samples = [(10.0, {"JVM": 1.0}), (11.0, {"JVM": 3.0, "driver": 0.5}), (12.0, {"JVM": 3.0, "driver": 1.5})]
    assert between(samples, 10.5, 11.5) == {"JVM": pytest.approx(1.0), "driver": pytest.approx(0.75)}
    assert between(samples, 0.0, 99.0) == {"JVM": 2.0, "driver": 1.5}


def test_processes_are_known_by_their_command_lines() -> None:
    said = {
        "python -m benchmarks.publisher bench.toml": "publisher",
        "python -m benchmarks.replayed 7401 10": "subscriber",
        "python3 -m pyspark.daemon pyspark.worker": "Python workers",
        "/usr/bin/java -cp x org.apache.spark.deploy.worker.Worker": "Spark's daemons",
        "/usr/bin/java -cp x org.apache.spark.executor.CoarseGrainedExecutorBackend": "JVM",
        "python -m benchmarks.replayer log": "driver",
        "sleep 1": "other",
    }
    assert {command: kind_of(command) for command in said} == said
