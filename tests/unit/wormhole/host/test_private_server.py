"""What a private server does once its process is gone; tests/contract/test_private_server.py has the real ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.eventually import until
from wormhole.host.private_server import PrivateServer


class Brief(PrivateServer):
    """A server that ends by itself at once."""

    flavour = "brief"

    def start_command(self) -> list[str]:
        return ["true"]

    def answers(self) -> bool:
        return True

    def prepare(self) -> None:
        pass


@pytest.mark.parametrize("end", [PrivateServer.stop, PrivateServer.kill, PrivateServer.close])
def test_a_server_that_ended_by_itself_is_not_signalled(end: Callable[[PrivateServer], None], tmp_path: Path) -> None:
    server = Brief(tmp_path)
    server.start()
    until(lambda: not server.alive, "it does not end")
    with subprocess.Popen(["sleep", "60"]) as other:
        server.pid = other.pid  # the number of the ended process belongs to another one now
        try:
            end(server)
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.2)
        finally:
            other.kill()


def test_what_a_killed_server_left_behind_writes_into_no_later_log(tmp_path: Path) -> None:
    server = Brief(tmp_path)
    server.start()
    with server.log.open("ab") as left_behind:
        server.stop()
        server.start()
        left_behind.write(b"the last words of a child process")
    assert not server.log.read_bytes()
    server.close()
