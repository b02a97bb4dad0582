"""Archive rows as columns, without Spark, and the files of a snapshot that hold them."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from spark_replay.archive.checksums import SummingSink
from spark_replay.archive.open_storage import open_storage
from spark_replay.selected import PLAIN
from spark_replay.tables import updates
from spark_replay.tables.rows import Decoding, decoding
from spark_replay.tables.schemas import by_signed_id
from spark_replay.tables.updates import (
    TableRows,
    UpdatesFile,
    WrittenFile,
    file_from_json,
    file_rows,
    file_to_json,
    write_rows,
)
from tests.unit.spark_replay.tables.row_by_row import RowByRow
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, UsageError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import encode_row

# --- rows: archive rows as columns, without Spark: what comes out for each kind of change ---


ID, N = Column("id", "int"), Column("n", "uint")
TABLE = Schema("shop.t", (ID,), (ID, N, Column("price", "decimal"), Column("raw", "bytes")))
OLD = Schema("shop.t", (ID,), (ID, Column("n", "int"), Column("gone", "text")))
BARRIER = Schema("shop.t", (), ())
STORE = Schema("default", (Column("key", "bytes"),), (Column("value", "bytes"),))
AT = datetime(2026, 5, 1, tzinfo=UTC)


def batch(*updates: tuple[Schema, bytes], **kept: list[Any]) -> pa.RecordBatch:
    signed = {schema: id_ for id_, schema in by_signed_id([schema for schema, _ in updates]).items()}
    columns = {
        "shard": ["db1"] * len(updates),
        "place": [i.to_bytes(4, "big") for i in range(len(updates))],
        "tx_source": ["u"] * len(updates),
        "tx_number": pa.array([-1] * len(updates), pa.int64()),
        "tx_index": pa.array(range(len(updates)), pa.int32()),
        "op": ["x"] * len(updates),
        "committed_at": pa.array([AT] * len(updates), pa.timestamp("us", tz="UTC")),
        "schema_id": pa.array([signed[schema] for schema, _ in updates], pa.int64()),
        "update": [update for _, update in updates],
        **kept,
    }
    return pa.RecordBatch.from_pydict(columns)


def read(plan: Decoding, *updates: tuple[Schema, bytes], **kept: list[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [row for one in plan.batches([batch(*updates, **kept)]) for row in one.to_pylist()]
    return found


def update(schema: Schema, op: Op, key: Value, *after: Value, **more: Any) -> tuple[Schema, bytes]:
    return schema, encode_row(op, (key,), after=after, **more)


def test_values_are_typed_and_what_is_not_in_the_log_is_no_null() -> None:
    plan = decoding([OLD, BARRIER, TABLE], "shop.t")
    big, partial, large, old = read(
        plan,
        update(TABLE, Op.INSERT, 1, 1, (1 << 64) - 1, Decimal("0.10"), None),
        update(TABLE, Op.UPDATE, 1, 1, UNAVAILABLE, None, b"\xff"),
        update(TABLE, Op.UPDATE, 6, too_large=True),
        update(OLD, Op.INSERT, 3, 3, -7, "was"),
        _mine=["m"] * 4,
    )
    assert (old["id"], old["n"], old["gone"], old["price"]) == (3, Decimal(-7), "was", None)
    assert (large["id"], large["_mine"]) == (6, "m")
    assert [one["_unavailable"] for one in (old, large)] == [["price", "raw"], ["n", "price", "raw", "gone"]]
    assert (big["id"], big["n"], big["price"], big["raw"]) == (1, Decimal((1 << 64) - 1), "0.10", None)
    assert big["_unavailable"] == ["gone"]  # a column that the table had before
    assert (partial["n"], partial["price"], partial["raw"]) == (None, None, b"\xff")
    assert partial["_unavailable"] == ["n", "gone"]
    assert (big["_tx"], big["_index"], big["_shard"], big["_committed_at"]) == (f"u:{(1 << 64) - 1}", 0, "db1", AT)


def test_a_delete_has_its_key_and_a_truncate_nothing() -> None:
    gone, all_ = read(
        decoding([TABLE, BARRIER], "shop.t"),
        update(TABLE, Op.DELETE, 4, before=(4, 1, None, None)),
        (BARRIER, encode_row(Op.TRUNCATE, ())),
    )
    assert (gone["id"], gone["n"], gone["_unavailable"]) == (4, None, None)
    assert (all_["id"], all_["_unavailable"]) == (None, None)


def test_a_key_change_and_the_row_before() -> None:
    (moved,) = read(
        decoding([TABLE], "shop.t", before=True),
        update(TABLE, Op.UPDATE, 5, 5, 1, None, None, old_key=(4,), before=(4, UNAVAILABLE, None, b"")),
    )
    assert moved["_old_key"] == {"id": 4}
    assert moved["_before"] == {"id": 4, "n": None, "price": None, "raw": b""}
    assert moved["_before_unavailable"] == ["n"]


def test_fields_of_a_stores_values() -> None:
    plan = decoding(
        [STORE], "default", fields={"city": "text", "customer.id": "int", "tags": "text"}, value_format="json"
    )
    good, bad, null, broken, operand, end = read(
        plan,
        update(STORE, Op.UPSERT, b"a", json.dumps({"city": "Ulm", "customer": {"id": 7}}).encode()),
        update(STORE, Op.UPSERT, b"b", json.dumps({"city": 5, "customer": {"id": "x"}, "tags": [1]}).encode()),
        update(STORE, Op.UPSERT, b"c", b'{"city": null}'),
        update(STORE, Op.UPSERT, b"d", b"{"),
        update(STORE, Op.MERGE, b"e", b"{"),
        update(STORE, Op.DELETE_RANGE, b"f", key_end=(b"g",)),
    )
    assert (good["city"], good["customer_id"], good["tags"], good["_bad_value"]) == ("Ulm", 7, None, None)
    assert (good["key"], good["value"][:1]) == (b"a", b"{")
    assert (bad["city"], bad["customer_id"]) == ("5", None)
    assert bad["_bad_value"] == "customer.id: 'x' is no int; tags is a list or an object"
    assert (null["city"], null["_bad_value"]) == (None, None)
    assert "no valid JSON" in broken["_bad_value"]
    assert operand["_bad_value"] is None
    assert (end["key"], end["_key_end"]) == (b"f", {"key": b"g"})


def test_a_value_that_does_not_fit_the_wanted_type_is_reported() -> None:
    plan = decoding([TABLE], "shop.t", types={"price": "decimal(4,1)"})
    with pytest.raises(UsageError, match=r"column price of shop\.t: 0\.15 does not fit"):
        read(plan, update(TABLE, Op.INSERT, 1, 1, 1, Decimal("0.15"), None))


def test_a_schema_that_came_later_ends_the_reading() -> None:
    with pytest.raises(ArchiveError, match="was not known when reading began"):
        read(decoding([TABLE], "shop.t"), update(OLD, Op.INSERT, 1, 1, 1, ""))


FIELDS = {"fields": {"a": "text"}}


@pytest.mark.parametrize(
    ("schema", "table", "given", "told"),
    [
        (TABLE, "shop.x", {}, r"no table shop\.x"),
        (TABLE, "shop.t", {**FIELDS, "value_format": "json"}, "columns of their own"),
        (STORE, "default", FIELDS, "it is not known what the values hold"),
        (STORE, "default", {**FIELDS, "value_format": "xml"}, "value_format must be"),
    ],
)
def test_wrong_requests(schema: Schema, table: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        decoding([schema], table, **given)


@pytest.mark.parametrize(
    ("row", "told"),
    [(b"\x08\x63", "no valid row: it has an operation that this release"), (b"\xff", "no valid")],
)
def test_bytes_that_this_release_does_not_know_end_the_reading(row: bytes, told: str) -> None:
    with pytest.raises(ArchiveError, match=told):
        read(decoding([TABLE], "shop.t"), (TABLE, row))


VALUES: dict[str, st.SearchStrategy[Value]] = {
    "bytes": st.binary(max_size=6),
    "text": st.text(max_size=6),
    "int": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint": st.integers(0, (1 << 64) - 1),
    "double": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=2) | st.just(Decimal("Infinity")),
    "entries": st.dictionaries(st.binary(max_size=2), st.binary(max_size=2), max_size=2),
}


@st.composite
def archived(draw: st.DrawFn) -> tuple[list[Schema], list[tuple[Schema, bytes]]]:
    """Rows of up to three schemas of a table; few values are of another type than their column."""

    def schema() -> Schema:
        names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True))
        own = tuple(Column(name, draw(st.sampled_from([*VALUES]))) for name in names)
        key = draw(st.sampled_from([(), own[:1], (Column("id", "int"),), (own[0], Column("id", "int"))]))
        return Schema("shop.t", key, own)

    def image(columns: tuple[Column, ...]) -> list[Value]:
        def value(column: Column) -> Value:
            kind = draw(st.sampled_from([*VALUES])) if draw(st.integers(0, 40)) == 0 else column.type
            return draw(st.one_of(VALUES[kind], VALUES[kind], st.none(), st.just(UNAVAILABLE)))

        return [value(column) for column in columns]

    schemas = [schema() for _ in range(draw(st.integers(1, 3)))]
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        one, op = draw(st.sampled_from(schemas)), draw(st.sampled_from([*Op]))
        after = op not in {Op.DELETE, Op.TRUNCATE, Op.DELETE_RANGE} and draw(st.booleans())
        row = encode_row(
            op,
            image(one.key) if op is not Op.TRUNCATE else (),
            after=image(one.columns) if after else (),
            before=image(one.columns) if draw(st.booleans()) else (),
            old_key=image(one.key) if draw(st.booleans()) else (),
            key_end=image(one.key) if draw(st.booleans()) else (),
            too_large=draw(st.booleans()),
        )
        rows.append((one, row))
    return schemas, rows


def shown(read_it: Callable[[], list[dict[str, Any]]]) -> Any:
    try:
        return sorted(repr(row) for row in read_it())
    except (UsageError, pa.ArrowInvalid, OverflowError) as error:
        return type(error)


@settings(deadline=None)
@given(archived(), st.booleans())
def test_columns_hold_what_a_row_at_a_time_gives(given: Any, before: bool) -> None:
    schemas, rows = given
    plan = decoding(schemas, "shop.t", before=before)
    rows_of = RowByRow(plan)
    assert shown(lambda: read(plan, *rows)) == shown(lambda: rows_of.read(batch(*rows)).to_pylist())


@pytest.mark.parametrize("text", ["1E+3", "007", "+1", "-0.50", "NaN"])
def test_a_decimal_is_written_as_ever(text: str) -> None:
    row = encode_row(Op.INSERT, (1,), after=(1, 2, Decimal("1.50"), None)).replace(b"1.50", text.encode().ljust(4)[:4])
    row = row if len(text) == 4 else encode_row(Op.INSERT, (1,), after=(1, 2, Decimal(text), None))
    plan = decoding([TABLE], "shop.t")
    rows_of = RowByRow(plan)
    assert read(plan, (TABLE, row)) == rows_of.read(batch((TABLE, row))).to_pylist()


# --- updates ---


def plain(number: int, shard: str, table: str) -> dict[str, Any]:
    texts = {"tx_source": "s", "op": "insert", "table": table, "shard": shard}
    numbers = {"tx_number": number, "tx_index": 0, "schema_id": 1, "ends_tx": True, "partial": False}
    return {"place": b"%025d" % number, "key": b"k", "old_key": None, "update": b"u%d" % number, **texts, **numbers}


def written(folder: Path, rows: list[dict[str, Any]]) -> WrittenFile:
    made = {**PLAIN.empty_table().to_pydict(), **{name: [one.get(name) for one in rows] for name in PLAIN.names}}
    batches = pa.table(made, schema=PLAIN).to_batches(max_chunksize=5)
    return write_rows(open_storage(str(folder)), "updates", PLAIN, batches)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UpdatesFile:
    """A file of twenty rows in four row groups."""
    monkeypatch.setattr(updates, "_ROW_GROUP", 1)
    rows = [plain(number, shard, table) for shard in ("a", "b") for table in ("t", "u") for number in range(5)]
    return written(tmp_path, rows).file


def read_file(folder: Path, file: UpdatesFile, **only: str) -> list[dict[str, Any]]:
    return [one for batch in file_rows(open_storage(str(folder)), file, **only) for one in batch.to_pylist()]


def test_what_a_file_holds_of_each_table(tmp_path: Path) -> None:
    rows = [plain(number, "a", table) for table in ("t", "u") for number in range(10)]
    found = written(tmp_path, [*rows, {**plain(1, "a", "t"), "partial": True, "schema_id": -2}])
    assert found.rows == 21
    assert found.tables == {
        "t": TableRows(11, 1, frozenset({1, (1 << 64) - 2})),
        "u": TableRows(10, 0, frozenset({1})),
    }


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    whole = written(tmp_path, [plain(1, "a", "t")])

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pq.read_table(tmp_path / whole.file.path).to_batches()
        raise ValueError("a bad row")

    with pytest.raises(ValueError, match="a bad row"):
        write_rows(open_storage(str(tmp_path)), "updates", PLAIN, batches())
    assert [f"updates/{path.name}" for path in (tmp_path / "updates").iterdir()] == [whole.file.path]


def test_a_storage_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(sink: SummingSink, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SummingSink, "write", full)
    with pytest.raises(ArchiveUnavailable, match=r"cannot write .*updates/.*\.parquet: .*No space left"):
        written(tmp_path, [plain(1, "a", "t")])
    assert list((tmp_path / "updates").iterdir()) == []


def test_a_file_has_the_columns_that_it_is_to_have(tmp_path: Path) -> None:
    shape = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("n", pa.int64())])
    hour = pa.array([3_600_000_000], pa.timestamp("us", tz="Europe/Rome"))
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int32()), "more": ["x"], "at": hour})
    found = write_rows(open_storage(str(tmp_path)), "t", shape, [batch])
    assert (found.rows, found.tables) == (1, {})
    assert pq.read_table(tmp_path / found.file.path) == pa.table([hour, [1]], schema=shape)
    empty = write_rows(open_storage(str(tmp_path)), "t", shape, ())
    assert pq.read_schema(tmp_path / empty.file.path) == shape


def test_rows_of_a_shard_or_of_a_table(tmp_path: Path, file: UpdatesFile) -> None:
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == 4
    assert file_from_json(file_to_json(file)) == file
    assert len(read_file(tmp_path, file)) == 20
    assert [(one["shard"], one["table"]) for one in read_file(tmp_path, file, shard="b")] == [("b", "t")] * 5 + [
        ("b", "u")
    ] * 5
    assert [one["shard"] for one in read_file(tmp_path, file, table="u")] == ["a"] * 5 + ["b"] * 5
    assert read_file(tmp_path, file, shard="c") == []


def test_a_flipped_bit_is_an_error_that_names_the_file(tmp_path: Path, file: UpdatesFile) -> None:
    path, chance = tmp_path / file.path, Random(3)
    whole = path.read_bytes()
    for _ in range(100):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with pytest.raises(ArchiveError, match=rf"{path.name} .*\[snapshot-unusable\]") as caught:
            read_file(tmp_path, file)
        assert "write the snapshot anew" in str(caught.value.hint)
    path.write_bytes(whole + b"x")
    with pytest.raises(ArchiveError, match=r"snapshot\.json records"):
        read_file(tmp_path, file)
