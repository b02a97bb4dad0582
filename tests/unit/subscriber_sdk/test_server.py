"""What the server refuses and advertises (streams over a real connection: tests/integration/test_sdk_grpc.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk import Subscriber, Update
from subscriber_sdk.options import Options
from subscriber_sdk.server import PushServer
from subscriber_sdk.shards import Shards
from wormhole.config import TlsFiles
from wormhole.errors import ConfigError


class Idle(Subscriber):
    async def on_update(self, update: Update) -> None:
        pass


def server(**given: Any) -> PushServer:
    options = Options(**{"application": "app", "coordinator": "zk:2181", **given})
    return PushServer(Shards(Idle(), options), options)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({"listen": "127.0.0.1:0"}, "127.0.0.1:7000"),
        ({"listen": "[::1]:0"}, "[::1]:7000"),
        ({"listen": "127.0.0.1:0", "advertise": "host"}, "host:7000"),
        ({"listen": "127.0.0.1:0", "advertise": "host:443"}, "host:443"),
        ({"listen": "0.0.0.0:0", "advertise": "host", "insecure": True}, "host:7000"),
    ],
)
def test_the_address_that_publishers_dial(given: dict[str, Any], address: str) -> None:
    built = server(**given)
    built.port = 7000
    assert built.address == address


def test_beyond_loopback_is_refused_without_tls() -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        server(listen="10.0.0.1:7000")


async def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    missing = TlsFiles(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem", ca=tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match=r"cert\.pem.*cannot be read"):
        await server(tls=missing).start()


async def test_stopping_what_never_started_is_fine() -> None:
    await server().stop()
    await server().leave()
