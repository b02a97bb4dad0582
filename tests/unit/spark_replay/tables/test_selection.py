"""What is read for tables: shards, ranges, schemas, and tables whose rows can be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import open_store
from spark_replay.tables.selection import key_problem, select, select_tables
from tests.support.archives import CUSTOMERS, KEYS, marker_at, put, row, tx, write_archive
from wormhole.model.errors import ReplayError, UsageError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op

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
