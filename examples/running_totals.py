"""Keeps sums in SQLite, each change counted exactly once: the datamarker is stored with the sums, in one transaction.

An operator who moves the datamarker back has the changes behind it counted again, once.

python -m examples.running_totals totals.db
"""

from __future__ import annotations

import sqlite3
import sys

from subscriber_sdk import (
    Datamarker,
    KeptMarker,
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
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS markers (shard TEXT PRIMARY KEY, marker BLOB NOT NULL, move INTEGER NOT NULL)"
        )
        self.database.commit()

    def on_shard_notice(self, notice: ShardNotice) -> KeptMarker | None:
        """Begin where the stored sums end, unless the datamarker was moved since."""
        self.database.rollback()
        if notice.kind is not NoticeKind.ASSIGNED:
            return None
        assert notice.marker is not None
        row = self.database.execute("SELECT marker, move FROM markers WHERE shard = ?", (notice.shard,)).fetchone()
        if row and row[1] >= notice.move:
            return KeptMarker(marker_from_bytes(row[0]), row[1])
        if not row and notice.acknowledged:
            raise RuntimeError(f"the sums of {notice.shard} are lost: give the application another name and begin anew")
        self.database.execute(
            "REPLACE INTO markers VALUES (?, ?, ?)", (notice.shard, marker_to_bytes(notice.marker), notice.move)
        )
        self.database.commit()
        return None

    def on_update(self, update: Update) -> None:
        """Add to the sum; not committed yet."""
        after = update.after or {}
        self.database.execute(
            "INSERT INTO totals VALUES (?, ?) ON CONFLICT (customer) DO UPDATE SET amount = amount + excluded.amount",
            (after["customer"], after["amount"]),
        )

    def on_datamarker(self, marker: Datamarker) -> None:
        """Sums and place become durable together."""
        self.database.execute("UPDATE markers SET marker = ? WHERE shard = ?", (marker_to_bytes(marker), marker.shard))
        self.database.commit()

    def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        """What came after ``to`` comes again."""
        self.database.rollback()


if __name__ == "__main__":
    run(RunningTotals(sys.argv[1]), application="totals")
