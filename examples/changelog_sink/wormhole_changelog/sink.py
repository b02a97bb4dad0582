"""A sink that is open, and what writes its records."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sinks.envelopes.settings import record_subscriber
from sinks.port import Sink
from sinks.records import Record, RecordRefused, RecordWriter
from subscriber_sdk import Subscriber
from wormhole.model.errors import TargetUnavailable
from wormhole.model.findings import Report, Severity
from wormhole_changelog.kind import ChangelogSettings

__all__ = ["ChangelogSink"]

_LONGEST = 1 << 20
_CREATE = "CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, id TEXT, name TEXT, key BLOB, value BLOB)"


class ChangelogSink(Sink):
    """See the port."""

    def __init__(self, settings: ChangelogSettings) -> None:
        self._path = settings.path
        self._subscriber = record_subscriber(settings, ChangelogWriter(self._path))

    @property
    def subscriber(self) -> Subscriber:
        return self._subscriber

    async def examine(self) -> Report:
        report = Report(str(self._path))
        if not self._path.parent.is_dir():
            raise TargetUnavailable(f"{self._path.parent} is missing", hint="make the folder")
        report.add("target_folder", Severity.OK, f"{self._path.parent} is there")
        return report


class ChangelogWriter(RecordWriter):
    """Writes the records of all shards."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def write(self, shard: str, records: Sequence[Record]) -> None:
        for record in records:
            if len(record.value or b"") > _LONGEST:
                raise RecordRefused(record, f"it is longer than {_LONGEST} bytes")
        rows = [(record.update_id, record.table, record.key, record.value) for record in records]
        await asyncio.to_thread(self._insert, rows)

    def _insert(self, rows: list[tuple[str, str, bytes, bytes | None]]) -> None:
        try:
            with closing(sqlite3.connect(self._path)) as database, database:
                database.execute(_CREATE)
                database.executemany("INSERT INTO changes (id, name, key, value) VALUES (?, ?, ?, ?)", rows)
        except sqlite3.OperationalError as error:  # the file cannot be opened, is locked, or its disk is full
            raise TargetUnavailable(f"{self._path}: {error}", hint="correct the file or its folder") from error
