"""What is decided about a snapshot without Spark; on Spark: tests/integration/test_spark_tables.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_replay.archive.newest_snapshot import NewestSnapshot, noted_snapshot
from spark_replay.archive.ranges import Asked
from spark_replay.archive.store import ArchiveStore
from spark_replay.tables import snapshot_writer
from spark_replay.tables.about import ABOUT, SnapshotAbout, about_to_json
from spark_replay.tables.folder import Folder
from spark_replay.tables.snapshot import _planned
from spark_replay.tables.snapshot_writer import HeldRows, _noted
from spark_replay.tables.updates import TableRows
from tests.support.archives import CUSTOMERS, KEYS, Change, manifest_of, marker_at, present, put, row, tx, write_archive
from wormhole.model.errors import ArchiveError, UsageError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op

KEYLESS = Schema("events", (), (Column("text", "text"),))
CREATED = "2026-05-01T00:00:00+00:00"


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    """A transaction of each of three tables, the third without a key, and one of a fourth."""
    log = [tx(put(b"k", b"v")), tx(row(Op.INSERT, (1, "a", "b", 2))), tx(Change(Op.INSERT, (), ("x",), schema=KEYLESS))]
    new = Schema("new", CUSTOMERS.key, CUSTOMERS.columns)
    return write_archive(tmp_path / "archive", {"a": [log, [tx(row(Op.INSERT, (1, "a", "b", 2), schema=new))]]})


def made(store: ArchiveStore, folder: Path, tables: tuple[str, ...] = (), stop: int = 3, previous: str = "") -> str:
    """The JSON of a snapshot up to a transaction; its folder."""
    plan = _planned(store, tables, Asked("then", place=marker_at(stop).order), previous)
    Folder(str(folder), ABOUT).finish(about_to_json(plan.about(store, HeldRows()), CREATED))
    return str(folder)


def test_the_next_one_has_the_tables_of_the_previous_one_and_new_ones(store: ArchiveStore, tmp_path: Path) -> None:
    plan = _planned(store, (), Asked(), made(store, tmp_path / "1"))
    assert plan.names == ("default", "new", "shop.customers")
    assert plan.others == ()
    reason = {"events": "it has no primary key: two equal rows cannot be distinguished"}
    assert plan.left_out == reason
    assert plan.about(store, HeldRows((), {"default": TableRows(1, 0, frozenset({KEYS.id}))})).problems_of("new") == ()
    # Nothing of that table came since; it is not forgotten.
    last = _planned(store, (), Asked(), made(store, tmp_path / "2", stop=4, previous=str(tmp_path / "1")))
    assert (last.names, last.left_out, last.newest("default")) == (plan.names, reason, (KEYS,))


def test_tables_that_the_previous_one_was_made_without_are_in_no_later_one(store: ArchiveStore, tmp_path: Path) -> None:
    previous = made(store, tmp_path / "1", ("default",))
    plan = _planned(store, (), Asked(), previous)
    assert (plan.names, plan.others) == (("default", "new"), ("events", "shop.customers"))
    only = _planned(store, ("new",), Asked(), previous)
    assert (only.names, only.others) == (("new",), ("default", "events", "shop.customers"))
    with pytest.raises(UsageError, match=r"cannot be continued.*it was made without shop\.customers"):
        _planned(store, ("shop.customers",), Asked(), previous)


def test_how_far_the_archivers_own_backfill_came_is_not_in_it(store: ArchiveStore) -> None:
    """It would be taken for the progress of the flow that begins from the snapshot."""

    end = replace(manifest_of(store).end, backfill=b"archiver")
    store.change("a", lambda now: present(now).extended(end, 1))
    assert manifest_of(store).end.backfill
    about = _planned(store, (), Asked(), "").about(store, HeldRows())
    assert about.shards["a"].marker == marker_at(4)


def noted(store: ArchiveStore, about: SnapshotAbout) -> tuple[str, ...]:
    return _noted(store, "/s", about, _planned(store, (), Asked(), ""), CREATED)


def test_one_of_all_tables_and_rows_is_noted_in_the_archive(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = _planned(store, (), Asked(), "").about(store, HeldRows())
    late = {shard: replace(one, lacks="it begins late") for shard, one in about.shards.items()}
    assert noted(store, replace(about, others=("t",))) == noted(store, replace(about, shards=late)) == ()
    assert noted_snapshot(store) is None
    assert noted(store, about) == ()
    assert noted_snapshot(store) == NewestSnapshot("/s", "2026-05-01T00:00:00Z", {"a": marker_at(4).order})

    def refuse(*given: object) -> None:
        raise ArchiveError("cannot write there", hint="grant it")

    monkeypatch.setattr(snapshot_writer, "note_snapshot", refuse)
    (note,) = noted(store, about)
    assert note.startswith("`archive expire` may drop what the next snapshot needs")
    assert "cannot write there" in note
