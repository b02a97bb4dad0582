"""Every kind of private server: loopback only, nothing left behind, its port and data kept over kill and restart."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
from kazoo.client import KazooClient
from nats.js import JetStreamContext
from redis import Redis

from examples.demo.database_server import DatabaseServer
from scripts.prepare import ROOT
from tests.support.databases import new_database_server
from tests.support.eventually import PATIENCE_S, until
from tests.support.kafka_server import KafkaServer
from tests.support.nats_server import NatsServer
from tests.support.postgres_server import PostgresServer, template
from tests.support.redis_server import RedisServer
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.host import private_server
from wormhole.host.private_server import PrivateServer
from wormhole.model.errors import CoordinationLost, SourceUnavailable

NEW: Final[dict[str, Callable[..., PrivateServer]]] = {
    "kafka": lambda **options: KafkaServer(jvm=[f"-X{name}" for name in options]),
    "mariadb": lambda **options: new_database_server("mariadb", **options),
    "mysql": lambda **options: new_database_server("mysql", **options),
    "nats": lambda **options: NatsServer(lines="\n".join(f"{name}: {value}" for name, value in options.items())),
    "postgres": lambda **options: PostgresServer(template=template(), options=options),
    "redis": lambda **options: RedisServer(options={**options}),
    "zookeeper": lambda **options: EmbeddedZooKeeper(options=[f"-X{name}" for name in options]),
}


@pytest.fixture(params=list(NEW), scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    """Every kind in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str) -> Iterator[PrivateServer]:
    """One that the tests stop and start."""
    with NEW[kind]() as server:
        yield server


def listening_addresses(pid: int) -> set[str]:
    """``host:port`` of every listening socket of a process, TCP and UDP, as the kernel shows it."""
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
            if fields[9] in inodes and (fields[3] == "0A" or table.startswith("udp")):
                host, port = fields[1].split(":")
                words = struct.pack(f"={len(host) // 8}I", *(int(host[i : i + 8], 16) for i in range(0, len(host), 8)))
                found.add(f"{ipaddress.ip_address(words)}:{int(port, 16)}")
    return found


def test_it_listens_on_loopback_only(server: PrivateServer) -> None:
    ports = {server.port, *([server.controller_port] if isinstance(server, KafkaServer) else [])}
    assert listening_addresses(server.pid) == {f"127.0.0.1:{port}" for port in ports}
    assert f"pid {server.pid}" in repr(server)


def write(server: PrivateServer) -> None:
    match server:
        case EmbeddedZooKeeper():
            with_client(server, lambda client: client.create("/kept"))
        case KafkaServer():
            server.create("kept")
        case NatsServer():
            asyncio.run(with_stream(server, lambda stream: stream.add_stream(name="kept")))
        case RedisServer():
            redis_answer(server, lambda client: client.set("kept", 1))
        case _:
            cast(Any, server).sql("CREATE DATABASE kept")


def holds_what_was_written(server: PrivateServer) -> bool:
    match server:
        case EmbeddedZooKeeper():
            return bool(with_client(server, lambda client: client.exists("/kept")))
        case KafkaServer():
            return server.records("kept") == []
        case NatsServer():
            return bool(asyncio.run(with_stream(server, lambda stream: stream.stream_info("kept"))))
        case RedisServer():
            return bool(redis_answer(server, lambda client: client.exists("kept")))
    databases = "SHOW DATABASES" if isinstance(server, DatabaseServer) else "SELECT datname FROM pg_database"
    return ("kept",) in cast(Any, server).sql(databases)


async def with_stream(server: NatsServer, do: Callable[[JetStreamContext], Awaitable[object]]) -> object:
    client = await server.connect()
    try:
        return await do(client.jetstream())
    finally:
        await client.close()


def redis_answer(server: RedisServer, do: Callable[[Redis], object]) -> object:
    with contextlib.closing(server.client()) as client:
        return do(client)


def with_client(server: EmbeddedZooKeeper, do: Callable[[KazooClient], object]) -> object:
    client = KazooClient(server.hosts)
    client.start()
    try:
        return do(client)
    finally:
        client.stop()
        client.close()


def test_it_starts_again_on_the_same_port_with_its_data(server: PrivateServer) -> None:
    port = server.port
    write(server)
    for end in (server.kill, server.stop):
        end()
        end()
        assert (server.pid, server.alive) == (0, False)
        server.start()
        server.start()
        assert server.port == port
        assert holds_what_was_written(server)


def test_a_port_taken_while_it_was_down_is_reported(server: PrivateServer) -> None:
    server.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((server.host, server.port))
        other.listen()
        with pytest.raises((CoordinationLost, SourceUnavailable), match=f"127.0.0.1:{server.port}"):
            server.start()
    server.start()


def test_a_port_that_is_taken_is_passed_over(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        free = private_server._free_port
        ports = iter([taken, taken])
        monkeypatch.setattr(private_server, "_free_port", lambda: next(ports, None) or free())
        with NEW[kind]() as server:
            assert server.port != taken
            folder = server.folder
    assert not folder.exists()


OWNER = """
import sys
from tests.contract.test_private_server import NEW
server = NEW[sys.argv[1]]()
server.start()
print(server.pid, server.folder, flush=True)
sys.stdin.read()
"""


def test_it_goes_with_an_owner_that_is_killed(kind: str, server: PrivateServer) -> None:
    words = [sys.executable, "-c", OWNER, kind]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        handle = os.pidfd_open(int(pid))
        owner.kill()
    try:
        assert select.select([handle], [], [], PATIENCE_S)[0], "the server outlives its owner"
    finally:
        os.close(handle)
    # The guard removes it after the server's end, which is the last event that is seen from here.
    until(lambda: not Path(folder).exists(), f"{folder} stays")


def test_one_that_does_not_come_up_shows_its_log(kind: str) -> None:
    server = NEW[kind](no_such_option="1")
    with pytest.raises((CoordinationLost, SourceUnavailable), match=r"no.such.option"):
        server.start()
    folder = server.folder
    server.close()
    assert not folder.exists()
