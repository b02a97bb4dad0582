"""How fast a server writes its log, as its statistics say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from datastores.postgres.doctor.growth import measure_growth


@dataclass
class Connection:
    """Answers the one query."""

    version: int
    rows: list[tuple[str | None, ...]]

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        assert "pg_stat_wal" in sql
        return self.rows


@pytest.mark.parametrize(
    ("version", "rows", "expected"),
    [
        (160004, [("7200", "3600.5")], "pg_stat_wal, since its statistics were reset"),
        (160004, [("7200", "12")], "its statistics (pg_stat_wal) are younger than ten minutes"),
        (160004, [("7200", None)], "its statistics (pg_stat_wal) are younger than ten minutes"),
        (160004, [], "its statistics (pg_stat_wal) are younger than ten minutes"),
        (130023, [], "PostgreSQL 13 does not count what it writes to its log"),
    ],
)
def test_what_the_server_counts(version: int, rows: list[tuple[str | None, ...]], expected: str) -> None:
    found = measure_growth(Connection(version, rows))  # type: ignore[arg-type]
    assert (found.how or found.unknown) == expected
    assert bool(found.rate) is bool(found.how)
