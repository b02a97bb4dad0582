"""Exports to both formats, without Spark: each range is applied once, whatever ends a run or comes between two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType
from pyarrow import fs
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import CreateTableTransaction as Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.types import StringType

from spark_replay.archive.manifest import Manifest
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.export import delta, iceberg, leftovers
from spark_replay.export.exporter import Exporter, Result
from spark_replay.export.job import ChangedRows, Work
from spark_replay.export.leftovers import NOTES, noted
from tests.support.archives import (
    CUSTOMERS,
    Change,
    Tx,
    gone,
    marker_at,
    present,
    put,
    row,
    tx,
    write_archive,
)
from tests.support.exported import FORMATS, Format, local_job
from wormhole.model.errors import ArchiveConflict, ReplayError, UsageError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value

DRAFTS: dict[str, Any] = {"delta": delta.DeltaDraft, "iceberg": iceberg.IcebergDraft}


class ReplaceFiles(_OverwriteFiles):
    """A compaction, which pyiceberg reads and does not write."""

    def _summary(self, *given: Any) -> Summary:
        return Summary(Operation.REPLACE, **super()._summary(*given).additional_properties)


class KilledError(BaseException):
    """Stands for kill -9."""


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Format:
    return Format(request.param, tmp_path)


def customer(number: int, name: Value = "ann", op: Op = Op.INSERT) -> Tx:
    return tx(row(op, (number, name, "Ulm", 5), (number, "old", "Ulm", 5) if op is Op.UPDATE else None))


def grow(lake: Format, *transactions: Tx, shard: str = "a") -> ArchiveStore:
    return write_archive(lake.base / "archive", {shard: [list(transactions)]})


def export(lake: Format, store: ArchiveStore, **more: Any) -> Result:
    (result,) = lake.exporter(store, **more).run()
    if result.problem is not None:
        raise result.problem
    return result


def names(lake: Format, version: str = "", table: str = "shop.customers") -> dict[int, str]:
    return {one["id"]: one["name"] for one in lake.rows(table, version).to_pylist()}


def runs(lake: Format, table: str = "shop.customers") -> dict[str, str]:
    """Those that did not end."""
    (folder,) = {one.parent for one in lake.base.rglob(NOTES) if one.parent.name in (table, table.split(".")[-1])}
    return noted(fs.LocalFileSystem(), str(folder))


def data_files(lake: Format) -> set[str]:
    return {one.name for one in lake.base.rglob("*.parquet") if "wormhole-" in str(one)}


def test_runs_carry_a_table_on_and_each_version_stays(lake: Format) -> None:
    store = grow(lake, customer(1), customer(2))
    first = export(lake, store)
    assert (first.did, first.rows, first.changes, first.places) == ("created", 2, 2, {"a": "1/1/200"})
    store = grow(lake, customer(2, "bob", Op.UPDATE), customer(3), tx(row(Op.DELETE, None, (1, "ann", "Ulm", 5))))
    second = export(lake, store)
    assert (second.did, second.rows, second.changes, second.places) == ("changed", 2, 3, {"a": "1/1/500"})
    assert names(lake) == names(lake, second.version) == {2: "bob", 3: "ann"}
    assert names(lake, first.version) == {1: "ann", 2: "ann"}
    (found,) = [one for one in lake.rows("shop.customers").to_pylist() if one["id"] == 3]
    assert found == {
        "id": 3,
        "name": "ann",
        "city": "Ulm",
        "credit": Decimal(5),
        "_shard": "a",
        "_unavailable": None,
    }
    third = export(lake, store)
    assert (third.did, third.version, third.places) == ("nothing", second.version, {"a": "1/1/500"})
    assert not runs(lake, "shop.customers")


def test_only_files_with_changed_rows_are_written_anew(lake: Format) -> None:
    for number in (1, 2, 3):
        store = grow(lake, customer(number))
        export(lake, store)
    changed = export(lake, grow(lake, customer(2, "bob", Op.UPDATE)))
    assert (changed.added, changed.removed) == (1, 1)
    assert names(lake) == {1: "ann", 2: "bob", 3: "ann"}


ODD_NAMES = ("big orders", "a$b", "ö", "a/b", "a#b", "a?b", "100%", "%20", "back\\slash", "_lead", "..", "日" * 60)
"""What MySQL, MariaDB and PostgreSQL permit as names of tables."""


def test_tables_of_any_names_are_created_and_carried_on(lake: Format) -> None:
    schemas = [replace(CUSTOMERS, table=f"shop.{odd}") for odd in ODD_NAMES]
    for number, did in ((1, "created"), (2, "changed")):
        store = grow(lake, *(tx(row(Op.INSERT, (number, "ann", "Ulm", 5), schema=schema)) for schema in schemas))
        for expected in (did, "nothing"):
            found = lake.exporter(store).run()
            assert [(one.problem, one.did) for one in found] == [(None, expected)] * len(ODD_NAMES)
    for schema in schemas:
        assert names(lake, table=schema.table) == {1: "ann", 2: "ann"}
    assert not any(".." in one.parts for one in lake.base.rglob("*"))


def test_a_failure_of_a_commit_is_no_conflict(lake: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library raises is called a conflict only where another commit is there."""
    fails = _raising((DeltaError if lake.name == "delta" else ValueError)("no such feature"))
    monkeypatch.setattr(delta, "create_table_with_add_actions", fails)
    monkeypatch.setattr(Transaction, "commit_transaction", fails)
    with pytest.raises(ReplayError, match="no such feature") as error:
        export(lake, grow(lake, customer(1)))
    assert not isinstance(error.value, ArchiveConflict)


def _raising(error: BaseException) -> Callable[..., None]:
    def raises(*_: object, **__: object) -> None:
        raise error

    return raises


def test_a_table_that_is_emptied_is_carried_on(lake: Format) -> None:
    export(lake, grow(lake, customer(1)))
    assert export(lake, grow(lake, tx(Change(Op.TRUNCATE, (), schema=Schema("shop.customers", (), ()))))).rows == 0
    assert names(lake) == {}
    export(lake, grow(lake, customer(7)))
    assert names(lake) == {7: "ann"}


def test_a_partial_row_keeps_what_the_table_has(lake: Format) -> None:
    export(lake, grow(lake, customer(1)))
    export(lake, grow(lake, tx(row(Op.UPDATE, (1, "bob", UNAVAILABLE, UNAVAILABLE), (1, "ann", "Ulm", 5)))))
    (found,) = lake.rows("shop.customers").to_pylist()
    assert (found["name"], found["city"], found["credit"], found["_unavailable"]) == ("bob", "Ulm", Decimal(5), None)


def test_an_unknown_value_is_named(lake: Format) -> None:
    export(lake, grow(lake, tx(row(Op.INSERT, (1, UNAVAILABLE, "Ulm", 5)))))
    export(lake, grow(lake, tx(row(Op.UPDATE, (1, UNAVAILABLE, "Bonn", UNAVAILABLE), (1, None, "Ulm", 5)))))
    (found,) = lake.rows("shop.customers").to_pylist()
    assert (found["name"], found["city"], found["_unavailable"]) == (None, "Bonn", ["name"])


def test_keys_of_two_shards_are_two_rows(lake: Format) -> None:
    write_archive(lake.base / "archive", {"a": [[tx(put(b"k", b"1"))]], "b": [[tx(put(b"k", b"2"))]]})
    store = write_archive(lake.base / "archive", {"a": [[tx(put(b"x", b"3"))]]})
    export(lake, store)
    export(lake, write_archive(lake.base / "archive", {"b": [[tx(gone(b"k"))]]}))
    found = {(one["_shard"], one["key"], one["value"]) for one in lake.rows("default").to_pylist()}
    assert found == {("a", b"k", b"1"), ("a", b"x", b"3")}


def test_a_new_shard_is_read_from_its_first_row(lake: Format) -> None:
    export(lake, write_archive(lake.base / "archive", {"a": [[tx(put(b"k", b"1"))]]}))
    result = export(lake, write_archive(lake.base / "archive", {"b": [[tx(put(b"l", b"2"))]]}))
    assert (result.rows, result.places) == (2, {"a": "1/1/100", "b": "1/1/100"})


def test_it_ends_where_it_is_told(lake: Format) -> None:
    store = grow(lake, customer(1), customer(2), customer(3))
    assert export(lake, store, until=Asked("there", place=marker_at(1).order)).rows == 1
    assert export(lake, store).rows == 3
    with pytest.raises(ReplayError, match=r"holds a up to 1/1/300, which is after there"):
        export(lake, store, until=Asked("there", place=marker_at(1).order))


def test_a_table_without_changes_moves_once_an_hour(lake: Format) -> None:
    now = [1_000]

    def again() -> Result:
        return export(lake, store, tables=["shop.customers"], now_us=lambda: now[0])

    store = grow(lake, customer(1))
    again()
    store = grow(lake, tx(put(b"k", b"v")))
    assert again().did == "nothing"
    now[0] += 3_600_000_000
    moved = again()
    assert (moved.did, moved.rows, moved.places) == ("moved", 1, {"a": "1/1/200"})
    now[0] += 3_600_000_000
    assert again().did == "nothing", "the archive has no more"


def test_tables_at_the_same_places_go_on_to_the_same_places(lake: Format) -> None:
    store = grow(lake, customer(1), tx(put(b"k", b"v")))

    def job(work: Work) -> ChangedRows:
        grow(lake, tx(row(Op.INSERT, (9, "late", "Ulm", 5)), put(b"late", b"v")))
        return local_job(work)

    for _ in range(2):
        one, other = lake.exporter(store, job=job).run()
        assert (one.did, one.problem, one.places) == (other.did, other.problem, other.places)


# Exactly once.


def kill_job(monkeypatch: pytest.MonkeyPatch, lake: Format) -> dict[str, Any]:
    def job(work: Work) -> ChangedRows:
        local_job(work)
        raise KilledError

    monkeypatch.setattr(leftovers.ExportRun, "abandon", lambda self: None)
    return {"job": job}


def kill_before_commit(monkeypatch: pytest.MonkeyPatch, lake: Format) -> dict[str, Any]:
    monkeypatch.setattr(DRAFTS[lake.name], "commit", _raising(KilledError()))
    return {}


def kill_after_commit(monkeypatch: pytest.MonkeyPatch, lake: Format) -> dict[str, Any]:
    monkeypatch.setattr(leftovers.ExportRun, "committed", _raising(KilledError()))
    return {}


def kill_at_first(monkeypatch: pytest.MonkeyPatch, lake: Format) -> dict[str, Any]:
    def begin(self: Any) -> None:
        real(self)
        raise KilledError

    real = leftovers.ExportRun.begin
    monkeypatch.setattr(leftovers.ExportRun, "begin", begin)
    return {}


@pytest.mark.parametrize("kill", [kill_at_first, kill_job, kill_before_commit, kill_after_commit])
@pytest.mark.parametrize("exists", [False, True])
def test_a_run_that_was_killed_is_done_again_once_and_leaves_nothing(
    kill: Callable[[pytest.MonkeyPatch, Format], dict[str, Any]], exists: bool, lake: Format
) -> None:
    if exists:
        export(lake, grow(lake, customer(1), customer(2)))
    store = grow(lake, customer(3), *([customer(2, "bob", Op.UPDATE)] if exists else []))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        lake.exporter(store, **kill(patch, lake)).run()
    again = export(lake, store)
    assert again.did == ("nothing" if kill is kill_after_commit else "changed" if exists else "created")
    assert names(lake) == {3: "ann", **({1: "ann", 2: "bob"} if exists else {})}
    export(lake, grow(lake, customer(4)))
    assert not runs(lake, "shop.customers")
    named = {file.path.rpartition("/")[2] for file in lake.open("shop.customers").look().files}
    assert named <= data_files(lake)
    most = 4 if exists else 2  # the versions together
    assert len(data_files(lake)) <= most, "no file is left that no version names"


def test_what_a_killed_run_left_goes_while_one_exporter_runs_again_and_again(
    lake: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(lake, grow(lake, customer(1)))
    store = grow(lake, customer(2))
    with monkeypatch.context() as patched, pytest.raises(KilledError):
        export(lake, store, **kill_before_commit(patched, lake))
    (left,) = runs(lake)
    exporter = lake.exporter(store)
    assert [one.did for one in exporter.run()] == ["changed"]
    assert list(runs(lake)) == [left], "it began at the same version: it may still be at work"
    assert [one.did for one in exporter.run()] == ["nothing"]
    assert not runs(lake)
    assert not any(left in name for name in map(str, lake.base.rglob("*.parquet")))


@pytest.mark.parametrize("exists", [True, False])
def test_of_two_exporters_one_applies_a_range(lake: Format, exists: bool) -> None:
    if exists:
        export(lake, grow(lake, customer(1)))
    store = grow(lake, customer(2), *([customer(1, "bob", Op.UPDATE)] * exists))
    inner: list[Result] = []

    def job(work: Work) -> ChangedRows:
        made = local_job(work)
        if not inner:
            inner.append(export(lake, store))
        return made

    outer = export(lake, store, job=job)
    assert (inner[0].did, outer.did) == ("changed" if exists else "created", "nothing")
    assert outer.version == inner[0].version
    assert names(lake) == {2: "ann"} | ({1: "bob"} if exists else {})
    assert not runs(lake, "shop.customers")


def test_an_older_run_that_ends_late_changes_nothing(lake: Format) -> None:
    export(lake, grow(lake, customer(1)))
    store = grow(lake, customer(2))

    def job(work: Work) -> ChangedRows:
        made = local_job(work)
        if len(work.ranges[0].files) == 1:
            export(lake, grow(lake, customer(2, "bob", Op.UPDATE), customer(3)))
        return made

    assert export(lake, store, job=job).places == {"a": "1/1/400"}
    assert names(lake) == {1: "ann", 2: "bob", 3: "ann"}


def test_others_that_always_come_first_end_it(lake: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRAFTS[lake.name], "commit", _raising(ArchiveConflict("first")))
    with pytest.raises(ArchiveConflict, match="during each of 5 attempts"):
        export(lake, grow(lake, customer(1)))
    assert not data_files(lake)


def test_a_commit_whose_answer_was_lost_counts(lake: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    store = grow(lake, customer(1))
    draft = DRAFTS[lake.name]
    real = draft.commit

    def commit(*given: Any) -> str:
        real(*given)
        raise ArchiveConflict("a number that exists: our own")

    monkeypatch.setattr(draft, "commit", commit)
    assert export(lake, store).did == "created"
    assert names(lake) == {1: "ann"}
    assert len(data_files(lake)) == 1


# Others.


def compact(lake: Format) -> None:
    """As the formats' own maintenance does: the same rows in other files."""
    if lake.name == "delta":
        in_folder = DeltaTable(f"{lake.base}/delta/shop.customers")
        in_folder.optimize.compact()
        in_folder.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        return
    table = lake.catalogue().load_table(("shop", "customers"))
    rows, files = table.scan().to_arrow(), [task.file for task in table.scan().plan_files()]
    transaction = table.transaction()
    with ReplaceFiles(operation=Operation.OVERWRITE, transaction=transaction, io=table.io) as producer:
        for new in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
            producer.append_data_file(new)
        for file in files:
            producer.delete_data_file(file)
    transaction.commit_transaction()


def test_somebody_else_s_compaction_changes_nothing(lake: Format) -> None:
    for number in (1, 2):
        export(lake, grow(lake, customer(number)))
    compact(lake)
    compact(lake)
    result = export(lake, grow(lake, customer(1, "bob", Op.UPDATE), customer(3)))
    assert (result.removed, names(lake)) == (1, {1: "bob", 2: "ann", 3: "ann"})


def test_a_compaction_in_the_middle_of_a_run_makes_it_begin_anew(lake: Format) -> None:
    for number in (1, 2):
        export(lake, grow(lake, customer(number)))
    runs: list[Work] = []

    def job(work: Work) -> ChangedRows:
        made = local_job(work)
        runs.append(work)
        if len(runs) == 1:
            compact(lake)
        return made

    export(lake, grow(lake, customer(1, "bob", Op.UPDATE)), job=job)
    assert ([len(work.files) for work in runs], names(lake)) == ([2, 1], {1: "bob", 2: "ann"})


def rows(lake: Format) -> None:
    stranger = lake.rows("shop.customers").slice(0, 1)
    if lake.name == "delta":
        write_deltalake(f"{lake.base}/delta/shop.customers", stranger, mode="append")
    else:
        lake.catalogue().load_table(("shop", "customers")).append(stranger)
    compact(lake)


def columns(lake: Format) -> None:
    if lake.name == "delta":
        DeltaTable(f"{lake.base}/delta/shop.customers").alter.add_columns([Field("mine", PrimitiveType("string"))])
    else:
        with lake.catalogue().load_table(("shop", "customers")).update_schema() as update:
            update.add_column("mine", StringType())


def coordinator(lake: Format) -> None:
    if lake.name == "delta":
        setting = {"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"}
        table = DeltaTable(f"{lake.base}/delta/shop.customers")
        table.alter.set_table_properties(setting, raise_if_not_exists=False)
    else:
        (lake.base / "lake.db").rename(lake.base / "other.db")


def retention(lake: Format) -> None:
    grow(lake, customer(2))
    store = grow(lake, customer(3))
    store.change("a", lambda now: present(now).without_first(2))


def key(lake: Format) -> None:
    rekeyed = Schema(CUSTOMERS.table, (Column("name", "text"),), CUSTOMERS.columns)
    grow(lake, tx(Change(Op.INSERT, ("bob",), (2, "bob", "Ulm", 5), schema=rekeyed)))


@pytest.mark.parametrize(
    ("changes", "kind", "told"),
    [
        (rows, ReplayError, r"another writer wrote to .*customers: (version 1|snapshot \d+) \(.*\) change"),
        (columns, ReplayError, r"another writer changed the columns of .*: mine"),
        (coordinator, ReplayError, r"is in another catalogue's hands"),
        (retention, ReplayError, r"the archive does not go on where .* ends, 1/1/100"),
        (key, UsageError, r"its primary key changed.*Next: make a snapshot.*--baseline.*--from"),
    ],
)
def test_what_somebody_else_changed_is_refused(
    changes: Callable[[Format], None], kind: type[Exception], told: str, lake: Format
) -> None:
    export(lake, grow(lake, customer(1)))
    changes(lake)
    with pytest.raises(kind, match=told):
        export(lake, grow(lake, customer(4)))


def foreign(lake: Format) -> None:
    table = pa.table({"id": [1]})
    if lake.name == "delta":
        write_deltalake(f"{lake.base}/delta/shop.customers", table)
    else:
        lake.catalogue().create_namespace("shop")
        lake.catalogue().create_table(("shop", "customers"), table.schema).append(table)


def file(lake: Format) -> None:
    (lake.base / "delta/shop.customers").mkdir()
    (lake.base / "delta/shop.customers/mine.parquet").touch()


def later(lake: Format) -> None:
    write_archive(lake.base / "archive", {"a": [[customer(2)]]}, whole=False)


@pytest.mark.parametrize(
    ("there", "formats", "told"),
    [
        (foreign, FORMATS, r"is not of this export.*Next: name another"),
        (file, ("delta",), r"is no Delta table, and not empty: mine.parquet"),
        (later, FORMATS, r"the archive of a does not hold every row.*Next: make a snapshot"),
    ],
)
def test_where_something_else_is_no_table_begins(
    there: Callable[[Format], None], formats: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    for name in formats:
        lake = Format(name, tmp_path / name)
        there(lake)
        with pytest.raises(ReplayError, match=told):
            export(lake, grow(lake, customer(1)))


@pytest.mark.parametrize(
    ("whose", "told"), [(("other", "main"), "dataset orders, not"), (("orders", "b"), "copy main")]
)
def test_a_table_of_another_export_is_refused(whose: tuple[str, str], told: str, lake: Format) -> None:
    export(lake, grow(lake, customer(1)))
    (lake.base / "other").mkdir()
    store = write_archive(lake.base / "other/archive", {"a": [[customer(1)]]}, dataset=whose[0], copy=whose[1])
    with pytest.raises(ReplayError, match=rf" {told}.*\[replay-stopped\]"):
        export(Format(lake.name, lake.base, *whose), store)


def test_an_archive_that_was_set_back_is_refused_until_it_has_the_place_again(lake: Format) -> None:
    export(lake, grow(lake, customer(1), customer(2)))
    (lake.base / "older").mkdir()
    older = write_archive(lake.base / "older/archive", {"a": [[customer(1)]]})
    with pytest.raises(ReplayError, match=r"the archive does not go on where .*customers ends, 1/1/200"):
        export(lake, older)
    grown = write_archive(lake.base / "older/archive", {"a": [[customer(2)], [customer(3)]]})
    assert export(lake, grown).rows == 3


def test_an_archive_of_another_history_is_refused(lake: Format) -> None:
    store = grow(lake, customer(1), customer(2))
    export(lake, store)

    def other(now: Manifest | None) -> Manifest:
        manifest = present(now)
        (entry,) = manifest.files
        assert entry.end.anchor is not None
        end = replace(entry.end, anchor=replace(entry.end.anchor, id="another-server:2"))
        return replace(manifest, version=manifest.version + 1, files=(replace(entry, end=end),), end=end)

    store.change("a", other)
    with pytest.raises(ReplayError, match="up to 1/1/200 of another history"):
        export(lake, store)


# Columns.

WIDER = Schema(CUSTOMERS.table, CUSTOMERS.key, (*CUSTOMERS.columns, Column("Name", "text"), Column("_shard", "int")))


def test_a_new_column_is_unknown_in_rows_that_were_written_before(lake: Format) -> None:
    first = export(lake, grow(lake, customer(1)))
    export(lake, grow(lake, tx(row(Op.INSERT, (2, "bob", "Ulm", 5, "B", 7), schema=WIDER))))
    one, two = sorted(lake.rows("shop.customers").to_pylist(), key=lambda each: each["id"])
    assert (one["Name_"], one["_shard_"], one["_unavailable"]) == (None, None, ["Name_", "_shard_"])
    assert (two["Name_"], two["_shard_"], two["_shard"], two["_unavailable"]) == ("B", 7, "a", None)
    assert lake.rows("shop.customers", first.version).column_names == [
        "id",
        "name",
        "city",
        "credit",
        "_shard",
        "_unavailable",
    ]


def test_a_dropped_column_stays_and_is_unknown_in_later_rows(lake: Format) -> None:
    export(lake, grow(lake, customer(1)))
    fewer = Schema(CUSTOMERS.table, CUSTOMERS.key, (*CUSTOMERS.columns[:2], CUSTOMERS.columns[3]))
    export(lake, grow(lake, tx(row(Op.INSERT, (2, "bob", 5), schema=fewer))))
    one, two = sorted(lake.rows("shop.customers").to_pylist(), key=lambda each: each["id"])
    assert (one["city"], one["_unavailable"], two["city"], two["_unavailable"]) == ("Ulm", None, None, ["city"])


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("text", "7", ["5", "7"]),
        ("decimal", Decimal("0.50"), ["5", "0.50"]),
        ("int", -3, [Decimal(5), Decimal(-3)]),
        ("bytes", b"\xff", [b"5", b"\xff"]),
    ],
)
def test_a_column_of_another_type_has_one_that_holds_both(
    kind: str, value: Value, shown: list[Any], lake: Format
) -> None:
    first = export(lake, grow(lake, customer(1)))
    columns = (*CUSTOMERS.columns[:3], Column("credit", kind))
    other = Schema(CUSTOMERS.table, CUSTOMERS.key, columns)
    export(lake, grow(lake, tx(row(Op.INSERT, (2, "bob", "Ulm", value), schema=other))))
    export(lake, grow(lake, customer(3)))
    rows = sorted(lake.rows("shop.customers").to_pylist(), key=lambda each: each["id"])
    assert [one["credit"] for one in rows[:2]] == shown
    assert lake.rows("shop.customers", first.version).to_pylist()[0]["credit"] == Decimal(5)


def test_a_type_that_was_asked_for_stays(lake: Format) -> None:
    prices = Schema("p", (Column("id", "int"),), (Column("id", "int"), Column("price", "decimal")))
    store = grow(lake, tx(row(Op.INSERT, (1, Decimal("1.50")), schema=prices)))
    export(lake, store, types={"p": {"price": "decimal(6,2)"}})
    export(lake, grow(lake, tx(row(Op.INSERT, (2, Decimal("2.5")), schema=prices))))
    assert sorted(lake.rows("p").column("price").to_pylist()) == [Decimal("1.50"), Decimal("2.50")]
    with pytest.raises(UsageError, match=r"column price of p: 2.555 does not fit decimal\(6,2\)"):
        export(lake, grow(lake, tx(row(Op.INSERT, (3, Decimal("2.555")), schema=prices))))
    assert lake.rows("p").num_rows == 2
    export(lake, grow(lake, tx(row(Op.DELETE, None, (2, None), schema=prices))), types={"p": {"price": "text"}})
    assert sorted(lake.rows("p").column("price").to_pylist()) == ["1.50", "2.555"]


def test_every_type_goes_there_and_back(lake: Format) -> None:
    kinds = ("int", "uint", "double", "bool", "text", "bytes", "decimal", "entries")
    every = Schema("t", (Column("id", "int"),), (Column("id", "int"), *(Column(kind, kind) for kind in kinds)))
    values = (-1, (1 << 64) - 1, 0.1, True, "ü", b"\0", Decimal("1e-30"), {b"a": b"b", b"": b""})
    rows = [tx(row(Op.INSERT, (1, *values), schema=every)), tx(row(Op.INSERT, (2, *[None] * 8), schema=every))]
    export(lake, grow(lake, *rows))
    before = sorted(lake.rows("t").to_pylist(), key=lambda each: each["id"])
    wider = Schema("t", every.key, (*every.columns, Column("more", "int")))
    export(lake, grow(lake, tx(row(Op.INSERT, (3, *values, 1), schema=wider))))
    after = sorted(lake.rows("t").to_pylist(), key=lambda each: each["id"])
    assert [{**one, "more": None, "_unavailable": ["more"]} for one in before] == after[:2]
    assert before[0]["decimal"] == "0.000000000000000000000000000001"


# What cannot be exported.


def test_a_table_that_cannot_be_is_named_and_the_others_are(lake: Format) -> None:
    keyless = Schema("shop.events", (), (Column("text", "text"),))
    store = grow(lake, customer(1), tx(Change(Op.INSERT, (), ("x",), schema=keyless)))
    customers, events = lake.exporter(store).run()
    assert (customers.did, customers.problem) == ("created", None)
    assert (events.did, isinstance(events.problem, UsageError)) == ("left_out", True)
    assert "shop.events cannot be exported: it has no primary key" in str(events.problem)
    with pytest.raises(UsageError, match="it has no primary key"):
        export(lake, store, tables=["shop.events"])
    assert lake.exporter(store, tables=["shop.events"]).run()[0].did == "nothing"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tables": ["nope"]}, "the archive has no rows of nope, which --table names; known are shop.customers"),
        ({"types": {"shop.customer": {}}}, 'of shop.customer, which --type names; did you mean "shop.customers"?'),
        ({"types": {"shop.customers": {"nope": "text"}}}, "there is no column nope"),
        ({"types": {"shop.customers": {"name": "varchar"}}}, "'varchar' is no type"),
    ],
)
def test_wrong_requests(given: dict[str, Any], told: str, lake: Format) -> None:
    store = grow(lake, customer(1))
    with pytest.raises(UsageError, match=told):
        export(lake, store, **given)
    export(lake, store)
    with pytest.raises(UsageError, match=told):
        export(lake, store, **given)


def test_an_archive_with_nothing_in_it(lake: Format) -> None:
    store = open_store(str(lake.base / "archive"), "orders", copy="main", create=True)
    with pytest.raises(UsageError, match="holds nothing yet"):
        Exporter(store, lake.open, local_job).run()


def test_delta_cannot_hold_every_name(tmp_path: Path) -> None:
    spaced = Schema("t", (Column("id", "int"),), (Column("id", "int"), Column("two words", "text")))
    for name in FORMATS:
        lake = Format(name, tmp_path / name)
        store = grow(lake, tx(row(Op.INSERT, (1, "x"), schema=spaced)))
        if name == "iceberg":
            export(lake, store)
            assert lake.rows("t").column("two words").to_pylist() == ["x"]
            continue
        for dry in (True, False):
            with pytest.raises(UsageError, match="Delta cannot hold column 'two words' of t"):
                export(lake, store, dry=dry)
        assert not list(lake.base.rglob(NOTES))


MAPPED = Schema("t", (Column("id", "int"),), (Column("id", "int"), Column("m", "entries")))
NAMED_ALIKE = Schema("t", MAPPED.key, (*MAPPED.columns, Column("m.key", "text")))


@pytest.mark.parametrize("exported", [False, True], ids=["a new table", "one that has the map"])
def test_iceberg_cannot_hold_a_column_with_the_name_of_a_part_of_another(exported: bool, tmp_path: Path) -> None:
    lake = Format("iceberg", tmp_path)
    if exported:
        export(lake, grow(lake, tx(row(Op.INSERT, (1, {b"k": b"v"}), schema=MAPPED))))
    store = grow(lake, tx(row(Op.INSERT, (2, {b"k": b"v"}, "x"), schema=NAMED_ALIKE)))
    there = set(tmp_path.rglob("*.json"))
    for dry in (True, False):
        with pytest.raises(UsageError, match=r"Iceberg cannot hold the columns of t: .*m\.key"):
            export(lake, store, dry=dry)
        assert set(tmp_path.rglob("*.json")) == there
        assert lake.catalogue().list_namespaces() == [("orders",)] * exported


def test_a_table_that_was_rolled_back_is_carried_on_from_there(tmp_path: Path) -> None:
    lake = Format("iceberg", tmp_path)
    first = export(lake, grow(lake, customer(1)))
    store = grow(lake, customer(2))
    export(lake, store)
    lake.catalogue().load_table(("shop", "customers")).manage_snapshots().rollback_to_snapshot(
        int(first.version)
    ).commit()
    assert names(lake) == {1: "ann"}
    export(lake, store)
    assert names(lake) == {1: "ann", 2: "ann"}


def test_a_catalogue_that_cannot_be_opened() -> None:
    with pytest.raises(UsageError, match="catalogue nope cannot be opened"):
        iceberg.open_catalogue("nope", {"type": "sql"})


def test_notes_of_runs_lie_beside_the_table(lake: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    kill_before_commit(monkeypatch, lake)
    with pytest.raises(KilledError):
        export(lake, grow(lake, customer(1)))
    assert list(runs(lake).values()) == [""]
    (folder,) = lake.base.rglob(NOTES)
    (folder / "torn.json").write_bytes(b"{")
    assert runs(lake)["torn"] == ""
