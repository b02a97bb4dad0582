"""How a server comes to write the end of its log to its disk.

It writes a commit at once, and what is no commit late: while a transaction is open and nothing is committed, its last
page stays in memory for up to 20 s. A commit of nothing takes a transaction id and 34 bytes of log, changes nothing,
waits for no standby, and has everything before it written within about three times ``wal_writer_delay``.
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
    """See that the log up to ``lsn`` is on the server's disk soon; whether it is.

    ``flushed``: asks up to where it is; ``commit_nothing``: makes an `EMPTY_COMMIT`, when that is not far enough within
    0.1 s; ``patience_s``: how long to wait after that; ``wait``: pauses for so many seconds. Raises what these raise.
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
