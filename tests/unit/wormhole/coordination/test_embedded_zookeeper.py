"""The embedded ZooKeeper and its files."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from wormhole.coordination import embedded_zookeeper
from wormhole.coordination import zookeeper_jars as module
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.coordination.zookeeper_jars import zookeeper_jars
from wormhole.model.errors import ConfigError, CoordinationLost

# --- The embedded ZooKeeper: what it needs, and folders it finds; what all private servers have is in
# `tests/contract/test_private_server.py`


async def test_it_is_an_asynchronous_context_manager_and_keeps_a_given_folder(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path / "zk") as server:
        assert server.pid
    assert (tmp_path / "zk" / "data").exists()


def test_without_java_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        EmbeddedZooKeeper(tmp_path / "zk").start()
    assert "default-jre-headless" in str(caught.value.hint)
    assert not (tmp_path / "zk").exists()


def test_a_folder_without_a_server_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no zookeeper-"):
        EmbeddedZooKeeper(tmp_path / "zk", jars=tmp_path).start()
    assert not (tmp_path / "zk").exists()


def test_classes_of_another_java_are_ignored(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in zookeeper_jars(None):
        (jars / jar.name).symlink_to(jar)
    (jars / embedded_zookeeper.CLASSES).write_bytes(b"of another Java")
    with EmbeddedZooKeeper(tmp_path / "zk", jars=jars) as server:
        assert server.alive
    assert "[cds" not in (tmp_path / "zk" / "zookeeper.log").read_text()


def test_damaged_data_is_named_with_the_way_on(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        hosts = server.hosts
    snapshot = next((tmp_path / "data").rglob("snapshot.*"))
    content = bytearray(snapshot.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    snapshot.write_bytes(content)
    with pytest.raises(CoordinationLost, match=r"cannot read its data in .*: a file there is damaged") as refused:
        EmbeddedZooKeeper(tmp_path).start()
    assert f"put {tmp_path / 'data'} back from a copy, or move it away, and start again" in str(refused.value)

    (tmp_path / "data").rename(tmp_path / "away")
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.hosts == hosts, "subscribers find it where it was"


def test_the_next_one_in_a_folder_takes_the_same_port_when_it_is_free(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as first:
        hosts = first.hosts
    assert not first.alive
    with EmbeddedZooKeeper(tmp_path) as second:
        assert second.hosts == hosts
        second.kill()
        assert not second.alive
    host, port = hosts.split(":")
    with socket.create_server((host, int(port))), EmbeddedZooKeeper(tmp_path) as third:
        assert third.hosts != hosts, "somebody else has it by now"


# --- Where the embedded ZooKeeper's jars come from: the named folder, the checkout's, PySpark's, Debian's, or a message


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
