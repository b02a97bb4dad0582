"""A folder of closed binlog files, which holds log that the server has already purged.

The usable files are those right before the server's first file, downwards without a gap in their numbers. Each file
must have the server's name for it. It must be the file that a reader read under that number, or have been begun by a
server with the same ``server_id``. The next file's list must contain its first transaction and its list of GTIDs. Files
before one that does not meet these conditions are not used.

Only reading a file shows whether it is complete and the next file continues it (see `FolderLog.following`). If not, the
file is refused from then on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from datastores.mysql.files.gtids import grew
from datastores.mysql.files.names import file_name, file_number
from datastores.mysql.files.packets import FolderFile, read_head
from datastores.mysql.history.incarnations import same_file
from datastores.mysql.server.state import ServerState
from wormhole.model.errors import DecodeError, PositionError
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["BinlogFolder"]

_log = logging.getLogger(__name__)

_KEPT: Final = 100_000
_MAKE: Final = "make it, and let the publisher's user read it; or remove binlog_folder from the configuration"
_BEHIND: Final = "of the binlog folder only the files behind it are read; copy it again from the server or a backup"


class BinlogFolder:
    """``path``: the folder; ``None``: no folder, so no file is found. Thread-safe.

    ``problem``: why files of the folder are not used.
    """

    def __init__(self, path: Path | None, *, mariadb: bool) -> None:
        self.problem = NO_PROBLEM
        self._path = path
        self._mariadb = mariadb
        self._lock = threading.Lock()
        self._heads: dict[int, tuple[tuple[int, ...], FolderFile | str]] = {}
        self._refused: dict[tuple[int, ...], str] = {}

    def join(self, view: ServerState, seen: Mapping[int, str]) -> ServerState:
        """A server's view with the folder's files before its own.

        ``seen``: by number, the fingerprints of the server's files that readers read."""
        if self._path is None:
            return view
        with self._lock:
            kept = self._adjoining(self._path, view, seen)
        if not kept:
            return view
        oldest = kept[0].gtids or ""
        return replace(view, kept=kept, purged=view.purged if self._mariadb else oldest)

    def refuse(self, file: FolderFile, why: str) -> None:
        """Stop using ``file`` until it is written to, because the next file does not continue it. ``why``: the
        reason."""
        with self._lock:
            self._refused[file.stamp] = why

    # --- inside, with the lock held ----------------------------------------------------------------------------

    def _adjoining(self, folder: Path, view: ServerState, seen: Mapping[int, str]) -> tuple[FolderFile, ...]:
        found: list[FolderFile] = []
        why = ""
        if not folder.is_dir():
            self._tell(
                Problem(f"binlog_folder {folder} is no folder that can be read", hint=_MAKE, code="log-kept-short")
            )
            return ()
        number = view.own_first - 1
        while not why and number > 0 and len(found) < _KEPT:
            path = folder / file_name(view.base, number)
            file = self._head(path)
            if file is None:
                break
            why = file if isinstance(file, str) else self._unfit(file, view, seen.get(number), found)
            if why:
                why = f"{path}: {why}"
            else:
                assert isinstance(file, FolderFile)
                found.append(file)
            number -= 1
        self._tell(Problem(why, hint=_BEHIND, code="log-kept-short") if why else NO_PROBLEM)
        found.reverse()
        return tuple(found)

    def _unfit(self, file: FolderFile, view: ServerState, seen: str | None, behind: list[FolderFile]) -> str:
        """Why a file does not belong to this log; empty: it belongs to it."""
        if why := self._refused.get(file.stamp):
            return why
        if seen is not None and not same_file(seen, file.fingerprint):
            return f"it is another file than the one that was read ({file.fingerprint}, it was {seen})"
        if seen is None and file.server_id != view.server_id:
            return f"it was begun by a server with server_id {file.server_id}, and this one has {view.server_id}"
        own = view.state if self._mariadb else view.purged  # for MariaDB the list of its first file would need a query
        following = behind[-1].gtids if behind else own
        if following is None or file.gtids is None:
            return ""
        try:
            if not grew(file.gtids, file.first, following, mariadb=self._mariadb):
                return "its transactions are not in the history of the file behind it"
        except PositionError as error:
            return str(error)
        return ""

    def _head(self, path: Path) -> FolderFile | str | None:
        """The beginning of a file, or its fault; ``None``: the file does not exist."""
        number = file_number(path.name)
        try:
            found = path.stat()
            stamp = (found.st_size, found.st_mtime_ns, found.st_ino)
            known = self._heads.get(number)
            if known is not None and known[0] == stamp:
                return known[1]
            head: FolderFile | str = read_head(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        except DecodeError as error:
            head = error.message
        self._heads[number] = (stamp, head)
        return head

    def _tell(self, problem: Problem) -> None:
        if problem and problem != self.problem:
            _log.warning("%s", problem)
        self.problem = problem
