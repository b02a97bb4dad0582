"""``wormholectl doctor`` for a RocksDB database. It reads only and writes nothing into the database's directory.

Meaning and defaults of the options: RocksDB's ``include/rocksdb/options.h`` and wiki.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from datastores.rocksdb.decode.options import DatabaseOptions
from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.files import check_database, live_files, newest_options, wal_directory
from datastores.rocksdb.history.other_publishers import holder_of
from datastores.rocksdb.log.scan import read_through
from datastores.rocksdb.url import database_path
from wormhole.model.errors import DecodeError, SourceUnavailable, WormholeError
from wormhole.model.findings import Report, SeenTable, Severity

__all__ = ["check", "check_options"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM
_COMPRESSIONS: Final = {"kNoCompression": "", "kZSTD": "zstd"}


def check(url: str, state_dir: Path) -> Report:
    """Examine the database at ``url`` (``rocksdb:///absolute/path``) for a publisher with the state in ``state_dir``.

    Raises :class:`~wormhole.model.errors.UsageError` for a URL or path that is no RocksDB, and
    :class:`~wormhole.model.errors.SourceUnavailable` if it cannot be reached.
    """
    path = database_path(url)
    check_database(path)
    report = Report(url, {"path": str(path)})
    options = newest_options(path)
    if options is None:
        report.add(
            "options",
            WARN,
            "no OPTIONS file can be read",
            "recycling, compression and the place of the WAL cannot be known beforehand",
            "let the publisher's user read the OPTIONS-* files",
        )
    else:
        report.facts["library"] = options.version
        report.facts["column families"] = ", ".join(options.families)
        check_options(options, report)
    _check_identity(path, report)
    try:
        directory = wal_directory(path, options)
    except WormholeError as error:
        report.add("wal_dir", PROBLEM, error.message, "the WAL files cannot be found", error.hint or "")
        return report
    _check_directories(path, directory, state_dir, report)
    _check_families(path, report)
    report.add(
        "disableWAL",
        WARN,
        "writes with WriteOptions.disableWAL cannot be seen from outside",
        "they never enter the log: no subscriber gets them, and only a gap in the sequence numbers shows it",
        "make sure that no writer sets disableWAL for data that subscribers need",
    )
    return report


def check_options(options: DatabaseOptions, report: Report) -> None:
    """Add the findings on the settings to ``report``."""
    for examine in (_recycling, _retention, _visibility, _transactions, _content):
        try:
            examine(options, report)
        except DecodeError as error:
            report.add("options", WARN, error.message, "this setting was not examined", "correct the OPTIONS file")


def _recycling(options: DatabaseOptions, report: Report) -> None:
    count = options.number("recycle_log_file_num")
    if count:
        report.add(
            "recycle_log_file_num",
            WARN,
            f"recycle_log_file_num={count}: old WAL files are written over",
            "links do not keep them, so the publisher copies every WAL file while it is written: twice the disk writes",
            "set recycle_log_file_num=0 to save the copying",
        )
    else:
        report.add("recycle_log_file_num", OK, "WAL files are not recycled: a hard link keeps them")


def _retention(options: DatabaseOptions, report: Report) -> None:
    ttl, limit = options.number("WAL_ttl_seconds"), options.number("WAL_size_limit_MB")
    if ttl or limit:
        report.add(
            "WAL_ttl_seconds", OK, f"old WAL files are archived (WAL_ttl_seconds={ttl}, WAL_size_limit_MB={limit})"
        )
    else:
        report.add(
            "WAL_ttl_seconds",
            WARN,
            "old WAL files are deleted at flush, close and open (WAL_ttl_seconds=0, WAL_size_limit_MB=0)",
            "what is written and flushed while no publisher runs is lost for subscribers, and reported as such",
            "keep the publisher running, or set WAL_ttl_seconds to the longest time it may be down, for example 86400",
        )
    total = options.number("max_total_wal_size")
    report.add("max_total_wal_size", OK, f"max_total_wal_size={total or 'by the write buffers'}")
    if options.flag("avoid_flush_during_shutdown"):
        report.add("avoid_flush_during_shutdown", OK, "the WAL outlives a clean close")


def _visibility(options: DatabaseOptions, report: Report) -> None:
    if options.flag("manual_wal_flush"):
        report.add(
            "manual_wal_flush",
            WARN,
            "manual_wal_flush=true: writes stay in the writer's memory until it calls FlushWAL",
            "subscribers see a change only after that call, however late it is",
            "call FlushWAL as often as changes should arrive, or set manual_wal_flush=false",
        )
    if options.flag("allow_mmap_writes"):
        report.add(
            "allow_mmap_writes",
            WARN,
            "allow_mmap_writes=true: the kernel does not report when a WAL grows",
            "changes are found at intervals of up to a second",
            "set allow_mmap_writes=false",
        )
    if options.db.get("wal_recovery_mode") == "kSkipAnyCorruptedRecords":
        report.add(
            "wal_recovery_mode",
            WARN,
            "wal_recovery_mode=kSkipAnyCorruptedRecords: the database itself steps over damaged records",
            "the publisher halts at one instead of passing it in silence",
            "use kPointInTimeRecovery, the default",
        )


def _transactions(options: DatabaseOptions, report: Report) -> None:
    if options.flag("two_write_queues") or options.flag("unordered_write"):
        name = "two_write_queues" if options.flag("two_write_queues") else "unordered_write"
        report.add(
            name,
            WARN,
            f"{name}=true is what WRITE_PREPARED and WRITE_UNPREPARED transactions need",
            "their logs number batches, not changes, and are refused when met; the OPTIONS file does not hold "
            "the write policy",
            "open the TransactionDB with write_policy=WRITE_COMMITTED, the default",
        )
    if options.flag("allow_2pc"):
        report.add("allow_2pc", OK, "two-phase commits are released to subscribers at their commit")


def _content(options: DatabaseOptions, report: Report) -> None:
    compression = options.db.get("wal_compression", "kNoCompression")
    if compression not in _COMPRESSIONS:
        report.add(
            "wal_compression",
            PROBLEM,
            f"wal_compression={compression} is of no kind that RocksDB documents for the WAL",
            "the records could not be decoded",
            "use kZSTD or kNoCompression",
        )
    elif _COMPRESSIONS[compression]:
        report.add("wal_compression", OK, "the WAL is compressed with zstd")
    for family, settings in options.families.items():
        operator = settings.get("merge_operator", "nullptr")
        if operator not in {"nullptr", "", "{}"}:
            report.add(
                "merge_operator",
                WARN,
                f"column family {family} merges with {operator}",
                "the log holds operands, not results: subscribers get op=merge with the operand as value",
                "let the subscriber apply the operator, or read the result from the database",
            )
        if settings.get("comparator", "").endswith(".u64ts"):
            report.add(
                "user_timestamps",
                WARN,
                f"column family {family} has user-defined timestamps",
                "each key in the log ends with 8 bytes of timestamp, which are the key's second column",
                "nothing to do",
            )
        if "TtlCompactionFilter" in settings.get("compaction_filter_factory", "") + settings.get(
            "compaction_filter", ""
        ):
            report.add(
                "ttl",
                WARN,
                f"column family {family} was opened as a TtlDB: four bytes of time end each value and merge operand",
                "subscribers get them too, and no update when the database deletes an expired row",
                "decode values with value_format ttl:json or ttl:msgpack, or cut the last four bytes off",
            )
        if settings.get("enable_blob_files") == "true":
            report.add(
                "enable_blob_files",
                OK,
                f"column family {family}: blob files do not concern the WAL, which holds whole values",
            )
        if settings.get("inplace_update_support") == "true":
            report.add(
                "inplace_update_support", OK, f"column family {family}: in-place updates are in the WAL like others"
            )


def _check_identity(path: Path, report: Report) -> None:
    try:
        identity = (path / "IDENTITY").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        report.add(
            "identity",
            WARN,
            "there is no IDENTITY file to read",
            "that the database was replaced by another is noticed by its WAL files only",
            "open the database once with a current library, which writes the file",
        )
        return
    report.facts["identity"] = identity


def _check_directories(path: Path, directory: Path, state_dir: Path, report: Report) -> None:
    if directory != path:
        report.add("wal_dir", OK, f"the WAL is in {directory}")
    try:
        files = live_files(directory)
    except OSError as error:
        report.add(
            "permissions",
            PROBLEM,
            f"{directory} cannot be listed: {error.strerror}",
            "the WAL cannot be read",
            "let the publisher's user read the directory",
        )
        return
    report.facts["WAL files"] = str(len(files))
    if holder := holder_of(path):
        report.facts["tailed by"] = holder
    unreadable = [f.path.name for f in files.values() if not os.access(f.path, os.R_OK)]
    if unreadable:
        report.add(
            "permissions",
            PROBLEM,
            f"{', '.join(unreadable[:3])} cannot be read",
            "the WAL cannot be tailed",
            "run the publisher as the database's user, or give its group read access (umask 027 for the writer)",
        )
    else:
        report.add("permissions", OK, "the WAL files can be read")
        _check_log({number: file.path for number, file in files.items()}, report)
    _check_links(directory, state_dir, report)


def _check_log(files: Mapping[int, Path], report: Report) -> None:
    """Read the whole log as a publisher does. The options alone do not show where a publisher would halt."""
    try:
        last = read_through(files)
    except SourceUnavailable:
        return  # the database deleted a file meanwhile
    except WormholeError as error:
        where = f" (at {error.position})" if error.position else ""
        report.add(
            "log",
            PROBLEM,
            f"{error.message}{where}",
            "no change from there on reaches a subscriber",
            error.hint or "",
        )
        return
    report.add("log", OK, f"every record in the WAL files can be read, up to sequence number {last}")


def _check_links(directory: Path, state_dir: Path, report: Report) -> None:
    """Add the finding whether a WAL can be linked into the state directory. The attempt uses a WAL of the database."""
    folder = state_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        report.add(
            "state_dir",
            PROBLEM,
            f"{folder} cannot be written to",
            "WAL files cannot be kept from deletion",
            "name a state directory that the publisher's user can write",
        )
        return
    if folder.stat().st_dev != directory.stat().st_dev:
        report.add(
            "hard_links",
            WARN,
            f"{folder} is on another file system than {directory}",
            "WAL files are copied instead of linked: disk space and writes twice",
            f"put the state directory on the file system of {directory}",
        )
        return
    newest = max(live_files(directory).values(), key=lambda f: f.number, default=None)
    if newest is None:
        report.add("hard_links", OK, f"{folder} is on the file system of the WAL")
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as trial:
        try:
            os.link(newest.path, Path(trial) / newest.path.name)
        except FileNotFoundError:
            pass  # deleted meanwhile
        except OSError as error:
            report.add(
                "hard_links",
                WARN,
                f"a link to {newest.path.name} is refused: {error.strerror}",
                "WAL files are copied instead of linked: disk space and writes twice",
                "run the publisher as the user that owns the database's files (fs.protected_hardlinks)",
            )
            return
    report.add("hard_links", OK, "WAL files can be kept by hard links")


def _check_families(path: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="wormhole-doctor-") as scratch:
        catalogue = FamilyCatalogue(path, Path(scratch) / "families.json")
        names = catalogue.names()
        if catalogue.problem:
            report.add(
                "manifest",
                PROBLEM,
                catalogue.problem,
                "changes of column families cannot be distinguished by name",
                "let the publisher's user read the MANIFEST, and check it with ldb manifest_dump",
            )
            return
        report.facts["column families"] = ", ".join(names.values())
        report.tables += [SeenTable("", name) for name in names.values()]
        report.add("manifest", OK, f"{len(names)} column families by name")
