"""Two NameNodes over one folder of edits: one log, whichever NameNode is active."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaClass

from publisher.sources import open_source
from tests.support.eventually import until
from tests.support.hadoop import highly_available
from wormhole.model.errors import SourceUnavailable
from wormhole.model.sharding import Sharding
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import read_log


class Scene:
    """The cluster, and a source of both NameNodes."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster = cluster
        self._path = JavaClass("org.apache.hadoop.fs.Path", cluster._gateway_client)
        self._folder = folder
        self.source = self.open("{0},{1}")

    def open(self, form: str) -> LogSource:
        hosts = [f"localhost:{self.cluster.getNameNodePort(number)}" for number in range(2)]
        url = f"hdfs://{form.format(*hosts)}/"
        return open_source(url, log="log", state_dir=self._folder, sharding=Sharding("log"))

    def make(self, active: int, folder: str) -> None:
        self.cluster.getFileSystem(active).mkdirs(self._path(folder))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with highly_available(tmp_path / "hdfs") as cluster:
        scene = Scene(cluster, tmp_path)
        scene.source.start()
        yield scene
        scene.source.stop()


def reached(source: LogSource) -> bool:
    try:
        source.latest()
    except SourceUnavailable:
        return False
    return True


def test_the_log_goes_on_after_a_failover(scene: Scene) -> None:
    start = scene.source.latest()
    scene.make(0, "/one")
    first = read_log(scene.source, start)
    assert first.keys() == ["/one"]

    standby = scene.open("{1}")
    with pytest.raises(SourceUnavailable) as error:
        standby.start()
    assert error.value.code == "copy-not-ready"
    standby.stop()

    scene.cluster.shutdownNameNode(0)
    scene.cluster.transitionToActive(1)
    scene.make(1, "/two")
    until(lambda: reached(scene.source), "the second NameNode is not found")
    second = read_log(scene.source, first.markers[-1])
    assert second.keys() == ["/two"]
