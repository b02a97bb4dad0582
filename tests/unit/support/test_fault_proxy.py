"""The fault proxy: each fault as the program at its end meets it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.support.eventually import PATIENCE_S
from tests.support.fault_proxy import FaultProxy


class Server:
    """Sends to each client what :meth:`send` is given, and notes what came."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.received = b""
        self.clients: list[socket.socket] = []
        self.came = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.clients.append(client)
                self.came.release()

    def send(self, data: bytes) -> None:
        self.clients[-1].sendall(data)

    def refuse(self) -> None:
        with suppress(OSError):  # done already
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def close(self) -> None:
        self.refuse()
        for client in self.clients:
            client.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@contextmanager
def connected(proxy: FaultProxy, server: Server) -> Iterator[socket.socket]:
    """A connection through the proxy that the server has accepted."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as client:
        assert server.came.acquire(timeout=PATIENCE_S)
        yield client


@pytest.fixture
def client(proxy: FaultProxy, server: Server) -> Iterator[socket.socket]:
    with connected(proxy, server) as client:
        yield client


def read(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = client.recv(count - len(found))
        if not data:
            break
        found += data
    return found


def silent(client: socket.socket, seconds: float = 0.1) -> bool:
    client.settimeout(seconds)
    try:
        return client.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE_S)


def test_without_a_fault_everything_passes_both_ways(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    big = bytes(range(256)) * 8192  # more than sockets and the proxy hold
    sender = threading.Thread(target=server.send, args=(big,))
    sender.start()
    assert read(client, len(big)) == big
    sender.join()
    client.sendall(b"hello")
    assert read(server.clients[0], 5) == b"hello"
    assert proxy.from_server == len(big)
    assert proxy.accepted == 1


def test_a_cut_resets_at_the_exact_byte_and_new_connections_work(
    proxy: FaultProxy, server: Server, client: socket.socket
) -> None:
    proxy.after(5, proxy.cut)
    server.send(b"0123456789")
    got = b""
    with pytest.raises(ConnectionResetError):
        while True:
            got += client.recv(100)
    assert b"01234".startswith(got)  # a reset may overtake what was sent before it
    proxy.await_fault()
    assert proxy.from_server == 5
    with connected(proxy, server) as again:
        server.send(b"anew")
        assert read(again, 4) == b"anew"


def test_a_network_that_is_cut_in_one_direction(proxy: FaultProxy, server: Server, client: socket.socket) -> None:
    proxy.mute()
    client.sendall(b"hello")
    server.send(b"0123")
    assert read(client, 4) == b"0123"
    assert silent(server.clients[0])
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as other:
        other.sendall(b"x")
        assert not server.came.acquire(timeout=0.1)
        proxy.pass_through()
        assert read(server.clients[0], 5) == b"hello"
        assert server.came.acquire(timeout=PATIENCE_S)
        assert read(server.clients[1], 1) == b"x"
        proxy.deafen()
        server.send(b"y")
        assert silent(other)
        other.sendall(b"z")
        assert read(server.clients[1], 1) == b"z"
        proxy.pass_through()
        assert read(other, 1) == b"y"


def test_one_byte_is_changed_at_the_place_that_was_said(
    proxy: FaultProxy, server: Server, client: socket.socket
) -> None:
    proxy.flip_mask = 0x20
    proxy.after(3, proxy.flip)
    server.send(b"abcdef")
    assert read(client, 6) == b"abcDef"
    server.send(b"abcdef")
    assert read(client, 6) == b"abcdef"
    proxy.flip()
    proxy.pass_through()
    server.send(b"abc")
    assert read(client, 3) == b"abc"
