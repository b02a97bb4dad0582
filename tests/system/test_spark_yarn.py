"""A packed environment on real clusters: a replay on YARN whose executors have nothing else; and what an executor with
other packages is told, on a standalone cluster. Minutes, most of them for packing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

import spark_replay.submit
from benchmarks.spark_cluster import Cluster, cluster, surroundings
from tests.support.command_line import run
from tests.support.eventually import PATIENCE_S
from tests.support.hadoop import yarn
from tests.support.mass_workload import FAMILIES
from tests.support.replay_scene import Scene

pytestmark = pytest.mark.soak

UPDATES = 600
SPARK = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("packed") / "env.tar.gz"
    code, out, err = run("spark", "pack", "--to", str(to))
    assert code == 0, err
    assert "libssl" in out
    return to


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path / "cluster", 1, start_s=PATIENCE_S) as found:
        yield found


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    folder = tmp_path / "scene"
    folder.mkdir()
    found = Scene(folder, keys=100, credit=1 << 20, holds={})
    try:
        found.publisher.start()
        found.archiver.start()
        found.subscribers["s1"].start()
        found.write(UPDATES)
        found.until_archived(UPDATES)
        found.wait("the application is live", lambda: found.acknowledged("search") >= UPDATES)
        yield found
    finally:
        found.close()


def submit(
    scene: Scene, master: str, environment: Mapping[str, str], python: str, *words: str
) -> subprocess.CompletedProcess[str]:
    options = ["--master", master, "--conf", f"spark.pyspark.python={python}", *words]
    options += ["--conf", f"spark.pyspark.driver.python={sys.executable}", "--executor-memory", "512m"]
    replay = ["--app", "search", "--from", "earliest", "--mode", "log", "--json", "-c", str(scene.config)]
    given = {**os.environ, **environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        given.pop(name, None)
    return subprocess.run(
        [str(SPARK / "bin" / "spark-submit"), *options, str(spark_replay.submit.__file__), *replay],
        env=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_replay_on_yarn_needs_no_packages_on_its_nodes(packed: Path, scene: Scene, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.yarn.am.memory": "256m",
        # Else 450 MB are uploaded.
        "spark.yarn.jars": f"local:{SPARK}/jars/*",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with yarn(tmp_path / "hadoop") as (_, hadoop):
        done = submit(
            scene, "yarn", surroundings(tmp_path) | hadoop, "./env/bin/python", "--archives", f"{packed}#env", *words
        )
    assert done.returncode == 0, done.stderr[-4000:]
    flows = json.loads(done.stdout.splitlines()[-1])["flows"]
    assert [(one["mode"], one["state"]) for one in flows] == [("log", "live")] * len(FAMILIES)
    assert sum(one["updates"] for one in flows) == UPDATES
    (log,) = events.iterdir()
    told = [json.loads(line) for line in log.read_text().splitlines()]
    (properties,) = [one["Spark Properties"] for one in told if one["Event"] == "SparkListenerEnvironmentUpdate"]
    assert properties["spark.executor.memoryOverhead"] == "664m", "room for the Python worker"


def test_executors_with_other_packages_are_named_and_no_flow_is_held(
    packed: Path, scene: Scene, standalone: Cluster, tmp_path: Path
) -> None:
    bare = str(Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info)))
    without = submit(scene, standalone.master, standalone.environment, bare)
    assert without.returncode == 2, without.stderr[-4000:]
    assert re.search(
        r"executor \S+ cannot run tasks of Wormhole: it has no wormhole-pubsub, the driver has \S+; its Python is "
        + re.escape(bare),
        without.stdout,
    ), without.stdout

    older = tmp_path / "older"
    with tarfile.open(packed) as archive:
        archive.extractall(older, filter="fully_trusted")
    (about,) = older.glob("lib/python*/*-packages/wormhole_pubsub-*.dist-info/METADATA")
    about.write_text(re.sub(r"^Version: .*", "Version: 0.0.9", about.read_text(), flags=re.MULTILINE))
    other = submit(scene, standalone.master, standalone.environment, str(older / "bin" / "python"))
    assert other.returncode == 2, other.stderr[-4000:]
    assert "cannot run tasks of Wormhole: it has wormhole-pubsub 0.0.9, the driver " in other.stdout

    missing = submit(scene, standalone.master, standalone.environment, "./env/bin/python")
    assert missing.returncode == 2, missing.stderr[-4000:]
    assert "cannot run tasks of Wormhole: there is no Python at ./env/bin/python" in missing.stdout
    assert not any(flow.HasField("replay") for flow in scene.flows("search"))

    speculating = submit(scene, standalone.master, standalone.environment, bare, "--conf", "spark.speculation=true")
    assert speculating.returncode == 2
    assert "spark.speculation is true: Spark would start a second copy" in speculating.stdout

    done = submit(scene, standalone.master, standalone.environment, "./env/bin/python", "--archives", f"{packed}#env")
    assert done.returncode == 0, done.stderr[-4000:]
