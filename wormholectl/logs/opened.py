"""Opens the log at a URL for one command, with a temporary folder of its own.

A publisher of the same log is not affected.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from publisher.sources import open_source
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormholectl.logs.sources import datastore_at

__all__ = ["open_log"]

_LOG: Final = "log"
_MAX_UPDATE: Final = 64 << 20
_DISK_BUDGET: Final = 1 << 30
_FOLDER: Final = ".wormhole-tail-"
_SETTLED_S: Final = 10.0


@contextmanager
def open_log(url: str, login: Login) -> Iterator[LogSource]:
    """The log at ``url``, started. Its state is in a temporary folder, which is removed at the end.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    found = datastore_at(url)
    with _terminated_as_interrupted(), _state_folder(found.local_path(url)) as folder:
        source = open_source(
            url,
            log=_LOG,
            state_dir=folder,
            sharding=Sharding("log"),
            max_update_bytes=_MAX_UPDATE,
            disk_budget=_DISK_BUDGET,
            login=login,
            transient=True,
        )
        source.start()
        try:
            yield source
        finally:
            source.stop()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that its folder is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _state_folder(database: Path | None) -> Iterator[Path]:
    """A temporary folder. If the database consists of files, the folder is beside them where the user may write there,
    because links to log files need no space on the same disk.

    The folder of a killed command would keep deleted log files on disk, so such folders are removed first. A lock that
    ends with its process distinguishes them from folders in use.
    """
    beside = Path(tempfile.gettempdir())
    if database is not None and os.access(database.absolute().parent, os.W_OK | os.X_OK):
        beside = database.absolute().parent
        _clear_abandoned(beside)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=beside))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _clear_abandoned(beside: Path, clock: Clock = SYSTEM_CLOCK) -> None:
    for folder in beside.glob(f"{_FOLDER}*"):
        with suppress(OSError):  # in use, another user's, or gone meanwhile
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # One that was just made may not be locked yet.
                if clock.wall() - os.fstat(lock).st_mtime > _SETTLED_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
