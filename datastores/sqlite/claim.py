"""One publisher for each database. A publisher deletes recorded changes, so a second one would never see them."""

from __future__ import annotations

import os
from pathlib import Path

from wormhole.host.process_lock import LockHeldError, take_lock
from wormhole.model.errors import SourceUnavailable, UsageError

__all__ = ["Claim"]


class Claim:
    """A lock on a file beside the database. It ends with its process.

    The database itself must not be opened for it: when a process closes any handle of that file, SQLite's own locks of
    the process end (https://sqlite.org/howtocorrupt.html, section 2.2).
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._handle = -1

    def take(self) -> None:
        """Take the lock.

        Raises :class:`~wormhole.model.errors.SourceUnavailable` if another publisher holds it, and
        :class:`~wormhole.model.errors.UsageError` if the file cannot be made.
        """
        real = self._database.resolve()
        path = real.with_name(f"{real.name}-wormhole")
        try:
            self._handle = take_lock(path)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be opened: {error.strerror}",
                hint="let the publisher's user write the database's folder",
                code="file-unwritable",
            ) from error
        except LockHeldError as held:
            raise SourceUnavailable(
                f"{self._database} is read by another publisher, process {held.process}, which deletes its recorded "
                "changes",
                hint="serve all applications of the database from one publisher, or end that process; a retry follows",
                code="already-running",
            ) from None

    def release(self) -> None:
        """Idempotent."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
