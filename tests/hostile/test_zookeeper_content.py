"""Whoever can write to ZooKeeper: what it says can only choose among what the host allows, and nobody it names is given a secret."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from wormhole.cli import admin_client
from wormhole.cli.discovery import Where
from wormhole.config import CoordinatorConfig
from wormhole.coordination import PublisherInfo, ZooKeeperCoordinator
from wormhole.errors import UsageError
from wormhole.wire.v1 import admin_pb2

TOKEN = "5e" * 32


class Impostor:
    """An admin service of somebody else, which names a token file and notes everything that it is sent."""

    def __init__(self, token_file: Path) -> None:
        self.heard = bytearray()
        self.status = admin_pb2.PublisherStatus(
            dataset="shop", copy="main", log="db1", token_file=str(token_file), host=socket.gethostname(), pid=1
        )
        self.status.flows.add(flow="cache/db1", state="live")

    def method(self, name: str) -> grpc.RpcMethodHandler[bytes, bytes]:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.heard += request
            for key, value in context.invocation_metadata():
                self.heard += key.encode() + (value if isinstance(value, bytes) else value.encode())
            return self.status.SerializeToString() if name == "Describe" else b""

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def listening(impostor: Impostor) -> Iterator[str]:
    pool = futures.ThreadPoolExecutor(2)
    server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
    methods = {name: impostor.method(name) for name in ("Describe", "Change", "DeadLetters", "Audit", "Replay")}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("wormhole.wire.v1.Admin", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    pool.shutdown()


def test_a_publisher_that_zookeeper_invents_is_given_no_token(zookeeper: str, tmp_path: Path) -> None:
    """Red before: the operator's command read the file that this impostor named, and sent what was in it."""
    file = tmp_path / "admin.token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    impostor = Impostor(file)

    async def invent(address: str) -> None:
        coordinator = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper))
        await coordinator.start()
        try:
            await coordinator.register_publisher(
                PublisherInfo("shop", "main", "db1", socket.gethostname(), 1, address, 1.0)
            )
            answers = await asyncio.to_thread(admin_client.ask, Where(coordinator=zookeeper))
            owner, _ = admin_client.owner_of(answers, "cache/db1")
            pause = admin_pb2.ChangeRequest(who="maria@ops", flow="cache/db1", pause=admin_pb2.Pause())
            with pytest.raises(UsageError, match="token"):
                await asyncio.to_thread(admin_client.change, owner, pause)
            with pytest.raises(UsageError, match="token"):
                await asyncio.to_thread(admin_client.dead_letters, owner, "", 1)
            with pytest.raises(UsageError, match="token"):
                await asyncio.to_thread(admin_client.proven, owner)
        finally:
            await coordinator.stop()

    with listening(impostor) as address:
        asyncio.run(invent(address))
    assert b"cache/db1" not in impostor.heard
    assert TOKEN.encode() not in impostor.heard
