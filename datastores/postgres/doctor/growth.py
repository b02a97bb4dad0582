"""How fast a server writes its log, as it counts itself."""

from __future__ import annotations

from typing import Final

from datastores.postgres.server.connection import Connection
from wormhole.model.findings import LogGrowth

__all__ = ["measure_growth"]

_COUNTED_FROM: Final = 140000
"""The first version with ``pg_stat_wal``."""
_LEAST_S: Final = 600.0


def measure_growth(connection: Connection) -> LogGrowth:
    """From when its statistics were reset until now. Raises as
    :meth:`~datastores.postgres.server.connection.Connection.query`.
    """
    if connection.version < _COUNTED_FROM:
        return LogGrowth(unknown="PostgreSQL 13 does not count what it writes to its log")
    rows = connection.query("SELECT wal_bytes, extract(epoch FROM now() - stats_reset) FROM pg_stat_wal")
    written, seconds = (float(value or 0) for value in rows[0]) if rows else (0.0, 0.0)
    if seconds < _LEAST_S:
        return LogGrowth(unknown="its statistics (pg_stat_wal) are younger than ten minutes")
    return LogGrowth(int(written), seconds, "pg_stat_wal, since its statistics were reset")
