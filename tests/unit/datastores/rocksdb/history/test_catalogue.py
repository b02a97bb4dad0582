"""The files of the log that were seen, and whether the log goes on from them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.rocksdb.decode.options import DatabaseOptions
from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.continuity import Evidence, evidence_of, first_too_low, identity_file, went_back
from datastores.rocksdb.history.files import LiveFile, head_of, live_file, live_files, newest_options, wal_directory
from tests.support.present import present
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import UsageError

# --- catalogue ---


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


# --- continuity ---


BEFORE = Evidence(manifest=12, sequence=100, identity=(7, 1, 1), table=(9, 3))


def table(path: Path, number: int, content: bytes = b"abc") -> None:
    (path / f"{number:06d}.sst").write_bytes(content)


def test_what_rises_is_the_same_history(tmp_path: Path) -> None:
    now = replace(BEFORE, manifest=13, sequence=100)
    assert went_back(tmp_path, BEFORE, now, reached=lambda: 200, wal_is_there=False) is None
    unread = replace(now, manifest=0, sequence=0)
    assert went_back(tmp_path, BEFORE, unread, reached=lambda: 200, wal_is_there=False) is None


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (replace(BEFORE, manifest=11, sequence=500), "MANIFEST 11 follows on MANIFEST 12"),
        (replace(BEFORE, manifest=40, sequence=99), "ends at sequence number 99, it ended at 100"),
    ],
)
def test_what_fell_is_another_one(tmp_path: Path, now: Evidence, reason: str) -> None:
    assert reason in present(went_back(tmp_path, BEFORE, now, reached=lambda: 0, wal_is_there=True))


def test_other_files_need_a_proof(tmp_path: Path) -> None:
    now = replace(BEFORE, manifest=40, sequence=500, identity=(8, 1, 1), table=(30, 5))

    def reason(reached: int = 100, *, wal_is_there: bool = False) -> str | None:
        return went_back(tmp_path, BEFORE, now, reached=lambda: reached, wal_is_there=wal_is_there)

    assert "nothing proves" in str(reason())
    assert reason(wal_is_there=True) is None
    table(tmp_path, 9, b"another size")
    assert reason() is not None
    table(tmp_path, 9)
    assert reason() is None
    assert reason(reached=101) is not None, "what was in a WAL beyond the tables is not proven by a table"


def test_a_look(tmp_path: Path) -> None:
    assert evidence_of(tmp_path, 0, 0) == Evidence()
    (tmp_path / "IDENTITY").write_text("x")
    table(tmp_path, 9)
    table(tmp_path, 1000000)
    found = evidence_of(tmp_path, 5, 6)
    assert (found.manifest, found.sequence, found.table) == (5, 6, (1000000, 3))
    assert Evidence.from_json(found.as_json()) == found
    stored: object
    for stored in (None, [], {"manifest": "x", "identity": [1]}):
        assert Evidence.from_json(stored) == Evidence()


def test_a_copy_shows_as_another_identity_file_even_with_its_number_and_times(tmp_path: Path) -> None:
    """As `rm` and `cp -p` leave it: the number may be given again, and the time of the last write is copied."""
    file, copy = tmp_path / "IDENTITY", tmp_path / "copy"
    assert identity_file(tmp_path) == (0, 0, 0)
    file.write_text("x")
    shutil.copy2(file, copy)
    before = identity_file(tmp_path)
    assert identity_file(tmp_path) == before
    file.write_text("x")  # the same inode
    shutil.copystat(copy, file)
    now = identity_file(tmp_path)
    assert now[:2] == before[:2]
    assert now != before


def test_a_later_file_begins_behind_what_was_reached(tmp_path: Path) -> None:
    live = {n: LiveFile(n, tmp_path / f"{n}.log", 0, 0, 0, 0) for n in (4, 8, 12)}
    firsts = {4: 1, 8: None, 12: 100}
    assert first_too_low(live, (4, 99), firsts.get) is None
    reason = first_too_low(live, (4, 100), firsts.get)
    assert reason == "WAL 12 begins at sequence number 100, WAL 4 reached 100"
    assert first_too_low(live, (12, 500), firsts.get) is None


# --- files ---


def test_live_files_and_archived_ones(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    for name in ("000004.log", "LOG", "000005.sst", "x.log", "archive/000002.log"):
        (tmp_path / name).write_bytes(b"abc")
    found = live_files(tmp_path)
    assert sorted(found) == [2, 4]
    assert found[4].size == 3
    assert head_of(found[2].path) == b"abc"
    assert live_file(tmp_path / "000009.log") is None


def test_the_newest_options_that_can_be_read(tmp_path: Path) -> None:
    assert newest_options(tmp_path) is None
    (tmp_path / "OPTIONS-000009").write_text("[Version]\nrocksdb_version=9\n")
    (tmp_path / "OPTIONS-000010").write_text("[Vers")  # is being written
    assert present(newest_options(tmp_path)).version == "9"


def test_the_directory_of_the_wal(tmp_path: Path) -> None:
    assert wal_directory(tmp_path, None) == tmp_path
    assert wal_directory(tmp_path, DatabaseOptions("9", {"wal_dir": "/wal"}, {})) == Path("/wal")
    with pytest.raises(UsageError, match="relative"):
        wal_directory(tmp_path, DatabaseOptions("9", {"wal_dir": "wal"}, {}))
