"""A secondary instance of a database that another process owns, run in a separate process.

The binding holds Python's lock while it opens a database or catches up with the owner. In the publisher's process every
flow would wait during that time. As a program, this module answers requests on its standard input, and ends when the
input is closed. :mod:`datastores.rocksdb.existing_rows.source` sends the requests::

    python -m datastores.rocksdb.existing_rows.secondary DATABASE FOLDER KEPT MAX_UPDATE_BYTES

``KEPT`` is the folder of the WAL files that the log's source keeps. The binding writes a file into the directory that
it opens. So it opens ``FOLDER/view``, which holds links to the database's CURRENT, MANIFEST and OPTIONS. It reads
tables and WAL from the database's directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from datastores.rocksdb.decode.options import DatabaseOptions
from datastores.rocksdb.existing_rows.live_families import (
    BYTEWISE,
    REVERSED,
    Family,
    LiveFamilies,
    refusals,
    with_settings,
)
from datastores.rocksdb.existing_rows.row_encoding import Columns, encode_plain, encode_wide, is_plain, key_field_size
from datastores.rocksdb.existing_rows.secondary_pipe import read_message, write_message
from datastores.rocksdb.history.files import check_database, live_files, newest_options, options_names, wal_directory
from datastores.rocksdb.log.scan import logged_up_to
from wormhole.model.errors import SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.problem import Problem

__all__ = ["main"]

_PATIENCE_S: Final = 3.0  # the longest wait for the owner to write a MANIFEST or log
_PAUSE_S: Final = 0.02
_SKIP_S: Final = 1.0
_CACHE: Final = 8 << 20
_INFO_LOG: Final = 1 << 20
_CLOCK_EVERY: Final = 64  # rows between two checks of the time limit
_LONGEST_S: Final = 300  # a longer call of the library ends the process
_NEWER: Final = "install a rocksdict of a RocksDB as new as the database's"
_NEWEST_FORMAT: Final = 6  # the newest format_version that RocksDB 8.6 to 9 know
_FOOTER: Final = struct.Struct("<IQ")
_BLOCK_BASED: Final = 0x88E241B785F4CFF7
_LASTING: Final = ("Corruption", "Invalid argument", "Not implemented")


class _StaleError(Exception):
    """The instance must be opened again, in a new process: the binding crashes when one process opens it twice."""


class _Batch:
    """Rows in the form of an answer: joined, with their ends and the sizes of their keys' fields."""

    def __init__(self, table: str, max_update_bytes: int) -> None:
        self._table = table
        self._max_update_bytes = max_update_bytes
        self._rows: list[bytes] = []
        self._ends = array("Q")
        self._key_sizes = array("I")
        self.size = 0
        self.wide: bool | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: bytes, columns: Columns) -> None:
        """Add a row. Raises :class:`UnreadableTable` for rows of both kinds, because a chunk has one schema."""
        plain = is_plain(columns)
        if self.wide is plain:
            raise UnreadableTable(
                f"column family {self._table} holds plain values and wide columns (key {key!r:.80})",
                hint='write all rows as one kind, or use `start = "latest"`',
            )
        self.wide = not plain
        if plain:
            row = encode_plain(key, columns[0][1], self._max_update_bytes)
        else:
            row = encode_wide(key, columns, self._max_update_bytes)
        self._rows.append(row)
        self.size += len(row)
        self._ends.append(self.size)
        self._key_sizes.append(key_field_size(key))

    def blob(self) -> bytes:
        return b"".join((self._ends.tobytes(), self._key_sizes.tobytes(), *self._rows))


class _WalNow:
    """The database's WAL files now, and the files that the log's source keeps in ``kept``.

    Implements :class:`~datastores.rocksdb.log.port.WalFiles`.
    """

    reached = (-1, 0)

    def __init__(self, directory: Path, kept: Path) -> None:
        found = live_files(kept) if kept.is_dir() else {}
        self._files = {number: file.path for number, file in {**found, **live_files(directory)}.items()}

    def path(self, number: int) -> Path | None:
        return self._files.get(number)

    def newer(self, number: int) -> int | None:
        return min((other for other in self._files if other > number), default=None)

    def wait(self, seconds: float) -> None:
        pass


class _Secondary:
    """The secondary instance. The first request opens it."""

    def __init__(self, path: Path, folder: Path, kept: Path, max_update_bytes: int) -> None:
        self._path = path
        self._kept = kept
        self._folder = folder
        self._view = folder / "view"
        self._max_update_bytes = max_update_bytes
        self._manifest = LiveFamilies(path)
        self._families: dict[str, Family] = {}
        self._opened: dict[str, Family] = {}
        self._identity = (0, 0)
        self._walked = (-1, 0, 0)  # how far the log was read: WAL, offset, sequence number before the offset
        self._shown: set[int] = set()  # table files of the instance
        self._db: Any = None
        self._lent: tuple[Any, ...] = ()  # objects that must live as long as the instance

    # --- requests -------------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, Any]:
        """All families. For each: name, estimated rows, why it is refused, next step, fingerprint, and whether its keys
        are in the order of their bytes.
        """
        refused = self._catch_up(0)
        listed = []
        for name, family in sorted(self._families.items()):
            rows = None
            if name not in refused and self._db is not None:
                rows = self._family(name).property_int_value("rocksdb.estimate-num-keys")
            problem = refused.get(name)
            listed.append(
                (
                    name,
                    rows,
                    problem.text if problem else "",
                    problem.hint if problem else "",
                    f"{family.number} {family.comparator}",
                    family.comparator == BYTEWISE,
                )
            )
        return {"tables": listed}

    def chunk(
        self,
        table: str,
        after: str | None,
        until: str | None,
        rows: int,
        max_bytes: int,
        seconds: float,
        not_before: tuple[int, int, int, int],
    ) -> tuple[dict[str, Any], bytes]:
        """Rows with keys above ``after`` up to ``until``. ``not_before``: sequence number and place."""
        self._catch_up_for(table, not_before[0])
        began = time.monotonic()
        batch = _Batch(table, self._max_update_bytes)
        last = None
        done = True
        for key, columns in self._scan(table, _key(after), _key(until)):
            late = len(batch) % _CLOCK_EVERY == _CLOCK_EVERY - 1 and time.monotonic() - began >= seconds
            if len(batch) >= rows or batch.size >= max_bytes or late:
                done = False
                break
            batch.add(key, columns)
            last = key
        return self._answer(batch, last, done, not_before)

    def rows(
        self, table: str, keys: Sequence[str], not_before: tuple[int, int, int, int]
    ) -> tuple[dict[str, Any], bytes]:
        """The rows of these keys."""
        self._catch_up_for(table, not_before[0])
        family = self._family(table)
        batch = _Batch(table, self._max_update_bytes)
        wanted = sorted(map(bytes.fromhex, set(keys)), reverse=self._opened[table].comparator == REVERSED)
        for key in wanted:
            try:
                columns = family.get_entity(key)
            except Exception as error:
                if str(error).startswith("NotFound"):
                    continue
                raise _failed(table, error) from error
            batch.add(key, columns)
        return self._answer(batch, wanted[-1] if wanted else None, True, not_before)

    def skip(self, table: str, after: str | None, rows: int) -> dict[str, Any]:
        """The key ``rows`` rows after ``after``, or an earlier row's key if that takes too long."""
        self._catch_up_for(table, 0)
        began = time.monotonic()
        last = _key(after)
        iteration = self._family(table).iter(_whole_order())
        if last is None:
            iteration.seek_to_first()
        else:
            iteration.seek(last)
            if iteration.valid() and iteration.key() == last:
                iteration.next()
        for count in range(1, rows + 1):
            if not iteration.valid():
                self._check(table, iteration)
                return {"key": None}
            if count == rows or (count % _CLOCK_EVERY == 0 and time.monotonic() - began >= _SKIP_S):
                break
            iteration.next()
        return {"key": iteration.key().hex()}

    # --- reading --------------------------------------------------------------------------------------------------

    def _answer(
        self, batch: _Batch, last: bytes | None, done: bool, not_before: tuple[int, int, int, int]
    ) -> tuple[dict[str, Any], bytes]:
        header = {
            "high": self._logged(not_before),
            "wide": bool(batch.wide),
            "last": None if last is None else last.hex(),
            "done": done,
            "count": len(batch),
        }
        return header, batch.blob()

    def _logged(self, not_before: tuple[int, int, int, int]) -> int:
        """The last sequence number that the instance shows and the log holds.

        A write past the WAL may have a higher number, which an idle log never reaches.
        """
        delivered, incarnation, *place = not_before
        shown = int(self._db.latest_sequence_number())
        if shown <= delivered:
            return delivered
        file, at, logged = max((*place, delivered), self._walked)
        try:
            files = _WalNow(
                wal_directory(self._path, newest_options(self._path)), self._kept / str(incarnation) / "wal"
            )
            if files.path(file) is None:
                return shown  # the file is gone; the rows may include its changes after the place
            last, file, at = logged_up_to(files, shown, file, at)
        except (OSError, WormholeError):
            return shown  # the log's own reader reports the fault
        self._walked = (file, at, max(logged, last))
        return max(delivered, self._walked[2])

    def _scan(self, table: str, after: bytes | None, until: bytes | None) -> Iterator[tuple[bytes, Columns]]:
        family = self._family(table)
        limited = _whole_order()
        if until is not None:
            probe = family.iter(_whole_order())
            probe.seek(until)
            if probe.valid() and probe.key() == until:
                probe.next()
            if probe.valid():
                limited.set_iterate_upper_bound(probe.key())
            self._check(table, probe)
        last = after
        for key, columns in family.entities(from_key=after, read_opt=limited):
            if key != after:
                yield key, columns
                last = key
        # A failed iteration ends like a complete one.
        probe = family.iter(limited)
        if last is None:
            probe.seek_to_first()
        else:
            probe.seek(last)
            if probe.valid() and probe.key() == last:
                probe.next()
        self._check(table, probe)
        if probe.valid():
            raise SourceUnavailable(f"reading column family {table} ended before its end", hint="a retry follows")

    def _check(self, table: str, probe: Any) -> None:
        try:
            probe.status()
        except Exception as error:
            raise _failed(table, error) from error

    def _family(self, name: str) -> Any:
        return self._db if name == "default" else self._db.get_column_family(name)

    # --- catching up ----------------------------------------------------------------------------------------------

    def _catch_up_for(self, table: str, at_least: int) -> None:
        """Catch up with the owner until the instance has the family. Raises :class:`UnreadableTable`."""
        refused = self._catch_up(at_least)
        if problem := refused.get(table):
            raise UnreadableTable(
                f"column family {table} cannot be read: {problem.text}", hint=problem.hint, code=problem.code
            )
        if table not in self._families:
            raise UnreadableTable(
                f"there is no column family {table}", hint="nothing, if it was dropped on purpose", code="table-unknown"
            )

    def _catch_up(self, at_least: int) -> dict[str, Problem]:
        """Catch up with the owner, to sequence number ``at_least`` or later. Returns why families are refused, by name.

        Raises :class:`SourceUnavailable` if the number is not reached after a few seconds.
        """
        limit = time.monotonic() + _PATIENCE_S
        while True:
            try:
                refused = self._try_catch_up()
                if self._db is None:
                    return refused  # all families are refused
                shown = self._db.latest_sequence_number()
                if shown >= at_least:
                    return refused
                problem = f"sequence number {at_least} is in the log and cannot be read yet: {shown} can"
            except SourceUnavailable as error:
                problem = error.message
            if time.monotonic() >= limit:
                raise SourceUnavailable(problem, hint="a retry follows")
            time.sleep(_PAUSE_S)

    def _try_catch_up(self) -> dict[str, Problem]:
        check_database(self._path)
        options = newest_options(self._path)
        if options is None:
            raise SourceUnavailable(
                f"no OPTIONS file of {self._path} can be read", hint="let the publisher's user read the OPTIONS-* files"
            )
        identity = _identity(self._path)
        self._families = with_settings(self._manifest.refresh(), options)
        refused = refusals(self._families, options)
        wanted = {name: family for name, family in self._families.items() if name not in refused}
        if "default" not in wanted:
            return refused
        if self._db is not None and (wanted != self._opened or identity != self._identity):
            raise _StaleError(f"{self._path} has other column families, or is another database")
        try:
            self._link()
            if self._db is None:
                self._open(options, wanted)
                self._opened, self._identity = wanted, identity
            else:
                self._db.try_catch_up_with_primary()
        except Exception as error:
            if "unknown record type" in str(error):
                raise UnreadableTable(
                    f"{self._path} cannot be read: its WAL has records that the RocksDB in rocksdict does not know "
                    f"({error})",
                    hint=f"open the database with track_and_verify_wals=false, or {_NEWER}",
                ) from error
            if str(error).startswith("Invalid argument: Merge requires"):
                raise UnreadableTable(
                    f"{self._path} cannot be read: it holds values that are merged by an operator that its OPTIONS "
                    f"file does not name ({error})",
                    hint="open the database once with the merge operator in its options",
                ) from error
            problem = f"{self._path} cannot be read just now: {error}"
            if self._db is not None and "Try again" not in str(error):
                raise _StaleError(problem) from error
            raise SourceUnavailable(problem, hint="a retry follows") from error
        self._check_files(wanted)
        return refused

    def _check_files(self, wanted: dict[str, Family]) -> None:
        """Check that the instance shows every table file in the MANIFEST. It silently shows an older version if it
        cannot read a file. Raises :class:`UnreadableTable` and :class:`SourceUnavailable`."""
        named = self._manifest.files(wanted.values())
        if named <= self._shown:
            return
        self._shown = {int(file["name"].strip("/").partition(".")[0]) for file in self._db.live_files()}
        self._manifest.refresh()
        missing = (named & self._manifest.files(wanted.values())) - self._shown
        if not missing:
            return
        name = f"{min(missing):06d}.sst"
        form = _format_of(self._path / name)
        if form > _NEWEST_FORMAT:
            raise UnreadableTable(
                f"{self._path} cannot be read: {name} has format_version {form}, which the RocksDB in rocksdict does "
                "not know",
                hint=f"set format_version={_NEWEST_FORMAT} in the database's block-based table options and compact it, "
                f"or {_NEWER}",
            )
        raise SourceUnavailable(f"{name}, which the MANIFEST names, is not shown yet", hint="a retry follows")

    def _link(self) -> None:
        self._view.mkdir(parents=True, exist_ok=True)
        for name in ("CURRENT", self._manifest.manifest, *options_names(self._path)[:1]):
            link = self._view / name
            if not link.is_symlink():
                link.symlink_to(self._path / name)

    def _open(self, options: DatabaseOptions, wanted: dict[str, Family]) -> None:
        from rocksdict import AccessType, Cache, DBPath, Env, Options, Rdict

        (self._view / "rocksdict-config.json").write_text('{"raw_mode": true, "prefix_extractors": {}}')
        env, cache = Env(), Cache(_CACHE)
        database, loaded = Options.load_latest(str(self._view), env, ignore_unknown_options=True, cache=cache)
        self._lent = (env, cache, database, loaded)
        if missing := sorted(wanted.keys() - loaded.keys()):
            raise SourceUnavailable(f"the OPTIONS file of {self._path} does not name {missing[0]} yet")
        database.set_db_paths([DBPath(str(self._path), 1 << 62)])
        database.set_wal_dir(str(wal_directory(self._path, options)))
        database.set_db_log_dir("")
        database.set_max_open_files(-1)  # a table that the owner deletes can still be read
        database.set_unordered_write(False)
        database.set_allow_concurrent_memtable_write(False)  # not every kind of memtable allows it
        database.set_stats_dump_period_sec(0)
        database.set_stats_persist_period_sec(0)
        database.set_keep_log_file_num(2)
        database.set_max_log_file_size(_INFO_LOG)
        self._db = Rdict(
            str(self._view),
            database,
            column_families={name: loaded[name] for name in wanted},
            access_type=AccessType.secondary(str(self._folder / "instance")),
        )


def _whole_order() -> Any:
    from rocksdict import ReadOptions

    made = ReadOptions()
    made.set_total_order_seek(True)  # otherwise a family with a prefix extractor is read by prefix
    return made


def _failed(table: str, error: Exception) -> WormholeError:
    if str(error).startswith(_LASTING):
        return UnreadableTable(
            f"column family {table} cannot be read: {error}", hint="check it with `ldb --db=PATH scan`"
        )
    return SourceUnavailable(f"column family {table} cannot be read just now: {error}", hint="a retry follows")


def _identity(path: Path) -> tuple[int, int]:
    """A value that changes when another database, or a copy of this one, replaces this one."""
    try:
        status = (path / "IDENTITY").stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_ctime_ns


def _format_of(table: Path) -> int:
    """The ``format_version`` of a block-based table, from its footer; 0: it has none, or the file is gone."""
    try:
        with table.open("rb") as file:
            file.seek(-_FOOTER.size, os.SEEK_END)
            version, magic = _FOOTER.unpack(file.read(_FOOTER.size))
    except OSError:
        return 0
    return int(version) if magic == _BLOCK_BASED else 0


def _key(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def main(arguments: Sequence[str]) -> None:
    """Answer requests until the input ends."""
    path, folder, kept, max_update_bytes = arguments
    secondary = _Secondary(Path(path), Path(folder), Path(kept), int(max_update_bytes))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)  # a former process may be ending, and still writes its log there
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    while (message := read_message(requests)) is not None:
        request, _ = message
        signal.alarm(_LONGEST_S)
        header: dict[str, Any]
        blob = b""
        try:
            match request.pop("do"):
                case "tables":
                    header = secondary.tables()
                case "chunk":
                    header, blob = secondary.chunk(**request)
                case "skip":
                    header = secondary.skip(**request)
                case _:
                    header, blob = secondary.rows(**request)
        except _StaleError as error:
            write_message(answers, {"stale": str(error)})
            os._exit(0)
        except WormholeError as error:
            header = {"error": type(error).__name__, "message": error.message, "hint": error.hint or ""}
        signal.alarm(0)
        write_message(answers, header, blob)


if __name__ == "__main__":
    main(sys.argv[1:])
