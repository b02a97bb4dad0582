"""The harness of HDFS for the contract of log sources: a put is a symbolic link, which is one edit with a text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from datastores.hdfs.java import name_node
from datastores.hdfs.java.jvm import Jvm
from datastores.hdfs.url import Address
from publisher.sources import open_source
from tests.support.eventually import until
from tests.support.hadoop import NameNodeServer
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.contract import Change, Harness
from wormhole.ports.testing.reading import Read

__all__ = ["HdfsHarness", "kept_jvms"]

_numbers: Final = count()


class _KeptJvm(Jvm):
    """Once a source stopped it, the next one has it: to start one takes two seconds of a processor."""

    idle: Final[list[_KeptJvm]] = []

    def stop(self) -> None:
        self.idle.append(self)


@contextmanager
def kept_jvms() -> Iterator[None]:
    """While the block lasts sources take JVMs with Hadoop's client from each other."""

    def launched(address: Address) -> Jvm:
        assert not address.user
        assert not address.configuration
        return _KeptJvm.idle.pop() if _KeptJvm.idle else _KeptJvm({})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_node, "_launched", launched)
        yield
    while _KeptJvm.idle:
        Jvm.stop(_KeptJvm.idle.pop())


class HdfsHarness(Harness):
    """A NameNode that several harnesses use one after the other, each with first folders of its own."""

    bounded_by_bytes = False
    several = False

    def __init__(self, server: NameNodeServer, folder: Path, sharding: Sharding) -> None:
        self.server = server
        self.folder = folder
        self.sharding = sharding
        self._number = next(_numbers)
        for name in "ab":
            server.files.mkdirs(server.path(f"/{self.table(name)}"))
        self._open()

    def _open(self) -> None:
        self.source = open_source(self.server.url, log="log", state_dir=self.folder, sharding=self.sharding)
        self.source.start()

    def path(self, table: str, key: bytes) -> str:
        """The path of a key."""
        return f"/{self.table(table)}/{key.decode()}"

    def commit(self, changes: Sequence[Change]) -> None:
        files, path = self.server.files, self.server.path
        for change in changes:
            place = path(self.path(change[1], change[2]))
            if len(change) == 4:
                files.createSymlink(path(change[3].decode() or "-"), place, False)
            else:
                files.delete(place, False)

    def committed(self, read: Read) -> list[tuple[str, str, bytes]]:
        # A removal is the range below the path too, which each shard may have.
        found = [one for one in read.updates if one.op != "delete_range"]
        return [(one.op, one.table, str(one.key[0]).rpartition("/")[2].encode()) for one in found]

    def rotate(self) -> None:
        self.server.files.rollEdits()

    def restart(self) -> None:
        self.source.stop()
        self._open()

    def purge(self) -> None:
        self.server.checkpoint()
        self.commit([("put", "a", b"after the purge", b"")])

    def save(self) -> None:
        self.rotate()
        shutil.copytree(self.server.names, self.folder / "saved", dirs_exist_ok=True)

    def lose_tail(self, to: Datamarker) -> None:
        self.server.kill()
        self.server.replace(self.folder / "saved")
        self.server.start()
        self.commit([("put", "a", b"another history", b"1")])
        until(self._answers, "the source has a connection to the NameNode that was started")

    def _answers(self) -> bool:
        try:
            self.source.latest()
        except SourceUnavailable:  # the connection of before is closed
            return False
        return True

    def close(self) -> None:
        self.source.stop()

    def table(self, name: str) -> str:
        return f"{name}{self._number}"

    def after_delivered(self, marker: Datamarker) -> str:
        return marker.delivered
