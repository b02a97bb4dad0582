"""What was archived comes back as the pieces of log that it was, and batches become rows."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Mapping
from itertools import cycle, islice
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from spark_replay.archive.arrays import ends_of, values_of
from spark_replay.archive.columns import SCHEMA, place_bytes
from spark_replay.archive.reader import DataFile, segments_of, upto
from spark_replay.archive.rows import Rows
from spark_replay.archive.store import ArchiveStore
from tests.support.archives import (
    CUSTOMERS,
    KEYS,
    Change,
    Tx,
    gone,
    manifest_of,
    marker_at,
    put,
    row,
    segments,
    tx,
    updates_of,
    write_archive,
)
from tests.support.hot import compiled, forms, interpreted
from tests.support.seed import examples
from wormhole.model.errors import ArchiveError, DecodeError
from wormhole.model.segment import Segment
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.body import ParsedBody
from wormhole.wire.rows import entry
from wormhole.wire.update import Update

# --- reader ---


MANY = [
    tx(put(b"k1", b"v1"), put(b"k2", b"v2")),
    tx(gone(b"k1")),
    tx(*(put(b"%d" % i, b"v" * 40) for i in range(20)), pieces=4),
    tx(row(Op.INSERT, (1, "Ann", None, 1 << 63)), row(Op.UPDATE, (2, UNAVAILABLE, "Rome", 0), (1, "Ann", None, 0))),
    tx(put(b"k3", b""), at_us=0),
]


def updates(found: list[Segment], shard: str = "a") -> list[tuple[object, ...]]:
    """Everything that a subscriber would be told of them."""
    return [seen(update) for segment in found if segment.runs for update in updates_of(segment, shard)]


def seen(update: Update) -> tuple[object, ...]:
    return (
        update.id, update.op, update.table, update.key, update.old_key, update.before, update.after, update.position,
        update.in_unfinished, update.ends_transaction, update.committed_at,
    )  # fmt: skip


def opened(store: ArchiveStore, shard: str = "a", file: int = 0) -> DataFile:
    name = manifest_of(store, shard).files[file].name
    return DataFile(store.open_data(shard, name), name)


@pytest.mark.parametrize("row_group", [1, 300, 8 << 20])
@pytest.mark.parametrize("limit", [1, 200, 1 << 20])
def test_what_is_read_is_what_was_written(tmp_path: Path, row_group: int, limit: int) -> None:
    with opened(write_archive(tmp_path / "x", {"a": [MANY]}, row_group=row_group)) as file:
        found = list(file.segments(limit=limit))
    assert updates(found) == updates(segments("a", MANY))
    assert [one.marker for one in found if one.marker][-1] == marker_at(5, at_us=0)
    assert [a.end for a in found[:-1]] == [b.begin for b in found[1:]]


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 4), st.booleans()).map(
            lambda of: tx(*(put(b"%d" % i, b"v" * (7 * i)) for i in range(of[0])), pieces=of[1], marked=of[2])
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 400),
    st.integers(1, 2000),
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, transactions: list[Tx], limit: int, row_group: int
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    with opened(write_archive(folder, {"a": [transactions]}, row_group=row_group)) as file:
        found = list(file.segments(limit=limit))
        markers = file.footer.markers
    assert updates(found) == updates(segments("a", transactions))
    before = 0  # updates up to each marker: all that the log has before it, and nothing behind
    for segment in found:
        before += sum(run.updates for run in segment.runs.values())
        if segment.marker is not None:
            assert segment.marker in markers
            number = int(segment.marker.delivered)
            assert before == sum(len(one.changes) for one in transactions[:number])


def test_a_part_between_markers(tmp_path: Path) -> None:
    with opened(write_archive(tmp_path / "x", {"a": [MANY]}, row_group=200)) as file:
        found = list(file.segments(marker_at(1), marker_at(3)))
        assert updates(found) == updates(segments("a", MANY))[2:23]
        assert [one.marker.order for one in found if one.marker][-1] == marker_at(3).order
        assert updates(list(file.segments(marker_at(5, at_us=0)))) == []


def test_row_groups_outside_are_not_read(tmp_path: Path) -> None:
    transactions = [tx(put(b"%d" % i, b"v" * 100)) for i in range(30)]
    with opened(write_archive(tmp_path / "x", {"a": [transactions]}, row_group=1)) as file:
        read: list[int] = []
        real = file._file.read_row_group
        file._file.read_row_group = lambda group, **how: read.append(group) or real(group, **how)  # type: ignore[func-returns-value]
        rows = sum(batch.num_rows for batch in file.batches(upto(marker_at(10)), upto(marker_at(12)), ("key",)))
    assert rows == 2
    assert read == [10, 11]


def test_rows_as_spark_gives_them(tmp_path: Path) -> None:
    with opened(write_archive(tmp_path / "x", {"a": [MANY]})) as file:
        schemas = file.footer.schemas
        (batch,) = file.batches()
    plain = pa.schema(
        [
            (field.name, pa.string() if pa.types.is_dictionary(field.type) else pa.binary() if field.name == "place" else field.type)  # noqa: E501
            for field in SCHEMA
        ]
    )  # fmt: skip
    found = list(
        segments_of([batch.cast(plain)], shard="a", schema_of=schemas.__getitem__, begin=marker_at(0).order, limit=100)
    )
    assert updates(found) == updates(segments("a", MANY))


def test_rows_that_stand_for_themselves(tmp_path: Path) -> None:
    with opened(write_archive(tmp_path / "x", {"a": [MANY]})) as file:
        (batch,) = file.batches()
        kept = batch.take(pa.array([0, 2, 5, 22, 23]))
        found = list(
            segments_of(
                [kept], shard="a", schema_of=file.footer.schemas.__getitem__, begin=marker_at(0).order, whole=True
            )
        )
    told = updates(found)
    everything = updates(segments("a", MANY))
    assert [one[0] for one in told] == [everything[i][0] for i in (0, 2, 5, 22, 23)]
    assert all(one[9] for one in told)


def test_a_file_of_nothing_but_markers(tmp_path: Path) -> None:
    with opened(write_archive(tmp_path / "x", {"a": [[tx(), tx()]]})) as file:
        (segment,) = file.segments()
        assert not list(file.batches())
    assert segment.marker == marker_at(2)
    assert not segment.runs


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"tx_source", b"tx_\xffourc\xff"),  # names of columns that are no text
        lambda data: data[:40] + bytes(100) + data[140:],
    ],
)
def test_a_file_that_is_damaged_within(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    store = write_archive(tmp_path / "x", {"a": [[tx(*(put(b"%d" % i, bytes([i])) for i in range(200)))]]})
    path = Path(store.data_path("a", manifest_of(store).files[0].name))
    path.write_bytes(damage(path.read_bytes()))
    with (
        pytest.raises(ArchiveError, match=r"cannot be read as a file of the archive|is damaged"),
        opened(store) as file,
    ):
        list(file.batches())


# --- rows ---


SCHEMAS = {schema.id: schema for schema in (KEYS, CUSTOMERS)}


def batches_of_updates(*transactions: tuple[Change, ...], pieces: int = 1) -> list[list[Update]]:
    """What a subscriber is told of them, batch by batch."""
    return [updates_of(piece) for piece in segments("a", [tx(*changes, pieces=pieces) for changes in transactions])]


def taken(batches: list[list[Update]]) -> list[dict[str, object]]:
    rows = Rows()
    for batch in batches:
        rows.add(batch)
    assert len(rows) == sum(map(len, batches))
    found = rows.take()
    assert found.schema == SCHEMA
    assert len(rows) == rows.size == 0
    listed: list[dict[str, object]] = found.to_pylist()
    return listed


def wanted(update: Update) -> Mapping[str, object]:
    source, _, number = update.transaction.id.rpartition(":")
    return {
        "place": place_bytes(update.position, update.in_unfinished, update.index),
        "tx_source": source,
        "tx_number": int(number),
        "tx_index": update.index,
        "ends_tx": update.ends_transaction,
        "committed_at": update.committed_at,
        "op": update.op.value,
        "table": update.table,
    }


CHANGES = st.one_of(
    st.builds(put, st.binary(min_size=1, max_size=4), st.binary(max_size=20)),
    st.builds(gone, st.binary(min_size=1, max_size=4)),
    st.builds(lambda id_: row(Op.UPDATE, (id_ + 1, UNAVAILABLE, None, 0), (id_, "x", None, 0)), st.integers(0, 99)),
)


@given(st.lists(st.lists(CHANGES, min_size=1, max_size=6).map(tuple), min_size=1, max_size=5), st.integers(1, 3))
@examples(100)
def test_rows_say_what_updates_say(transactions: list[tuple[Change, ...]], pieces: int) -> None:
    batches = batches_of_updates(*transactions, pieces=pieces)
    flat = [update for batch in batches for update in batch]
    found = taken(batches)
    assert [{name: one[name] for name in wanted(flat[0])} for one in found] == [wanted(update) for update in flat]
    changes = [change for transaction in transactions for change in transaction]
    assert [one["update"] for one in found] == [change.encoded() for change in changes]
    assert [one["old_key"] is not None for one in found] == [bool(change.old_key) for change in changes]
    assert [one["partial"] for one in found] == [UNAVAILABLE in change.after for change in changes]
    places = [one["place"] for one in found]
    assert places == sorted(set(places))  # type: ignore[type-var]


@given(
    st.lists(st.lists(CHANGES, min_size=1, max_size=6).map(tuple), min_size=1, max_size=5),
    st.integers(1, 3),
    st.lists(st.integers(1, 7), min_size=1),
    st.sets(st.integers(0, 30)),
)
@examples(100)
def test_parts_of_batches_and_several_together(
    transactions: list[tuple[Change, ...]], pieces: int, sizes: list[int], without: set[int]
) -> None:
    """A handler gets a part of a batch where a change of a schema or a failure divides it."""
    flat = [update for batch in batches_of_updates(*transactions, pieces=pieces) for update in batch]
    flat = [update for at, update in enumerate(flat) if at not in without]
    rest, parts = iter(flat), []
    for size in cycle(sizes):
        if not (part := list(islice(rest, size))):
            break
        parts.append(part)
    found = taken(parts)
    assert [{name: one[name] for name in wanted(update)} for one, update in zip(found, flat, strict=True)] == [
        wanted(update) for update in flat
    ]


def test_numbers_of_64_bits_come_back() -> None:
    most = (1 << 64) - 1
    body = ParsedBody(
        (put(b"k", b"v").encoded(),), (KEYS.id,), (), (), 0, ("s",), (), (most,), 1, (1,), (1,), (0,), (1,)
    )
    rows = Rows()
    rows.add_body(body, SCHEMAS.__getitem__)
    (found,) = rows.take().to_pylist()
    assert found["tx_number"] & most == most
    assert found["schema_id"] & most == KEYS.id
    assert found["committed_at"] is None


def test_what_was_too_large_is_counted() -> None:
    rows = Rows()
    for batch in batches_of_updates((Change(Op.UPSERT, (b"k",), too_large=True), put(b"l", b"v"))):
        rows.add(batch)
    assert (rows.too_large, rows.schemas) == (1, {KEYS.id: KEYS})
    assert [one["partial"] for one in rows.take().to_pylist()] == [True, False]


@pytest.mark.parametrize("number", [0, 9])
def test_an_operation_of_a_later_release(number: int) -> None:
    body = ParsedBody((b"\x08%c" % number,), (KEYS.id,), (), (), 0, ("s",), (), (1,), 1, (1,), (1,), (0,), (1,))
    rows = Rows()
    with pytest.raises(DecodeError, match=rf"operation {number}.*\[release-too-old\]"):
        rows.add_body(body, SCHEMAS.__getitem__)
    assert not len(rows)


# --- arrays: columns as memory, sliced ones and empty ones too ---


def test_values_of_a_slice() -> None:
    assert list(values_of(pa.array([1, 2, 3, 4], pa.int64()).slice(1, 2), "q")) == [2, 3]
    assert bytes(values_of(pa.array([b"aa", b"bb", b"cc"], pa.binary(2)).slice(1), "B", 2)) == b"bbcc"


def test_no_values() -> None:
    assert list(values_of(pa.array([], pa.int32()), "i")) == []
    data, ends = ends_of(pa.array([b""], pa.binary()))
    assert (bytes(data), list(ends)) == (b"", [0, 0])


def test_ends_of_a_slice_count_from_the_beginning() -> None:
    data, ends = ends_of(pa.array([b"a", b"bc", b"", b"d"], pa.binary()).slice(1, 2))
    assert bytes(data)[ends[0] : ends[-1]] == b"bc"
    assert [b - a for a, b in itertools.pairwise(ends)] == [2, 0]


# --- kernel: the loops of the archive: both forms say the same ---


NAME = "spark_replay.archive.kernel"
FORMS = [interpreted(NAME), *([compiled(NAME)] if "compiled" in forms() else [])]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.data())
@settings(deadline=None)
def test_framed_is_what_a_body_holds(updates: list[bytes], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(updates) - 1))
    stop = data.draw(st.integers(begin, len(updates)))
    ends = array("i", [sum(map(len, updates[:i])) for i in range(len(updates) + 1)])
    for form in FORMS:
        blob, found = form.framed(memoryview(b"".join(updates)), ends, begin, stop)
        assert blob == b"".join(map(entry, updates[begin:stop]))
        assert list(found) == [sum(len(entry(one)) for one in updates[begin : i + 1]) for i in range(begin, stop)]
