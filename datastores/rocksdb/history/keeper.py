"""Watches a database's directory in a thread, keeps its WAL files, and notices when another history begins.

Its state on disk, in its folder::

    histories.json        incarnation -> identity of the database, and why the incarnation began
    <incarnation>/        known.json (with a copy of the entry above), families.json, times, times.covered
    <incarnation>/wal/    the kept WAL files
    lock                  held while a publisher uses the folder
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from datastores.rocksdb.decode.options import DatabaseOptions
from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.continuity import Evidence, evidence_of, first_too_low, identity_file, went_back
from datastores.rocksdb.history.files import (
    LiveFile,
    check_database,
    live_file,
    live_files,
    newest_options,
    options_names,
    wal_directory,
)
from datastores.rocksdb.history.other_publishers import DatabaseClaim
from datastores.rocksdb.history.time_index import TimeIndex
from datastores.rocksdb.history.wal_files import WalHistory
from datastores.rocksdb.history.watch import DirectoryWatch
from datastores.rocksdb.log.scan import end_of, first_of, last_of
from wormhole.host.process_lock import LockHeldError, take_lock
from wormhole.host.state_file import read_state, write_state
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError
from wormhole.model.position import LogPosition
from wormhole.model.problem import Problem

__all__ = ["KeptHistory", "WalKeeper"]

_log = logging.getLogger(__name__)
_SCAN_S: Final = 1.0  # seconds between two scans without events, because events may be lost
_RESCAN_S: Final = 0.02  # seconds between two scans while files come and go; new files are kept at once
_GATHER_S: Final = 0.0005  # seconds between two wake-ups under a busy writer
_UNNAMED: Final = "unnamed "
_RELEVANT: Final = re.compile(r"\d+\.log|IDENTITY|CURRENT|OPTIONS-\d+|")


@dataclass(slots=True)
class KeptHistory:
    """The files, names and times of one incarnation. ``source_id``: the prefix of its transactions' ids."""

    incarnation: int
    identity: str
    source_id: str
    files: WalHistory
    catalogue: FamilyCatalogue
    times: TimeIndex


_NO_INOTIFY: Final = Problem(
    "the system has no inotify instance or watch left, so the directory is looked at every few milliseconds, "
    "which takes more processor time",
    "raise the limits, `sysctl fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=524288`; it is tried "
    "again by itself",
    code="limit-too-low",
)


class WalKeeper:
    """Keeps the WAL files of the database at ``path`` in ``folder``, from :meth:`start` to :meth:`stop`."""

    def __init__(
        self,
        path: Path,
        folder: Path,
        budget: int,
        *,
        polling: bool = False,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._path = path
        self._folder = folder
        self._budget = budget
        self._polling = polling
        self._told_inotify = False
        self._now_us = now_us
        self._lock = threading.Lock()
        self._lock_fd = -1
        self._histories: dict[int, dict[str, str]] = {}
        self._history: KeptHistory | None = None
        self._ended: list[KeptHistory] = []
        self._options: DatabaseOptions | None = None
        self._options_names: list[str] = []
        self._identity_seen = (0, 0, 0)
        self._wal_directory = path
        self._watch: DirectoryWatch | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._requests = 0
        self._answered = threading.Condition()
        self._answers = 0
        self._problem = ""
        self._claim = DatabaseClaim(path)
        self._other = ""

    # --- from any thread ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Check the database, keep its present WAL files, and start the thread.

        Raises :class:`UsageError` if the path is no RocksDB or another publisher uses the folder, and
        :class:`SourceUnavailable` if the database cannot be read.
        """
        if self._thread is not None:
            return
        check_database(self._path)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise SourceUnavailable(
                f"{self._folder} cannot be used for WAL files: {error.strerror}",
                hint="name a state directory that the publisher's user can write, best on the database's file system",
                code="file-unwritable",
            ) from error
        try:
            self._read_settings()
            self._histories = self._load_histories()
            self._watch = DirectoryWatch(lambda name: _RELEVANT.fullmatch(name) is not None, polling=self._polling)
            self._rewatch()
            self._scan()
            if self._history is None:
                raise SourceUnavailable(
                    f"{self._path} cannot be read just now: {self._problem}", hint="a retry follows"
                )
        except (OSError, WormholeError) as error:
            self._give_up()
            if isinstance(error, WormholeError):
                raise
            raise SourceUnavailable(f"{self._path} cannot be read: {error}", hint="check its permissions") from error
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=f"wal-keeper {self._path.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. The kept files stay on disk. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._answered:
            self._stopping.set()
            self._answered.notify_all()
        if self._watch is not None:
            self._watch.wake()
        thread.join()
        self._give_up()

    @property
    def current(self) -> KeptHistory:
        """The present history. Raises :class:`SourceUnavailable` before :meth:`start`."""
        with self._lock:
            if self._history is None:
                raise SourceUnavailable(f"{self._path} is not being tailed", hint="start the source first")
            return self._history

    @property
    def gone(self) -> str:
        """Why the database cannot be found at the path; empty: it exists."""
        if (self._path / "CURRENT").exists():
            return ""
        return f"{self._path / 'CURRENT'} is not there: the database was moved or deleted"

    def scan(self) -> None:
        """Scan the directory now. A failure is kept for :meth:`problems`."""
        with self._lock:
            self._scan()

    def catch_up(self) -> None:
        """Return when every file created before the call is kept or known to be missed.

        For a file that was created and deleted at once there is only an inotify event, which the thread may not have
        read yet.
        """
        with self._answered:
            self._requests += 1
            request = self._requests
            if self._watch is not None and not self._stopping.is_set():
                self._watch.wake()
            self._answered.wait_for(lambda: self._stopping.is_set() or self._answers >= request)

    def release(self, incarnation: int, number: int, offset: int) -> None:
        """Delete the log before this place. Histories before ``incarnation`` are deleted entirely."""
        with self._lock:
            if self._history is not None and incarnation == self._history.incarnation:
                self._history.files.release(number, offset)
            for history in [h for h in self._ended if h.incarnation < incarnation]:
                history.files.delete()
                history.times.close()
                self._ended.remove(history)
            for old in self._folder.iterdir():
                if old.name.isdecimal() and int(old.name) < incarnation:
                    shutil.rmtree(old, ignore_errors=True)

    def reached(self, place: LogPosition, delivered: str) -> None:
        """Record that the current history was read up to ``place`` and sequence number ``delivered``."""
        history = self._history
        if history is None or history.incarnation != place.incarnation or not delivered.isdecimal():
            return
        if int(delivered) > history.files.reached[1]:
            # At a file's beginning the sequence number is from an earlier file.
            history.files.reached = (place.file if place.offset else place.file - 1, int(delivered))

    def ended_at(self, incarnation: int) -> str:
        """The last sequence number in the kept files of a history that ended; empty: no file is left."""
        folder = self._folder / str(incarnation) / "wal"
        return str(end_of({int(path.stem): path for path in folder.glob("*.log") if path.stem.isdecimal()}) or "")

    def problems(self) -> tuple[Problem, ...]:
        """The present problems, for the operator."""
        with self._lock:
            texts = [self._problem]
            if self._history is not None:
                texts += [*self._history.files.problems(), self._history.catalogue.problem]
            found = [Problem(text, code="file-unwritable") for text in texts if text]
            if self._other:
                found.append(
                    Problem(
                        f"{self._other} tails {self._path} too, with kept log files and datamarkers of its own: "
                        "subscribers of both receive every update twice",
                        "stop the one that is not needed; `wormholectl down` does in its folder what "
                        "`wormholectl up` began there",
                        code="log-shared",
                    )
                )
            if not self._problem and self._lacks_inotify():
                found.append(_NO_INOTIFY)
            return tuple(found)

    def _lacks_inotify(self) -> bool:
        return self._watch is not None and self._watch.polling and not self._polling

    # --- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        watch = self._watch
        assert watch is not None
        scan_at = scanned = 0.0
        while not self._stopping.is_set():
            request = self._requests
            names = watch.wait(max(0.0, scan_at - time.monotonic()) if request == self._answers else 0.0)
            try:
                if watch.overflowed:
                    self.current.files.watch_again()
                    scan_at = 0.0
                if watch.created:
                    self._keep_now(watch.created)
                if names:
                    scan_at = min(scan_at, scanned + (0.0 if watch.polling else _RESCAN_S))
                if time.monotonic() >= scan_at:
                    with self._lock:
                        self._rewatch()
                        self._scan()
                    scanned = time.monotonic()
                    scan_at = scanned + _SCAN_S
                else:
                    self.current.files.follow()
            except Exception as error:  # noqa: BLE001 - this thread must not end: without it the log is lost
                _log.exception("scanning %s failed", self._path)
                self._problem = f"scanning {self._path} failed: {error!r}; a retry follows, please report this"
            with self._answered:
                self._answers = request
                self._answered.notify_all()
            if not names:
                self._stopping.wait(_GATHER_S)

    def _keep_now(self, names: list[str]) -> None:
        """Keep new WAL files at once. A WAL may exist for only some milliseconds, and a scan would be too late."""
        with self._lock:
            history = self._history
            if history is None:
                return
            paths = [self._wal_directory / name for name in names if name.endswith(".log")]
            grabbed = [history.files.grab(path) for path in paths]
            if identity_file(self._path) != self._identity_seen:
                # The directory may hold another database, which only a whole scan finds out.
                for link in grabbed:
                    if link is not None:
                        link.unlink(missing_ok=True)
                history.files.watch_again()
                return
            for path in paths:
                file = live_file(path) or live_file(history.files.link(path))
                if file is not None:
                    history.files.keep_now(file)
                elif path.stem.isdecimal():
                    history.files.missed(int(path.stem))

    def _rewatch(self) -> None:
        if self._watch is not None:
            self._watch.watch({self._path, self._wal_directory})
        lacks = self._lacks_inotify()
        if lacks != self._told_inotify:
            self._told_inotify = lacks
            if lacks:
                _log.warning("%s: %s", self._path, _NO_INOTIFY)
            else:
                _log.info("%s is watched with inotify again", self._path)

    def _scan(self) -> None:
        """Scan the directory once. A failure of the file system is the problem until the next scan."""
        try:
            self._read_settings()
            identity_stat = identity_file(self._path)
            history = before = self._history
            # The evidence is read before the files. An older copy that is restored between the two reads is noticed by
            # the next scan.
            evidence = self._evidence(history) if history is not None else Evidence()
            live = live_files(self._wal_directory)
            identity = self._identity()
            if history is None:
                history = self._resume(identity)
            elif identity and history.identity.startswith(_UNNAMED):
                history.identity = self._histories[history.incarnation]["identity"] = identity
                self._save_histories()
            elif identity and identity != history.identity:
                history = self._begin(identity, f"another database: {identity} instead of {history.identity}", live)
            elif reason := self._conflict(history, evidence, live):
                history = self._begin(
                    history.identity, f"the database was put back to an earlier state: {reason}", live
                )
            history.catalogue.refresh()  # some files may be named only in this MANIFEST, which the next open replaces
            if history is not before:
                live = live_files(self._wal_directory)
            if self._watch is not None and self._watch.polling:
                history.files.looked_at_intervals = True
            history.files.observe(live, recycles=self._recycles())
            self._identity_seen = identity_stat
            self._look_for_others()
            self._problem = ""
        except FileNotFoundError as error:
            self._problem = f"{error.filename} is gone: has the database been deleted or moved?"
            if self._history is not None:
                self._history.files.wake()
        except (OSError, WormholeError) as error:
            problem = str(error) if isinstance(error, WormholeError) else self._unusable(error)
            if problem != self._problem:
                _log.error("%s", problem)
            self._problem = problem

    def _unusable(self, error: OSError) -> str:
        what = f"{error.filename or self._folder} cannot be used: {error.strerror or error}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return f"{what}. {'Free space there' if full else 'Look at its owner and mode'}; a retry follows"

    def _look_for_others(self) -> None:
        other = self._claim.other()
        if other and other != self._other:
            _log.warning("%s tails %s too, with kept log files and datamarkers of its own", other, self._path)
        self._other = other

    def _read_settings(self) -> None:
        names = options_names(self._path)
        if names[:1] == self._options_names[:1] and names:
            return
        self._options = newest_options(self._path) or self._options
        self._options_names = names
        self._wal_directory = wal_directory(self._path, self._options)

    def _recycles(self) -> bool:
        return self._options is not None and self._options.number("recycle_log_file_num") > 0

    # --- histories ---------------------------------------------------------------------------------------------

    def _identity(self) -> str:
        """The database's id; empty: it cannot be read yet, because the database is being created."""
        try:
            text = (self._path / "IDENTITY").read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            text = ""
        if text or self._history is not None:
            return text
        # Some libraries write no such file. Then the MANIFEST has the id; without one there, the path is used.
        probe = FamilyCatalogue(self._path, self._folder / "families.probe")
        probe.refresh()
        (self._folder / "families.probe").unlink(missing_ok=True)
        return probe.database_id or f"{_UNNAMED}{self._path}"

    def _evidence(self, history: KeptHistory) -> Evidence:
        """The evidence in the database now. Raises ``OSError``."""
        history.catalogue.refresh()
        manifest, sequence = history.catalogue.manifest
        before = history.files.evidence
        if (manifest, sequence) == (before.manifest, before.sequence) and before.identity == identity_file(self._path):
            return before
        return evidence_of(self._path, manifest, sequence)

    def _conflict(self, history: KeptHistory, now: Evidence, live: dict[int, LiveFile]) -> str | None:
        """Why the database cannot be a continuation of ``history``; ``None``: it can.

        ``now`` was read before ``live``. Raises ``OSError``."""
        files = history.files
        if reason := files.conflict(live):
            return reason
        if reason := first_too_low(live, files.reached, lambda number: first_of(live[number].path, number)):
            return reason
        if now == files.evidence:
            return None
        reason = went_back(
            self._path,
            files.evidence,
            now,
            reached=lambda: max(files.reached[1], end_of(files.kept())),
            wal_is_there=files.holds_newest(live),
        )
        if reason is None and now.manifest:
            files.note(now)
        return reason

    def _load_histories(self) -> dict[int, dict[str, str]]:
        """The histories by incarnation.

        An entry missing from ``histories.json`` is read from the history's own folder, so that no number is used twice.
        """
        found: dict[int, dict[str, str]] = {}
        for folder in self._folder.iterdir():
            if folder.name.isdecimal() and folder.is_dir():
                about = read_state(folder / "known.json").get("about")
                found[int(folder.name)] = about if isinstance(about, dict) else {}
        for number, entry in read_state(self._folder / "histories.json").items():
            if number.isdecimal() and isinstance(entry, dict):
                found[int(number)] = entry
        return found

    def split(self, history: KeptHistory, number: int, reason: str) -> bool:
        """Begin another history with WAL ``number``. Called when a reader of ``history`` found its beginning.

        Returns whether this call began it; ``False``: another history had begun before. Raises ``OSError``.
        """
        with self._lock:
            if self._history is not history:
                return False
            live = live_files(self._wal_directory)
            begun = self._begin(
                history.identity,
                f"the database was put back to an earlier state: {reason}",
                {n: file for n, file in live.items() if n >= number},
            )
            begun.files.begin_with(number)
            begun.files.observe(live_files(self._wal_directory), recycles=self._recycles())
            return True

    def _resume(self, identity: str) -> KeptHistory:
        """Continue the history of the publisher's last run if it is still the database's, or begin a new one."""
        matching = [n for n, entry in self._histories.items() if entry.get("identity") == identity]
        if not matching:
            return self._begin(identity, "first seen", live_files(self._wal_directory))
        with self._opened(max(matching), identity) as history:
            evidence = self._evidence(history)
            live = live_files(self._wal_directory)
            kept, reached = history.files.kept(), history.files.reached
            # An unread kept file may begin after a crash in which the log lost a part that was read.
            reason = first_too_low(kept, reached, lambda number: first_of(kept[number], number))
            number = max((number for number, path in kept.items() if path.stat().st_size), default=None)
            if number is not None and reason is None:
                last = last_of(kept[number], number)
                # A crash of the publisher may cut a copy short, but not the database's own file.
                if number in live and number == reached[0] and last < reached[1]:
                    reason = f"WAL {number} ends at sequence number {last}, it had reached {reached[1]}"
                if last > reached[1]:  # not if the file's beginning is torn, because it then has no sequence number
                    history.files.reached = (number, last)
            reason = reason or self._conflict(history, evidence, live)
        if reason is None:
            self._history = history
            self._tell_times(history, live)
            return history
        history.files.end()
        self._ended.append(history)
        return self._begin(identity, f"the database was put back to an earlier state: {reason}", live)

    def _begin(self, identity: str, reason: str, live: dict[int, LiveFile]) -> KeptHistory:
        old = self._history
        incarnation = max(self._histories, default=0) + 1
        (_log.info if incarnation == 1 else _log.error)("incarnation %d of %s: %s", incarnation, self._path, reason)
        short = "rocksdb" if identity.startswith(_UNNAMED) else re.sub("[^0-9A-Za-z]", "", identity)[:8].lower()
        # After a restore the ids of changes must differ from the former ids.
        again = any(entry.get("identity") == identity for entry in self._histories.values())
        source_id = f"{short}-{incarnation}" if again else short
        self._histories[incarnation] = {"identity": identity, "reason": reason, "source_id": source_id}
        self._save_histories()
        with self._opened(incarnation, identity) as history:
            history.catalogue.refresh()
            history.files.note(evidence_of(self._path, *history.catalogue.manifest))
        self._history = history
        self._tell_times(history, live)
        if old is not None:
            self._ended.append(old)
            old.files.end()
        return history

    @contextmanager
    def _opened(self, incarnation: int, identity: str) -> Iterator[KeptHistory]:
        """Yield a history, and close it if the caller's block fails. The next scan opens it again."""
        folder = self._folder / str(incarnation)
        folder.mkdir(exist_ok=True)
        times = TimeIndex(folder / "times", lambda number: _measure(files.path(number)), self._now_us)
        try:
            files = WalHistory(
                incarnation,
                folder / "wal",
                self._budget,
                lambda number, written_us: times.file_appeared(incarnation, number, written_us),
            )
            catalogue = FamilyCatalogue(self._path, folder / "families.json")
            catalogue.refresh()
            about = self._histories[incarnation]
            files.about = dict(about)
            yield KeptHistory(incarnation, identity, about.get("source_id", "rocksdb"), files, catalogue, times)
        except BaseException:
            times.close()
            raise

    def _save_histories(self) -> None:
        write_state(self._folder / "histories.json", {str(n): entry for n, entry in self._histories.items()})

    def _tell_times(self, history: KeptHistory, live: dict[int, LiveFile]) -> None:
        """Record the times of files created while the publisher did not run.

        The first record of such a file was written at about the time of the last write to the previous file.
        """
        before = 0
        for number in sorted(live):
            if number > history.files.highest and before:
                history.times.file_appeared(history.incarnation, number, before)
            before = live[number].modified_us

    # --- resources ---------------------------------------------------------------------------------------------

    def _take_lock(self) -> None:
        try:
            self._lock_fd = take_lock(self._folder / "lock")
        except LockHeldError:
            raise UsageError(
                f"{self._folder} is in use by another publisher of {self._path}",
                hint="stop the other one, or give this one a state directory of its own",
                code="already-running",
            ) from None

    def _give_up(self) -> None:
        with self._lock:
            for history in (*self._ended, *([self._history] if self._history else [])):
                history.files.end()
                history.times.close()
            self._history, self._ended = None, []
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1
            self._claim.close()
            self._other = ""


def _measure(path: Path | None) -> tuple[int, int]:
    """Size and time of the last write (microseconds) of a file; zeros: the file is gone."""
    try:
        stat = path.stat() if path is not None else None
    except FileNotFoundError:
        stat = None
    return (stat.st_size, stat.st_mtime_ns // 1000) if stat is not None else (0, 0)
