"""When the next snapshot cannot be made from the previous one; on Spark: tests/property/test_rolling_snapshot.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark_replay.archive.manifest import KnownLoss, Manifest
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.tables.about import SnapshotAbout, SnapshotShard, SnapshotTable
from spark_replay.tables.rolling import lost_after, select_since
from tests.support.archives import CUSTOMERS, KEYS, marker_at, present, put, row, tx, write_archive
from wormhole.model.errors import ReplayError
from wormhole.model.position import LogPosition
from wormhole.model.values import Op


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
        (replace(snapshot(a=2, b=1), continues=False), Asked(), "the snapshot in /s is of an earlier release"),
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
