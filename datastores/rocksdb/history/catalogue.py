"""Keeps the names of column families by number, also of dropped ones."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Final

from datastores.rocksdb.decode.manifest import ManifestDecoder, VersionEdit
from wormhole.host.state_file import read_state, write_state
from wormhole.model.errors import DecodeError

__all__ = ["FamilyCatalogue"]

_log = logging.getLogger(__name__)
_CHUNK: Final = 1 << 20
_TIMESTAMPED: Final = ".u64ts"  # the suffix of RocksDB's own comparators with user-defined timestamps
_TIMESTAMP_BYTES: Final = 8
_WITHOUT_TIMESTAMP: Final = frozenset({"leveldb.BytewiseComparator", "rocksdb.ReverseBytewiseComparator"})


class FamilyCatalogue:
    """Implements :class:`~datastores.rocksdb.log.port.Catalogue`. Thread-safe.

    A MANIFEST that RocksDB wrote anew lacks the families dropped before, but the log may still hold their changes. So
    all names ever read are kept in ``state``.
    """

    def __init__(self, database: Path, state: Path) -> None:
        self._database = database
        self._state = state
        self._lock = threading.Lock()
        kept = read_state(state)
        self._names: dict[int, str] = {0: "default"}
        self._names.update({int(n): str(name) for n, name in kept.get("names", {}).items()})
        self._comparators: dict[int, str] = {int(n): str(c) for n, c in kept.get("comparators", {}).items()}
        self._database_id = ""
        self._last_sequence = 0
        self._manifest_sequence = 0
        self._logs: set[int] = set()
        self._manifest = ""
        self._inode = -1
        self._offset = 0
        self._decoder = ManifestDecoder()
        self._problem = ""

    def name(self, column_family: int) -> str | None:
        """See the port."""
        with self._lock:
            if column_family not in self._names:
                self._refresh()
            return self._names.get(column_family)

    def timestamp_size(self, column_family: int) -> int | None:
        """See the port."""
        with self._lock:
            if column_family not in self._comparators:
                self._refresh()
            comparator = self._comparators.get(column_family, "")
            if comparator.endswith(_TIMESTAMPED):
                return _TIMESTAMP_BYTES
            return 0 if comparator in _WITHOUT_TIMESTAMP else None

    def names(self) -> dict[int, str]:
        """All known families, after reading new parts of the MANIFEST."""
        with self._lock:
            self._refresh()
            return dict(self._names)

    def refresh(self) -> None:
        """Read the new parts of the MANIFEST."""
        with self._lock:
            self._refresh()

    @property
    def database_id(self) -> str:
        """The database's id in the MANIFEST; empty: it has none (older libraries)."""
        return self._database_id

    @property
    def last_sequence(self) -> int:
        """The greatest sequence number in the MANIFEST. The tables hold all changes up to this number."""
        return self._last_sequence

    @property
    def manifest(self) -> tuple[int, int]:
        """The number of the present MANIFEST and its greatest sequence number; zeros: it cannot be read."""
        with self._lock:
            number = self._manifest.removeprefix("MANIFEST-")
            return (int(number), self._manifest_sequence) if self._inode >= 0 and number.isdecimal() else (0, 0)

    def logs(self) -> frozenset[int]:
        """The numbers of WAL files in the MANIFEST. A flush records the number of the next file."""
        with self._lock:
            self._refresh()
            return frozenset(self._logs)

    def forget_logs(self, before: int) -> None:
        """Drop the numbers of WAL files below ``before``."""
        with self._lock:
            self._logs = {n for n in self._logs if n >= before}

    @property
    def problem(self) -> str:
        """The problem with the MANIFEST; empty: none."""
        return self._problem

    def _refresh(self) -> None:
        try:
            if self._read_on():
                write_state(
                    self._state,
                    {
                        "names": {str(n): name for n, name in self._names.items()},
                        "comparators": {str(n): name for n, name in self._comparators.items()},
                    },
                )
            self._problem = ""
        except FileNotFoundError:
            pass  # RocksDB is about to write another one
        except (OSError, DecodeError) as error:
            self._inode = -1  # the next refresh reads it from its beginning
            problem = f"column families cannot be read from {self._database / self._manifest}: {error}"
            if problem != self._problem:  # the file is read every second, but a problem is reported once
                _log.warning("%s", problem)
            self._problem = problem

    def _read_on(self) -> bool:
        """Read the new parts of the MANIFEST. Returns whether they add a family. Raises ``OSError`` and
        :class:`DecodeError`."""
        name = (self._database / "CURRENT").read_text(encoding="ascii", errors="replace").strip()
        if not name.startswith("MANIFEST-") or "/" in name:
            raise DecodeError(f"CURRENT names {name[:80]!r}, which is no MANIFEST")
        changed = False
        with (self._database / name).open("rb", buffering=0) as file:
            inode = os.fstat(file.fileno()).st_ino
            if (name, inode) != (self._manifest, self._inode):
                self._manifest, self._inode, self._offset, self._decoder = name, inode, 0, ManifestDecoder()
                self._manifest_sequence = 0
            file.seek(self._offset)
            while data := file.read(_CHUNK):
                self._offset += len(data)
                for edit in self._decoder.feed(data):
                    changed |= self._apply(edit)
        return changed

    def _apply(self, edit: VersionEdit) -> bool:
        changed = False
        if edit.db_id is not None:
            self._database_id = edit.db_id
        if edit.log_number:
            self._logs.add(edit.log_number)
        if edit.last_sequence is not None:
            self._last_sequence = max(self._last_sequence, edit.last_sequence)
            self._manifest_sequence = max(self._manifest_sequence, edit.last_sequence)
        if edit.added is not None and self._names.get(edit.family) != edit.added:
            self._names[edit.family] = edit.added
            changed = True
        if edit.comparator is not None and self._comparators.get(edit.family) != edit.comparator:
            self._comparators[edit.family] = edit.comparator
            changed = True
        return changed
