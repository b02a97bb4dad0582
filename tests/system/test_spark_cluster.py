"""A mass replay by ``spark-submit`` on a real standalone cluster, a master and workers on loopback: the cluster that
was named does the work, with as many executors as there are flows for, and whatever of it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

import spark_replay.submit
from benchmarks.spark_cluster import Cluster, cluster
from tests.support.eventually import PATIENCE_S
from tests.support.mass_workload import FAMILIES
from tests.support.replay_scene import Scene
from tests.support.replay_stage import Stage
from tests.support.spark_java import CHEAP, options
from tests.system.harness.processes import Process

UPDATES = 600
SCALED = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}
_LOOPBACK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), 1, start_s=PATIENCE_S, cores=2, java=options()) as found:
        yield found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    folder = tmp_path / "scene"
    folder.mkdir()
    found = Scene(folder, keys=100, credit=1 << 20, holds={"s1": (UPDATES + 1, UPDATES + 1)})
    try:
        yield found
    finally:
        found.close()


@pytest.mark.soak
def test_a_replay_runs_where_spark_submit_says(standalone: Cluster, scene: Scene, tmp_path: Path) -> None:
    """On executors that come for its flows, with none at the start: the application takes nothing before two came."""
    scene.publisher.start()
    scene.archiver.start()
    scene.subscribers["s1"].start()
    scene.write(UPDATES)
    scene.until_archived(UPDATES)
    scene.wait("the application is live", lambda: scene.acknowledged("search") >= UPDATES)
    events = tmp_path / "events"
    events.mkdir()
    settings = SCALED | {
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",
    }
    replay = submitted(standalone, settings, scene, "--app", "search", "--from", "earliest", "--mode", "log")
    replay.start()
    try:
        scene.wait("two flows are pushed, one waits", lambda: pushed(replay) == (2, 1))
        scene.let_go()
        assert replay.wait() == 0, replay.tail()
    finally:
        replay.kill()
    flows = objects(replay)[-1]["flows"]
    assert [(one["mode"], one["state"]) for one in flows] == [("log", "live")] * len(FAMILIES)
    assert sum(one["updates"] for one in flows) == UPDATES

    (log,) = events.iterdir()
    told = [json.loads(line) for line in log.read_text().splitlines()]
    (properties,) = [one["Spark Properties"] for one in told if one["Event"] == "SparkListenerEnvironmentUpdate"]
    assert properties["spark.master"] == standalone.master
    assert properties.items() >= settings.items()
    assert properties["spark.speculation"] == "false"
    executors = {one["Task Info"]["Executor ID"] for one in told if one["Event"] == "SparkListenerTaskEnd"}
    assert executors == {"0", "1"}


@pytest.mark.soak
def test_a_cluster_without_room_for_an_executor_is_an_error(standalone: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "asks.py"
    program.write_text(
        "from spark_replay.spark.session import spark_session\nfrom wormhole.model.errors import UsageError\n"
        "try:\n    spark_session('asks')\nexcept UsageError as error:\n    print(error)"
    )
    done = submit(standalone, {"spark.executor.memory": "1000g", "spark.wormhole.executorWait": "2s"}, str(program))
    assert f"no executor ran on {standalone.master} within 2 s [spark-unavailable]. Next: see on" in done.stdout


def submit(standalone: Cluster, settings: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(standalone, settings), *arguments],
        env={**os.environ, **environment(standalone)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def submitted(standalone: Cluster, settings: dict[str, str], stage: Stage, *arguments: str) -> Process:
    """A replay by spark-submit, not started."""
    becomes = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
    replay = [str(spark_replay.submit.__file__), *arguments, "--json", "-c", str(stage.config)]
    words = ["-c", becomes, *command(standalone, settings), *replay]
    return Process("replay", words, stage.folder, environment=environment(standalone))


def command(standalone: Cluster, settings: dict[str, str]) -> list[str]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    java = {f"spark.{who}.extraJavaOptions": options() for who in ("driver", "executor")}
    given = [
        word for name, value in (java | _LOOPBACK | CHEAP | settings).items() for word in ("--conf", f"{name}={value}")
    ]
    return [str(program), "--master", standalone.master, *given]


def environment(standalone: Cluster) -> dict[str, str]:
    """Without a folder of settings, which would be a part of the class path: that is then not the archive's."""
    kept = {name: value for name, value in standalone.environment.items() if name != "SPARK_CONF_DIR"}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def objects(replay: Process) -> list[dict[str, Any]]:
    """What its present run printed for programs."""
    lines = replay.output.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def pushed(replay: Process) -> tuple[int, int]:
    """How many flows a task has open now, and how many wait for a slot."""
    assert replay.alive, replay.tail()
    moved = [one["progress"] for one in objects(replay) if "progress" in one]
    return (moved[-1]["pushing"], moved[-1]["waiting"]) if moved else (0, 0)
