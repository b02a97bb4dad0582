"""Keeps a copy of a table in DuckDB, loaded as Arrow columns: each change counts exactly once.

WORMHOLE_COORDINATOR=shop.toml python -m examples.duckdb_copy copy.duckdb
"""

# pyright: basic
# (pyarrow publishes no types.)
from __future__ import annotations

import sys

import duckdb
import pyarrow as pa

from subscriber_sdk import (
    BatchInfo,
    Datamarker,
    KeptMarker,
    NoticeKind,
    ShardNotice,
    Subscriber,
    marker_from_bytes,
    marker_to_bytes,
    run,
)

__all__ = ["DuckDBCopy"]

TABLE = "shop.users"

# The last change of each key in the batch. A changed key is a delete of the old one. Rows are numbered as they came.
NEWEST = """
CREATE OR REPLACE TEMP TABLE newest AS
SELECT DISTINCT ON (id) * FROM (
    SELECT id, name, email, _row, _op = 'delete' OR _left AS gone FROM changes
    UNION ALL
    SELECT _old_key.id, NULL, NULL, _row, true FROM changes WHERE _old_key IS NOT NULL
) ORDER BY id, _row DESC
"""


class DuckDBCopy(Subscriber):
    """Plain ``def``: DuckDB blocks, so each callback runs in a thread. One connection for each shard."""

    def __init__(self, path: str) -> None:
        self.database = duckdb.connect(path)
        self.database.execute("CREATE TABLE IF NOT EXISTS users (id BIGINT, name TEXT, email TEXT)")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS markers (shard TEXT PRIMARY KEY, marker BLOB NOT NULL, move BIGINT NOT NULL)"
        )
        self.open: dict[str, duckdb.DuckDBPyConnection] = {}

    def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        """Begin where the stored rows end, unless the datamarker was moved since."""
        self._forget(notice.shard)
        if notice.kind is not NoticeKind.ASSIGNED:
            return None
        assert notice.marker is not None
        found = self.database.execute("SELECT marker, move FROM markers WHERE shard = ?", [notice.shard]).fetchone()
        if found and found[1] >= notice.move:
            return KeptMarker(marker_from_bytes(found[0]), found[1])
        self.database.execute(
            "INSERT OR REPLACE INTO markers VALUES (?, ?, ?)",
            [notice.shard, marker_to_bytes(notice.marker), notice.move],
        )
        return None

    def on_arrow(self, batch: pa.RecordBatch) -> None:
        """Replace the rows that changed; not committed yet."""
        info = BatchInfo.of(batch)
        if info.table != TABLE:
            return
        database = self._transaction(info.shard)
        if "truncate" in batch.column("_op").unique().to_pylist():
            raise ValueError(f"{TABLE} was truncated: empty the copy by hand")
        if batch.column("_unavailable").null_count < batch.num_rows:
            raise ValueError(f"{TABLE}: the log lacks columns; set binlog_row_image = FULL")
        row = pa.array(range(batch.num_rows))
        database.register("changes", pa.Table.from_batches([batch]).append_column("_row", row))
        database.execute(NEWEST)
        database.unregister("changes")
        database.execute("DELETE FROM users USING newest WHERE users.id = newest.id")
        database.execute("INSERT INTO users SELECT id, name, email FROM newest WHERE NOT gone")

    def on_datamarker(self, marker: Datamarker) -> None:
        """Rows and place become durable together."""
        database = self._transaction(marker.shard)
        database.execute("UPDATE markers SET marker = ? WHERE shard = ?", [marker_to_bytes(marker), marker.shard])
        database.commit()
        del self.open[marker.shard]

    def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        """What came after ``to`` comes again."""
        self._forget(to.shard)

    def _transaction(self, shard: str) -> duckdb.DuckDBPyConnection:
        if shard not in self.open:
            self.open[shard] = self.database.cursor().begin()
        return self.open[shard]

    def _forget(self, shard: str) -> None:
        if shard in self.open:
            self.open.pop(shard).rollback()


if __name__ == "__main__":
    run(DuckDBCopy(sys.argv[1]), application="copy")
