"""What is decided and stated about a snapshot without Spark; on Spark: tests/integration/test_spark_tables.py."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_replay.archive.json_checksum import with_checksum
from spark_replay.archive.manifest import KnownLoss, Manifest, marker_to_text
from spark_replay.archive.newest_snapshot import NewestSnapshot, noted_snapshot
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.selected import PLAIN
from spark_replay.tables import snapshot_writer
from spark_replay.tables.about import ABOUT, SnapshotAbout, SnapshotShard, SnapshotTable, about_from_json, about_to_json
from spark_replay.tables.folder import Folder
from spark_replay.tables.newest import LogSchema
from spark_replay.tables.rolling import lost_after, select_since
from spark_replay.tables.snapshot import _planned
from spark_replay.tables.snapshot_writer import HeldRows, _noted
from spark_replay.tables.start import about_start
from spark_replay.tables.updates import TableRows, file_rows, write_rows
from tests.support.archives import CUSTOMERS, KEYS, Change, manifest_of, marker_at, present, put, row, tx, write_archive
from wormhole.model.errors import ArchiveError, ReplayError, UsageError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op

# --- snapshot ---


KEYLESS = Schema("events", (), (Column("text", "text"),))
CREATED = "2026-05-01T00:00:00+00:00"


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    """A transaction of each of three tables, the third without a key, and one of a fourth."""
    log = [tx(put(b"k", b"v")), tx(row(Op.INSERT, (1, "a", "b", 2))), tx(Change(Op.INSERT, (), ("x",), schema=KEYLESS))]
    new = Schema("new", CUSTOMERS.key, CUSTOMERS.columns)
    return write_archive(tmp_path / "archive", {"a": [log, [tx(row(Op.INSERT, (1, "a", "b", 2), schema=new))]]})


def made(store: ArchiveStore, folder: Path, tables: tuple[str, ...] = (), stop: int = 3, previous: str = "") -> str:
    """The JSON of a snapshot up to a transaction; its folder."""
    plan = _planned(store, tables, Asked("then", place=marker_at(stop).order), previous)
    Folder(str(folder), ABOUT).finish(about_to_json(plan.about(store, HeldRows()), CREATED))
    return str(folder)


def test_the_next_one_has_the_tables_of_the_previous_one_and_new_ones(store: ArchiveStore, tmp_path: Path) -> None:
    plan = _planned(store, (), Asked(), made(store, tmp_path / "1"))
    assert plan.names == ("default", "new", "shop.customers")
    assert plan.others == ()
    reason = {"events": "it has no primary key: two equal rows cannot be distinguished"}
    assert plan.left_out == reason
    assert plan.about(store, HeldRows((), {"default": TableRows(1, 0, frozenset({KEYS.id}))})).problems_of("new") == ()
    # Nothing of that table came since; it is not forgotten.
    last = _planned(store, (), Asked(), made(store, tmp_path / "2", stop=4, previous=str(tmp_path / "1")))
    assert (last.names, last.left_out, last.newest("default")) == (plan.names, reason, (KEYS,))


def test_tables_that_the_previous_one_was_made_without_are_in_no_later_one(store: ArchiveStore, tmp_path: Path) -> None:
    previous = made(store, tmp_path / "1", ("default",))
    plan = _planned(store, (), Asked(), previous)
    assert (plan.names, plan.others) == (("default", "new"), ("events", "shop.customers"))
    only = _planned(store, ("new",), Asked(), previous)
    assert (only.names, only.others) == (("new",), ("default", "events", "shop.customers"))
    with pytest.raises(UsageError, match=r" shop\.customers .*\[snapshot-unusable\]"):
        _planned(store, ("shop.customers",), Asked(), previous)


def test_how_far_the_archivers_own_backfill_came_is_not_in_it(store: ArchiveStore) -> None:
    """It would be taken for the progress of the flow that begins from the snapshot."""

    end = replace(manifest_of(store).end, backfill=b"archiver")
    store.change("a", lambda now: present(now).extended(end, 1))
    assert manifest_of(store).end.backfill
    about = _planned(store, (), Asked(), "").about(store, HeldRows())
    assert about.shards["a"].marker == marker_at(4)


def noted(store: ArchiveStore, about: SnapshotAbout) -> tuple[str, ...]:
    return _noted(store, "/s", about, _planned(store, (), Asked(), ""), CREATED)


def test_one_of_all_tables_and_rows_is_noted_in_the_archive(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = _planned(store, (), Asked(), "").about(store, HeldRows())
    late = {shard: replace(one, lacks="it begins late") for shard, one in about.shards.items()}
    assert noted(store, replace(about, others=("t",))) == noted(store, replace(about, shards=late)) == ()
    assert noted_snapshot(store) is None
    assert noted(store, about) == ()
    assert noted_snapshot(store) == NewestSnapshot("/s", "2026-05-01T00:00:00Z", {"a": marker_at(4).order})

    def refuse(*given: object) -> None:
        raise ArchiveError("cannot write there", hint="grant it")

    monkeypatch.setattr(snapshot_writer, "note_snapshot", refuse)
    (note,) = noted(store, about)
    assert note.startswith("`archive expire` may drop what the next snapshot needs")
    assert "cannot write there" in note


# --- start ---


SHARD = {"from": "1/1/0", "marker": marker_to_text(marker_at(3)), "log": "a", "lacks": ""}
GIVEN: dict[str, Any] = {
    "dataset": "orders",
    "copy": "main",
    "shards": {"a": SHARD},
    "tables": {},
    "left_out": {},
    "others": [],
    "schemas": [],
    "updates": [],
}


def test_a_complete_one_says_where_the_archive_goes_on(tmp_path: Path) -> None:
    Folder(str(tmp_path), ABOUT).finish(GIVEN)
    about = about_start(str(tmp_path), "orders", "main")
    assert ({shard: one.marker for shard, one in about.shards.items()}, about.schemas) == ({"a": marker_at(3)}, ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dataset": "cache"}, "is of cache, not of orders"),
        ({"copy": "eu"}, "is of copy eu, not of main"),  # whose places do not compare
        ({"shards": {"a": {**SHARD, "lacks": "it begins late"}}}, "no start for a replay: it begins late"),
        ({"shards": {"a": {}}}, "cannot be read: KeyError"),
        ({"shards": {"a": {"marker": "?"}}}, "cannot be read"),
        ({"shards": 5}, "cannot be read"),
        ({"schemas": [5]}, "cannot be read"),
    ],
)
def test_what_is_no_start(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    Folder(str(tmp_path), ABOUT).finish({**GIVEN, **change})
    with pytest.raises(ReplayError, match=told):
        about_start(str(tmp_path), "orders", "main")


def test_a_flipped_bit_is_reported(tmp_path: Path) -> None:
    Folder(str(tmp_path), ABOUT).finish(GIVEN)
    path = tmp_path / ABOUT
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(ReplayError, match=ABOUT):
            about_start(str(tmp_path), "orders", "main")


# --- rolling ---


def archive(folder: Path) -> ArchiveStore:
    files = [[tx(put(b"1", b"")), tx(put(b"2", b""))], [tx(put(b"3", b"")), tx(row(Op.INSERT, (1, "a", "b", 2)))]]
    return write_archive(folder / "archive", {"a": files, "b": [[tx(put(b"4", b""))]]})


def changed(store: ArchiveStore, shard: str, how: Callable[[Manifest], Manifest]) -> None:
    store.change(shard, lambda now: how(present(now)))


def snapshot(**numbers: int) -> SnapshotAbout:
    """One that holds the shards up to the transactions of these numbers."""
    shards = {shard: SnapshotShard("1/1/0", marker_at(number, shard), shard) for shard, number in numbers.items()}
    return SnapshotAbout("orders", "main", shards, {"default": SnapshotTable("tables/default", 1)}, schemas=(KEYS,))


def test_what_comes_after_it_in_every_shard(tmp_path: Path) -> None:
    store = archive(tmp_path)
    selection = select_since(store, snapshot(a=2, b=1), "the snapshot in /s")
    assert [(one.shard, one.begin, one.until, len(one.files)) for one in selection.shards] == [
        ("a", marker_at(2, "a"), marker_at(4, "a"), 1),
        ("b", marker_at(1, "b"), marker_at(1, "b"), 0),
    ]
    assert selection.schemas == (KEYS, CUSTOMERS)
    changed(store, "a", lambda now: now.without_first(1))
    assert select_since(store, snapshot(a=2, b=1), "the snapshot in /s").shards == selection.shards, (
        "what it holds may be gone"
    )


def test_a_shard_that_is_new_is_read_from_its_first_row(tmp_path: Path) -> None:
    store = archive(tmp_path)
    assert [one.begin for one in select_since(store, snapshot(a=2), "the snapshot in /s").shards] == [
        marker_at(2),
        marker_at(0, "b"),
    ]


@pytest.mark.parametrize(
    ("previous", "stop", "problem"),
    [
        (snapshot(a=2, b=1, c=1), Asked(), "the archive has no shard c, which the snapshot in /s has"),
        (snapshot(a=9, b=1), Asked(), "the archive does not go on where the snapshot in /s ends, 1/1/900"),
        (
            snapshot(a=3, b=1),
            Asked("1/1/100", place=LogPosition(1, 1, 100)),
            "the snapshot in /s holds a up to 1/1/300, which is after 1/1/100",
        ),
        (
            replace(snapshot(b=1), shards={"a": SnapshotShard("1/1/0", marker_at(2), "a", "the archive of a lacks")}),
            Asked(),
            "the snapshot in /s is not complete: the archive of a lacks",
        ),
        (
            replace(snapshot(b=1), shards={"a": SnapshotShard("1/1/0", marker_at(2), "db9")}),
            Asked(),
            "shard a was of log db9 in the snapshot in /s, and is of a now",
        ),
    ],
)
def test_refusals(previous: SnapshotAbout, stop: Asked, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ReplayError) as caught:
        select_since(archive(tmp_path), previous, "the snapshot in /s", stop)
    assert problem in caught.value.message
    assert "name another snapshot with --from" in str(caught.value.hint)


def test_what_the_archive_let_go_cannot_be_continued_and_all_shards_are_named(tmp_path: Path) -> None:
    store = archive(tmp_path)
    changed(store, "a", lambda now: now.without_first(1))
    changed(store, "b", lambda now: now.without_first(1))
    with pytest.raises(ReplayError) as caught:
        select_since(store, snapshot(a=1), "the snapshot in /s")
    assert caught.value.message == (
        "the archive does not go on where the snapshot in /s ends, 1/1/100: the archive of a holds 1/1/200 to 1/1/400, "
        "committed from 2023-11-14T22:13:23Z to 2023-11-14T22:13:24Z; "
        "shard b is not in the snapshot in /s, and its archive begins at 1/1/100, not at its first row"
    )
    for stop in (Asked("1/1/100", place=LogPosition(1, 1, 100)), Asked("1/1/100", at_us=1)):
        with pytest.raises(ReplayError, match="holds a up to 1/1/200, which is after 1/1/100"):
            select_since(store, snapshot(a=2, b=1), "the snapshot in /s", stop)


def test_an_accepted_loss_makes_the_next_one_incomplete(tmp_path: Path) -> None:
    store = archive(tmp_path)
    changed(store, "a", lambda now: now.gap_accepted(KnownLoss(marker_at(6), "the log was purged"), 2))
    selection = select_since(store, snapshot(a=2, b=1), "the snapshot in /s")
    assert selection.whole == {"b"}
    assert lost_after(selection.manifests["a"], selection.shards[0]) == "the archive of a lacks what is before 1/1/600"
    assert lost_after(selection.manifests["b"], selection.shards[1]) == ""


# --- about: which tables of a snapshot are complete, why others are not, and whom that concerns ---


WHOLE = SnapshotAbout(
    "orders",
    "main",
    {"a": SnapshotShard("1/1/0", marker_at(3), "db1")},
    {
        "default": SnapshotTable("tables/default", 3, 0, {"db1": LogSchema(KEYS, b"p")}),
        "shop.customers": SnapshotTable("tables/shop.customers", 5, 2, {"db1": LogSchema(CUSTOMERS, b"q")}),
    },
    {"shop.events": "it has no primary key"},
    ("shop.logs",),
    (KEYS, CUSTOMERS),
    (),
)
LATE = "the archive of a begins at 1/1/100, not at the shard's first row"
PARTIAL = replace(WHOLE, shards={"a": SnapshotShard("1/1/100", marker_at(3), "db1", LATE)})


def only(*tables: str) -> Callable[[str], bool]:
    return lambda table: table in tables


def test_a_table_is_complete_or_has_reasons() -> None:
    assert WHOLE.problems_of("default") == ()
    lacking = "2 rows of shop.customers have values that the log does not hold"
    assert WHOLE.problems_of("shop.customers") == (lacking,)
    assert PARTIAL.problems_of("shop.customers") == (LATE, lacking)
    events = "shop.events is left out: it has no primary key"
    assert WHOLE.problems == (lacking, events, "it was made without shop.logs")


@pytest.mark.parametrize(
    ("about", "wants", "refusal"),
    [
        (WHOLE, only("default"), ""),
        (WHOLE, only("default", "shop.events"), "shop.events is left out: it has no primary key"),
        (WHOLE, only("shop.logs"), "it was made without shop.logs"),
        (WHOLE, only("a.table.it.does.not.know"), ""),
        (PARTIAL, only("default"), f"default: {LATE}"),
        (PARTIAL, only("a.table.it.does.not.know"), LATE),
        (
            PARTIAL,
            only("default", "shop.events"),
            f"default, shop.events: {LATE}; shop.events is left out: it has no primary key",
        ),
    ],
)
def test_only_what_an_application_wants_is_refused(
    about: SnapshotAbout, wants: Callable[[str], bool], refusal: str
) -> None:
    assert about.refusal(wants) == refusal


def test_many_tables_are_not_all_named() -> None:
    tables = {f"t{number}": SnapshotTable("f", 0) for number in range(8)}
    refusal = replace(PARTIAL, tables=tables, left_out={}, others=()).refusal(lambda table: True)
    assert refusal == f"t0, t1, t2, t3, t4 and 3 more: {LATE}"


@pytest.mark.parametrize("about", [WHOLE, PARTIAL])
def test_what_was_written_is_read(about: SnapshotAbout) -> None:
    given = about_to_json(about, "2026-05-01T00:00:00+00:00")
    assert about_from_json(given, "x") == about
    assert {table: one["complete"] for table, one in given["tables"].items()} == {
        "default": about is WHOLE,
        "shop.customers": False,
    }
    assert given["complete"] is False


@pytest.mark.parametrize(
    "change",
    [
        {"shards": {"a": {"marker": "?"}}},
        {"tables": {"t": {"folder": "f"}}},
        {"tables": {"t": {"folder": "f", "rows": 1, "newest": {"db1": {"schema": "5", "place": ""}}}}},
        {"schemas": [5]},
        {"updates": [{}]},
        {"left_out": 5},
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, object]) -> None:
    with pytest.raises(ReplayError, match=r"/s/snapshot\.json cannot be read"):
        about_from_json({**about_to_json(WHOLE, ""), **change}, "/s/snapshot.json")


# --- folder: the folder of a snapshot: nothing is written over, nothing counts before the JSON is there ---


def test_a_folder_that_has_anything_in_it_is_refused(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "new"), "x.json")
    folder.begin()
    (tmp_path / "new" / "kept").write_text("")
    with pytest.raises(UsageError, match="is not empty: kept"):
        folder.begin()


def test_files_that_tasks_left_are_no_part_of_it(tmp_path: Path) -> None:
    """Spark tried the task again, or took it for dead."""
    folder = Folder(str(tmp_path / "above" / "new"), "x.json")
    folder.begin()
    shape = pa.schema([pa.field("a", pa.int64())])
    given = pa.RecordBatch.from_pydict({"a": [1, 2]})
    first, second = (write_rows(folder.storage, "t", shape, [given]) for _ in range(2))
    assert folder.settle("t", shape, [second]) == [second]
    assert [path.name for path in (tmp_path / "above/new/t").iterdir()] == [Path(second.file.path).name]
    assert not Path(folder.storage.path(first.file.path)).exists()
    (empty,) = folder.settle("none", shape, [])
    assert pq.read_table(tmp_path / "above/new" / empty.file.path).num_rows == 0


def test_a_folder_in_s3_is_written_and_read_by_the_client_of_archives(s3_service: str, tmp_path: Path) -> None:
    folder = pickle.loads(pickle.dumps(Folder(f"s3://archives/{tmp_path.name}?{s3_service}", "x.json")))
    folder.begin()
    row = {"key": b"k", "table": "t", "schema_id": 1, "partial": False}
    given = pa.RecordBatch.from_pylist([row], schema=PLAIN)
    _, kept = (write_rows(folder.storage, "updates", PLAIN, [given]) for _ in range(2))
    folder.settle("updates", PLAIN, [kept])
    assert [f"updates/{one.name}" for one in folder.storage.files("updates")] == [kept.file.path]
    (rows,) = file_rows(folder.storage, kept.file)
    assert rows == given
    folder.finish({"dataset": "d"})
    assert folder.about()["dataset"] == "d"
    with pytest.raises(UsageError, match="is not empty: updates"):
        folder.begin()


def test_what_was_finished_can_be_read(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "x.json")
    with pytest.raises(ReplayError, match=r"there is no x\.json"):
        folder.about()
    folder.finish({"dataset": "d"})
    assert folder.about()["dataset"] == "d"
    for broken, told in ((b"{", "cannot be read"), (b"[]", "cannot be read"), (with_checksum({"format": 2}), "newer")):
        (tmp_path / "x.json").write_bytes(broken)
        with pytest.raises(ReplayError, match=told):
            folder.about()
