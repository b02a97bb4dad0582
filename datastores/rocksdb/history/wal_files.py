"""The WAL files of one history of a database: live files, and files kept in the history's folder.

A history ends when the database is replaced or restored to an earlier state. Within a history the numbers of WAL files
only rise. Each history has its own folder and its own number, the *incarnation* of its places.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from datastores.rocksdb.history.continuity import Evidence
from datastores.rocksdb.history.files import LiveFile, head_of
from datastores.rocksdb.history.pin import Pin, copy_of, link_to, relinked, trim
from wormhole.host.state_file import read_state, write_state

__all__ = ["WalHistory"]

_log = logging.getLogger(__name__)
_FULL_HEAD: Final = 64
_COMPARED: Final = 1 << 20
_LONG_KINDS: Final = frozenset({5, 6, 7, 8, 11})


class WalHistory:
    """Implements :class:`~datastores.rocksdb.log.port.WalFiles`. Thread-safe.

    The keeper's thread calls ``observe`` with every scan of the database's directory. ``appeared`` is called with a new
    file's number and its approximate creation time (microseconds since 1970), before any reader can see the file.
    """

    def __init__(self, incarnation: int, folder: Path, budget: int, appeared: Callable[[int, int], None]) -> None:
        self.incarnation = incarnation
        self._folder = folder
        self._budget = budget
        self._appeared = appeared
        self._changed = threading.Condition()
        self._generation = 0
        self._state_path = folder.parent / "known.json"
        folder.mkdir(parents=True, exist_ok=True)
        state = read_state(self._state_path)
        self.evidence = Evidence.from_json(state.get("evidence"))
        self.about: dict[str, str] = dict(state.get("about", {}))
        """This history's entry in `histories.json`. This second copy makes either file sufficient."""
        stored = state.get("reached")
        self.reached: tuple[int, int] = (int(stored[0]), int(stored[1])) if isinstance(stored, list) else (-1, 0)
        """The number of a WAL and a sequence number in it. Later files of this history have greater sequence
        numbers."""
        self._reached_stored = self.reached
        self._highest = int(state.get("highest", -1))
        self._released = int(state.get("released", -1))
        self._lost: list[int] = [int(n) for n in state.get("lost", [])]
        self._unwatched: list[int] = [int(n) for n in state.get("unwatched", [])]
        self._watched = False
        self._copies = {int(n) for n in state.get("copies", [])}
        self._heads = {int(n): bytes.fromhex(head) for n, head in state.get("heads", {}).items()}
        self._live: dict[int, LiveFile] = {}
        self._pins: dict[int, Pin] = {}
        for path in folder.glob("*.log"):
            if not path.stem.isdecimal():
                continue  # the file is no kept WAL
            stat = path.stat()
            self._pins[int(path.stem)] = Pin(
                int(path.stem), path, stat.st_size, linked=stat.st_nlink > 1, inode=stat.st_ino
            )
        self._recycles = False
        if not state and self._pins:
            # The state file was lost with its gaps. A file may have been missed before any kept file.
            self._unwatched = sorted(self._pins)
        self._highest = max(self._highest, *self._pins, -1)
        self._problem = ""
        self._copying = ""
        self.looked_at_intervals = False
        """Whether files may have been created and deleted unnoticed."""
        self.closed = False
        """Whether the history ended. No more files appear, because the database has another history."""

    # --- for readers -------------------------------------------------------------------------------------------

    def path(self, number: int) -> Path | None:
        """See the port."""
        with self._changed:
            pin, live = self._pins.get(number), self._live.get(number)
            if pin is None:
                return live.path if live else None
            # A copy lags behind its original. The original may be read unless RocksDB recycles its files.
            return live.path if live and not pin.linked and not self._recycles else pin.path

    def newer(self, number: int) -> int | None:
        """See the port."""
        with self._changed:
            return min((n for n in self._numbers() if n > number), default=None)

    def may_lack(self, before: int, after: int, existed: Iterable[int]) -> bool:
        """Whether a file between these two may have been deleted before it could be kept.

        ``existed``: numbers of files that are known to have existed."""
        with self._changed:
            if self.looked_at_intervals:
                return before < after
            missing = {n for n in existed if n not in self._pins and n not in self._live}
            return any(before < n < after for n in missing) or any(
                before < n <= after for n in (*self._unwatched, *self._lost)
            )

    def wait(self, seconds: float) -> None:
        """Wait until a file may have grown or appeared, or the history ended."""
        with self._changed:
            generation = self._generation
            self._changed.wait_for(lambda: self._generation != generation, seconds)

    # --- for the keeper ----------------------------------------------------------------------------------------

    def conflict(self, live: Mapping[int, LiveFile]) -> str | None:
        """Why these files cannot be of this history; ``None``: they can be. Raises ``OSError``."""
        for number, file in live.items():
            known, pin, old = self._heads.get(number), self._pins.get(number), self._live.get(number)
            # A cut also shortens the linked file, so the size in the last scan is compared too. Records written after
            # the last scan may be only in the link.
            kept = max(pin.size, pin.measured()) if pin is not None else 0
            if file.path.stat().st_size < kept:
                return f"WAL {number} lost its end"
            if old and old.inode == file.inode and old.device == file.device:
                continue
            head = _own_head(file)
            if known is None:
                if self._released < number <= self._highest and pin is None and self._heads:
                    return f"WAL {number} appeared after WAL {self._highest}"
            elif head is not None and not (head.startswith(known) or known.startswith(head)):
                return f"WAL {number} is another file than before"
            elif head is not None and len(head) < len(known):
                return f"WAL {number} lost its content"
            if head is not None and pin is not None and pin.inode != file.inode and not _same_content(pin, file, kept):
                return f"WAL {number} has another content than before"
        return None

    def holds_newest(self, live: Mapping[int, LiveFile]) -> bool:
        """Whether the newest WAL ever scanned still exists. `conflict` has compared its content."""
        return self._highest in live and bool(self._heads.get(self._highest))

    def kept(self) -> dict[int, Path]:
        """The kept WAL files by number."""
        with self._changed:
            return {number: pin.path for number, pin in self._pins.items()}

    def note(self, evidence: Evidence) -> None:
        """Record the evidence of the last scan. Raises ``OSError``."""
        with self._changed:
            if evidence != self.evidence:
                self.evidence = evidence
                self._save()

    def begin_with(self, number: int) -> None:
        """Begin with WAL ``number``. Earlier files belong to an earlier history."""
        with self._changed:
            self._released = max(self._released, number - 1)

    def observe(self, live: dict[int, LiveFile], *, recycles: bool) -> None:
        """Keep new files and follow files that grew. Raises ``OSError`` if the folder cannot be written."""
        with self._changed:
            before = self._live
            if recycles != self._recycles:
                self._recycles = recycles
            self._drop_overwritten(live)
            self._let_go_of_replaced(live)
            new = sorted(live.keys() - before.keys())
            self._trim_copies(live)
            self._note_unwatched(live)
            changed = bool(new)
            for number in new:
                if not self._keep(live[number], before):
                    del live[number]
            for number, pin in self._pins.items():
                if recycles and pin.linked and number in live:
                    changed = True
                    self._pins[number] = copy_of(live[number], self._folder, recycled=True)
            self._live = live
            changed |= self._note_heads()
            self._grow(measure=True)
            self._respect_budget()
            if changed or before.keys() != live.keys() or self.reached != self._reached_stored:
                self._save()
            self._notify()

    def link(self, path: Path) -> Path:
        """The path of the link to the WAL ``path``."""
        return self._folder / path.name

    def grab(self, path: Path) -> Path | None:
        """Link a new file with one system call, before its content is checked.

        Returns the link; ``None``: no link was made."""
        number = path.stem
        if self._recycles or not number.isdecimal() or int(number) <= self._highest:
            return None
        try:
            os.link(path, self.link(path))
        except OSError:
            return None  # keep_now handles every other case
        return self.link(path)

    def keep_now(self, file: LiveFile) -> None:
        """Keep a new file before the next scan. Raises ``OSError``."""
        with self._changed:
            if file.number > self._highest and self._watched:
                if self._keep(file, self._live):
                    self._live[file.number] = file
                self._notify()

    def missed(self, number: int) -> None:
        """Record that a file was created and is gone. It was missed unless a scan found it before."""
        with self._changed:
            # The greatest known number proves nothing, because a scan may have found only the next file.
            known = number <= self._released or number in self._pins or number in self._live
            if not known and number not in self._lost and number not in self._unwatched:
                self._note_missed(number)

    def watch_again(self) -> None:
        """Record that files may be created and deleted unnoticed until the next :meth:`observe`."""
        with self._changed:
            self._watched = False

    def follow(self) -> None:
        """Update the copies and wake the readers, after a file was written to. Raises ``OSError``."""
        with self._changed:
            self._grow()
            self._notify()

    def release(self, number: int, offset: int) -> None:
        """Delete the log before this place.

        While the place is at the beginning of its file, the newest earlier file with records is kept, because it holds
        the anchor.
        """
        with self._changed:
            limit = number
            if offset == 0:
                limit = max((n for n in self._pins if n < number and self._pins[n].size), default=number)
            gone = [n for n in self._pins if n < limit]
            for n in gone:
                self._pins.pop(n).delete()
            released = max(self._released, limit - 1)
            if gone or released != self._released:
                self._released = released
                self._lost = [n for n in self._lost if n >= limit]
                self._unwatched = [n for n in self._unwatched if n > limit]
                self._forget_heads()
                self._save()

    def end(self) -> None:
        """End the history. No more files appear. The kept files stay readable."""
        with self._changed:
            if self.reached != self._reached_stored:
                with suppress(OSError):  # after a failure the next start reads the file again
                    self._save()
            self.closed = True
            self._live = {}
            for pin in self._pins.values():
                pin.close()
            self._notify()

    def wake(self) -> None:
        """Make every :meth:`wait` return."""
        with self._changed:
            self._notify()

    def delete(self) -> None:
        """Delete all kept files."""
        with self._changed:
            for pin in self._pins.values():
                pin.delete()
            self._pins.clear()

    # --- for the status ----------------------------------------------------------------------------------------

    @property
    def pinned_bytes(self) -> int:
        """The disk space that keeping costs: kept files that RocksDB deleted, and copies."""
        with self._changed:
            return self._pinned_bytes()

    @property
    def budget(self) -> int:
        """The limit of :attr:`pinned_bytes`."""
        return self._budget

    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(number, bytes) of every readable file, ascending."""
        with self._changed:
            numbers = sorted(self._numbers())
        found = []
        for number in numbers:
            path = self.path(number)
            with suppress(FileNotFoundError):  # just deleted or moved
                if path is not None:
                    found.append((number, path.stat().st_size))
        return tuple(found)

    @property
    def highest(self) -> int:
        """The greatest WAL number ever found; -1: none."""
        return self._highest

    def problems(self) -> list[str]:
        """Sentences for the operator."""
        with self._changed:
            found = []
            if self._lost:
                found.append(
                    f"WAL files {_ranges(self._lost)} were dropped because the kept files passed the disk "
                    f"budget of {self._budget} bytes: "
                    "what they held is lost for every flow that has not read it. Raise the budget, or resume "
                    "the flows that are held"
                )
            if self._problem:
                found.append(self._problem)
            if self._copying:
                found.append(self._copying)
            return found

    # --- inside, with the lock held ----------------------------------------------------------------------------

    def _numbers(self) -> set[int]:
        return self._pins.keys() | {n for n in self._live if n > self._released}

    def _notify(self) -> None:
        self._generation += 1
        self._changed.notify_all()

    def _note_unwatched(self, live: Mapping[int, LiveFile]) -> None:
        """At the first scan after a pause, record whether files may have been created and deleted unnoticed.

        RocksDB deletes the oldest file first. So no later file is missing if the newest file from before the pause
        exists.
        """
        if not self._watched and self._highest >= 0 and self._highest not in live:
            following = min((n for n in live if n > self._highest), default=None)
            if following is None:
                return
            self._unwatched = [*self._unwatched[-999:], following]
        self._watched = True

    def _trim_copies(self, live: Mapping[int, LiveFile]) -> None:
        """Trim incomplete copies whose originals were deleted while the publisher did not run."""
        for number in self._copies - live.keys():
            pin = self._pins.get(number)
            if pin is not None and not pin.following:
                trim(pin)
        self._copies = set()

    def _note_missed(self, number: int) -> None:
        self._unwatched = [*self._unwatched[-999:], number]
        _log.error("WAL %d was deleted before it could be kept", number)

    def _keep(self, file: LiveFile, before: Mapping[int, LiveFile]) -> bool:
        """Keep a file. Returns whether it is kept; false: it was deleted after the scan."""
        number = file.number
        if number > self._highest:
            predecessor = max((n for n in before if n < number), default=None)
            self._appeared(number, _written_us(before[predecessor]) if predecessor is not None else file.modified_us)
            self._highest = number
        if number <= self._released:
            return True
        pin = self._pins.get(number)
        try:
            if pin is None or (not pin.linked and not pin.following):
                linked = None if self._recycles or pin is not None else link_to(file, self._folder)
                if linked is None and not self._recycles:
                    self._copying = (
                        f"{self._folder} cannot hold links to {file.path.parent} (another file system, or "
                        "files of another user): "
                        "WAL files are copied. Put the state directory on the database's file system, under "
                        "its user, to save that"
                    )
                self._pins[number] = linked or copy_of(file, self._folder, recycled=self._recycles)
        except FileNotFoundError:
            self._note_missed(number)
            return False
        return True

    def _drop_overwritten(self, live: Mapping[int, LiveFile]) -> None:
        """Drop links to files that RocksDB recycled before its setting was known. They now hold another WAL."""
        inodes = {(f.inode): n for n, f in live.items()}
        for number, pin in list(self._pins.items()):
            now = inodes.get(pin.inode)
            if pin.linked and number not in live and now is not None and now > number:
                pin.delete()
                del self._pins[number]
                self._lost.append(number)
                _log.error("WAL %d was overwritten by WAL %d (recycle_log_file_num) before it was copied", number, now)

    def _let_go_of_replaced(self, live: Mapping[int, LiveFile]) -> None:
        """Keep a file again that was copied back under its number. It has the same beginning (see `conflict`), but only
        the new file grows."""
        for number, file in live.items():
            pin, old = self._pins.get(number), self._live.get(number)
            if pin is None or (old and old.inode == file.inode and old.device == file.device):
                continue
            if pin.inode == file.inode or not (pin.linked or pin.following):
                continue
            with suppress(FileNotFoundError):  # the new file is gone, so the kept one must stay
                if pin.linked:
                    again = relinked(pin, file)
                    self._pins[number] = again or copy_of(file, self._folder, recycled=self._recycles, anew=True)
                else:
                    self._pins[number] = copy_of(file, self._folder, recycled=self._recycles)
                    pin.close()

    def _note_heads(self) -> bool:
        changed = False
        for number, file in self._live.items():
            known = self._heads.get(number, b"")
            if len(known) < _FULL_HEAD:
                try:
                    head = _own_head(file)
                except FileNotFoundError:
                    continue
                if head is not None and (len(head) > len(known) or number not in self._heads):
                    self._heads[number] = head
                    changed = True
        return changed

    def _forget_heads(self) -> None:
        keep = self._pins.keys() | self._live.keys()
        self._heads = {n: head for n, head in self._heads.items() if n in keep}

    def _grow(self, *, measure: bool = False) -> None:
        try:
            for number, pin in self._pins.items():
                if pin.linked:
                    if measure:
                        pin.size = pin.measured()
                    continue
                pin.follow()
                if number not in self._live:
                    pin.close()
            self._problem = ""
        except OSError as error:
            self._problem = (
                f"WAL files cannot be kept in {self._folder}: {error.strerror}. "
                "Free space there; until then RocksDB may delete what was not copied"
            )

    def _pinned_bytes(self) -> int:
        return sum(pin.size for n, pin in self._pins.items() if not pin.linked or n not in self._live)

    def _respect_budget(self) -> None:
        while self._pinned_bytes() > self._budget:
            # Released files are already deleted, so each deletion here loses log. The oldest file is deleted first.
            oldest = min(n for n, pin in self._pins.items() if not pin.linked or n not in self._live)
            if oldest == max(self._pins):
                return
            self._pins.pop(oldest).delete()
            self._lost.append(oldest)
            _log.error("WAL %d was dropped: the kept files are over the disk budget of %d bytes", oldest, self._budget)

    def _save(self) -> None:
        self._forget_heads()
        self._reached_stored = self.reached
        write_state(
            self._state_path,
            {
                "highest": self._highest,
                "released": self._released,
                "lost": self._lost[-1000:],
                "unwatched": self._unwatched,
                "copies": sorted(n for n, pin in self._pins.items() if pin.following),
                "heads": {str(n): head.hex() for n, head in self._heads.items()},
                "reached": list(self.reached),
                "evidence": self.evidence.as_json(),
                "about": self.about,
            },
            sync=False,  # during a wait for the disk, files that come and go would be missed
        )


def _written_us(file: LiveFile) -> int:
    """When the file was last written to. If it is gone, the time from the last scan is used."""
    try:
        return file.path.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return file.modified_us


def _same_content(pin: Pin, file: LiveFile, kept_bytes: int) -> bool:
    """Whether a file in the database's directory begins with the kept bytes. Recycled files cannot be compared."""
    with pin.path.open("rb", buffering=0) as kept, file.path.open("rb", buffering=0) as there:
        left = kept_bytes
        while left > 0:
            piece = kept.read(min(left, _COMPARED))
            if not piece:
                return True
            if there.read(len(piece)) != piece:
                return False
            left -= len(piece)
    return True


def _own_head(file: LiveFile) -> bytes | None:
    """The file's head; ``None``: a recycled file still begins with bytes of an older WAL."""
    head = head_of(file.path)
    if len(head) >= 11 and head[6] in _LONG_KINDS and int.from_bytes(head[7:11], "little") != file.number & 0xFFFFFFFF:
        return None
    return head


def _ranges(numbers: list[int]) -> str:
    """``3, 5-7``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
