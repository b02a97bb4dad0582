"""A private Redis on loopback: Debian's, which this machine has or ``scripts/prepare.py`` unpacked.

Tests share one server, each with a database of its own; a test that stops or kills a server, or that needs settings,
starts its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from wormhole.host.private_server import PrivateServer

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["RedisServer", "redis_server", "redis_url"]

_UNPACKED: Final = Path(sys.prefix) / "redis-server" / "usr"
_DATABASES: Final = 1000
# A command is handed to the operating system before it is answered, and not awaited on the disk: that survives
# `kill -9` of the server.
_OPTIONS: Final[Mapping[str, str]] = {
    "bind": "127.0.0.1",
    "databases": str(_DATABASES),
    "appendonly": "yes",
    "appendfsync": "no",
    "save": "",
}
_numbers = itertools.count()


class RedisServer(PrivateServer):
    """One server. ``options``: settings over the defaults, by the names of ``redis.conf``."""

    flavour: ClassVar[str] = "redis"

    def __init__(self, folder: Path | None = None, *, options: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self.options: dict[str, str] = {**_OPTIONS, **(options or {})}

    def url(self, database: int = 0) -> str:
        """The address of one of its databases, with the password that ``requirepass`` sets, if it does."""
        password = f"default:{self.options['requirepass']}@" if "requirepass" in self.options else ""
        return f"redis://{password}{self.host}:{self.port}/{database}"

    def client(self, database: int = 0, **settings: Any) -> Redis:
        """A client that answers with bytes; the caller closes it."""
        from redis import Redis  # takes half a second, and every run of tests reads this module

        return Redis.from_url(self.url(database), **settings)

    @staticmethod
    def program(name: str) -> list[str]:
        """The words that start ``redis-server``, ``redis-cli`` or ``redis-benchmark``, which may need
        :meth:`environment`. Skips the test where there is no Redis.
        """
        found = shutil.which(name, path=os.pathsep.join((str(_UNPACKED / "bin"), os.environ.get("PATH", os.defpath))))
        if found is None:
            pytest.skip("there is no Redis on this machine; run: make build")
        return [found]

    @staticmethod
    def environment() -> dict[str, str]:
        """With which its programs find their libraries."""
        return {**os.environ, "LD_LIBRARY_PATH": str(_UNPACKED / "lib" / f"{platform.machine()}-linux-gnu")}

    # -- what a private server needs

    def find_programs(self) -> None:
        self.program("redis-server")

    def prepare(self) -> None:
        self.data.mkdir(exist_ok=True)

    def start_command(self) -> list[str]:
        settings = [word for name, value in self.options.items() for word in (f"--{name}", value)]
        return [*self.program("redis-server"), *settings, "--dir", str(self.data), "--port", str(self.port)]

    def process_options(self) -> dict[str, Any]:
        return {"env": self.environment()}

    def answers(self) -> bool:
        from redis import RedisError

        with contextlib.closing(self.client(socket_connect_timeout=1, socket_timeout=1)) as client:
            try:
                return client.config_get("dir") == {"dir": str(self.data.resolve())}
            except RedisError:
                return False


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The server that tests share: each works in a database of its own, and changes no setting for others."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of an empty database of the shared server."""
    number = next(_numbers) % _DATABASES
    with contextlib.closing(redis_server.client(number)) as client:
        client.flushdb()
    return redis_server.url(number)
