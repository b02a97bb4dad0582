"""The datastore's settings, and what its doctor finds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from datastores.rocksdb.datastore import DATASTORE
from datastores.rocksdb.decode.options import DatabaseOptions
from datastores.rocksdb.doctor import check, check_options
from datastores.rocksdb.url import database_path
from tests.support.rocks_writer import RocksWriter
from tests.support.rocksdb_wal import batch, fragment, open_reader, put, segments
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError
from wormhole.model.findings import Report, SeenTable, Severity
from wormhole.ports.datastore import Login, Standing

# --- datastore ---


URL = "rocksdb:///var/lib/a%20b"


def test_its_urls() -> None:
    DATASTORE.check_url(URL, configured=True)
    assert DATASTORE.form("rocksdb") == "rocksdb:///absolute/path"
    assert DATASTORE.local_path(URL) == Path("/var/lib/a b")


@pytest.mark.parametrize(("check", "error"), [(DATASTORE.check_url, ValueError), (database_path, UsageError)])
@pytest.mark.parametrize(
    "url", ["rocksdb://host/x", "rocksdb:x", "rocksdb:///", "oracle://h", "", "rocksdb:///a?b", "/a"]
)
def test_other_urls_are_refused_with_the_form_to_write(
    url: str, check: Callable[[str], object], error: type[Exception]
) -> None:
    with pytest.raises(error, match="rocksdb:///absolute/path"):
        check(url)


def test_it_is_examined(tmp_path: Path) -> None:
    with pytest.raises((SourceUnavailable, UsageError), match="gone"):
        DATASTORE.examine(f"rocksdb://{tmp_path}/gone", tmp_path, Login())


def test_its_log_is_read_where_its_disk_is(tmp_path: Path) -> None:
    def standing(*delivered: str) -> Standing:
        return DATASTORE.standing(f"rocksdb://{tmp_path}/db", Login(), delivered, failover=False)

    away = standing("7")
    assert (away.server, away.ready, away.lacking) == ("", False, "")
    assert away.problem.text == f"there is no directory {tmp_path}/db"
    assert "attach the disk" in away.problem.hint
    writer = RocksWriter(tmp_path / "db")
    try:
        for number in range(5):
            writer.put(b"%d" % number, b"x")
        here = standing("", "3", "5")
        assert here == Standing((tmp_path / "db" / "IDENTITY").read_text().strip())
        assert standing("3", "9").lacking == "sequence numbers 6 to 9"
        writer.flush()  # the log is deleted, and the tables have it
        assert standing("5") == here
        files = sorted(one.name for one in (tmp_path / "db").iterdir())
        assert standing("9").lacking == "sequence numbers 6 to 9"
        assert sorted(one.name for one in (tmp_path / "db").iterdir()) == files, "it only reads"
    finally:
        writer.exit()
    (tmp_path / "db" / "CURRENT").unlink()
    assert standing("5").problem.text == f"{tmp_path}/db is no RocksDB database: it has no CURRENT file"


# --- doctor ---


OK, PROBLEM = Severity.OK, Severity.PROBLEM


def record(payload: bytes) -> bytes:
    return fragment(1, payload)


def examine(family: dict[str, str] | None = None, /, **db: str) -> dict[str, Severity]:
    report = Report("rocksdb:///x")
    check_options(DatabaseOptions("9.8.4", db, {"default": family or {}}), report)
    for finding in report.findings:
        assert finding.severity is Severity.OK or (finding.because and finding.next_step)
    return {finding.check: finding.severity for finding in report.findings}


@pytest.mark.parametrize(
    ("name", "value", "severity"),
    [
        ("recycle_log_file_num", "2", Severity.WARN),
        ("recycle_log_file_num", "0", Severity.OK),
        ("WAL_ttl_seconds", "86400", Severity.OK),
        ("WAL_ttl_seconds", "0", Severity.WARN),
        ("manual_wal_flush", "true", Severity.WARN),
        ("allow_mmap_writes", "true", Severity.WARN),
        ("wal_recovery_mode", "kSkipAnyCorruptedRecords", Severity.WARN),
        ("two_write_queues", "true", Severity.WARN),
        ("unordered_write", "true", Severity.WARN),
        ("allow_2pc", "true", Severity.OK),
        ("avoid_flush_during_shutdown", "true", Severity.OK),
        ("wal_compression", "kZSTD", Severity.OK),
        ("wal_compression", "kSnappyCompression", Severity.PROBLEM),
    ],
)
def test_settings(name: str, value: str, severity: Severity) -> None:
    assert examine(**{name: value})[name] is severity


@pytest.mark.parametrize(
    ("name", "value", "check_name", "severity"),
    [
        ("merge_operator", "StringAppendOperator", "merge_operator", Severity.WARN),
        ("comparator", "leveldb.BytewiseComparator.u64ts", "user_timestamps", Severity.WARN),
        ("enable_blob_files", "true", "enable_blob_files", Severity.OK),
        ("compaction_filter_factory", "{id=TtlCompactionFilterFactory;ttl=60;}", "ttl", Severity.WARN),
        ("inplace_update_support", "true", "inplace_update_support", Severity.OK),
    ],
)
def test_settings_of_a_family(name: str, value: str, check_name: str, severity: Severity) -> None:
    assert examine({name: value})[check_name] is severity


def test_a_broken_setting_is_said() -> None:
    assert examine(recycle_log_file_num="many")["options"] is Severity.WARN


def test_a_real_database(tmp_path: Path) -> None:
    writer = RocksWriter(tmp_path / "store")
    writer.create_family("users")
    report = check(f"rocksdb://{tmp_path}/store", tmp_path / "state")
    writer.exit()
    assert report.severity is Severity.WARN
    assert report.facts["column families"] == "default, users"
    assert report.tables == [SeenTable("", "default"), SeenTable("", "users")]
    assert report.facts["library"]
    found = {finding.check for finding in report.findings}
    assert {"recycle_log_file_num", "WAL_ttl_seconds", "hard_links", "permissions", "manifest", "disableWAL"} <= found
    assert json.loads(report.to_json())["severity"] == "warn"
    assert not (tmp_path / "state").exists()
    assert not [path for path in tmp_path.iterdir() if path.name != "store"]


def test_what_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable):
        check(f"rocksdb://{tmp_path}/none", tmp_path)
    (tmp_path / "x").touch()
    with pytest.raises(UsageError):
        check(f"rocksdb://{tmp_path}", tmp_path)


@pytest.mark.parametrize(
    ("log", "severity"),
    [
        (record(batch(1, [put(b"a", b"1")])) + fragment(130, bytes(24)) + record(batch(2, [put(b"b", b"2")])), OK),
        (
            record(batch(1, [put(b"a", b"1"), put(b"b", b"1"), b"\x0d"], 2)) + record(batch(2, [put(b"b", b"2")])),
            PROBLEM,
        ),
        (record(batch(1, [b"\x12", put(b"a", b"1"), b"\x0a\x01x"], 1)), PROBLEM),
        (record(batch(1, [b"\x13", put(b"a", b"1"), b"\x0a\x01x"], 1)), PROBLEM),
        (record(batch(1, [put(b"a", b"1")])) + fragment(60, b"of a later release"), PROBLEM),
        (fragment(9, b"\x04\0\0\0"), PROBLEM),
        (bytes(range(100, 256)) * 500, PROBLEM),
        (record(batch(1, [put(b"a", b"1")]))[:-1], OK),  # it is being written
    ],
    ids=["ignorable", "per batch", "write-prepared", "write-unprepared", "unknown", "compressed", "encrypted", "torn"],
)
def test_it_reads_the_log_as_a_publisher_does(tmp_path: Path, log: bytes, severity: Severity) -> None:
    """What `tail` refuses is a problem here."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "CURRENT").write_text("MANIFEST-000001\n")
    (store / "IDENTITY").write_text("one")
    (store / "MANIFEST-000001").write_bytes(b"")
    (store / "000004.log").write_bytes(log)
    (found,) = [
        finding for finding in check(f"rocksdb://{store}", tmp_path / "state").findings if finding.check == "log"
    ]
    assert found.severity is severity
    assert severity is OK or found.next_step
    reader = open_reader(store)
    with contextlib.nullcontext() if severity is OK else pytest.raises(WormholeError):
        list(segments(reader))
