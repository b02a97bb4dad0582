from __future__ import annotations

from pathlib import Path

import pytest

from datastores.rocksdb.history.catalogue import FamilyCatalogue
from tests.support.rocks_writer import RocksWriter


def test_names_come_as_families_are_made_and_stay_when_they_go(tmp_path: Path) -> None:
    writer = RocksWriter(tmp_path / "store")
    catalogue = FamilyCatalogue(tmp_path / "store", tmp_path / "families.json")
    assert catalogue.name(0) == "default"
    assert catalogue.name(1) is None
    writer.create_family("users")
    assert catalogue.name(1) == "users"
    assert catalogue.timestamp_size(1) == 0
    writer.put(b"k", b"v", "users")
    writer.flush()
    assert catalogue.logs()
    assert catalogue.last_sequence == 1
    writer.drop_family("users")
    writer.close()
    writer.open()
    again = FamilyCatalogue(tmp_path / "store", tmp_path / "families.json")
    assert again.names() == {0: "default", 1: "users"}
    assert again.database_id == (tmp_path / "store" / "IDENTITY").read_text()
    writer.exit()
    catalogue.forget_logs(1 << 30)
    assert not catalogue.problem


def test_a_damaged_manifest_is_a_problem_and_no_crash(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    catalogue = FamilyCatalogue(tmp_path, tmp_path / "families.json")
    assert catalogue.name(1) is None  # it is being made
    assert not catalogue.problem
    (tmp_path / "MANIFEST-000001").write_bytes(b"\1" * 300)
    assert catalogue.name(1) is None
    assert "MANIFEST-000001" in catalogue.problem
    (tmp_path / "CURRENT").write_text("../passwd\n")
    catalogue.refresh()
    assert "no MANIFEST" in catalogue.problem
    catalogue.refresh()
    assert len(caplog.messages) == 2, "each is told once, however often it is looked at"
