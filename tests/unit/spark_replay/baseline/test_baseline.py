"""What ends a baseline, and what it goes on with, without Spark: up to the fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from datastores.memory.source import MemorySource
from datastores.memory.tables import MemoryTables
from spark_replay.archive.manifest import KnownLoss, Manifest
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.baseline import baseline
from spark_replay.baseline.baseline import write_baseline
from spark_replay.baseline.log_archives import ScanPace
from spark_replay.baseline.scan import Portion, Scan, ScanOutcome, TableLog
from spark_replay.tables.about import ABOUT
from spark_replay.tables.snapshot_writer import SnapshotPlan
from tests.support.archives import present, write_file
from wormhole.model.errors import ReplayError, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.changes import Change

NOW = datetime(2026, 5, 1, tzinfo=UTC)
TABLE = "shop.orders"


class FoldReached(Exception):  # noqa: N818 - it is no error here
    pass


class World:
    """A table of ten rows, and an archive that begins after them. ``read``: ranges that tasks were given."""

    def __init__(self, folder: Path, sharding: Sharding = Sharding("log")) -> None:  # noqa: B008 - frozen
        self.folder = folder
        self.log = MemorySource("db", sharding)
        self.tables = MemoryTables(self.log)
        self.log.commit([Change(Op.INSERT, TABLE, (key,), {"a": "x"}) for key in range(10)])
        self.start = self.log.latest()
        self.reader = self.log.open(self.start)
        self.store = open_store(str(folder / "archive"), "orders", copy="main", create=True)
        self.shards = [*self.log.shards()]
        self.archive_from(self.start)
        self.read: list[int] = []
        self.fails_at = 99
        self.to = str(folder / "to")

    def archive(self, *_: float) -> None:
        pieces = []
        while (segment := self.reader.read(1 << 20, 0)) is not None:
            pieces.append(segment)
        for shard in self.shards:
            write_file(self.store, shard, pieces, self.log.latest())

    def archive_from(self, begin: Datamarker) -> None:
        """Nothing is archived of what came before, and nothing came since."""
        for shard in self.shards:
            write_file(self.store, shard, [], begin, begin=begin, whole=False)

    def run(self, scan: Scan, portions: Sequence[Portion]) -> list[ScanOutcome]:
        found = []
        for portion in portions:
            for one in portion.ranges:
                if one.number >= self.fails_at:
                    raise KeyboardInterrupt
                self.read.append(one.number)
                found.append(scan(Portion(portion.log, (one,), portion.fingerprints)))
        return found

    def baseline(self, *tables: str, store: ArchiveStore | None = None, **pace: Any) -> None:
        given = ScanPace(**{"range_rows": 3, "patience_s": 5.0, "pause": self.archive, "run": self.run, **pace})
        logs = [TableLog("db", lambda folder: self.tables)]
        spark = cast("Any", None)  # it is needed by the fold only
        write_baseline(spark, store or self.store, self.to, logs, tables=tables, now=NOW, pace=given)

    def changed(self, how: Callable[[Manifest], Manifest]) -> None:
        self.store.change("db", lambda now: how(present(now)))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    def reached(self: object, plan: SnapshotPlan) -> None:
        raise FoldReached(plan)

    monkeypatch.setattr(baseline._Baseline, "_fold", reached)
    return World(tmp_path)


def planned(world: World, *tables: str, **pace: Any) -> SnapshotPlan:
    """What would be folded."""
    with pytest.raises(FoldReached) as reached:
        world.baseline(*tables, **pace)
    plan = reached.value.args[0]
    assert isinstance(plan, SnapshotPlan)
    return plan


def test_a_killed_one_goes_on_where_it_was(world: World) -> None:
    world.fails_at = 2
    with pytest.raises(KeyboardInterrupt):
        world.baseline()
    assert world.read == [0, 1]
    world.fails_at = 99
    world.log.commit([Change(Op.DELETE, TABLE, (4,))])
    with pytest.raises(FoldReached):
        world.baseline()
    assert world.read == [0, 1, 2, 3]
    with pytest.raises(UsageError, match=r" of orders, all tables, logs db \[wrong-request\]"):
        world.baseline(TABLE)


def test_tables_that_cannot_be_read(world: World) -> None:
    with pytest.raises(UsageError, match="there is no table nothing"):
        world.baseline("nothing")
    world.tables.refused[TABLE] = Problem("gtid_mode is OFF on this server", "SET PERSIST gtid_mode = ON")
    empty = open_store(str(world.folder / "empty"), "orders", copy="main", create=True)
    with pytest.raises(UsageError, match="nothing of the log db is archived yet"):
        world.baseline(store=empty)
    for asked in ([], [TABLE]):
        with pytest.raises(UsageError, match="gtid_mode is OFF") as error:
            world.baseline(*asked)
        assert error.value.hint == "SET PERSIST gtid_mode = ON"
    world.log.commit([Change(Op.INSERT, "shop.users", (1,), {"a": "x"})])
    plan = planned(world)
    assert plan.names == ("shop.users",)
    assert plan.left_out == {TABLE: "gtid_mode is OFF on this server. Next: SET PERSIST gtid_mode = ON"}
    world.to += "2"
    only = planned(world, "shop.users")
    assert (only.names, only.left_out, only.others) == (("shop.users",), {}, (TABLE,))


def test_an_archiver_that_does_not_run_is_noticed_before_anything_is_read(world: World) -> None:
    world.log.commit([Change(Op.DELETE, TABLE, (4,))])
    with pytest.raises(ReplayError, match=r" db .*\[replay-stopped\]") as error:
        world.baseline(patience_s=0.0, pause=lambda seconds: None)
    assert "wormholectl archive run" in (error.value.hint or "")
    assert not world.read


def altered(world: World) -> None:
    world.log.commit([Change(Op.INSERT, TABLE, ("text",), {"a": "x"})])


def restored(world: World) -> None:
    world.log.restore(world.start, new_incarnation=True)
    lost(world, "restored")


def lost(world: World, why: str = "purged") -> None:
    if why == "purged":
        world.log.commit([Change(Op.DELETE, TABLE, (4,))])
    end = world.log.latest()
    world.changed(lambda now: now.gap_accepted(KnownLoss(end, why), now.epoch))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (altered, None, rf"the key of {TABLE} changed while its rows were read.*Next: .*another folder"),
        (None, altered, rf"the key of {TABLE} changed"),
        (restored, None, "the log db went on in another history while its tables were read"),
        (None, lost, "the archive of db lacks what is before"),
    ],
)
def test_what_happens_while_rows_are_read_ends_it(
    world: World, before: Callable[[World], None] | None, after: Callable[[World], None] | None, told: str
) -> None:
    def run(scan: Scan, portions: Sequence[Portion]) -> list[ScanOutcome]:
        if before:
            before(world)
        found = world.run(scan, portions)
        if after:
            after(world)
        return found

    with pytest.raises(ReplayError, match=told):
        world.baseline(run=run)


@pytest.mark.parametrize(("file", "told"), [("mine", "is not empty: mine"), (ABOUT, "holds a whole snapshot")])
def test_a_folder_with_other_things_is_refused(world: World, file: str, told: str) -> None:
    if file == ABOUT:
        planned(world)
    (world.folder / "to").mkdir(exist_ok=True)
    (world.folder / "to" / file).write_text("{}")
    with pytest.raises(UsageError, match=told):
        world.baseline()


def test_a_dropped_table_is_an_error_only_if_it_was_asked_for(world: World) -> None:
    world.log.commit([Change(Op.INSERT, "shop.users", (1,), {"a": "x"})])

    def drop(scan: Scan, portions: Sequence[Portion]) -> list[ScanOutcome]:
        world.tables.drop("shop.users")
        return world.run(scan, portions)

    plan = planned(world, run=drop)
    assert plan.names == (TABLE,)
    assert plan.left_out["shop.users"].startswith("there is no table shop.users any more")
    world.log.commit([Change(Op.INSERT, "shop.users", (1,), {"a": "x"})])
    world.to += "2"
    with pytest.raises(ReplayError, match=r"shop\.users: there is no table shop\.users any more"):
        world.baseline("shop.users", run=drop)


def test_altered_and_new_tables_are_read_again(world: World) -> None:
    rounds: list[list[tuple[str, int]]] = []

    def alter(scan: Scan, portions: Sequence[Portion]) -> list[ScanOutcome]:
        rounds.append(sorted((one.table, one.round) for portion in portions for one in portion.ranges))
        found = world.run(scan, portions)
        if len(rounds) == 1:
            world.log.commit([Change(Op.UPDATE, TABLE, (1,), {"a": "y", "new": "z"})])
            world.log.commit([Change(Op.INSERT, "shop.users", (1,), {"a": "x"})])
        return found

    with pytest.raises(FoldReached):
        world.baseline(run=alter)
    assert rounds == [[(TABLE, 0)] * 4, [(TABLE, 1)] * 4 + [("shop.users", 1)]]


def test_a_shard_of_which_nothing_is_archived(world: World, tmp_path: Path) -> None:
    """The log has it with its first change."""
    (tmp_path / "sharded").mkdir()
    world = World(tmp_path / "sharded", Sharding("table"))
    world.log.commit([Change(Op.INSERT, "shop.users", (1,), {"a": "x"})])
    plan = planned(world)
    assert plan.names == (TABLE,)
    assert plan.left_out["shop.users"].startswith("nothing is archived of its shard db.shop%2Eusers")
