"""Makes a server write the end of its log to its disk.

A server writes a commit at once and other records late. While a transaction is open and nothing is committed, the last
page of the log stays in memory for up to 20 s. An empty commit takes a transaction id and 34 bytes of log. It changes
nothing and waits for no standby. The server then writes everything before it within about three times
``wal_writer_delay``.
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

    ``flushed`` returns the end of the log that is on disk. ``commit_nothing`` makes an `EMPTY_COMMIT`; it is called if
    the log is not on disk within 0.1 s. ``patience_s``: how long to wait after that. ``wait`` pauses for this many
    seconds. Raises what these functions raise.
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
