"""Opens the log at a URL for one command, with a temporary folder. A publisher of the same log is not affected."""

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
    """Open and start the log at ``url``. Its state is in a temporary folder, which is removed at the end.

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
    """Handle SIGTERM like Ctrl-C, so that the command removes its folder."""
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
    """A temporary folder. For a database of files, it is beside these files if the user may write there, because hard
    links to log files on the same disk need no space.

    Folders of killed commands are removed first, because their links keep deleted log files on disk. A folder in use
    has a lock, which ends with its process.
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
        with suppress(OSError):  # the folder is in use, belongs to another user, or is gone
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # A new folder may not be locked yet.
                if clock.wall() - os.fstat(lock).st_mtime > _SETTLED_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
