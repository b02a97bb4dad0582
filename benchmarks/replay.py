"""Measures the throughput of a mass replay, beside catch-up through a caravan, and beside a program that only reads the
archive's files.

:func:`world` writes a log, archives it with the real archiver, and lets one application catch up with it.
:meth:`World.replay` then runs ``wormholectl replay`` for that application, any number of times. All processes are real.
Each ends with its block.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cases import cpu_s, free_ports, line, memory_peak_mib, profiler, program, scratch, tell
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.store import ArchiveStore, open_store
from wormhole.model.errors import WormholeError

__all__ = ["SHARDS", "Archived", "ArchivedWorld", "Read", "Replayed", "Replayer", "Taken", "World"]
__all__ += ["catch_up", "configuration", "entries", "here", "read", "replayer", "world"]

SHARDS = 4  # twice as many as tasks at a time, so that neither waits long for the other at the end
_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Archived:
    """``seconds``: from the archiver's first manifest until all rows are named.

    Bytes of the log and of the files; CPU seconds and MiB.
    """

    seconds: float
    log_bytes: int
    archive_bytes: int
    files: int
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Taken:
    """Catch-up through a caravan: ``seconds`` from the first update to the last."""

    seconds: float
    publisher_cpu_s: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """``push_s``: from the first update to the last; ``whole_s``: from the first flow that was held; ``command_s``: of
    the command; ``ended``: the moment of the last update (monotonic).
    """

    updates: int
    push_s: float
    whole_s: float
    command_s: float
    ended: float


@dataclass(frozen=True, slots=True)
class Read:
    """One process over the same files: seconds for columns as Arrow, and for each row as Python objects."""

    arrow_s: float
    objects_s: float


class World:
    """An archive of ``count`` updates to ``keys`` keys, and an application that has all of it."""

    def __init__(
        self,
        folder: Path,
        count: int,
        keys: int,
        store: ArchiveStore,
        taken: Taken,
        subscriber: subprocess.Popen[str],
    ) -> None:
        self.folder, self.count, self.keys = folder, count, keys
        self.store = store
        self.taken = taken
        self._subscriber = subscriber

    def replay(self, replayer: Replayer, mode: str, handler_us: float = 0.0) -> Replayed:
        """The whole archive, to the same application, whose handler works ``handler_us`` microseconds on each update.
        Raises ``RuntimeError`` when the command fails.
        """
        updates = self.count if mode == "log" else self.keys
        tell(self._subscriber, f"{updates} {handler_us}")
        assert line(self._subscriber) == "counting"
        words = ["replay", "-c", str(self.folder / "bench.toml"), "--app", "app", "--from", "earliest"]
        command_s = replayer.run([*words, "--mode", mode, "--master", replayer.master, "--json"])
        told: dict[str, Any] = json.loads(line(self._subscriber))
        last = told["last"]
        return Replayed(updates, last - told["first"], last - told["held"], command_s, last)

    def read(self) -> Read:
        """The same files in one process, without anything of ours."""
        return read(self.store, entries(self.store), self.count)


def read(store: ArchiveStore, named: Sequence[tuple[str, FileEntry]], count: int) -> Read:
    """These files in one process, without anything of ours. Raises ``RuntimeError`` where they hold another number of
    rows.
    """
    with program("benchmarks.parquet", *(store.data_path(shard, entry.name) for shard, entry in named)) as process:
        told: dict[str, Any] = json.loads(line(process))
    if told["rows"] != count:
        raise RuntimeError(f"the archive holds {told['rows']} rows of {count}")
    return Read(told["arrow_s"], told["objects_s"])


class ArchivedWorld(World):
    """One whose archive was made of its log."""

    def __init__(self, archived: Archived, *world: Any) -> None:
        super().__init__(*world)
        self.archived = archived


class Replayer:
    """``wormholectl`` in a process that keeps its Spark from one command to the next: for one master."""

    def __init__(self, process: subprocess.Popen[str], log: Path, master: str) -> None:
        self._process = process
        self._log = log
        self.master = master

    def run(self, words: list[str]) -> float:
        """Seconds that the command took. Raises ``RuntimeError`` with what it said when it fails."""
        tell(self._process, json.dumps(words))
        code, seconds = json.loads(line(self._process))
        if code:
            raise RuntimeError(f"a replay ended with {code}:\n{self._log.read_text()[-4000:]}")
        return float(seconds)


@contextmanager
def replayer(
    folder: Path, master: str, environment: Mapping[str, str] | None = None, profile: Path | None = None
) -> Iterator[Replayer]:
    """Ended with its block. ``profile``: where a flame graph of it and of Spark's Python workers under it goes,
    or with the ending ``.txt`` its stacks and how often each was seen."""
    log = folder / "replays.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.replayer", str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=here(folder) if environment is None else dict(environment),
    )
    watching = None if profile is None else profiler(process.pid, profile, below=True)
    try:
        yield Replayer(process, log, master)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if watching is not None:
            watching.wait()  # it writes its picture now


def entries(store: ArchiveStore) -> list[tuple[str, FileEntry]]:
    """Every file that a manifest names, with its shard."""
    found = []
    for shard in store.shards():
        manifest = store.read(shard)
        found += [(shard, entry) for entry in manifest.files] if manifest is not None else []
    return found


def configuration(
    folder: Path, archiver: int, application: int, shards: int = SHARDS, archive: Path | None = None
) -> Path:
    """The publisher's, archiver's and application's; the numbers are their ports. ``archive``: another folder than one
    beside them.
    """
    path = folder / "bench.toml"
    path.write_text(f"""version = 1
[coordinator]
static = true
[publisher]
state_dir = "{folder}/state"
admin_listen = "127.0.0.1:{free_ports(1)[0]}"
[datasets.bench]
shard_by = {{ hash = {shards} }}
[datasets.bench.archive]
to = "{archive or folder / "archive"}"
flush_every = "1s"
[datasets.bench.copies.main.logs.db]
source = "rocksdb://{folder}/store"
[applications.archive]
dataset = "bench"
start = "earliest"
[applications.archive.subscribers]
archiver = "127.0.0.1:{archiver}"
[applications.app]
dataset = "bench"
start = "earliest"
[applications.app.subscribers]
s = "127.0.0.1:{application}"
""")
    return path


@contextmanager
def world(count: int, size: int, keys: int, profile: Path | None = None) -> Iterator[ArchivedWorld]:
    """``count`` updates of ``size`` bytes, ten in each transaction, to ``keys`` keys.

    ``profile``: where the archiver's flame graph goes.
    """
    with scratch() as folder, ExitStack() as stack:
        words = ["--count", str(count), "--size", str(size), "--per-batch", "10", "--keys", str(keys)]
        line(stack.enter_context(program("benchmarks.store", f"{folder}/store", *words)))
        archiver, port = free_ports(2)
        config = configuration(folder, archiver, port)
        publisher = stack.enter_context(program("benchmarks.publisher", str(config)))
        store, archived = _archive(folder, config, count, publisher, profile)
        subscriber = stack.enter_context(program("benchmarks.replayed", str(port), str(count)))
        taken = catch_up(subscriber, publisher)
        yield ArchivedWorld(archived, folder, count, keys, store, taken, subscriber)


def catch_up(subscriber: subprocess.Popen[str], publisher: subprocess.Popen[str]) -> Taken:
    """Until the application, which has just been started, has all that it waits for."""
    line(subscriber)
    before = cpu_s(publisher.pid)
    told: dict[str, Any] = json.loads(line(subscriber))
    return Taken(told["last"] - told["first"], cpu_s(publisher.pid) - before)


def _archive(
    folder: Path, config: Path, count: int, publisher: subprocess.Popen[str], profile: Path | None
) -> tuple[ArchiveStore, Archived]:
    """Archive everything, and end the archiver: it would take processor time from what is measured next."""
    until = time.monotonic() + _PATIENCE_S
    began = 0.0
    with program("wormholectl", "archive", "run", "-c", str(config), profile=profile) as archiver:
        while True:
            for process in (archiver, publisher):
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
            if time.monotonic() > until:
                raise RuntimeError(f"the log was not archived within {_PATIENCE_S:g} s")
            time.sleep(0.05)
            try:
                store = open_store(str(folder / "archive"), "bench")
                named = entries(store)
                began = began or (time.monotonic() if store.shards() else 0.0)
            except WormholeError:  # not made yet
                continue
            if sum(entry.rows for _, entry in named) >= count:
                break
        seconds = time.monotonic() - began
        log_bytes = sum(path.stat().st_size for path in (folder / "store").glob("*.log"))
        figures = sum(entry.bytes for _, entry in named), len(named), cpu_s(archiver.pid), memory_peak_mib(archiver.pid)
        return store, Archived(seconds, log_bytes, *figures)


def here(folder: Path) -> dict[str, str]:
    """The environment of a local driver: its scratch space goes with the benchmark's folder."""
    return {**os.environ, "SPARK_LOCAL_DIRS": str(folder / "spark"), "SPARK_LOCAL_IP": "127.0.0.1"}
