"""The format ``wormhole`` without Spark's own process: its options, what is pushed down, and what is read."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, EqualTo, StringStartsWith
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

from spark_replay.archive.columns import place_bytes, read_place
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.selected import ColumnCondition, FilePiece
from spark_replay.tables.pushdown import conditions_of
from spark_replay.tables.schemas import METADATA
from spark_replay.tables.selection import key_problem, select, select_tables
from spark_replay.tables.source import (
    ArchiveReader,
    FilteringReader,
    WormholeSource,
    next_offset,
    pieces,
)
from tests.support.archives import CUSTOMERS, KEYS, marker_at, put, row, tx, write_archive
from wormhole.model.errors import ArchiveError, ReplayError, UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op

# --- source ---


def marker(at: int) -> Datamarker:
    place = LogPosition(1, 1, at)
    return Datamarker(place, "", place)


def entry(begin: int, end: int, rows: int = 5) -> FileEntry:
    return FileEntry(f"{begin}-{end}", rows, 10, marker(begin), marker(end), 0, 0, {}, {})


def manifest(*files: FileEntry, begin: int = 0, shard: str = "a") -> Manifest:
    end = files[-1].end if files else marker(begin)
    return Manifest("d", shard, 1, 1, marker(begin), end, True, files)


def at(place: int) -> dict[str, str]:
    return {"a": f"1/1/{place}"}


def read(found: list[FilePiece]) -> list[tuple[str, int, int]]:
    return [
        (piece.entry.name, int.from_bytes(piece.after[12:20], "big"), int.from_bytes(piece.until[12:20], "big"))
        for piece in found
    ]


TEN = manifest(*(entry(i, i + 10) for i in range(0, 50, 10)))


@pytest.mark.parametrize(
    ("begin", "most", "last", "end"),
    [
        (0, 2, None, 20),
        (20, 2, None, 40),
        (40, 2, None, 50),
        (50, 2, None, 50),
        (0, None, None, 50),
        # A query that takes what is there ends there.
        (0, None, 30, 30),
        (30, 4, 30, 30),
    ],
)
def test_a_batch_has_so_many_files_at_most(begin: int, most: int | None, last: int | None, end: int) -> None:
    given = None if last is None else at(last)
    assert next_offset([TEN], at(begin), most, given) == at(end)
    later = manifest(entry(0, 5), shard="b")
    assert last is None or next_offset([TEN, later], at(begin), most, given) == at(end)


MERGED = manifest(entry(0, 20), entry(20, 50))


@pytest.mark.parametrize(
    ("given", "begin", "end", "found"),
    [
        (TEN, 10, 30, [("10-20", 10, 30), ("20-30", 10, 30)]),
        (MERGED, 10, 30, [("0-20", 10, 30), ("20-50", 10, 30)]),
        (MERGED, 30, 30, []),
        (manifest(entry(0, 10), entry(10, 20, rows=0)), 0, 20, [("0-10", 0, 20)]),
    ],
)
def test_files_that_were_merged_meanwhile_give_the_same_rows(
    given: Manifest, begin: int, end: int, found: list[tuple[str, int, int]]
) -> None:
    assert read(pieces([given], at(begin), at(end))) == found


def test_rows_that_a_backfill_read_at_an_offset_come_with_what_follows() -> None:
    read_there = replace(entry(10, 10), name="reads", ops={"read": 5})
    shard = manifest(entry(0, 10), read_there, entry(10, 20), entry(20, 30))
    assert [piece.entry.name for piece in pieces([shard], at(0), at(10))] == ["0-10"]
    assert next_offset([shard], at(10), 1) == at(20)
    (reads, log) = pieces([shard], at(10), at(20))
    assert (reads.entry.name, log.entry.name) == ("reads", "10-20")
    last_of_log, first_read = (
        place_bytes(LogPosition(1, 1, 10), False, (1 << 31) - 1),
        read_place(LogPosition(1, 1, 10), 0),
    )
    assert last_of_log <= reads.after < first_read <= reads.until, "the log's updates there do not come again"
    assert [piece.entry.name for piece in pieces([shard], at(20), at(30))] == ["20-30"]


def test_rows_that_a_backfill_read_come_once() -> None:
    """A batch that is planned again has the same rows, though more may have come at its end meanwhile."""
    mixed = replace(entry(0, 10), ops={"read": 1, "upsert": 4})
    (before,), (same, _) = (
        pieces([manifest(mixed)], at(0), at(10)),
        pieces([manifest(mixed, entry(10, 20))], at(10), at(20)),
    )
    assert before.entry == same.entry == mixed
    row = read_place(LogPosition(1, 1, 10), 3)
    assert before.until < row
    assert same.after < row <= same.until


def test_a_new_shard_is_read_from_where_it_begins_and_one_that_went_keeps_its_place() -> None:
    new = manifest(entry(3, 5), entry(5, 9), begin=3, shard="b")
    end = next_offset([new], at(50), 1)
    assert end == {"a": "1/1/50", "b": "1/1/5"}
    assert read(pieces([new], at(50), end)) == [("3-5", 3, 5)]


def test_what_retention_took_is_reported_or_passed_over() -> None:
    left = manifest(entry(20, 30), begin=20)
    with pytest.raises(ArchiveError, match=r"begins at 1/1/20 now: what follows 1/1/10"):
        pieces([left], at(10), at(30))
    assert read(pieces([left], at(10), at(30), skip_gaps=True)) == [("20-30", 10, 30)]


def test_a_gap_in_the_log_is_reported_once_it_is_reached() -> None:
    gap = manifest(entry(0, 10), entry(20, 30))
    gap = replace(gap, losses=(KnownLoss(marker(20), "purged"),))
    assert read(pieces([gap], at(0), at(10))) == [("0-10", 0, 10)]
    with pytest.raises(ArchiveError, match=r"before 1/1/20 never came into the archive: purged"):
        pieces([gap], at(10), at(30))
    assert read(pieces([gap], at(10), at(30), skip_gaps=True)) == [("20-30", 10, 30)]
    assert read(pieces([gap], at(20), at(30))) == [("20-30", 20, 30)]


def test_a_checkpoint_of_another_archive_is_refused() -> None:
    with pytest.raises(ArchiveError, match="does not reach up to 1/1/60"):
        pieces([TEN], at(50), at(60))
    with pytest.raises(ArchiveError, match="does not reach up to"):
        pieces([], at(50), at(60))
    assert pieces([], at(60), at(60)) == []


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """Options of an archive with two shards."""
    ann = [tx(row(Op.INSERT, (1, "Ann", "Rome", 10))), tx(row(Op.DELETE, None, (1, "Ann", "Rome", 10)))]
    write_archive(tmp_path / "archive", {"a": [[tx(put(b"1", b"1"))], ann], "b": [[tx(put(b"2", b"2"))]]})
    return {"to": str(tmp_path / "archive"), "dataset": "orders"}


def source(given: dict[str, str], **more: str) -> WormholeSource:
    """As it comes to where a query is planned."""
    made = WormholeSource({**given, **more})
    made.schema()
    again = pickle.loads(pickle.dumps(made))
    assert isinstance(again, WormholeSource)
    return again


def all_rows(reader: ArchiveReader) -> list[dict[str, Any]]:
    found = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in reader.partitions() for batch in found.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def reader_of(given: dict[str, str], **more: str) -> ArchiveReader:
    made = source(given, **more)
    return made.reader(made.schema())


def test_the_archive_s_columns_or_a_table_s(given: dict[str, str]) -> None:
    plain = source(given).schema()
    assert plain.names[-1] == "shard"
    assert len(plain["schema_id"].metadata[METADATA]) == 2
    found = all_rows(reader_of(given))
    assert [one["shard"] for one in found] == ["a", "a", "a", "b"]
    assert list(found[0]) == plain.names
    assert source(given, table=CUSTOMERS.table).schema().names[:5] == ["id", "name", "city", "credit", "_op"]
    assert [(one["id"], one["_op"]) for one in all_rows(reader_of(given, table=CUSTOMERS.table))] == [
        (1, "insert"),
        (1, "delete"),
    ]


def test_options_choose(given: dict[str, str]) -> None:
    assert [one["shard"] for one in all_rows(reader_of(given, shards="b, a"))] == ["b", "a", "a", "a"]
    assert [one["table"] for one in all_rows(reader_of(given, tables=CUSTOMERS.table))] == [CUSTOMERS.table] * 2
    assert all_rows(reader_of(given, columns="shard,op", shards="b")) == [{"shard": "b", "op": "upsert"}]
    few = all_rows(reader_of(given, table=CUSTOMERS.table, columns="_op,name"))
    assert few[0] == {"_op": "insert", "name": "Ann"}
    assert [one["op"] for one in all_rows(reader_of(given, shards="a", **{"from": "1/1/100"}))] == ["insert", "delete"]
    assert [one["op"] for one in all_rows(reader_of(given, shards="a", until="1/1/200"))] == ["upsert", "insert"]
    assert all_rows(reader_of(given, shards="a", until="1/1/0")) == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"tabel": "x"}, "has no option tabel"),
        ({"dataset": ""}, "the option dataset is missing"),
        ({"start": "now"}, "start is 'now'"),
        ({"gaps": "some"}, "gaps is 'some'"),
        ({"max_files": "0"}, "max_files is '0'"),
        ({"from": "marker"}, "a query has no datamarker"),
        ({"table": "a", "tables": "b"}, "are both given"),
        ({"tables": "shop.x"}, "has no table shop.x here"),
        ({"table": "shop.x"}, "has no table shop.x here"),
        ({"shards": "c"}, "has no shard c"),
        ({"columns": "place,price"}, "there is no column price"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], more: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        WormholeSource({**given, **more}).schema()


def test_options_are_for_streams_or_for_others(given: dict[str, str]) -> None:
    made = source(given, start="latest")
    with pytest.raises(UsageError, match="a query that is no stream has no option start"):
        made.reader(made.schema())
    made = source(given, **{"from": "1/1/0"})
    with pytest.raises(UsageError, match="a stream has no option from"):
        made.streamReader(made.schema())
    with pytest.raises(UsageError, match="columns of an archive are its own"):
        source(given).reader(source(given, columns="op").schema())


def test_rows_stay_those_that_were_there_when_it_was_loaded(given: dict[str, str]) -> None:
    made = source(given)
    write_archive(Path(given["to"]), {"a": [[tx(put(b"9", b"9"))]]})
    reader = made.reader(made.schema())
    assert len(all_rows(reader)) == 4
    store = reader._store
    store.change("a", lambda now: now and now.without_first(1))  # type: ignore[return-value,arg-type]
    with pytest.raises(ReplayError, match="1/1/0 to 1/1/300 is not held any more"):
        reader.partitions()


def test_conditions_are_taken_where_spark_keeps_them_apart(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that takes conditions is refused where Spark hands on none; up to 4.3 Spark mixes up those of different
    queries."""
    monkeypatch.delattr(DataSourceReader, "pushLimit", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", pytest)
    assert type(reader_of(given)) is ArchiveReader
    monkeypatch.setattr(DataSourceReader, "pushLimit", None, raising=False)
    reader = reader_of(given)
    assert isinstance(reader, FilteringReader)
    theirs = StringStartsWith(("table",), "shop")
    assert list(reader.pushFilters([EqualTo(("shard",), "a"), theirs, EqualTo(("op",), "upsert")])) == [theirs]
    assert [(one["shard"], one["op"]) for one in all_rows(reader)] == [("a", "upsert")]
    table = reader_of(given, table=KEYS.table)
    assert isinstance(table, FilteringReader)
    assert list(table.pushFilters([EqualTo(("_shard",), "b")])) == []
    assert [one["key"] for one in all_rows(table)] == [b"2"]
    monkeypatch.delitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters")
    assert type(reader_of(given)) is ArchiveReader


def test_a_stream_is_refused_where_spark_says_no_place(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 4.0 and 4.1 read batches, and ask a stream for its next offset without the last one."""
    monkeypatch.setattr("spark_replay.tables.source.SupportsTriggerAvailableNow", object)
    made = source(given)
    assert made.reader(made.schema())
    with pytest.raises(UsageError, match=r"Spark 4\.2") as caught:
        made.streamReader(made.schema())
    assert "spark.read" in str(caught.value.hint)


def test_a_batch_of_a_stream_reads_each_manifest_once(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = source(given, table=CUSTOMERS.table)
    reader = made.streamReader(made.schema())
    begin = reader.initialOffset()
    seen: list[str] = []
    read = ArchiveStore.read

    def noted(store: ArchiveStore, shard: str) -> Manifest | None:
        seen.append(shard)
        return read(store, shard)

    monkeypatch.setattr(ArchiveStore, "read", noted)
    end = reader.latestOffset(begin, ReadAllAvailable())
    planned = reader.partitions(begin, end)
    assert sorted(seen) == ["a", "b"]
    # A restart has the offsets from the checkpoint, and asks for a batch again.
    assert [one.pieces for one in made.streamReader(made.schema()).partitions(begin, end)] == [
        one.pieces for one in planned
    ]


def test_a_stream_reads_what_lies_between_two_offsets(given: dict[str, str]) -> None:
    made = source(given, table=CUSTOMERS.table, max_files="1")
    reader = made.streamReader(made.schema())
    begin = reader.initialOffset()
    assert begin == {"a": "1/1/0", "b": "1/1/0"}
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxFiles)
    first = reader.latestOffset(begin, ReadLimit())
    assert first == {"a": "1/1/100", "b": "1/1/100"}
    assert reader.partitions(begin, first) == []
    end = reader.latestOffset(first, ReadAllAvailable())
    found = [batch for part in reader.partitions(first, end) for batch in reader.read(part)]
    assert [one["_op"] for one in pa.Table.from_batches(found).to_pylist()] == ["insert", "delete"]
    reader.prepareForTriggerAvailableNow()
    write_archive(Path(given["to"]), {"a": [[tx(put(b"9", b"9"))]]})
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    made = source(given, start="latest", shards="a")
    assert made.streamReader(made.schema()).initialOffset() == {"a": "1/1/400"}


# --- pushdown: what Spark asks, as what files and rows are asked: exactly that, or it is Spark's to ask ---


NAMES = {name: name for name in ("shard", "table", "op", "place", "committed_at", "key")}
NOON = datetime(2026, 1, 1, 12, 0, 0, 7, tzinfo=UTC)
NOON_US = 1_767_268_800_000_007


@pytest.mark.parametrize(
    ("asked", "conditions"),
    [
        (spark.EqualTo(("shard",), "a"), (ColumnCondition("shard", "in", ("a",)),)),
        (spark.EqualNullSafe(("table",), "t"), (ColumnCondition("table", "in", ("t",)),)),
        (spark.In(("op",), ("insert", None, "read")), (ColumnCondition("op", "in", ("insert", "read")),)),
        (spark.IsNotNull(("place",)), ()),
        (spark.LessThan(("place",), b"\1"), (ColumnCondition("place", "<", (b"\1",)),)),
        (spark.LessThanOrEqual(("place",), b"\1"), (ColumnCondition("place", "<=", (b"\1",)),)),
        (spark.GreaterThan(("committed_at",), NOON), (ColumnCondition("committed_at", ">", (NOON_US,)),)),
        (spark.GreaterThanOrEqual(("committed_at",), NOON), (ColumnCondition("committed_at", ">=", (NOON_US,)),)),
        (spark.EqualTo(("committed_at",), NOON), (ColumnCondition("committed_at", "in", (NOON_US,)),)),
        # These stay with Spark.
        (spark.IsNotNull(("committed_at",)), None),
        (spark.IsNull(("shard",)), None),
        (spark.EqualTo(("key",), b"k"), None),
        (spark.EqualTo(("other",), "x"), None),
        (spark.EqualTo(("shard", "field"), "x"), None),
        (spark.EqualNullSafe(("shard",), None), None),
        (spark.In(("shard",), (None,)), None),
        (spark.GreaterThan(("shard",), "a"), None),
        (spark.GreaterThan(("committed_at",), NOON.replace(tzinfo=None)), None),
        (spark.Not(spark.EqualTo(("shard",), "a")), None),
        (spark.StringStartsWith(("table",), "shop."), None),
    ],
)
def test_what_is_asked(asked: spark.Filter, conditions: tuple[ColumnCondition, ...] | None) -> None:
    assert conditions_of(asked, NAMES) == conditions


def test_columns_of_a_table_are_asked_by_the_names_that_they_have_there() -> None:
    assert conditions_of(spark.EqualTo(("_op",), "insert"), {"_op": "op"}) == (
        ColumnCondition("op", "in", ("insert",)),
    )
    assert conditions_of(spark.EqualTo(("op",), "insert"), {"_op": "op"}) is None


# --- selection: what is read for tables: shards, ranges, schemas, and tables whose rows can be told apart ---


ID = Column("id", "int")
KEYED = Schema("t", (ID,), (ID,))
KEYLESS = Schema("u", (), (ID,))
OTHER_KEY = Schema("t", (Column("id", "text"),), (Column("id", "text"),))
BARRIER = Schema("t", (), ())


def test_all_that_an_archive_holds_and_its_schemas_oldest_first(tmp_path: Path) -> None:
    later = [tx(row(Op.INSERT, (1, "a", "b", 2))), tx(put(b"k", b"v"))]
    store = write_archive(tmp_path, {"a": [[tx(put(b"k", b"v"))], later], "b": [[tx(put(b"k", b"v"))]]})
    selection = select(store)
    assert [(one.shard, one.begin, one.until, len(one.files)) for one in selection.shards] == [
        ("a", marker_at(0, "a"), marker_at(3, "a"), 2),
        ("b", marker_at(0, "b"), marker_at(1, "b"), 1),
    ]
    assert selection.whole == {"a", "b"}
    assert set(selection.schemas) == {KEYS, CUSTOMERS}
    assert not selection.needs_inspection
    assert selection.shards_to_json()["a"] == {
        "from": "1/1/0",
        "place": "1/1/300",
        "whole": True,
        "marker": selection.shards_to_json()["a"]["marker"],
    }


def test_a_part_of_it(tmp_path: Path) -> None:
    files = [[tx(put(b"1", b"")), tx(put(b"2", b""))], [tx(row(Op.UPDATE, (2, "", "", 0), (1, "", "", 0)))]]
    store = write_archive(tmp_path, {"a": files})
    (one,) = select(
        store, ["a"], Asked("x", place=LogPosition(1, 1, 150)), Asked("y", place=LogPosition(1, 1, 150))
    ).shards
    assert (one.begin, one.until) == (marker_at(1), marker_at(2))
    later = select(store, start=Asked("x", place=LogPosition(1, 1, 200)))
    assert later.whole == frozenset()
    assert later.needs_inspection  # a key changes there
    with pytest.raises(ReplayError, match="does not reach up to"):
        select(store, stop=Asked("y", place=LogPosition(1, 1, 900)))


def test_what_is_not_there(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), "orders", copy="main", create=True)
    with pytest.raises(UsageError, match="holds nothing yet"):
        select(store)
    write_archive(tmp_path, {"a": [[tx(put(b"k", b"v"))]]})
    with pytest.raises(UsageError, match="has no shard x"):
        select(store, ["x"])


def test_tables_whose_rows_cannot_be_distinguished_are_left_out_and_that_is_reported() -> None:
    assert key_problem([KEYED, BARRIER], "t") is None
    names, left_out = select_tables([KEYED, KEYLESS, BARRIER], ())
    assert names == ("t",)
    assert left_out == {"u": "it has no primary key: two equal rows cannot be distinguished"}
    assert select_tables([KEYED, OTHER_KEY], ())[1]["t"].startswith("its primary key changed (id int; id text)")
    with pytest.raises(UsageError, match="u: it has no primary key"):
        select_tables([KEYED, KEYLESS], ["u"])
    with pytest.raises(UsageError, match="no rows of x"):
        select_tables([KEYED], ["x"])
