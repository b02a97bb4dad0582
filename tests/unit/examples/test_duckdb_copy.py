from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from examples.duckdb_copy import TABLE, DuckDBCopy
from subscriber_sdk.testing import Kit, KitFlow, read, update

pytestmark = pytest.mark.allow_blocking("DuckDB, in place of the thread that it has in production")


def row(key: int, name: str) -> dict[str, Any]:
    return {"id": key, "name": name, "email": f"{name}@example.com"}


def insert(key: int, name: str) -> Any:
    return update(TABLE, key={"id": key}, after=row(key, name))


def rename(key: int, old: str, new: str, *, to: int | None = None) -> Any:
    if to is None:
        return update(TABLE, key={"id": key}, before=row(key, old), after=row(key, new))
    return update(TABLE, key={"id": to}, old_key=key, before=row(key, old), after=row(to, new))


def delete(key: int, name: str) -> Any:
    return update(TABLE, key={"id": key}, before=row(key, name))


class Copied:
    """The program in a kit, and what its copy holds."""

    def __init__(self, kit: Kit) -> None:
        self.program = DuckDBCopy(":memory:")
        self.flow: KitFlow = kit.attach(self.program)

    def rows(self) -> list[tuple[int, str]]:
        return self.program.database.execute("SELECT id, name FROM users ORDER BY id").fetchall()


@pytest.fixture
def copied(wormhole_kit: Kit) -> Iterator[Copied]:
    found = Copied(wormhole_kit)
    yield found
    found.program.database.close()


def test_the_last_change_of_a_key_counts(copied: Copied) -> None:
    copied.flow.commit(insert(1, "a"), insert(2, "b"), rename(1, "a", "A"), delete(2, "b"), insert(2, "c"))
    assert copied.rows() == [(1, "A"), (2, "c")]
    copied.flow.commit(rename(1, "A", "A", to=3), insert(1, "d"), rename(2, "c", "c", to=4))
    assert copied.rows() == [(1, "d"), (3, "A"), (4, "c")]
    copied.flow.commit(delete(3, "A"), insert(5, "e"), rename(5, "e", "e", to=6))
    assert copied.rows() == [(1, "d"), (4, "c"), (6, "e")]


def test_a_crash_repeats_nothing(copied: Copied) -> None:
    copied.flow.commit(insert(1, "a"))
    copied.flow.commit(rename(1, "a", "b"))
    copied.flow.crash_and_redeliver(transactions=2)
    copied.flow.commit(rename(1, "b", "c", to=2))
    assert copied.rows() == [(2, "c")]


def test_a_move_is_made_once(copied: Copied) -> None:
    flow = copied.flow
    flow.commit(insert(1, "a"))
    before = flow.datamarker
    flow.commit(insert(2, "b"))
    copied.program.database.execute("DELETE FROM users")
    flow.move(before)
    flow.cut()
    flow.commit(insert(3, "c"))
    flow.move(flow.end)
    copied.program.database.execute("DELETE FROM users WHERE id = 2")
    flow.crash_and_redeliver(transactions=3)
    flow.commit(insert(4, "d"))
    assert copied.rows() == [(4, "d")]


def test_existing_rows(copied: Copied) -> None:
    copied.flow.commit(insert(1, "a"))
    copied.flow.backfill(
        TABLE, [read(TABLE, key={"id": 1}, after=row(1, "a")), read(TABLE, key={"id": 2}, after=row(2, "b"))]
    )
    assert copied.rows() == [(1, "a"), (2, "b")]


def test_other_tables_are_left_out(copied: Copied) -> None:
    copied.flow.commit(update("shop.orders", key={"id": 1}, after={"id": 1}))
    assert copied.rows() == []
