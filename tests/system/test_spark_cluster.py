"""A mass replay by ``spark-submit`` on a real standalone cluster, a master and a worker on loopback: the cluster that
was named does the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import spark_replay.submit
from benchmarks.spark_cluster import Cluster, cluster
from tests.support.eventually import PATIENCE_S
from tests.support.mass_workload import FAMILIES
from tests.support.replay_scene import Scene
from tests.support.spark_java import CHEAP, PLAIN

UPDATES = 600


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", PLAIN)
        with cluster(tmp_path_factory.mktemp("cluster"), 1, start_s=PATIENCE_S) as found:
            yield found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    folder = tmp_path / "scene"
    folder.mkdir()
    found = Scene(folder, keys=100, credit=1 << 20, holds={})
    try:
        yield found
    finally:
        found.close()


def test_a_replay_runs_where_spark_submit_says(standalone: Cluster, scene: Scene, tmp_path: Path) -> None:
    scene.publisher.start()
    scene.archiver.start()
    scene.subscribers["s1"].start()
    scene.write(UPDATES)
    scene.until_archived(UPDATES)
    scene.wait("the application is live", lambda: scene.acknowledged("search") >= UPDATES)
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.executor.memory": "512m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "Asia/Tokyo",
    }
    done = submit(
        standalone,
        settings,
        *(str(spark_replay.submit.__file__), "--app", "search", "--from", "earliest", "--mode", "log", "--json"),
        *("-c", str(scene.config)),
    )
    assert done.returncode == 0, done.stderr
    flows = json.loads(done.stdout.splitlines()[-1])["flows"]
    assert [(one["mode"], one["state"]) for one in flows] == [("log", "live")] * len(FAMILIES)
    assert sum(one["updates"] for one in flows) == UPDATES

    (log,) = events.iterdir()
    told = [json.loads(line) for line in log.read_text().splitlines()]
    (properties,) = [one["Spark Properties"] for one in told if one["Event"] == "SparkListenerEnvironmentUpdate"]
    assert properties["spark.master"] == standalone.master
    assert properties.items() >= settings.items()
    assert properties["spark.speculation"] == "false"
    executors = {one["Task Info"]["Executor ID"] for one in told if one["Event"] == "SparkListenerTaskEnd"}
    assert executors == {"0"}, "tasks ran in the driver"


@pytest.mark.soak
def test_a_cluster_without_room_for_an_executor_is_an_error(standalone: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "asks.py"
    program.write_text(
        "from spark_replay.spark.session import spark_session\nfrom wormhole.model.errors import UsageError\n"
        "try:\n    spark_session('asks')\nexcept UsageError as error:\n    print(error)"
    )
    done = submit(standalone, {"spark.executor.memory": "1000g", "spark.wormhole.executorWait": "2s"}, str(program))
    assert f"no executor ran on {standalone.master} within 2 s. Next: see on the master's page" in done.stdout


def submit(standalone: Cluster, settings: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    java = {f"spark.{who}.extraJavaOptions": PLAIN for who in ("driver", "executor")}
    given = [word for name, value in (java | CHEAP | settings).items() for word in ("--conf", f"{name}={value}")]
    return subprocess.run(
        [str(program), "--master", standalone.master, *given, *arguments],
        env={**os.environ, **standalone.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
