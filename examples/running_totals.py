"""Keeps sums in SQLite, each change counted exactly once: the datamarker is stored with the sums, in one transaction.

python -m examples.running_totals totals.db
"""

from __future__ import annotations

import sqlite3
import sys

from subscriber_sdk import (
    Datamarker,
    NoticeKind,
    ShardNotice,
    Subscriber,
    Update,
    marker_from_bytes,
    marker_to_bytes,
    run,
)

__all__ = ["RunningTotals"]


class RunningTotals(Subscriber):
    """Plain ``def``: SQLite blocks, so each callback runs in a thread. One shard, so one connection is enough."""

    def __init__(self, path: str) -> None:
        self.database = sqlite3.connect(path, check_same_thread=False)
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS totals (customer INTEGER PRIMARY KEY, amount INTEGER NOT NULL)"
        )
        self.database.execute("CREATE TABLE IF NOT EXISTS markers (shard TEXT PRIMARY KEY, marker BLOB NOT NULL)")
        self.database.commit()

    def on_shard_notice(self, notice: ShardNotice) -> Datamarker | None:
        """Begin where the stored sums end, whatever the publisher has stored."""
        self.database.rollback()
        row = self.database.execute("SELECT marker FROM markers WHERE shard = ?", (notice.shard,)).fetchone()
        return marker_from_bytes(row[0]) if row and notice.kind is NoticeKind.ASSIGNED else None

    def on_update(self, update: Update) -> None:
        """Add to the sum; not committed yet."""
        after = update.after or {}
        self.database.execute(
            "INSERT INTO totals VALUES (?, ?) ON CONFLICT (customer) DO UPDATE SET amount = amount + excluded.amount",
            (after["customer"], after["amount"]),
        )

    def on_datamarker(self, marker: Datamarker) -> None:
        """Sums and place become durable together."""
        self.database.execute("REPLACE INTO markers VALUES (?, ?)", (marker.shard, marker_to_bytes(marker)))
        self.database.commit()

    def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        """What came after ``to`` comes again."""
        self.database.rollback()


if __name__ == "__main__":
    run(RunningTotals(sys.argv[1]), application="totals")
