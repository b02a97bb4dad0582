"""Where the embedded ZooKeeper's jars come from: the named folder, the checkout's, PySpark's, Debian's, or a
message."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from wormhole.coordination import zookeeper_jars as module
from wormhole.coordination.zookeeper_jars import zookeeper_jars
from wormhole.model.errors import ConfigError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no jars are installed: `put` installs some."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(module, "_DEBIAN_FOLDER", tmp_path / "debian")
    origin = tmp_path / "pyspark" / "__init__.py"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: SimpleNamespace(origin=str(origin)))
    return tmp_path


def put(folder: Path, *names: str) -> list[Path]:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return sorted(folder / name for name in names)


def test_the_named_folder_comes_first_then_the_checkout_pyspark_and_debian(machine: Path) -> None:
    debian = put(machine / "debian", "zookeeper.jar", "zookeeper-jute.jar", "slf4j-simple.jar")
    (machine / "debian" / "jetty9-server.jar").touch()
    assert zookeeper_jars(None) == sorted(debian)
    pyspark = put(machine / "pyspark" / "jars", "zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar")
    (machine / "pyspark" / "jars" / "spark-core_2.13.jar").touch()
    assert zookeeper_jars(None) == pyspark
    checkout = put(machine / "prefix" / "share" / "wormhole" / "zookeeper", "zookeeper-3.9.5.jar", "any.jar")
    assert zookeeper_jars(None) == checkout
    named = put(machine / "named", "zookeeper-3.8.4.jar", "whatever-belongs-to-it.jar")
    assert zookeeper_jars(machine / "named") == named


def test_a_pyspark_without_its_jars_is_passed_over(machine: Path) -> None:
    put(machine / "pyspark" / "jars", "zookeeper-jute-3.9.5.jar")
    debian = put(machine / "debian", "zookeeper.jar")
    assert zookeeper_jars(None) == debian


@pytest.mark.parametrize("pyspark", ["without jars", "not installed"])
def test_without_any_one_message_names_the_three_ways(
    machine: Path, monkeypatch: pytest.MonkeyPatch, pyspark: str
) -> None:
    if pyspark == "not installed":
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as caught:
        zookeeper_jars(None)
    for way in ("wormhole-pubsub[spark]", "apt-get install libzookeeper-java", "zookeeper_jars in [coordinator]"):
        assert way in str(caught.value.hint)


@pytest.mark.parametrize("content", ["no folder", "other jars"])
def test_a_named_folder_without_a_server_is_refused_by_name(machine: Path, content: str) -> None:
    put(machine / "debian", "zookeeper.jar")
    if content == "other jars":
        put(machine / "named", "zookeeper-jute-3.9.5.jar")
    with pytest.raises(ConfigError, match=r'coordinator.zookeeper_jars = ".*/named"'):
        zookeeper_jars(machine / "named")
