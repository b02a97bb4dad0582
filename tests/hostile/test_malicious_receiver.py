"""A receiver of webhooks that never ends its answer: the deadline holds, and the sink's memory stays bounded.

The sink is a process of its own, whose memory is measured by the kernel.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Final

from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S

_MOST_BYTES: Final = 16 << 20
_BLOCK: Final = 256 << 10
_CLIENT: Final = """
import asyncio, json, re, sys
from pathlib import Path
from sinks.webhook.message import Message
from sinks.webhook.receiver import Receiver
from sinks.webhook.settings import WebhookSettings
from wormhole.model.errors import WormholeError

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

async def answered(url, secret):
    settings = {"url": url, "secret_file": secret, "timeout": "200ms"}
    receiver, outcomes = Receiver(WebhookSettings.model_validate(settings)), []
    for number in range(2):
        try:
            outcomes.append(await receiver.post(Message(f"id{number}", b"{}")))
        except WormholeError as error:
            outcomes.append(error.code)
    await receiver.close()
    return outcomes

async def main(secret, *urls):
    before = peak()
    print(json.dumps([[await answered(url, secret) for url in urls], peak() - before]))

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def _receiver(head: bytes, piece: bytes) -> Iterator[str]:
    """A server that sends ``head``, and then ``piece`` for ever. Yields its URL."""
    block = piece * (_BLOCK // len(piece))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            for data in chain([head], repeat(block)):
                connection.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        server.shutdown(socket.SHUT_RDWR)
        accepting.join()


_ANSWERS: Final[list[tuple[bytes, bytes, str | int]]] = [
    (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", "target-unavailable"),
    (b"", b"HTTP/1.1 100 Continue\r\nX: " + b"x" * 8000 + b"\r\n\r\n", "target-unavailable"),
    (b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 4000 + b"\r\n", "target-unavailable"),
    (b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n", "target-unavailable"),
    (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096, 0),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0),
]
"""How an answer begins, what comes for ever, and the outcome of a message."""


def test_an_answer_without_an_end_takes_no_memory(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("whsec_" + base64.b64encode(bytes(32)).decode())
    secret.chmod(0o600)
    with ExitStack() as receivers:
        urls = [receivers.enter_context(_receiver(head, piece)) for head, piece, _ in _ANSWERS]
        command = [sys.executable, "-c", _CLIENT, os.fspath(secret), *urls]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert not ran.returncode, ran.stderr
    outcomes, grown = json.loads(ran.stdout)
    assert outcomes == [[outcome] * 2 for *_, outcome in _ANSWERS]
    assert grown < _MOST_BYTES
