"""Rows of the archive as a DataFrame, read by a real Spark; and, since it shares its session, the estimate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles, read, reading, schemas_of, within_times
from spark_replay.replay.estimate import Estimate, estimate
from spark_replay.selected import COLUMNS, FilePiece, piece_rows, tasks_of
from spark_replay.tables.source import register
from tests.support.archives import (
    CUSTOMERS,
    FIRST_US,
    KEYS,
    Tx,
    gone,
    manifest_of,
    marker_at,
    put,
    row,
    tx,
    write_archive,
)
from wormhole.model.errors import ArchiveError, UsageError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import decode_row, values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ODD = "db1.shop%2Fa+b"
"""A shard whose name is percent-encoded in paths already."""


def puts(*numbers: int) -> list[Tx]:
    return [tx(put(b"key %d" % number, b"value %d" % number)) for number in numbers]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    # Spark takes such characters in a path for a pattern.
    folder = tmp_path_factory.mktemp("frames") / "an archive {of} [x]*?"
    table = [tx(row(Op.INSERT, (1, "Ann", "Rome", 10)), row(Op.INSERT, (2, "Bob", "Oslo", 20)))]
    change = row(Op.UPDATE, (1, UNAVAILABLE, "Bonn", UNAVAILABLE), (1, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE))
    last = [tx(change, pieces=1), tx(row(Op.DELETE, None, (2, "Bob", "Oslo", 20)))]
    made = write_archive(
        folder,
        {
            "a": [
                puts(1, 2),
                puts(3),
                [*puts(4), tx(*(put(b"large", b"%d" % i) for i in range(6)), pieces=3), *puts(5)],
            ],
            ODD: [puts(1, 1, 1), [tx(put(b"key 1", b"last")), tx(gone(b"key 2"))]],
            "tables": [table, last],
        },
    )
    # What no manifest names does not count.
    whole = Path(made.data_path("a", of(made, "a").files[0].name))
    (whole.parent / "left-behind.parquet").write_bytes(whole.read_bytes())
    (whole.parent / "notes.txt").write_text("of somebody")
    return made


def of(store: ArchiveStore, shard: str, begin: int | None = None, until: int | None = None) -> ShardFiles:
    manifest = manifest_of(store, shard)
    given = (None if at is None else marker_at(at, shard) for at in (begin, until))
    return ShardFiles(shard, manifest.files, *given)


def test_every_shard_in_one_scan_each_within_its_own_bounds(spark: SparkSession, store: ArchiveStore) -> None:
    frame = read(spark, store, [of(store, "a", 1, 4), of(store, ODD, 2)])
    assert frame.columns == [*COLUMNS, "shard"]
    rows = frame.collect()
    found = sorted((one["shard"], one["tx_number"]) for one in rows)
    assert found == [("a", 2), ("a", 3), ("a", 4), (ODD, 3), (ODD, 4), (ODD, 5)]
    (third,) = [one for one in rows if (one["shard"], one["tx_number"]) == ("a", 3)]
    assert (third["op"], third["table"], third["tx_source"], third["partial"]) == (
        "upsert",
        KEYS.table,
        "source-a",
        False,
    )
    assert third["committed_at"].timestamp() == (FIRST_US + 3_000_000) / 1e6
    assert values_of(decode_row(bytes(third["update"])).after) == (b"value 3",)
    # The first pieces of a large transaction have the place where it begins: the range behind has all of it.
    behind = read(spark, store, [of(store, "a", 4, 5)], ("tx_number",))
    assert behind.columns == ["tx_number", "shard"]
    assert behind.collect() == [(5, "a")] * 6
    nothing = read(spark, store, [ShardFiles("a", ())])
    assert (nothing.columns, nothing.collect()) == (frame.columns, [])


def test_queries_of_one_frame_of_the_format_do_not_mix(spark: SparkSession, store: ArchiveStore) -> None:
    """Spark 4.3 gives a second query the rows that conditions of the first one chose, where a source takes these."""
    register(spark)
    frame = spark.read.format("wormhole").options(to=store.to, dataset=store.dataset).load()
    everything = sorted(frame.collect())
    assert len(everything) == 20
    assert everything == sorted(read(spark, store, [of(store, shard) for shard in store.shards()]).collect())
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        some = frame.where("shard = 'tables' and committed_at > timestamp'1970-01-01' and place > X'00'")
        true = [one for one in everything if one["shard"] == "tables"]
        assert sorted(some.collect()) == true
        assert sorted(frame.collect()) == everything
        assert some.unionByName(frame.where("shard = 'a'")).count() == len(true) + 11
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_what_is_wrong_with_options_is_one_line(spark: SparkSession, store: ArchiveStore) -> None:
    register(spark)
    with (
        pytest.raises(
            UsageError, match=r"^the format wormhole has no option dateset \[wrong-request\]\. Next: it has to, "
        ) as caught,
        reading(),
    ):
        spark.read.format("wormhole").options(to=store.to, dateset=store.dataset).load()
    assert "\n" not in str(caught.value)


def bytes_for_a_task(spark: SparkSession, frame: DataFrame) -> tuple[int, int]:
    """What every task receives, and the most that one receives besides."""
    java: Any = frame._jdf
    function = java.queryExecution().logical().functionExpr().func().command().size()
    utils: Any = spark.sparkContext._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]
    partitions = java.queryExecution().toRdd().partitions()
    return function, max(len(utils.serialize(one)) for one in partitions)


def test_a_task_receives_its_own_files_only(spark: SparkSession, store: ArchiveStore) -> None:
    entry = replace(of(store, "a").files[0], raw=100 << 20)

    def read_files(count: int) -> tuple[int, int]:
        files = tuple(replace(entry, name=f"{number:032x}.parquet") for number in range(count))
        return bytes_for_a_task(spark, read(spark, store, [ShardFiles("a", files)]))

    few, many = read_files(8), read_files(1500)
    assert many[0] == few[0], "the list is not a part of the function"
    assert many[1] <= few[1] + 200, "nor of a partition"
    assert many[1] < 20_000


def test_files_are_read_by_as_many_tasks_as_there_is_work_for(store: ArchiveStore) -> None:
    entry = of(store, "a").files[0]

    def tasks(raw: int, files: int, slots: int) -> list[int]:
        given = [FilePiece("a", replace(entry, raw=raw), b"", b"") for _ in range(files)]
        found = tasks_of(given, slots)
        assert [one for some in found for one in some] == given
        return [len(some) for some in found]

    assert tasks(0, 20, 4) == [8, 8, 4]
    assert tasks(15 << 20, 8, 2) == [2, 2, 2, 2]
    assert tasks(1 << 30, 3, 1) == [1, 1, 1]
    assert tasks(0, 1000, 2) == [128] * 7 + [104]


def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    store = write_archive(tmp_path / "archive", {"a": [puts(1), puts(2)]})
    chosen = of(store, "a")
    path = Path(store.data_path("a", chosen.files[1].name))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught, reading():
        read(spark, store, [chosen]).collect()
    assert path.name in caught.value.message
    assert "their checksum differs from the one that was kept" in caught.value.message
    assert "archive verify" in str(caught.value.hint)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    store = write_archive(tmp_path / "archive", {"a": [puts(1)]})
    (entry,) = of(store, "a").files
    piece = FilePiece("a", entry, b"", b"\xff")
    assert sum(batch.num_rows for batch in piece_rows(store, piece)) == 1
    Path(store.data_path("a", entry.name)).unlink()
    with pytest.raises(ArchiveError, match=rf"{entry.name}: .*\[archive-damaged\]") as caught:
        list(piece_rows(store, piece))
    assert "archive verify" in str(caught.value.hint)


def test_other_errors_of_spark_go_through(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="no_such_column"), reading():
        spark.range(1).select("no_such_column").collect()


def test_schemas_come_from_the_footers(store: ArchiveStore, tmp_path: Path) -> None:
    assert schemas_of(store, [of(store, "a"), of(store, "tables")]) == {KEYS.id: KEYS, CUSTOMERS.id: CUSTOMERS}
    whole = of(store, "a")
    lies = replace(whole, files=(replace(whole.files[0], schemas={"00000000000000ff": "other"}),))
    with pytest.raises(ArchiveError, match="lacks schema 00000000000000ff"):
        schemas_of(store, [lies])


SECOND = FIRST_US + 3_000_000  # all of the second file


@pytest.mark.parametrize(
    ("since", "until", "first", "last"),
    [(0, 0, 0, 3), (SECOND, 0, 1, 3), (0, SECOND, 0, 1), (SECOND, SECOND + 1, 1, 2)],
)
def test_files_are_chosen_by_their_times(store: ArchiveStore, since: int, until: int, first: int, last: int) -> None:
    files = of(store, "a").files
    assert within_times(files, since, until) == files[first:last]
    timeless = (replace(files[0], first_us=0, last_us=0),)
    assert within_times(timeless, since, until) == timeless


def test_the_columns_are_those_of_the_archive(spark: SparkSession, store: ArchiveStore) -> None:
    assert tuple(SCHEMA.names) == COLUMNS
    types = {field.name: field.dataType.simpleString() for field in read(spark, store, [of(store, "a")]).schema}
    wanted = {pa.binary(): "binary", pa.int32(): "int", pa.int64(): "bigint", pa.bool_(): "boolean"}
    for field in SCHEMA:
        text = "string" if pa.types.is_dictionary(field.type) else "timestamp"
        plain = pa.binary() if pa.types.is_fixed_size_binary(field.type) else field.type
        assert types[field.name] == wanted.get(plain, text), field.name


def test_the_driver_receives_one_sketch_of_each_shard(
    spark: SparkSession, store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not one of each task: a terabyte has eight thousand."""
    from pyspark import RDD

    received: list[int] = []
    collect = RDD.collect

    def counted(rdd: RDD[Any]) -> list[Any]:
        found = collect(rdd)
        received.append(len(found))
        return found

    monkeypatch.setattr(RDD, "collect", counted)
    chosen = [of(store, "a"), of(store, ODD)]
    whole = estimate(None, store, chosen)
    monkeypatch.setattr("spark_replay.replay.estimate.slices", lambda files: [(one,) for one in files])
    assert estimate(spark, store, chosen) == whole
    assert sum(len(one.files) for one in chosen) == 5
    assert received == [2]


def test_an_estimate_counts_updates_and_keys_of_the_range(spark: SparkSession, store: ArchiveStore) -> None:
    found = estimate(spark, store, [of(store, "a", 1), of(store, ODD), ShardFiles("none", ())])
    assert list(found) == ["a", ODD, "none"]
    size = sum(entry.bytes for entry in of(store, "a").files)
    assert found["a"] == Estimate("a", 10, size * 10 // 11, 5)
    assert (found[ODD].updates, found[ODD].keys) == (5, 2)
    assert found["none"] == Estimate("none", 0, 0, 0)
