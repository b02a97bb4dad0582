"""The embedded server: loopback only, nothing left behind, its data kept over kill and restart."""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S, until
from wormhole.coordination import embedded_zookeeper
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.coordination.zookeeper_jars import zookeeper_jars
from wormhole.host import private_server
from wormhole.model.errors import ConfigError, CoordinationLost

_LISTEN = "0A"


def listening_addresses(pid: int) -> set[str]:
    """``host:port`` of every listening socket of a process, TCP and UDP, as the kernel tells it."""
    inodes = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(handle)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (fields[3] == _LISTEN or table.startswith("udp")):
                host, port = fields[1].split(":")
                words = struct.pack(f"={len(host) // 8}I", *(int(host[i : i + 8], 16) for i in range(0, len(host), 8)))
                found.add(f"{ipaddress.ip_address(words)}:{int(port, 16)}")
    return found


def test_it_listens_on_loopback_only_and_leaves_nothing_behind() -> None:
    with EmbeddedZooKeeper() as server:
        folder, pid = server.folder, server.pid
        assert listening_addresses(pid) == {server.hosts}
        assert server.hosts.startswith("127.0.0.1:")
        handle = os.pidfd_open(pid)
        assert f"pid {pid}" in repr(server)
    try:
        assert select.select([handle], [], [], PATIENCE_S)[0], "the server ended"
    finally:
        os.close(handle)
    assert not folder.exists()
    assert not list(Path(tempfile.gettempdir()).glob(f"hsperfdata_*/{pid}"))
    assert server.pid == 0


OWNER = """
import sys
import tempfile
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
server = EmbeddedZooKeeper()
server.start()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


def test_it_goes_with_an_owner_that_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None
    pid, folder = owner.stdout.readline().split()
    handle = os.pidfd_open(int(pid))
    owner.kill()
    owner.communicate()
    try:
        assert select.select([handle], [], [], PATIENCE_S)[0], "the server ended"
    finally:
        os.close(handle)
    until(lambda: not Path(folder).exists(), "the folder is left behind")


@pytest.mark.parametrize("end", [EmbeddedZooKeeper.kill, EmbeddedZooKeeper.stop])
def test_it_starts_again_on_the_same_port_with_its_data(own_zookeeper: EmbeddedZooKeeper, end: object) -> None:
    hosts = own_zookeeper.hosts
    client = KazooClient(hosts)
    client.start()
    client.create("/kept", b"data")
    assert callable(end)
    end(own_zookeeper)
    end(own_zookeeper)
    assert own_zookeeper.pid == 0
    own_zookeeper.start()
    own_zookeeper.start()
    assert own_zookeeper.hosts == hosts
    assert client.retry(client.get, "/kept")[0] == b"data"
    client.stop()
    client.close()


async def test_it_is_an_asynchronous_context_manager_and_keeps_a_given_folder(tmp_path: Path) -> None:
    async with EmbeddedZooKeeper(tmp_path / "zk") as server:
        assert server.pid
    assert (tmp_path / "zk" / "data").exists()


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        free = private_server._free_port
        ports = iter([taken, taken])
        monkeypatch.setattr(private_server, "_free_port", lambda: next(ports, None) or free())
        with EmbeddedZooKeeper() as server:
            assert server.hosts != f"127.0.0.1:{taken}"


def test_a_port_taken_while_it_was_down_is_reported(own_zookeeper: EmbeddedZooKeeper) -> None:
    own_zookeeper.stop()
    port = int(own_zookeeper.hosts.rpartition(":")[2])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(CoordinationLost, match=f"127.0.0.1:{port}"):
            own_zookeeper.start()
    own_zookeeper.start()


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


def test_a_server_that_ends_at_once_shows_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_zookeeper, "_JVM", ("-Xno-such-option",))
    server = EmbeddedZooKeeper()
    with pytest.raises(CoordinationLost, match="no-such-option"):
        server.start()
    assert server.folder.exists()
    server.close()


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
