"""What a store gives a driver with its connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from subscriber_sdk.transactional.sqlalchemy import AsyncSqlAlchemyStore, SqlAlchemyStore
from subscriber_sdk.transactional.store import finish

pytestmark = pytest.mark.allow_blocking


def test_the_first_transaction_of_sqlite_waits_no_longer_than_the_timeout(tmp_path: Path) -> None:
    """It begins before a statement could bound it."""
    session = finish(SqlAlchemyStore(f"sqlite:///{tmp_path / 'a.db'}", timeout=0.5).connect())
    assert finish(session.row("PRAGMA busy_timeout", {})) == (500,)
    finish(session.close())


async def test_the_first_transaction_of_aiosqlite_too(tmp_path: Path) -> None:
    session = await AsyncSqlAlchemyStore(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}", timeout=0.5).connect()
    assert await session.row("PRAGMA busy_timeout", {}) == (500,)
    await session.close()
