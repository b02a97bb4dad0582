"""Offsets of the streaming source, without Spark: nothing lost, nothing twice, whatever became of the files in
between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_replay.archive.columns import place_bytes, read_place
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest
from spark_replay.tables.stream import Piece, next_offset, pieces
from wormhole.model.errors import ArchiveError
from wormhole.model.position import Datamarker, LogPosition


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


def read(found: list[Piece]) -> list[tuple[str, int, int]]:
    return [
        (piece.entry.name, int.from_bytes(piece.after[12:20], "big"), int.from_bytes(piece.until[12:20], "big"))
        for piece in found
    ]


TEN = manifest(*(entry(i, i + 10) for i in range(0, 50, 10)))


def test_a_batch_has_so_many_files_at_most() -> None:
    assert next_offset([TEN], at(0), 2) == at(20)
    assert next_offset([TEN], at(20), 2) == at(40)
    assert next_offset([TEN], at(40), 2) == at(50)
    assert next_offset([TEN], at(50), 2) == at(50)
    assert next_offset([TEN], at(0), None) == at(50)


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


def test_a_query_that_takes_what_is_there_ends_there() -> None:
    assert next_offset([TEN], at(0), None, at(30)) == at(30)
    assert next_offset([TEN], at(30), 4, at(30)) == at(30)
    later = manifest(entry(0, 5), shard="b")
    assert next_offset([TEN, later], at(30), 4, at(30)) == at(30)


def test_a_new_shard_is_read_from_where_it_begins_and_one_that_went_keeps_its_place() -> None:
    new = manifest(entry(3, 5), entry(5, 9), begin=3, shard="b")
    end = next_offset([new], at(50), 1)
    assert end == {"a": "1/1/50", "b": "1/1/5"}
    assert read(pieces([new], at(50), end)) == [("3-5", 3, 5)]


def test_files_that_were_merged_meanwhile_give_the_same_rows() -> None:
    assert read(pieces([TEN], at(10), at(30))) == [("10-20", 10, 30), ("20-30", 10, 30)]
    merged = manifest(entry(0, 20), entry(20, 50))
    assert read(pieces([merged], at(10), at(30))) == [("0-20", 10, 30), ("20-50", 10, 30)]
    assert pieces([merged], at(30), at(30)) == []


def test_a_file_without_rows_is_not_opened() -> None:
    assert read(pieces([manifest(entry(0, 10), entry(10, 20, rows=0))], at(0), at(20))) == [("0-10", 0, 20)]


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
