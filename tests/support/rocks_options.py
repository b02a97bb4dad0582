"""Random life of a RocksDB with random options, written through RocksJava, and what of it a reader has to find.

A `Life` chooses the kind of database, its options and its column families, takes random steps, and keeps a list of the
updates that its log holds. A reader that follows live, one that begins anew, and `doctor` are compared with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from datastores.rocksdb.doctor import check
from datastores.rocksdb.source import RocksSource
from tests.support.rocks_java import JavaStore, Operation, Options, RefusedError
from tests.support.rocksdb_wal import batch, string, varint
from wormhole.model.findings import Severity
from wormhole.model.loss import LossKind
from wormhole.model.sharding import Sharding
from wormhole.ports.log_source import LogReader
from wormhole.ports.testing.reading import Read, ReadUpdate, read_log, read_until

__all__ = ["Life"]

_DB_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "track_and_verify_wals": ("true", "false"),
    "track_and_verify_wals_in_manifest": ("true", "false"),
    "recycle_log_file_num": ("0", "0", "1", "3"),
    "wal_compression": ("kNoCompression", "kZSTD"),
    "manual_wal_flush": ("false", "false", "true"),
    "enable_pipelined_write": ("false", "true"),
    "unordered_write": ("false", "false", "true"),
    "two_write_queues": ("false", "false", "true"),
    "allow_concurrent_memtable_write": ("true", "false"),
    "atomic_flush": ("false", "true"),
    "allow_mmap_writes": ("false", "false", "false", "true"),
    "max_total_wal_size": ("0", "100000"),
    "db_write_buffer_size": ("0", "200000"),
    "avoid_flush_during_shutdown": ("false", "true"),
    "avoid_flush_during_recovery": ("false", "true"),
    "WAL_ttl_seconds": ("0", "0", "3600"),
    "WAL_size_limit_MB": ("0", "100"),
    "wal_recovery_mode": ("kPointInTimeRecovery", "kTolerateCorruptedTailRecords", "kAbsoluteConsistency"),
    "wal_bytes_per_sync": ("0", "4096"),
    "background_close_inactive_wals": ("false", "true"),
    "async_wal_precreate": ("false", "true"),
    "writable_file_max_buffer_size": ("1048576", "8192"),
    "allow_fallocate": ("true", "false"),
    "use_fsync": ("false", "true"),
    "max_manifest_file_size": ("1073741824", "1000"),
    "reuse_manifest_on_open": ("false", "true"),
    "optimize_manifest_for_recovery": ("false", "true"),
    "write_dbid_to_manifest": ("true", "false"),
    "write_identity_file": ("true", "false"),
    "persist_stats_to_disk": ("false", "false", "true"),
    "stats_persist_period_sec": ("600", "1"),
    "allow_ingest_behind": ("false", "false", "false", "true"),
}
_FAMILY_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "write_buffer_size": ("67108864", "67108864", "65536"),
    "enable_blob_files": ("false", "true"),
    "min_blob_size": ("0", "1000"),
    "compression": ("kNoCompression", "kSnappyCompression"),
    "memtable_protection_bytes_per_key": ("0", "8"),
    "ttl": ("2592000", "1"),
    "disable_auto_compactions": ("false", "true"),
}
_STAMPED: Final = "leveldb.BytewiseComparator.u64ts"
_SIZES: Final = (0, 1, 20, 20, 100, 100, 1000, 32_700, 32_768, 100_000)

_Expected = tuple[str, str, tuple[object, ...], tuple[object, ...]]
"""Operation, table, key, values."""


@dataclass
class _Together:
    """Updates that threads wrote at the same time: each thread's are in its order."""

    threads: list[list[_Expected]] = field(default_factory=list)


class Life:
    """One database. ``steps``: what happened, for the message of a failure."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.steps: list[str] = []
        self._folder = folder
        self._rng = rng
        self._path = folder / "store"
        self._kind = rng.choice(("plain", "plain", "ttl", "WRITE_COMMITTED"))
        self._expected: list[_Expected | _Together] = []
        self._unlogged: list[tuple[int, int]] = []
        self._families: dict[str, Options] = {}
        self._numbers = 0
        self._prepared: dict[str, list[_Expected]] = {}
        self._options = self._choose_options()
        self._store = self._opened()
        self._source = self._source_at(folder / "state")
        self._begin = self._source.latest()
        self._reader: LogReader = self._source.open(self._begin)
        self._read = Read(last_end=self._begin.order)

    # --- the database ---------------------------------------------------------------------------------------------

    def _choose_options(self) -> Options:
        rng = self._rng
        options = {name: rng.choice(values) for name, values in _DB_OPTIONS.items() if rng.random() < 0.7}
        if options.get("recycle_log_file_num", "0") != "0":
            options["wal_recovery_mode"] = "kPointInTimeRecovery"
        if options.get("allow_mmap_writes") == "true":
            options["allow_fallocate"] = "true"  # RocksDB ends with SIGBUS without
        if options.get("enable_pipelined_write") == options.get("two_write_queues") == "true":
            options["enable_pipelined_write"] = "false"  # RocksDB opens with both, and refuses each write
        options["enforce_single_del_contracts"] = "false"
        if rng.random() < 0.2:
            options["wal_dir"] = str(self._folder / "wal")
        self._families = {"default": self._family_options(False)}
        for number in range(rng.randrange(3)):
            self._families[f"f{number}"] = self._family_options(self._kind == "plain" and rng.random() < 0.4)
        return options

    def _family_options(self, stamped: bool) -> Options:
        rng = self._rng
        options = {name: rng.choice(values) for name, values in _FAMILY_OPTIONS.items() if rng.random() < 0.5}
        if stamped:
            return options | {"comparator": _STAMPED}
        return options | ({"merge_operator": "stringappend"} if rng.random() < 0.7 else {})

    def _opened(self) -> JavaStore:
        """Open it with as many of the options as RocksDB accepts together."""
        store = JavaStore(self._path)
        options = dict(self._options)
        while True:
            try:
                store.open(self._kind, options, self._families)
            except RefusedError as refused:
                if not options:
                    raise
                self.steps.append(f"refused: {refused}")
                named = [name for name in options if name in str(refused)]
                options.pop(named[0] if named else self._rng.choice([*options]))
                continue
            self._options = options
            self.steps.append(f"open {self._kind} {options} {self._families}")
            return store

    def _source_at(self, state: Path) -> RocksSource:
        source = RocksSource(
            self._path,
            log="log",
            state_dir=state,
            sharding=Sharding("log"),
            max_update_bytes=1 << 26,
            disk_budget=1 << 30,
        )
        source.start()
        return source

    # --- steps ----------------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        """Take random steps. A reader that follows has read everything before a file may be deleted."""
        rng = self._rng
        for _ in range(steps):
            step = rng.choice(self._possible())
            self.steps.append(step.__name__.strip("_"))
            step()
            if rng.random() < 0.5:
                self._follow()
        self._follow()

    def _possible(self) -> list[Callable[[], None]]:
        steps = [self._write] * 8 + [self._flush, self._reopen, self._kill, self._storm, self._create]
        if len(self._families) > 1:
            steps.append(self._drop)
        if self._kind == "plain":
            steps.append(self._write_entity)
            if self._options.get("recycle_log_file_num", "0") == "0":
                steps.append(self._write_past_the_log)
            if any("comparator" in options for options in self._families.values()):
                steps += [self._write_stamped] * 3
        if self._kind == "WRITE_COMMITTED":
            steps += [self._begin_transaction] * 3 + [self._end_transaction] * 3
        return steps

    def _follow(self) -> None:
        """The log is written out, and read to its end."""
        self._store.flush_wal()
        read_until(self._reader, self._source.latest().order, into=self._read)

    def _key(self) -> bytes:
        return b"key%d" % self._rng.randrange(50)

    def _value(self) -> bytes:
        return self._rng.randbytes(self._rng.choice(_SIZES))

    def _plain_family(self) -> str:
        return self._rng.choice([name for name, of in self._families.items() if "comparator" not in of])

    def _operation(self, transactional: bool) -> tuple[Operation, _Expected | None]:
        rng, family, key, value = self._rng, self._plain_family(), self._key(), self._value()
        names = ["put"] * 4 + ["delete"]
        if "merge_operator" in self._families[family]:
            names.append("merge")
        if not transactional and self._kind == "plain":
            names += ["delete_range", "single_delete", "log_data"]
        match rng.choice(names):
            case "put":
                return ("put", family, key, value), ("upsert", family, (key,), (value,))
            case "merge":
                return ("merge", family, key, value), ("merge", family, (key,), (value,))
            case "delete_range":
                low, high = sorted((key, self._key() + b"~"))
                return ("delete_range", family, low, high), ("delete_range", family, (low,), ())
            case "log_data":
                return ("log_data", family, value), None
            case name:
                return (name, family, key), ("delete", family, (key,), ())

    def _operations(self, transactional: bool = False) -> tuple[list[Operation], list[_Expected]]:
        chosen = [self._operation(transactional) for _ in range(self._rng.choice((1, 1, 2, 5, 20)))]
        if transactional:  # a transaction may keep the last operation on a key only
            chosen = list({(one[0][1], one[0][2]): one for one in chosen}.values())
        return [operation for operation, _ in chosen], [expected for _, expected in chosen if expected]

    def _write(self) -> None:
        operations, expected = self._operations()
        try:
            self._store.write(operations, self._rng.choice(("-", "s")))
        except RefusedError:
            if not self._prepared:
                raise
            return  # another transaction has a key
        self._expected += expected

    def _write_past_the_log(self) -> None:
        before = self._store.sequence
        operations, _ = self._operations()
        self._store.write(operations, "n")
        if self._store.sequence > before:
            self._unlogged.append((before + 1, self._store.sequence))

    def _write_entity(self) -> None:
        key, default = self._key(), self._value()
        columns = {b"": default, b"a": b"1", b"name": self._value()} if self._rng.random() < 0.5 else {b"b": b"2"}
        head = b"".join(string(name) + varint(len(value)) for name, value in columns.items())
        entity = varint(1) + varint(len(columns)) + head + b"".join(columns.values())
        try:
            self._store.write_raw(batch(0, [b"\x16" + string(key) + string(entity)]))
        except RefusedError as refused:
            self.steps.append(str(refused))
            return
        others = {name: value for name, value in columns.items() if name}
        self._expected.append(("upsert", "default", (key,), (columns.get(b""), others)))

    def _write_stamped(self) -> None:
        family = self._rng.choice([name for name, of in self._families.items() if "comparator" in of])
        self._numbers += 1
        key, value, stamp = self._key(), self._value(), self._numbers.to_bytes(8, "little")
        prefix = varint(self._store.number(family)) + string(key + stamp)
        chance = self._rng.random()
        if chance < 0.6:
            self._store.write_raw(batch(0, [b"\x05" + prefix + string(value)]))
            self._expected.append(("upsert", family, (key, stamp), (value,)))
        elif chance < 0.8:
            self._store.write_raw(batch(0, [b"\x0e" + prefix + string(key + b"~" + stamp)]))
            self._expected.append(("delete_range", family, (key, stamp), ()))
        else:
            self._store.write_raw(batch(0, [b"\x04" + prefix]))
            self._expected.append(("delete", family, (key, stamp), ()))

    def _storm(self) -> None:
        threads, count, self._numbers = self._rng.randrange(2, 5), self._rng.randrange(1, 40), self._numbers + 1
        prefix = f"storm{self._numbers}"
        self._store.storm(threads, count, prefix)
        self._expected.append(
            _Together(
                [
                    [("upsert", "default", (f"{prefix}-{t}-{i}".encode(),), (b"%d" % i,)) for i in range(count)]
                    for t in range(threads)
                ]
            )
        )

    def _begin_transaction(self) -> None:
        self._numbers += 1
        name = f"xid{self._numbers}"
        operations, expected = self._operations(True)
        try:
            self._store.begin(name, operations)
            if self._rng.random() < 0.8:
                self._store.prepare(name)
        except RefusedError:
            if not self._prepared:
                raise
            self._store.rollback(name)
            return  # another transaction has a key
        self._prepared[name] = expected

    def _end_transaction(self) -> None:
        if not self._prepared:
            return
        name = self._rng.choice([*self._prepared])
        expected = self._prepared.pop(name)
        if self._rng.random() < 0.7:
            self._store.commit(name)
            self._expected += expected
        else:
            self._store.rollback(name)

    def _flush(self) -> None:
        self._follow()
        self._store.flush()

    def _create(self) -> None:
        self._numbers += 1
        name = f"g{self._numbers}"
        options = self._family_options(False)
        self._store.create(name, options)
        self._families[name] = options

    def _drop(self) -> None:
        self._end_transactions()
        self._follow()
        name = self._rng.choice([name for name in self._families if name != "default"])
        self._store.drop(name)
        del self._families[name]
        # A database whose last sequence numbers are of a dropped family gives them again when it is opened.
        self._store.write([("put", "default", b"after", b"drop")])
        self._expected.append(("upsert", "default", (b"after",), (b"drop",)))

    def _reopen(self) -> None:
        self._end_transactions()
        self._follow()
        self._store.close()
        self._store.end()
        self._store = self._opened()

    def _kill(self) -> None:
        self._end_transactions()
        self._follow()
        self._store.kill()
        self._store = self._opened()

    def _end_transactions(self) -> None:
        while self._prepared:
            self._end_transaction()

    # --- what was read --------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """The reader that followed, one that begins anew at its place, one of the database alone, and `doctor`."""
        self._reader.close()
        kept = read_log(self._source, self._begin)
        assert kept.ids() == self._read.ids()
        for read in (self._read, kept):
            self._check(read.updates, whole=True)
            told = [(int(gap.first_missing), int(gap.last_missing)) for gap in read.gaps]
            # PURGED where the MANIFEST names a WAL file that was never made: nothing shows that it held nothing.
            assert all(gap.kind in {LossKind.NOT_LOGGED, LossKind.PURGED} for gap in read.gaps), read.gaps
            assert _numbers(told) <= _numbers(self._unlogged), (told, self._unlogged)
        alone = self._source_at(self._folder / "alone")
        try:
            rest = read_log(alone, alone.earliest())
            known = 0  # the database deletes files in any order, also that of a prepare before its commit's
            for gap in rest.gaps:
                known = int(gap.last_missing or gap.first_missing)
            self._check([one for one in rest.updates if int(one.id.split(":")[1]) > known], whole=False)
        finally:
            alone.stop()
        report = check(f"rocksdb://{self._path}", self._folder / "state")
        found = {finding.check: finding.severity for finding in report.findings}
        assert found["log"] is Severity.OK, report.findings
        assert Severity.PROBLEM not in found.values(), report.findings

    def _check(self, updates: list[ReadUpdate], *, whole: bool) -> None:
        """``updates`` are what was written, or with ``whole=False`` the end of it."""
        found = [
            (one.op, one.table, one.key, self._values(one)) for one in updates if not one.table.startswith("___rocksdb")
        ]
        at = len(found)
        for expected in reversed(self._expected):
            if not at and not whole:
                return
            if not isinstance(expected, _Together):
                at -= 1
                assert at >= 0, f"missing: {expected}"
                op, table, key, values = found[at]
                if table.startswith("column-family-") and expected[1] not in self._families and not whole:
                    table = expected[1]  # it was dropped, and a MANIFEST made anew does not name it
                assert (op, table, key, values) == expected, f"update {at}"
                continue
            many = sum(map(len, expected.threads))
            part, at = found[max(0, at - many) : at], max(0, at - many)
            for thread in expected.threads:
                mine = [one for one in part if one in thread]
                assert mine == thread[len(thread) - len(mine) :]
                assert len(mine) == len(thread) or not whole
        assert at == 0, f"{at} updates that were not written, the last one {found[at - 1]}"

    def _values(self, update: ReadUpdate) -> tuple[object, ...]:
        if self._kind == "ttl" and update.after:
            (value,) = update.after
            assert isinstance(value, bytes)
            return (value[:-4],)
        return update.after

    def close(self) -> None:
        """End the process and the source."""
        self._store.end()
        self._source.stop()


def _numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}
