"""What an Iceberg table keeps of earlier exports, and what goes of a killed run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyiceberg.table.snapshots import Snapshot

from spark_replay.archive.store import ArchiveStore
from spark_replay.export import expiry, iceberg
from spark_replay.export.exporter import Result
from spark_replay.export.leftovers import ExportRun, clean, is_ours, noted
from spark_replay.export.port import SeenTable
from spark_replay.export.state import state_to_text
from spark_replay.tables.columns import TableColumn
from tests.support.archives import Tx, row, tx, write_archive
from tests.support.exported import Format
from wormhole.model.errors import ReplayError
from wormhole.model.values import Op

# --- expiry ---


TABLE = "shop.customers"
TOMORROW_US = 4_000_000_000_000_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Format:
    """Its tables keep three snapshots at least, and two go at a time."""
    monkeypatch.setattr(expiry, "_LEAST", 3)
    monkeypatch.setattr(expiry, "_BATCH", 2)
    return Format("iceberg", tmp_path)


def customer(number: int, name: str = "ann", op: Op = Op.INSERT) -> Tx:
    return tx(row(op, (number, name, "Ulm", 5), (number, "old", "Ulm", 5) if op is Op.UPDATE else None))


def grow(lake: Format, *transactions: Tx, shards: int = 1) -> ArchiveStore:
    return write_archive(lake.base / "archive", {f"s{n}": [list(transactions)] for n in range(shards)})


def export(lake: Format, store: ArchiveStore, now_us: int = TOMORROW_US) -> Result:
    (result,) = lake.exporter(store, now_us=lambda: now_us).run()
    if result.problem is not None:
        raise result.problem
    return result


def snapshots(lake: Format) -> list[int]:
    return [one.snapshot_id for one in _table(lake).snapshots()]


def _table(lake: Format) -> Any:
    return lake.catalogue().load_table(tuple(TABLE.split(".")))


def files(lake: Format, pattern: str) -> int:
    return len(list((lake.base / "warehouse").rglob(pattern)))


def test_a_commit_adds_little_to_the_metadata_whatever_the_number_of_shards(lake: Format) -> None:
    sizes = []
    for number in range(3):
        export(lake, grow(lake, customer(number), shards=60), now_us=0)
        sizes.append(max(one.stat().st_size for one in (lake.base / "warehouse").rglob("*.metadata.json")))
    assert sizes[-1] - sizes[-2] < 1_500


def test_old_snapshots_go_with_what_only_they_use(lake: Format) -> None:
    """Each run writes the row's file anew; a day later the versions before are not kept."""
    export(lake, grow(lake, customer(1)))
    for number in range(9):
        result = export(lake, grow(lake, customer(1, f"n{number}", Op.UPDATE)))
    kept = len(snapshots(lake))
    assert kept < expiry._LEAST + expiry._BATCH
    assert files(lake, "*.parquet") == kept, "each snapshot has one file of its own"
    assert files(lake, "_wormhole/places/*.json") == kept
    assert files(lake, "*.metadata.json") <= 12
    assert files(lake, "*.avro") <= 6 * kept
    assert not files(lake, "_wormhole/expired/*.json")
    assert [one["name"] for one in lake.rows(TABLE).to_pylist()] == ["n8"]
    assert [one["name"] for one in lake.rows(TABLE, str(snapshots(lake)[0])).to_pylist()] != ["n8"]
    assert result.version == str(_table(lake).current_snapshot().snapshot_id)


def test_what_is_young_or_tagged_stays(lake: Format) -> None:
    export(lake, grow(lake, customer(1)))
    first = snapshots(lake)[0]
    _table(lake).manage_snapshots().create_tag(first, "report").commit()
    for number in range(5):
        export(lake, grow(lake, customer(1, f"n{number}", Op.UPDATE)), now_us=0)
    assert len(snapshots(lake)) == 6
    export(lake, grow(lake, customer(2)))
    assert first in snapshots(lake)
    assert len(snapshots(lake)) < 6
    assert [one["name"] for one in lake.rows(TABLE, str(first)).to_pylist()] == ["ann"]


def test_what_a_kept_snapshot_has_is_looked_for_although_its_parent_went_long_ago() -> None:
    """Other engines leave the number of a parent that they removed: the files of such a tag would have been deleted."""
    given: list[dict[str, Any]] = [
        {"snapshot-id": one, "parent-snapshot-id": parent, "manifest-list": ""}
        for one, parent in ((1, None), (5, 4), (6, 5))
    ]
    kept = [Snapshot(**one) for one in given]
    assert [one.snapshot_id for one in expiry.without_parent(kept)] == [1, 5]


class KilledError(BaseException):
    """Stands for kill -9."""


def dies(*_: object) -> None:
    raise KilledError


@pytest.mark.parametrize("committed", [True, False])
def test_a_killed_cleaning_is_finished(lake: Format, monkeypatch: pytest.MonkeyPatch, committed: bool) -> None:
    """Before the commit nothing is deleted, and after it what it no longer names is."""
    export(lake, grow(lake, customer(1)))
    for number in range(5):
        export(lake, grow(lake, customer(1, f"n{number}", Op.UPDATE)), now_us=0)
    finish, calls = expiry._finish, iter([False, True])
    with monkeypatch.context() as patch:
        if committed:
            patch.setattr(expiry, "_finish", lambda *given: dies() if next(calls) else finish(*given))
        else:
            patch.setattr("pyiceberg.table.update.snapshot.ExpireSnapshots.commit", dies)
        with pytest.raises(KilledError):
            export(lake, grow(lake, customer(2)))
    assert files(lake, "_wormhole/expired/*.json") == 1
    before = files(lake, "*.parquet")
    export(lake, grow(lake, customer(3)), now_us=0)
    assert (files(lake, "*.parquet") < before) == committed
    assert not files(lake, "_wormhole/expired/*.json")
    assert {one["id"] for one in lake.rows(TABLE).to_pylist()} == {1, 2, 3}


@pytest.mark.parametrize("damage", ["gone", "another"])
def test_places_that_are_not_those_of_the_commit_are_reported(lake: Format, damage: str) -> None:
    store = grow(lake, customer(1))
    export(lake, store)
    (places,) = (lake.base / "warehouse").rglob("_wormhole/places/*.json")
    places.unlink()
    if damage == "another":
        places.write_text("{}")
    with pytest.raises(ReplayError, match="places") as error:
        export(lake, store)
    assert places.name in error.value.message


def test_a_table_of_the_release_before_is_carried_on(lake: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshots have the places themselves."""
    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "keep_places", lambda *given: state_to_text(given[2]))
        export(lake, grow(lake, customer(1)))
    (summary,) = [one.summary.additional_properties["wormhole"] for one in _table(lake).snapshots()]
    assert json.loads(summary)["shards"]
    assert export(lake, grow(lake, customer(2))).did == "changed"
    assert {one["id"] for one in lake.rows(TABLE).to_pylist()} == {1, 2}


# --- leftovers: files of a killed run go once it cannot commit any more, and not before ---


@dataclass
class Table:
    """``outcomes``: what is known of runs."""

    root: str
    name: str = "t"
    data: str = "data"
    outcomes: dict[str, bool | None] = field(default_factory=dict)
    filesystem: fs.FileSystem = field(default_factory=fs.LocalFileSystem)

    def look(self) -> SeenTable:
        raise NotImplementedError

    def draft(self, columns: object) -> TableColumn:
        raise NotImplementedError

    def committed(self, run: str, base: str) -> bool | None:
        return self.outcomes.get(run)


@pytest.mark.parametrize(
    ("version", "outcome", "stays", "forgotten"),
    [("4", None, True, False), ("5", False, False, True), ("5", True, True, True), ("5", None, True, True)],
)
def test_what_happens_to_a_run_on_version_4(
    version: str, outcome: bool | None, stays: bool, forgotten: bool, tmp_path: Path
) -> None:
    table = Table(str(tmp_path))
    run = ExportRun(table, "4")  # type: ignore[arg-type]  # it drafts nothing
    run.begin()
    (Path(run.folder) / "x.parquet").touch()
    table.outcomes[run.name] = outcome
    clean(table, version)  # type: ignore[arg-type]
    assert (Path(run.folder).exists(), run.name not in noted(table.filesystem, table.root)) == (stays, forgotten)


def test_names_of_ours() -> None:
    assert [name for name in ("_wormhole", "wormhole-0f", "_delta_log", "x") if is_ours(name)] == [
        "_wormhole",
        "wormhole-0f",
    ]
