"""The proxy of the test of effects exactly once does to a connection what it was armed for, once."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import closing

from tests.system.harness.commit_proxy import CommitProxy

_STARTUP = struct.pack("!I", 8) + b"\0\0\0\0"
_COMMIT = b"Q" + struct.pack("!I", 11) + b"COMMIT\0"
_READY = b"Z" + struct.pack("!I", 5) + b"I"


def test_an_answer_that_comes_during_the_fault_is_not_another_one() -> None:
    """Otherwise a killed server is killed again, when it was already started for what follows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = CommitProxy("postgres", listener.getsockname()[1])
        faults, second = [], threading.Event()

        def fault() -> None:
            faults.append(1)
            if len(faults) == 2:
                second.set()
            else:
                server.sendall(_READY)
                second.wait(0.3)

        with closing(proxy), socket.create_connection(("127.0.0.1", proxy.port)) as client:
            server = listener.accept()[0]
            with server:
                client.sendall(_STARTUP)
                assert server.recv(100) == _STARTUP
                proxy.arm(0, fault)
                client.sendall(_COMMIT)
                proxy.await_fired()
    assert faults == [1]
