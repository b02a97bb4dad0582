"""Rows that a backfill read, in the archive: none is passed over, and everything that reads them puts them in their
place."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_replay.archive.columns import place_bytes, read_number, read_place
from spark_replay.archive.compact import Group, merge
from spark_replay.archive.manifest import FileEntry
from spark_replay.archive.ranges import Asked, files_between, range_of
from spark_replay.archive.reader import open_file
from spark_replay.archive.shard_writer import ShardWriter
from spark_replay.archive.store import ArchiveStore
from spark_replay.archive.verify import verify
from spark_replay.audit.archived import Selecting, _Selected
from spark_replay.frames import ShardFiles, schemas_of
from spark_replay.replay.delivery import SentPiece
from spark_replay.replay.keyed import last_changes, rows_of
from spark_replay.replay.latest import net_op
from spark_replay.replay.pieces import Formats, Selector, log_pieces
from spark_replay.selected import plain_rows
from spark_replay.tables.versions import Barriers, RowChange, versions
from tests.support.archives import KEYS, manifest_of, marker_at, put, segments, tx, updates_of
from tests.support.archives import Change as Written
from tests.support.chunks import chunk, progressed
from wormhole.formats import ValueFormats
from wormhole.model.position import LogPosition
from wormhole.model.values import Op
from wormhole.wire.body import parse_body
from wormhole.wire.rows import decode_row, encode_row, op_of, values_of
from wormhole.wire.update import Batch, Update

ALL = Selector("", "", ValueFormats())


@pytest.fixture
def writer(store: ArchiveStore) -> ShardWriter:
    return ShardWriter.claim(store, "a", 1, marker_at(0))


def log(number: int, *changes: Written) -> list[Update]:
    (piece,) = segments("a", [tx(*changes)], number)
    return updates_of(piece)


def ids(pieces: Iterator[SentPiece]) -> list[str]:
    found = []
    for piece in pieces:
        if piece.body is not None:
            updates = Batch(parse_body(piece.body.data), "a", 1, False, {KEYS.id: KEYS}.__getitem__).updates()
            counted = any(update.op is not Op.READ for update in updates)
            assert bool(piece.body.tallies) == counted, "existing rows are in no delivery count"
            found += [update.id.removeprefix("source-") for update in updates]
    return found


def archived(store: ArchiveStore, begin: int = 0, until: int | None = None) -> list[str]:
    """Ids in the archive, in order; nothing is wrong with its files."""
    assert verify(store, deep=True).problems == []
    end = manifest_of(store).end if until is None else marker_at(until)
    return ids(log_pieces(store, "a", marker_at(begin), end, ALL))


def latest(store: ArchiveStore) -> dict[bytes, tuple[str, bytes | None]]:
    """The last change of each key: operation and value."""
    manifest = manifest_of(store)
    chosen = ShardFiles("a", files_between(manifest, manifest.begin, manifest.end), manifest.begin, manifest.end)
    found = {}
    for batch in last_changes(list(rows_of(store, chosen)), schemas_of(store, [chosen])):
        for op, update in zip(batch.column("op").to_pylist(), batch.column("update").to_pylist(), strict=True):
            row = decode_row(update)
            assert op_of(row).value == op
            (key,), after = values_of(row.key), values_of(row.after)
            found[key] = (op, after[0] if after else None)
    return found  # type: ignore[return-value]


def files(store: ArchiveStore) -> list[FileEntry]:
    return list(manifest_of(store).files)


def test_places_of_existing_rows_lie_behind_the_log_and_before_what_follows() -> None:
    at, later = LogPosition(1, 1, 5), LogPosition(1, 1, 6)
    ascending = [
        place_bytes(at, False, 0),
        place_bytes(at, False, (1 << 31) - 1),
        read_place(at, 0),
        read_place(at, 1),
        place_bytes(at, True, 0),
        place_bytes(later, False, 0),
    ]
    assert ascending == sorted(ascending)
    assert [read_number(place) for place in ascending] == [None, None, 0, 1, None, None]


def test_rows_read_where_the_archive_ends_are_not_passed_over(store: ArchiveStore, writer: ShardWriter) -> None:
    """The log is idle: every row is read at the place that is archived already."""
    writer.add(log(1, put(b"k1", b"v1")))
    writer.commit(progressed(1))
    for number in (1, 2):
        writer.add(chunk(1, number, (b"k%d" % number, b"x"), (b"l%d" % number, b"y")))
        end = progressed(1, b"%d" % number)
        writer.mark(end)
        assert writer.last_marker == end
        entry = writer.commit(end)
        assert entry is not None
        assert (entry.begin.order, entry.end.order, entry.ops) == (end.order, end.order, {"read": 2})
    assert manifest_of(store).end.backfill == b"2", "delivery goes on where the backfill came to"
    assert archived(store) == ["a:1:0", "read:1:1:0", "read:1:1:1", "read:1:2:0", "read:1:2:1"]
    assert latest(store) == {
        b"k1": ("upsert", b"x"), b"l1": ("read", b"y"), b"k2": ("read", b"x"), b"l2": ("read", b"y")
    }  # fmt: skip


def test_rows_read_where_the_archive_begins(store: ArchiveStore, writer: ShardWriter) -> None:
    """Nothing was ever written since: the archive's range is empty, and what is in it is not."""
    writer.add(chunk(0, 1, (b"k", b"v")))
    writer.commit(progressed(0, b"1"))
    writer.add(log(1, put(b"l", b"w")))
    writer.commit(progressed(1))
    assert archived(store) == ["read:1:1:0", "a:1:0"]
    assert archived(store, 1) == []
    assert range_of(manifest_of(store), marker_at(0), Asked("earliest", earliest=True), Asked(), lambda _: ()).rows == 2


def test_rows_among_changes_are_in_their_place(store: ArchiveStore, writer: ShardWriter) -> None:
    writer.add(log(1, put(b"k", b"1"), put(b"l", b"1")))
    writer.mark(progressed(1))
    writer.add(chunk(1, 1, (b"k", b"1"), (b"m", b"1")))
    writer.mark(progressed(1, b"a"))
    writer.add(log(2, put(b"k", b"2")))
    writer.mark(progressed(2, b"a"))
    writer.add(chunk(2, 2, (b"l", b"1")))
    writer.mark(progressed(2, b"b"))
    writer.commit(progressed(2, b"b"))
    everything = ["a:1:0", "a:1:1", "read:1:1:0", "read:1:1:1", "a:2:0", "read:1:2:0"]
    assert archived(store) == everything
    assert archived(store, 1) == everything[2:], "rows read at a place count on both sides of it"
    assert archived(store, 0, 1) == everything[:4]
    assert latest(store) == {b"k": ("upsert", b"2"), b"l": ("upsert", b"1"), b"m": ("read", b"1")}
    (entry,) = files(store)
    with open_file(store, "a", entry) as file:
        assert [one.backfill for one in file.footer.markers] == [b"a", b"b"]


def test_another_archiver_goes_on_behind_them(store: ArchiveStore, writer: ShardWriter) -> None:
    writer.add(log(1, put(b"k", b"1")))
    writer.add(chunk(1, 1, (b"k", b"1"), (b"l", b"1")))
    writer.commit(progressed(1, b"a"))
    second = ShardWriter.claim(store, "a", 2, marker_at(0))
    assert second.manifest.end.backfill == b"a"
    second.add(chunk(1, 2, (b"m", b"1")))
    second.commit(progressed(1, b"b"))
    assert archived(store) == ["a:1:0", "read:1:1:0", "read:1:1:1", "read:1:2:0"]


def test_rows_that_come_twice_change_nothing(store: ArchiveStore, writer: ShardWriter) -> None:
    """Their commit was not heard of: their place does not tell that they are archived. They have equal ids."""
    writer.add(log(1, put(b"k", b"1")))
    writer.commit(progressed(1))
    for _ in range(2):
        writer.add(chunk(1, 1, (b"k", b"1"), (b"l", b"1")))
        writer.commit(progressed(1, b"a"))
    writer.add(log(2, put(b"l", b"2")))
    writer.commit(progressed(2))
    writer.add(chunk(1, 1, (b"k", b"1")))
    assert writer.size == 0, "before the end everything is held"
    assert archived(store) == ["a:1:0", *["read:1:1:0", "read:1:1:1"] * 2, "a:2:0"]
    assert latest(store) == {b"k": ("upsert", b"1"), b"l": ("upsert", b"2")}


def test_progress_without_rows_is_kept(store: ArchiveStore, writer: ShardWriter) -> None:
    writer.add(log(1, put(b"k", b"1")))
    writer.commit(progressed(1))
    writer.mark(progressed(1, b"a"))
    assert writer.commit(progressed(1, b"a")) is None
    assert manifest_of(store).end == progressed(1, b"a")
    version = manifest_of(store).version
    assert writer.commit(progressed(1, b"a")) is None
    assert manifest_of(store).version == version, "nothing new"


def test_merged_files_hold_them_in_order(store: ArchiveStore, writer: ShardWriter) -> None:
    writer.add(log(1, put(b"k", b"1")))
    writer.commit(progressed(1))
    for number in (1, 2):
        writer.add(chunk(1, number, (b"k", b"1"), (b"%d" % number, b"1")))
        writer.commit(progressed(1, b"%d" % number))
    writer.add(log(2, put(b"k", b"2")))
    writer.commit(progressed(2))
    before = archived(store)
    merged = merge(store, Group("a", tuple(files(store))))
    assert (merged.state, merged.files) == ("merged", 4)
    assert archived(store) == before
    assert latest(store)[b"k"] == ("upsert", b"2")


def test_a_replay_offers_nothing_of_the_archivers_own_backfill(store: ArchiveStore, writer: ShardWriter) -> None:
    writer.add(log(1, put(b"k", b"1")))
    writer.mark(progressed(1, b"archiver"))
    writer.add(log(2, put(b"k", b"2")))
    writer.commit(progressed(2, b"archiver"))
    offers = [piece.offer for piece in log_pieces(store, "a", marker_at(0), manifest_of(store).end, ALL)]
    assert {offer.marker.backfill for offer in offers if offer is not None} == {b""}
    stored = progressed(0, b"own")
    range_ = range_of(manifest_of(store), stored, Asked(), Asked(), lambda _: ())
    assert (range_.begin, range_.until) == (stored, progressed(2))


def test_existing_rows_are_not_audited(store: ArchiveStore, writer: ShardWriter) -> None:
    writer.add(log(1, put(b"k", b"1")))
    writer.add(chunk(1, 1, (b"l", b"1")))
    (entry,) = [writer.commit(progressed(1, b"a"))]
    assert entry is not None
    with open_file(store, "a", entry) as file:
        rows = pa.concat_batches([plain_rows(batch, "a") for batch in file.batches()])
    selected = _Selected(Selecting("", (), Formats(), {KEYS.id: KEYS.canonical}))
    assert [row.source for row in selected.rows(rows)] == ["source-a"]


@pytest.mark.parametrize(
    ("first", "last", "net"),
    [
        ("read", "update", "upsert"),
        ("read", "delete", "delete"),
        ("insert", "read", "upsert"),
        ("delete", "read", "upsert"),
        ("read", "read", "upsert"),
    ],
)
def test_what_changes_around_an_existing_row_come_to(first: str, last: str, net: str) -> None:
    assert net_op(first, last) == net


def test_a_version_begins_with_an_existing_row() -> None:
    def change(number: int, op: Op, value: bytes) -> RowChange:
        at = LogPosition(1, 1, number)
        place = read_place(at, 0) if op is Op.READ else place_bytes(at, False, 0)
        after = [] if op is Op.DELETE else [value]
        return RowChange(place, None, op.value, b"k", None, KEYS.id, False, encode_row(op, [b"k"], after=after))

    changes = [change(1, Op.UPSERT, b"1"), change(1, Op.READ, b"2"), change(2, Op.UPSERT, b"3")]
    found = list(versions(changes, Barriers(), {KEYS.id: KEYS}.__getitem__, from_first=True))
    assert [(op_of(decode_row(one.update)), one.ended and one.ended.by) for one in found] == [
        (Op.UPSERT, "read"), (Op.READ, "upsert"), (Op.UPSERT, None)
    ]  # fmt: skip
