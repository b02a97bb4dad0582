"""A lock that permits one process at a time in a folder. It ends with its process. Its file has the process id."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from wormhole.model.errors import ConfigError

__all__ = ["FolderLock"]


class FolderLock:
    """A context manager that holds the lock. ``what``: the program's name in the error of a second process."""

    def __init__(
        self, path: Path, what: str, hint: str = "end that one first, or give this one a folder of its own"
    ) -> None:
        self.path = path
        self._what, self._hint = what, hint
        self._handle = -1

    def __enter__(self) -> Self:
        """Make the folder and take the lock.

        Raises :class:`~wormhole.model.errors.ConfigError` if another process holds the lock.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be created: {error.strerror}",
                hint="name a folder that this user may write to: state_dir under [monitor] or [publisher]",
                code="file-unwritable",
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(handle, 100, 0).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise ConfigError(
                f"{self._what} runs already in {self.path.parent}: process {holder}",
                hint=self._hint,
                code="already-running",
            ) from None
        self._handle = handle
        with contextlib.suppress(OSError):  # the lock works on a full disk too
            os.truncate(handle, 0)
            os.pwrite(handle, json.dumps(os.getpid()).encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)
