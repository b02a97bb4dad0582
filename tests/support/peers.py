"""Debezium and Maxwell as processes that read a server's log, built as the benchmarks build them."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.peers.builds import BUILDS, SOURCES, built
from scripts.prepare import ROOT
from tests.support.envelopes import Made
from tests.support.eventually import until

__all__ = ["Peer", "debezium", "maxwell", "maxwell_key"]

_BUILD: Final = ROOT / "build" / "peers"
_JAVA: Final = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_EVENTS: Final = Path(__file__).with_name("DebeziumEvents.java")
_KEY: Final = Path(__file__).with_name("MaxwellKey.java")
_MAXWELL: Final = "com.zendesk.maxwell.Maxwell"
_SETTINGS: Final[Mapping[str, str]] = {
    "name": "peer",
    "topic.prefix": "db",
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
    "converter.schemas.enable": "false",
    "include.schema.changes": "false",
    "snapshot.mode": "initial",
    "skipped.operations": "none",
    "decimal.handling.mode": "string",
}


class Peer:
    """A process that prints what it reads, a record a line. ``read``: the record of a line, or ``None``."""

    def __init__(self, words: Sequence[str], folder: Path, read: Callable[[str], Made | None]) -> None:
        self._out, self._errors = folder / "out", folder / "errors"
        self._read = read
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(words, stdout=out, stderr=errors, cwd=folder)

    def records(self) -> list[Made]:
        """What was printed so far."""
        whole, _, _ = self._out.read_text().rpartition("\n")
        return [record for line in whole.splitlines() if (record := self._read(line)) is not None]

    def until(self, true: Callable[[list[Made]], bool], what: str) -> list[Made]:
        """Wait until it is true of the records."""

        def reached() -> bool:
            assert self._process.poll() is None, self._errors.read_text()[-2000:]
            return true(self.records())

        until(reached, what)
        return self.records()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


@contextmanager
def debezium(connector: str, settings: Mapping[str, object], folder: Path) -> Iterator[Peer]:
    """Debezium with the connector of this class, from a snapshot on."""
    lib = _built("debezium") / "lib"
    given = {**_SETTINGS, "connector.class": connector, "database.hostname": "127.0.0.1", **settings}
    file = folder / "debezium.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    peer = Peer([*_JAVA, "-cp", f"{lib}/*", str(_EVENTS), str(file)], folder, _event)
    try:
        yield peer
    finally:
        peer.close()


@contextmanager
def maxwell(*options: str, folder: Path) -> Iterator[Peer]:
    """Maxwell, from the log's present end on."""
    peer = Peer([*_JAVA, "-cp", _of_maxwell(), _MAXWELL, "--producer=stdout", *options], folder, _document)
    try:
        yield peer
    finally:
        peer.close()


def maxwell_key(database: str, table: str, **columns: int) -> Any:
    """The key that Maxwell would give to a record in Kafka."""
    words = [f"{name}={value}" for name, value in columns.items()]
    command = [*_JAVA, "-cp", _of_maxwell(), str(_KEY), database, table, *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _event(line: str) -> Made | None:
    topic, key, value = line.split("\t")
    return Made("", topic.removeprefix("db."), json.loads(key), json.loads(value))


def _document(line: str) -> Made | None:
    value = json.loads(line)
    return Made("", f"{value['database']}.{value['table']}", None, value) if value["database"] != "maxwell" else None


def _of_maxwell() -> str:
    folder = _built("maxwell")
    return f"{folder}/lib/*:{folder}/classes"


@cache
def _built(name: str) -> Path:
    """The folder of the peer, which Maven fetches at the first time. Skips the test where it cannot be had."""
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if problem := built(name, _BUILD / name, BUILDS[name], SOURCES / name):
            pytest.skip(f"no {name}: {problem}")
    return _BUILD / name
