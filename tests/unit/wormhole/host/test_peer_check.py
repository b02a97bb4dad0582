"""What is said of an address that cannot be looked at. What is found there: tests/hostile/test_certificates.py."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.ports import free_port
from wormhole.host import peer_check
from wormhole.host.peer_check import examine, explain
from wormhole.host.trust import Trust
from wormhole.model.errors import StreamBroken
from wormhole.push.dial import is_refused


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(Authority(tmp_path).issue("db1"))


async def test_no_process_listens(trust: Trust) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(StreamBroken, match=r"cannot be reached \(Connection refused\)") as caught:
        await examine(address, trust)
    assert is_refused(caught.value)
    assert await explain(address, "", trust) == "", "not the certificates' fault"


async def test_one_that_speaks_no_tls(trust: Trust) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_answer_plainly, args=(listening,))
        thread.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(StreamBroken, match=r"cannot be reached \(TLS: ") as caught:
            await examine(address, trust)
        await asyncio.to_thread(thread.join)
    assert not is_refused(caught.value)


async def test_one_that_says_nothing(trust: Trust, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peer_check, "_TIMEOUT_S", 0.05)
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with pytest.raises(StreamBroken, match="no answer within"):
            await examine(f"unix:{path}", trust)


def _answer_plainly(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(1)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
