"""TLS: who is refused, what is said about wrong files, and where listening without it is allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S
from wormhole.config import TlsFiles
from wormhole.host.tls import (
    check_listen,
    is_loopback,
    open_trust,
    target_options,
)
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7000", True),
        ("127.9.9.9:1", True),
        ("localhost:7000", True),
        ("LOCALHOST.:7000", True),
        ("[::1]:7000", True),
        ("::1", True),
        ("[::ffff:127.0.0.1]:7000", True),
        ("unix:/run/wormhole.sock", True),
        ("localhost", True),
        ("0.0.0.0:7000", False),
        ("[::]:7000", False),
        ("10.0.0.1:7000", False),
        ("localhost.example:7000", False),
        ("example.com", False),
        (":7000", False),
        ("", False),
    ],
)
def test_loopback_is_decided_without_dns(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_listening_beyond_loopback_needs_tls_or_an_explicit_word(tmp_path: Path) -> None:
    tls = TlsFiles(cert=tmp_path / "c", key=tmp_path / "k", ca=tmp_path / "a")
    check_listen("127.0.0.1:0", None)
    check_listen("0.0.0.0:7000", tls)
    check_listen("0.0.0.0:7000", None, insecure=True)
    with pytest.raises(ConfigError, match=r'admin_listen = "0\.0\.0\.0:7000"') as caught:
        check_listen("0.0.0.0:7000", None, setting="admin_listen")
    assert "insecure = true" in str(caught.value.hint)


def test_every_wrong_file_is_named_in_one_error(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("nonsense")
    (tmp_path / "key").write_text("-----BEGIN CERTIFICATE-----\n")
    tls = TlsFiles(cert=tmp_path / "cert", key=tmp_path / "key", ca=tmp_path / "missing")
    with pytest.raises(ConfigError) as caught:
        open_trust(tls)
    text = str(caught.value)
    assert "tls.cert" in text
    assert "holds no PEM CERTIFICATE" in text
    assert "holds no PEM PRIVATE KEY" in text
    assert "tls.ca" in text
    assert "No such file" in text


async def _echo(request: bytes, _context: object) -> bytes:
    return request


@asynccontextmanager
async def serving(credentials: grpc.ServerCredentials) -> AsyncIterator[str]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Echo": handler}),))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def call(address: str, credentials: grpc.ChannelCredentials, options: Sequence[tuple[str, str]] = ()) -> bytes:
    async with grpc.aio.secure_channel(address, credentials, options=list(options)) as channel:
        echo: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test.Echo/Echo")
        return await echo(b"hello", timeout=PATIENCE_S)


async def test_the_registered_name_is_what_the_certificate_must_carry(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = (await asyncio.to_thread(Trust, authority.issue("cache-a"))).server_credentials()
    client = (await asyncio.to_thread(Trust, authority.issue("publisher"))).channel_credentials()
    async with serving(server) as address:
        assert await call(address, client, target_options("cache-a")) == b"hello"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(address, client, target_options("cache-b"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_without_certificate_or_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "their-ca")
    stranger = theirs.issue("publisher").model_copy(update={"ca": ours.ca})
    server = (await asyncio.to_thread(Trust, ours.issue("cache-a"))).server_credentials()
    without = grpc.ssl_channel_credentials(root_certificates=ours.ca.read_bytes())
    foreign = (await asyncio.to_thread(Trust, stranger)).channel_credentials()
    async with serving(server) as address:
        for credentials in (without, foreign):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(address, credentials, target_options("cache-a"))
