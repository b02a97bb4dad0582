"""Makes a server flush the end of its log to its disk.

A server flushes a commit at once and other records late. While a transaction is open and none commits, the last page of
the log stays in memory for up to 20 s. An empty commit makes the server flush everything before it within about three
times ``wal_writer_delay``. It takes a transaction id and 34 bytes of log, changes nothing, and waits for no standby.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["EMPTY_COMMIT", "await_flushed"]

EMPTY_COMMIT: Final = "SELECT pg_catalog.pg_current_xact_id()"
_SOON_S: Final = 0.1
_AGAIN_S: Final = 0.02


def await_flushed(
    lsn: int,
    flushed: Callable[[], int],
    commit_nothing: Callable[[], object],
    wait: Callable[[float], object],
    patience_s: float = 0.0,
) -> bool:
    """Wait until the log up to ``lsn`` is on the server's disk. Returns whether it is.

    ``flushed`` returns the end of the flushed log. ``commit_nothing`` makes an `EMPTY_COMMIT`, and is called if the log
    is not flushed within 0.1 s. ``patience_s``: how long to wait after that. ``wait`` pauses for a number of seconds.
    Raises the errors of these functions.
    """
    until = time.monotonic() + _SOON_S
    committed = False
    while flushed() < lsn:
        if time.monotonic() >= until:
            if committed:
                return False
            commit_nothing()
            committed = True
            if not patience_s:
                return False
            until += patience_s
        wait(_AGAIN_S)
    return True
