"""What was archived comes back as the pieces of log that it was, cut where datamarkers lie; files that are no
archive's are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from spark_replay.archive.columns import SCHEMA
from spark_replay.archive.reader import DataFile, segments_of, upto
from spark_replay.archive.store import ArchiveStore
from tests.support.archives import Tx, gone, manifest_of, marker_at, put, row, segments, tx, updates_of, write_archive
from wormhole.model.errors import ArchiveError
from wormhole.model.segment import Segment
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.update import Update

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
