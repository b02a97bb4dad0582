from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from datastores.mysql.server.address import Address
from datastores.mysql.server.connection import connect, server_text, translate, translating
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S
from wormhole.model.errors import SourceSilent, SourceUnavailable, UnsupportedLog, UsageError, WormholeError

ADDRESS = Address("db1", 3306, "reader", "top secret", password_from="the password came from /p")
_PLUGIN_AUTH, _SECURE, _PROTOCOL_41, _SSL = 1 << 19, 1 << 15, 1 << 9, 1 << 11


def packet(payload: bytes, sequence: int = 0) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([sequence]) + payload


def greeting(capabilities: int = _PLUGIN_AUTH | _SECURE | _PROTOCOL_41, version: bytes = b"8.4.0") -> bytes:
    """As in the manual's "Protocol::HandshakeV10"."""
    low, high = capabilities & 0xFFFF, capabilities >> 16
    head = b"\x0a" + version + b"\0" + struct.pack("<I", 7) + b"12345678\0"
    return packet(
        head + struct.pack("<HBHHB", low, 255, 2, high, 21) + bytes(10) + b"123456789012\0" + b"mysql_native_password\0"
    )


@contextmanager
def server(talk: Callable[[socket.socket], object]) -> Iterator[Address]:
    """Something on a port that does ``talk`` with one client and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.settimeout(PATIENCE_S)
                talk(client)

        # A test that fails leaves its client open, and must not leave the run waiting for this.
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listening.getsockname()[1], "reader", "top secret")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def refused(address: Address, kind: type[WormholeError], says: str, timeout_s: float = PATIENCE_S) -> None:
    with pytest.raises(kind) as caught:
        connect(address, timeout_s=timeout_s)
    assert says in str(caught.value)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    refused(Address("127.0.0.1", port, "u"), SourceUnavailable, "refused")
    refused(Address("h", 1, "u", socket="/no/such.sock"), SourceUnavailable, "u@/no/such.sock: No such file")


def test_an_unknown_host_passes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.create_connection", unknown)
    refused(ADDRESS, SourceUnavailable, "reader@db1:3306: the host's name is not known")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        packet(b"\x0a8.4"),
        packet(b""),
        packet(b"\x0aX\0"),
    ],
)
def test_what_is_no_server(said: bytes) -> None:
    with server(lambda client: client.sendall(said)) as address:
        refused(address, SourceUnavailable, str(address))


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    done = threading.Event()
    with server(lambda client: done.wait(PATIENCE_S)) as address:
        refused(address, SourceSilent, "no answer in time", timeout_s=0.2)
        done.set()


def test_a_server_without_room_passes_by_itself() -> None:
    error = b"\xff" + struct.pack("<H", 1040) + b"#08004Too many connections"
    with server(lambda client: client.sendall(packet(error))) as address:
        refused(address, SourceUnavailable, "Too many connections")


def test_tls_that_is_required_is_not_left_out() -> None:
    for mode in ("require", "verify"):
        with server(lambda client: client.sendall(greeting())) as address:
            refused(
                Address(address.host, address.port, "u", tls=mode),
                UsageError,
                "the server offers none",
            )


@pytest.mark.parametrize("mode", ["verify", "verify-ca", "prefer", "require"])
def test_a_certificate_of_an_unknown_authority(mode: str, tmp_path: Path) -> None:
    files = Authority(tmp_path / "server").issue("localhost")
    other = Authority(tmp_path / "other").issue("localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    seen: list[bytes] = []

    def talk(client: socket.socket) -> None:
        client.sendall(greeting(_PLUGIN_AUTH | _SECURE | _PROTOCOL_41 | _SSL))
        seen.append(client.recv(36))
        try:
            with context.wrap_socket(client, server_side=True) as secure:
                seen.append(secure.recv(4096))
                secure.sendall(packet(b"\xff" + struct.pack("<H", 1045) + b"#28000Access denied", 3))
        except OSError as error:
            seen.append(str(error).encode())

    with server(talk) as found:
        address = Address(found.host, found.port, "u", "x", tls=mode, ca=str(other.ca))  # type: ignore[arg-type]
        verified = mode.startswith("verify")
        refused(address, UsageError, "certificate is not accepted" if verified else "Access denied")


def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for ca in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        refused(Address("h", 1, "u", tls="verify", ca=str(ca)), UsageError, str(ca))


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (1045, UsageError, "the server refuses the account or its password: no (the password came from /p)"),
        (1698, UsageError, "the server refuses the account"),
        (1130, UsageError, "takes no connections from this host"),
        (1820, UsageError, "the account cannot be used"),
        (1227, UsageError, "a privilege is missing"),
        (1142, UsageError, "a privilege is missing"),
        (2059, UsageError, "authentication plugin is not supported"),
        (2026, UsageError, "TLS is asked for"),
        (1040, SourceUnavailable, "db1:3306: no"),
        (1053, SourceUnavailable, "no"),
        (2006, SourceUnavailable, "no"),
        (2013, SourceUnavailable, "no"),
        (1236, UnsupportedLog, "error 1236"),
        (1193, UnsupportedLog, "error 1193"),
    ],
)
def test_whose_move_an_error_is(number: int, kind: type[WormholeError], says: str) -> None:
    error = translate(pymysql.OperationalError(number, "no"), ADDRESS)
    assert type(error) is kind
    assert says in str(error)
    assert error.hint
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("said", "shadowed"),
    [
        ("Access denied for user 'o'neil'@'localhost' (using password: YES)", True),
        ("Access denied for user 'o'neil'@'localhost' (using password: NO)", False),
        ("Access denied for user 'o'neil'@'h'; DROP TABLE x' (using password: YES)", False),
    ],
)
def test_an_anonymous_account_may_shadow_the_one_that_is_refused(said: str, shadowed: bool) -> None:
    error = translate(pymysql.OperationalError(1045, said), Address("db1", 3306, "o'neil", "top secret"))
    sql = "SELECT User, Host FROM mysql.user WHERE User IN ('', 'o''neil');"
    lines = str(error.hint).splitlines()
    assert (sql in lines) is shadowed
    assert ("DROP USER ''@'localhost';" in lines) is shadowed


def test_an_error_without_a_number_is_one_of_the_connection() -> None:
    assert server_text(pymysql.InternalError("Packet sequence number wrong")) == (0, "Packet sequence number wrong")
    with pytest.raises(SourceUnavailable, match="SHOW x: Packet sequence"), translating("SHOW x"):
        raise pymysql.InternalError("Packet sequence number wrong")
    with pytest.raises(SourceUnavailable, match="no answer in time"), translating("SHOW x"):
        raise TimeoutError
