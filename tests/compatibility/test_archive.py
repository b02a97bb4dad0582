"""An archive of the release before: every version of the manifests, data files, one that compaction made, and an
accepted gap."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_replay.archive.layout import manifest_path
from spark_replay.archive.manifest import KnownLoss, manifest_from_json
from spark_replay.archive.reader import open_file
from spark_replay.archive.store import ArchiveStore, open_store
from spark_replay.archive.verify import verify
from tests.support.archives import FIRST_US, Change, gone, manifest_of, marker_at, put, row, tx, write_archive
from wormhole.model.values import Op

ADA, BOB = (1, "Ada", "Łódź", 7), (2, "Bob", None, 9)
ROWS: dict[str, list[tuple[int, int, bool, str, str, bool, Change]]] = {
    # number and index of the transaction, whether it ends there, operation, table, whether it has a commit time, update
    "a": [
        (1, 0, False, "upsert", "default", True, put(b"k1", b"v1")),
        (1, 1, True, "upsert", "default", True, put(b"k2", b"v2")),
        (2, 0, True, "delete", "default", True, gone(b"k1")),
        (3, 0, True, "upsert", "default", True, put(b"k3", b"v3")),
        (4, 0, True, "upsert", "default", True, put(b"k3", b"v4")),
        (5, 0, True, "upsert", "default", True, put(b"k4", b"v4")),
    ],
    "b": [
        (1, 0, False, "insert", "shop.customers", True, row(Op.INSERT, ADA)),
        (1, 1, True, "insert", "shop.customers", True, row(Op.INSERT, BOB)),
        (2, 0, True, "update", "shop.customers", False, row(Op.UPDATE, (3, *ADA[1:]), ADA)),
        (3, 0, True, "delete", "shop.customers", True, row(Op.DELETE, None, BOB)),
    ],
}


@pytest.fixture
def store(before: Path) -> ArchiveStore:
    return open_store(str(before / "archive"), "orders", copy="main")


@pytest.mark.parametrize("shard", ["a", "b"])
def test_every_row_is_read(store: ArchiveStore, shard: str) -> None:
    found = []
    for entry in manifest_of(store, shard).files:
        with open_file(store, shard, entry) as file:
            file.check()
            found += [one for batch in file.batches() for one in batch.to_pylist()]
    expected = [
        {
            "tx_source": f"source-{shard}",
            "tx_number": number,
            "tx_index": index,
            "ends_tx": ends,
            "op": op,
            "table": table,
            "committed_at": datetime.fromtimestamp(FIRST_US // 1_000_000 + number, UTC) if timed else None,
            "schema_id": int.from_bytes(change.schema.id.to_bytes(8, "big"), "big", signed=True),
            "update": change.encoded(),
        }
        for number, index, ends, op, table, timed, change in ROWS[shard]
    ]
    assert [{name: one[name] for name in expected[0]} for one in found] == expected


def test_the_manifest_says_what_it_said(store: ArchiveStore) -> None:
    merged, third, last = manifest_of(store, "a").files
    assert merged.name.startswith("merged-")
    assert [one.name for one in (third, last)] == ["000001-000003.parquet", "000002-000005.parquet"]
    assert (merged.rows, merged.merged, merged.begin, merged.end) == (4, 2, marker_at(0), marker_at(3))
    assert (merged.first_us, merged.last_us) == (FIRST_US + 1_000_000, FIRST_US + 3_000_000)
    assert (merged.ops, merged.tables) == ({"upsert": 3, "delete": 1}, {"default": 4})
    assert merged.schemas == {"68b7556e2085c8a3": "default"}
    whole = manifest_of(store, "a")
    assert (whole.dataset, whole.copy, whole.log, whole.version, whole.epoch) == ("orders", "main", "a", 5, 2)
    assert (whole.begin, whole.end, whole.whole, whole.losses) == (marker_at(0), marker_at(5), True, ())
    gap = manifest_of(store, "b")
    assert (gap.version, gap.epoch, gap.whole, gap.end) == (3, 3, False, marker_at(9, "b"))
    assert gap.losses == (KnownLoss(marker_at(9, "b"), "the log no longer holds it"),)
    assert [(one.ops, one.key_changes) for one in gap.files] == [({"insert": 2}, 0), ({"update": 1, "delete": 1}, 1)]


@pytest.mark.parametrize(
    ("shard", "ends", "rows"), [("a", [2, 3, 4, 4, 5], [3, 4, 5, 5, 6]), ("b", [1, 3, 9], [2, 4, 4])]
)
def test_every_earlier_version_of_a_manifest_is_read(
    store: ArchiveStore, before: Path, shard: str, ends: list[int], rows: list[int]
) -> None:
    for version, (end, count) in enumerate(zip(ends, rows, strict=True), 1):
        path = before / "archive" / manifest_path(shard, version)
        found = manifest_from_json(path.read_bytes(), str(path))
        assert (found.version, found.end) == (version, marker_at(end, shard))
        read = 0
        for entry in found.files:
            with open_file(store, shard, entry) as file:
                file.check()
                read += sum(batch.num_rows for batch in file.batches())
        assert read == count


def test_the_archive_is_whole_and_goes_on(store: ArchiveStore, before: Path) -> None:
    report = verify(store, deep=True)
    assert (report.problems, report.shards, report.files, report.rows) == ([], 2, 5, 10)
    assert report.unnamed == 2
    write_archive(before / "archive", {"a": [[tx(put(b"k5", b"v5"))]]}, epoch=3)
    assert (manifest_of(store, "a").version, manifest_of(store, "a").end) == (6, marker_at(6))
    assert verify(store, deep=True).problems == []


def test_an_archive_with_a_checkpoint_is_whole_and_goes_on(before: Path) -> None:
    folder = before / "archive_checkpoints"
    store = open_store(str(folder), "orders", copy="main")
    head = store.head("a")
    assert head is not None
    assert [(one.name, one.files, one.begin, one.end) for one in head.older] == [
        ("00000000000000000017-4a1259dc37adb7e3.json", 16, marker_at(0).order, marker_at(16).order)
    ]
    assert [one.name for one in head.files] == ["000001-000017.parquet", "000001-000018.parquet"]
    assert [one.end for one in manifest_of(store).files] == [marker_at(number) for number in range(1, 19)]
    report = verify(store, deep=True)
    assert (report.problems, report.files, report.rows, report.unnamed) == ([], 18, 18, 0)
    write_archive(folder, {"a": [[tx(put(b"more", b"v"))] for _ in range(16)]}, epoch=2)
    newer = store.head("a")
    assert newer is not None
    assert newer.older[0] == head.older[0], "what was written stays"
    assert len(newer.older) == 2
    assert verify(store, deep=True).problems == []
