from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from datastores.rocksdb.decode.options import DatabaseOptions
from datastores.rocksdb.doctor import check, check_options
from tests.support.rocks_writer import RocksWriter
from tests.support.rocksdb_wal import batch, fragment, open_reader, put, segments
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError
from wormhole.model.findings import Report, SeenTable, Severity

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
