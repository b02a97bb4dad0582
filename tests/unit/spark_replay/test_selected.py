"""What is asked of files and rows: the same rows as when everything is read and then asked, and a file that went is
found in the one that took its place."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_replay.archive.compact import Group, merge
from spark_replay.archive.reader import END
from spark_replay.archive.store import ArchiveStore
from spark_replay.selected import ALL, ColumnCondition, FilePiece, Wanted, piece_rows
from tests.support.archives import CUSTOMERS, FIRST_US, Tx, chunk, gone, manifest_of, put, row, tx, write_archive
from tests.support.seed import SEED
from wormhole.model.errors import ArchiveError
from wormhole.model.values import Op


def everything(store: ArchiveStore) -> list[FilePiece]:
    return [FilePiece(shard, entry, b"", END) for shard in store.shards() for entry in manifest_of(store, shard).files]


def rows(store: ArchiveStore, pieces: Sequence[FilePiece], wanted: Wanted = ALL) -> list[dict[str, Any]]:
    cut = [piece for one in pieces if (piece := wanted.cut(one)) is not None]
    return [row for piece in cut for batch in piece_rows(store, piece, wanted=wanted) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArchiveStore:
    """Two shards, tables that only some files have, transactions in pieces, rows that a backfill read at the borders of
    files, and updates without a time."""

    def of(file: int) -> list[Tx]:
        changes = [tx(put(b"k%d" % i, b"%d" % file), put(b"l", b"v"), pieces=i) for i in (1, 2)]
        if file % 2:
            changes.append(tx(row(Op.INSERT, (file, "Ann", "Rome", 10)), at_us=0))
        return [chunk(2 * file + 1, put(b"r", b"1")), *changes, chunk(2 * file + 2, put(b"s", b"1")), tx(gone(b"k1"))]

    shards = {shard: [of(file) for file in range(5)] for shard in ("a", "b%2F")}
    return write_archive(tmp_path_factory.mktemp("selected") / "archive", shards)


def holds(row_: dict[str, Any], one: ColumnCondition) -> bool:
    """As SQL has it: nothing compares with what is missing."""
    value = row_[one.column]
    if value is None:
        return False
    if one.column == "committed_at":
        value = round(value.timestamp() * 1e6)
    (first, *_) = one.values
    match one.compared:
        case "in":
            return value in one.values
        case "<":
            return bool(value < first)
        case "<=":
            return bool(value <= first)
        case ">":
            return bool(value > first)
    return bool(value >= first)


def some_condition(random_: random.Random, known: list[dict[str, Any]]) -> ColumnCondition:
    column = random_.choice(("shard", "table", "op", "place", "place", "committed_at", "committed_at"))
    values = [one[column] for one in random_.sample(known, 2) if one[column] is not None]
    if column == "committed_at":
        values = [round(one.timestamp() * 1e6) + random_.choice((-1, 0, 0, 1)) for one in values] or [FIRST_US]
    if column == "place":
        values = [random_.choice((one, one[: random_.randrange(25)], one + b"\0", one[:-1] + b"\1")) for one in values]
    if column in ("shard", "table", "op"):
        return ColumnCondition(column, "in", tuple(random_.choice((values, values[:1], ["none"], [*values, "none"]))))
    compared = random_.choice(("in", "<", "<=", ">", ">="))
    return ColumnCondition(column, compared, tuple(values) if compared == "in" else tuple(values[:1]))


def test_asked_of_files_and_rows_is_the_same_as_asked_of_everything(store: ArchiveStore) -> None:
    pieces = everything(store)
    known = rows(store, pieces)
    assert len(known) == 2 * (5 * 7 + 2)
    assert {one["committed_at"] for one in known} > {None}
    random_ = random.Random(SEED)
    rounds, found = int(os.environ.get("WORMHOLE_ROUNDS", "300")), 0
    for _ in range(rounds):
        conditions = tuple(some_condition(random_, known) for _ in range(random_.choice((1, 1, 2, 3))))
        true = [one for one in known if all(holds(one, condition) for condition in conditions)]
        assert rows(store, pieces, Wanted(conditions)) == true, conditions
        found += bool(true)
    assert found > rounds // 6


@pytest.mark.parametrize("compared", ["<", "<=", ">", ">=", "in"])
def test_places_at_the_border_itself(store: ArchiveStore, compared: str) -> None:
    pieces = [piece for piece in everything(store) if piece.shard == "a"]
    known = rows(store, pieces)
    for one in known:
        asked = ColumnCondition("place", compared, (one["place"],))
        assert rows(store, pieces, Wanted((asked,))) == [row_ for row_ in known if holds(row_, asked)]


def test_files_that_hold_nothing_of_it_are_not_chosen(store: ArchiveStore) -> None:
    pieces = everything(store)

    def chosen(*conditions: ColumnCondition) -> list[tuple[str, int]]:
        cut = [piece for one in pieces if (piece := Wanted(conditions).cut(one)) is not None]
        numbers = {piece.entry.name: number % 5 for number, piece in enumerate(pieces)}
        return [(piece.shard, numbers[piece.entry.name]) for piece in cut]

    assert chosen(ColumnCondition("shard", "in", ("a",))) == [("a", number) for number in range(5)]
    assert chosen(ColumnCondition("table", "in", (CUSTOMERS.table, "x")), ColumnCondition("shard", "in", ("a",))) == [
        ("a", 1),
        ("a", 3),
    ]
    assert chosen(ColumnCondition("op", "in", (Op.TRUNCATE.value,))) == []
    second = [piece for piece in pieces if piece.shard == "a"][1].entry
    times = (
        ColumnCondition("committed_at", ">=", (second.first_us,)),
        ColumnCondition("committed_at", "<=", (second.last_us,)),
    )
    assert chosen(*times, ColumnCondition("shard", "in", ("a",))) == [("a", 1)]
    timeless = replace(pieces[0], entry=replace(pieces[0].entry, first_us=0, last_us=0))
    assert Wanted(times).cut(timeless) == timeless
    places = (
        ColumnCondition("place", ">", (second.begin.order.to_bytes() + b"\xff",)),
        ColumnCondition("shard", "in", ("a",)),
    )
    assert chosen(*places) == [("a", number) for number in range(1, 5)]


def in_files(tmp_path: Path, *files: list[Tx]) -> ArchiveStore:
    return write_archive(tmp_path / "archive", {"a": list(files)})


def test_a_file_that_was_merged_is_read_where_its_rows_are(tmp_path: Path) -> None:
    file = [tx(put(b"x", b"1")), chunk(1, put(b"r", b"1")), tx(put(b"y", b"2"), put(b"z", b"1"))]
    store = in_files(tmp_path, file, file, file, file)
    pieces = everything(store)
    known = rows(store, pieces)
    assert merge(store, Group("a", tuple(piece.entry for piece in pieces[:2]))).state == "merged"
    for piece in pieces[:2]:
        Path(store.data_path("a", piece.entry.name)).unlink()
    second = ColumnCondition("place", ">=", (known[1]["place"],))
    last = ColumnCondition("place", "<", (known[6]["place"],))
    assert rows(store, pieces[:1]) == known[:4]
    assert rows(store, pieces, Wanted((second, last))) == known[1:6]


def test_of_rows_at_the_border_of_merged_files_nobody_knows_which_were_whose(tmp_path: Path) -> None:
    store = in_files(tmp_path, *([chunk(n, put(b"r", b"1")), tx(put(b"x", b"1"))] for n in range(1, 5)))
    pieces = everything(store)
    assert merge(store, Group("a", tuple(piece.entry for piece in pieces[:2]))).state == "merged"
    Path(store.data_path("a", pieces[0].entry.name)).unlink()
    with pytest.raises(ArchiveError, match=r" 2 rows .* 3 .*\[archive-damaged\]"):
        rows(store, pieces)


def test_rows_that_nobody_has_any_more_are_an_error(tmp_path: Path) -> None:
    store = in_files(tmp_path, [tx(put(b"1", b"1"))], [tx(put(b"2", b"1"))], [tx(put(b"3", b"1"))])
    first, _, _ = pieces = everything(store)
    store.change("a", lambda now: now and now.without_first(1))  # type: ignore[return-value,arg-type]
    assert len(rows(store, pieces)) == 3, "the file is there for another day"
    Path(store.data_path("a", first.entry.name)).unlink()
    with pytest.raises(ArchiveError, match=r" 1 rows .* 0 .*\[archive-damaged\]") as caught:
        rows(store, pieces)
    assert "run the query again" in str(caught.value.hint)
