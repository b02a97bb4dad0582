"""Three ZooKeeper servers that elect a leader, in place of one."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.support.eventually import until
from tests.support.ports import free_port
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper

_SERVERS: Final = 3
# Ticks of 200 ms: a follower has 10 s to join, and is given up after 2 s of silence.
_LINES: Final = "initLimit=50\nsyncLimit=10\nstandaloneEnabled=false\n4lw.commands.whitelist=conf,srvr\n"


class Quorum(EmbeddedZooKeeper):
    """:attr:`hosts` names them all. What is done to the one server is done to all; :meth:`kill_leader` is not."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        peers = "".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()}\n" for number in range(1, _SERVERS + 1))
        self.members = [_member(folder / str(number), number, peers) for number in range(1, _SERVERS + 1)]

    @property
    def hosts(self) -> str:
        return ",".join(member.hosts for member in self.members)

    def start(self) -> None:
        """Start those that do not run. None answers before there is a leader, so they are started together."""
        with ThreadPoolExecutor(_SERVERS) as threads:
            list(threads.map(EmbeddedZooKeeper.start, self.members))

    def stop(self) -> None:
        for member in self.members:
            member.stop()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def close(self) -> None:
        for member in self.members:
            member.close()

    def kill_leader(self) -> None:
        """``kill -9`` of the leader. The others elect another one; :meth:`start` brings it back as a follower."""
        (leader,) = until(self._leaders, "ZooKeeper has no leader")
        leader.kill()

    def _leaders(self) -> list[EmbeddedZooKeeper]:
        return [member for member in self.members if member.alive and "Mode: leader" in _asked(member)]


def _member(folder: Path, number: int, peers: str) -> EmbeddedZooKeeper:
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "myid").write_text(f"{number}\n")
    return EmbeddedZooKeeper(folder, lines=_LINES + peers)


def _asked(member: EmbeddedZooKeeper) -> str:
    host, _, port = member.hosts.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"srvr")
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
