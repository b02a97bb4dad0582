"""Lists of boundaries in files: they survive the process, and a damaged one is as good as none."""

from __future__ import annotations

from pathlib import Path

import pytest

from caravan.backfill.boundaries import Boundaries
from publisher.stores.table_boundaries import TableBoundaries
from tests.support.present import present
from wormhole.host.clock import Clock


def test_a_list_survives(tmp_path: Path) -> None:
    store = TableBoundaries(tmp_path / "rows")
    assert store.load("a.t") is None
    known = Boundaries(1 << 63, "id int", {1 << 70: b"one"})
    store.replace("a.t", known)
    known.add(1 << 71, b"")
    store.add("a.t", known, 1 << 71, b"")
    found = present(TableBoundaries(tmp_path / "rows").load("a.t"))
    assert (found.id, found.fingerprint, dict(found.keys)) == (1 << 63, "id int", {1 << 70: b"one", 1 << 71: b""})
    assert store.load("a.u") is None
    store.replace("a.t", Boundaries(2, ""))
    again = present(store.load("a.t"))
    assert (again.id, dict(again.keys)) == (2, {})


def test_a_list_whose_file_was_removed_is_stored_whole(tmp_path: Path) -> None:
    store = TableBoundaries(tmp_path)
    known = Boundaries(3, "", {5: b"5"})
    store.add("t", known, 9, b"9")
    assert dict(present(store.load("t")).keys) == {5: b"5", 9: b"9"}


@pytest.mark.parametrize("at", range(0, 60, 3))
def test_a_damaged_list_counts_as_missing(tmp_path: Path, at: int) -> None:
    store = TableBoundaries(tmp_path)
    store.replace("t", Boundaries(3, "int", {5: b"5", 6: b"6"}))
    (path,) = tmp_path.glob("*.boundaries")
    data = path.read_bytes()
    path.write_bytes(data[: at % len(data)] + bytes((data[at % len(data)] ^ 1,)) + data[at % len(data) + 1 :])
    assert store.load("t") is None
    path.write_bytes(data[: at % len(data)])
    found = store.load("t")
    # Only between two records a cut does not show; such a file was never written.
    assert found is None or len(data[: at % len(data)]) in _ends(data)


def _ends(data: bytes) -> set[int]:
    ends, at = set(), 0
    while at < len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "big")
        ends.add(at)
    return ends


def test_numbers_of_scans_rise_also_when_the_file_is_lost(tmp_path: Path) -> None:
    store = TableBoundaries(tmp_path, clock=Clock(wall=lambda: 1000.5))
    assert [store.next_scan(), store.next_scan()] == [1001, 1002]
    assert TableBoundaries(tmp_path).next_scan() == 1003
    (tmp_path / "scan").write_bytes(b"nonsense")
    assert TableBoundaries(tmp_path, clock=Clock(wall=lambda: 2000.0)).next_scan() == 2001
