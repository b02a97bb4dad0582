"""Permits one process at a time in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from wormhole.host.process_lock import LockHeldError, take_lock
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
            self._handle = take_lock(self.path)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be created: {error.strerror}",
                hint="name a folder that this user may write to: state_dir under [monitor] or [publisher]",
                code="file-unwritable",
            ) from error
        except LockHeldError as held:
            raise ConfigError(
                f"{self._what} runs already in {self.path.parent}: process {held.process}",
                hint=self._hint,
                code="already-running",
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)
