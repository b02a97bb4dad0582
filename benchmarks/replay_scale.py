"""How a mass replay grows: with shards, with executors, and in both modes, over archives of millions of updates.

Each measured point is appended to a file as soon as it is there, and a run goes on with those that the file lacks: what
ends it early costs nothing that was measured.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import replay
from benchmarks.cases import free_ports, line, program, scratch, tell
from benchmarks.machine import load
from benchmarks.made_archive import MadeArchive, make_archive
from benchmarks.processor import Processor, processor
from benchmarks.replay import Replayer, World
from benchmarks.spark_cluster import cluster
from spark_replay.archive.store import ArchiveStore
from wormhole.admin import admin_service
from wormhole.host.where import Where
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_from_message
from wormholectl.show.printer import print_text

__all__ = ["Plan", "Point", "executors_of", "measure", "points", "read_points"]

Profile = Callable[[str], Path | None]

_TAIL: Final = 2_000_000
"""Updates of the log itself at the most: what catch-up is measured by."""
_ROWS: Final = 2_000_000
"""Rows that the plain reader reads, about: as Python objects they take longer than the replay."""
_CLUSTER: Final = "cluster"
_SETTLE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured. ``updates`` of ``size`` bytes, ``keys`` for each update; ``masters``: ``local[N]``, or
    ``cluster[N]`` for a standalone cluster of this many workers of one core; ``parts``: ``push``, and ``no push`` for
    the same without anybody to push to.
    """

    updates: int
    size: int = 100
    keys: float = 0.2
    shards: Sequence[int] = (2, 64)
    modes: Sequence[str] = ("log", "latest")
    masters: Sequence[str] = ("local[1]", "local[2]", "cluster[2]")
    parts: Sequence[str] = ("push", "no push")
    runs: int = 3

    def archive(self, shards: int, folder: Path) -> MadeArchive:
        """Make an archive of this many shards in ``folder``; its numbers are rounded to what can be made."""
        whole = 10 * shards
        count = max(whole, round(self.updates / whole) * whole)
        keys = min(count, max(shards, round(count * self.keys / shards) * shards))
        made = MadeArchive(folder, count, self.size, shards, keys)
        return MadeArchive(folder / made.name, count, self.size, shards, keys)


@dataclass(frozen=True, slots=True)
class Point:
    """One figure. ``by``: the master; of the part ``beside`` (catch-up and the plain reader) nothing."""

    updates: int
    size: int
    shards: int
    part: str
    mode: str
    by: str
    run: int


def points(plan: Plan) -> list[Point]:
    """All of them, in the order in which they are measured: the first of each before its repetitions, and what matters
    most first. All points of one run with as many shards follow each other, for they have a world in common.
    """

    def importance(point: Point) -> tuple[int, ...]:
        return (
            point.run,
            plan.shards.index(point.shards),
            point.by.startswith(_CLUSTER),
            point.part != "beside",
            plan.modes.index(point.mode) if point.mode else 0,
            [*plan.parts, "beside"].index(point.part),
            plan.masters.index(point.by) if point.by else 0,
        )

    found = []
    for run in range(plan.runs):
        for shards in plan.shards:
            found.append(Point(plan.updates, plan.size, shards, "beside", "", "", run))
            found += [
                Point(plan.updates, plan.size, shards, part, mode, by, run)
                for part in plan.parts
                for mode in plan.modes
                for by in plan.masters
                if part == "push" or not by.startswith(_CLUSTER)
            ]
    return sorted(found, key=importance)


def executors_of(by: str) -> int:
    """How many tasks a master runs at one time."""
    return int(by.partition("[")[2].rstrip("]"))


def read_points(path: Path) -> list[dict[str, Any]]:
    """What was measured so far."""
    return [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []


def measure(plan: Plan, path: Path, archives: Path, until: float, profile: Profile) -> None:
    """Append every point that ``path`` lacks. None is begun after ``until`` (monotonic). ``archives``: where archives
    are kept from one run to the next.
    """
    known = {_key(row["point"]) for row in read_points(path)}
    left = [point for point in points(plan) if _key(asdict(point)) not in known]
    with ExitStack() as stack, processor() as used:
        sparks = _Sparks(stack, profile)
        while left and time.monotonic() < until:
            first = left[0]
            same = [one for one in left if (one.run, one.shards) == (first.run, first.shards)]
            left = left[len(same) :]
            with _world(plan.archive(first.shards, archives)) as world:
                for point in same:
                    if time.monotonic() > until:
                        return
                    print_text(f"  {_label(point)} ...", flush=True)
                    row = {"point": asdict(point), **_measured(world, sparks, used, point)}
                    _append(path, {**row, "load": load(), "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})


def _key(point: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(point[name] for name in Point.__slots__)


def _label(point: Point) -> str:
    what = f"{point.mode}, {point.part}, {point.by}" if point.by else point.part
    return f"{point.updates:,} of {point.size} B in {point.shards} shards: {what}, run {point.run + 1}"


def _append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(f"{json.dumps(row)}\n")
        file.flush()
        os.fsync(file.fileno())


class _Sparks:
    """One Spark for each master and part, started when it is needed and kept until the end."""

    def __init__(self, stack: ExitStack, profile: Profile) -> None:
        self._stack = stack
        self._profile = profile
        self._replayers: dict[str, Replayer] = {}
        self._unpushers: dict[str, _Unpusher] = {}

    def replayer(self, by: str) -> Replayer:
        """What replays on this master; its Spark is warm."""
        if by not in self._replayers:
            folder = self._stack.enter_context(scratch())
            profile = self._profile(f"replay-scale-{_plain(by)}")
            if by.startswith(_CLUSTER):
                started = self._stack.enter_context(cluster(folder, executors_of(by)))
                opened = replay.replayer(folder, started.master, started.environment, profile)
            else:
                opened = replay.replayer(folder, by, profile=profile)
            self._replayers[by] = self._stack.enter_context(opened)
            with _world(Plan(2000).archive(2, folder)) as small:
                for mode in ("log", "latest"):
                    small.replay(self._replayers[by], mode)
        return self._replayers[by]

    def unpusher(self, by: str) -> _Unpusher:
        """What reads and folds on this master; its Spark is warm."""
        if by not in self._unpushers:
            folder = self._stack.enter_context(scratch())
            words = ("benchmarks.unpusher", by, f"{folder}/log")
            process = self._stack.enter_context(program(*words, environment=replay.here(folder)))

            def run(archive: Path, mode: str) -> list[float]:
                tell(process, json.dumps([str(archive), mode]))
                try:
                    told: list[float] = json.loads(line(process))
                except RuntimeError as error:
                    raise RuntimeError(f"{error}\n{(folder / 'log').read_text()[-4000:]}") from None
                return told

            small = Plan(2000).archive(2, folder)
            make_archive(small)
            for mode in ("log", "latest"):
                run(small.folder, mode)
            self._unpushers[by] = run
        return self._unpushers[by]


_Unpusher = Callable[[Path, str], list[float]]
"""Takes archive and mode; moments at which it began and ended, updates and bytes."""


def _plain(by: str) -> str:
    return by.replace("[", "-").rstrip("]")


def _measured(world: _World, sparks: _Sparks, used: Processor, point: Point) -> dict[str, Any]:
    """``seconds``: from the first held flow to the last update, or of reading and folding alone."""
    if point.part == "beside":
        return _beside(world)
    if point.part == "push":
        by = sparks.replayer(point.by)
        one = world.replay(by, point.mode)
        used.look()
        begin = one.ended - one.whole_s
        whole = {"seconds": one.whole_s, "push_s": one.push_s, "command_s": one.command_s, "pushed": one.updates}
        return {"updates": world.count, **whole, "processor": used.used(begin, one.ended)}
    unpusher = sparks.unpusher(point.by)
    begin, end, pushed, _ = unpusher(world.archive.folder, point.mode)
    used.look()
    expected = world.count if point.mode == "log" else world.keys
    if pushed != expected:
        raise RuntimeError(f"{pushed} updates came out of the archive, not {expected}")
    return {"updates": world.count, "seconds": end - begin, "pushed": pushed, "processor": used.used(begin, end)}


def _beside(world: _World) -> dict[str, Any]:
    """Catch-up over the log behind the archive, and a plain reader of the archive's first files."""
    named = []
    rows = 0
    for shard, entry in replay.entries(world.store):
        if rows < _ROWS:
            named.append((shard, entry))
            rows += entry.rows
    found = replay.read(world.store, named, rows)
    return {
        "updates": world.count,
        "archive_bytes": sum(entry.bytes for _, entry in replay.entries(world.store)),
        "catch_up": {"updates": world.behind, **asdict(world.taken)},
        "reader": {"updates": rows, **asdict(found)},
    }


class _World(World):
    """``behind``: updates of the log that follows the archive."""

    def __init__(self, archive: MadeArchive, behind: int, *world: Any) -> None:
        super().__init__(*world)
        self.archive = archive
        self.behind = behind


@contextmanager
def _world(archive: MadeArchive) -> Iterator[_World]:
    """An archive that was made, then a log of as many shards that one application has caught up with: where the archive
    ends now. The archive stays.
    """
    make_archive(archive)
    behind = min(archive.count, _TAIL)
    with scratch() as folder, ExitStack() as stack:
        words = ["--count", str(behind), "--size", str(archive.size), "--per-batch", "10"]
        line(stack.enter_context(program("benchmarks.store", f"{folder}/store", *words)))
        archiver, port = free_ports(2)
        config = replay.configuration(folder, archiver, port, archive.shards, archive.folder)
        publisher = stack.enter_context(program("benchmarks.publisher", str(config)))
        subscriber = stack.enter_context(program("benchmarks.replayed", str(port), str(behind)))
        taken = replay.catch_up(subscriber, publisher)
        _extend(archive.store, _end_of_log(config, behind))
        yield _World(archive, behind, folder, archive.count, archive.keys, archive.store, taken, subscriber)


def _end_of_log(config: Path, count: int) -> Datamarker:
    """The datamarker behind ``count`` updates. Raises ``RuntimeError`` when the application does not acknowledge
    them.
    """
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        for one in admin_service.ask(Where(coordinator=str(config))):
            for flow in one.status.flows if one.status is not None else ():
                if flow.flow.startswith("app/") and flow.marker.delivered == str(count):
                    return marker_from_message(flow.marker)
        time.sleep(0.1)
    raise RuntimeError(f"no flow came to update {count} within {_SETTLE_S:g} s")


def _extend(store: ArchiveStore, end: Datamarker) -> None:
    """Have every shard end at ``end``: nothing came for it since its last file."""
    for shard in store.shards():

        def extended(present: Any) -> Any:
            return present.extended(end, present.epoch)

        store.change(shard, extended)
