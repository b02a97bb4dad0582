from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from examples.table_copy import TableCopy, from_text
from subscriber_sdk import Op
from subscriber_sdk.testing import Kit, KitFlow, read, update
from wormhole.wire.rows import decode_key

TABLE = "shop.users"
pytestmark = pytest.mark.allow_blocking("SQLite, in place of the thread that it has in production")


class Copied:
    """The program in a kit, and what its copy holds."""

    def __init__(self, kit: Kit) -> None:
        self.program = TableCopy(":memory:")
        self.flow: KitFlow = kit.attach(self.program)

    def rows(self) -> dict[str, object]:
        found = self.program.database.execute("SELECT key, row FROM rows ORDER BY key")
        return {key: from_text(row) for key, row in found}


@pytest.fixture
def copied(wormhole_kit: Kit) -> Iterator[Copied]:
    found = Copied(wormhole_kit)
    yield found
    found.program.database.close()


def test_existing_rows_and_changes_come_to_the_same_place(copied: Copied) -> None:
    flow = copied.flow
    flow.commit(update(TABLE, key=1, after={"name": "Ada"}))
    flow.backfill(
        TABLE, [read(TABLE, key=key, after={"name": name}) for key, name in ((1, "Ada"), (2, "Bob"))], chunks=2
    )
    assert copied.rows() == {"[1]": {"name": "Ada"}, "[2]": {"name": "Bob"}}
    flow.commit(update(TABLE, key=2, before={"name": "Bob"}, after={"name": "Bo"}))
    flow.commit(update(TABLE, key=3, old_key=1, before={"name": "Ada"}, after={"name": "Ada"}))
    flow.crash_and_redeliver(transactions=3)
    assert copied.rows() == {"[2]": {"name": "Bo"}, "[3]": {"name": "Ada"}}
    flow.commit(update(TABLE, key=2, before={"name": "Bo"}))
    assert copied.rows() == {"[3]": {"name": "Ada"}}
    flow.commit(update(TABLE, key=(), op=Op.TRUNCATE))
    assert copied.rows() == {}


def test_a_delete_that_was_missed_converges_with_the_next_backfill(copied: Copied) -> None:
    flow = copied.flow
    flow.backfill(TABLE, [read(TABLE, key=key, after={"name": "old"}) for key in (1, 2, 3)])
    flow.begin_backfill()
    flow.chunk(TABLE, read(TABLE, key=1, after={"name": "new"}), until=2)
    flow.commit(update(TABLE, key=9, after={"name": "born meanwhile"}))
    flow.chunk(TABLE, read(TABLE, key=3, after={"name": "new"}), after=2)
    assert set(copied.rows()) == {"[1]", "[2]", "[3]", "[9]"}
    flow.end_scan(TABLE)
    assert copied.rows() == {
        "[1]": {"name": "new"},
        "[3]": {"name": "new"},
        "[9]": {"name": "born meanwhile"},
    }


def test_a_column_that_the_log_lacks_stays(copied: Copied) -> None:
    copied.flow.commit(update(TABLE, key=1, after={"name": "Ada", "age": 36}))
    copied.flow.commit(update(TABLE, key=1, before={"name": "Ada", "age": 36}, after={"name": "Ada L."}))
    assert copied.rows() == {"[1]": {"name": "Ada L.", "age": 36}}


def test_a_column_that_is_gone_leaves_the_row_with_the_next_read(copied: Copied) -> None:
    copied.flow.commit(update(TABLE, key=1, after={"name": "Ada", "age": 36}))
    copied.flow.backfill(TABLE, [read(TABLE, key=1, after={"name": "Ada"})])
    assert copied.rows() == {"[1]": {"name": "Ada"}}


def test_values_of_every_type_are_verified(copied: Copied) -> None:
    values = {
        "a": None,
        "b": b"\x00\xff",
        "c": Decimal("1.50"),
        "d": 0.1,
        "e": True,
        "f": 1 << 63,
        "bytes": "a column may have the name of a type",
        "g": {b"one": b"\xff"},
    }
    for key in (1, "text", b"bytes", Decimal("2.50"), (1, "two")):
        rows = [read(TABLE, key=key, after=values)]
        copied.flow.backfill(TABLE, rows)
        found = copied.flow.verify(TABLE, rows)
        assert found.equal, (key, found)


def test_what_was_changed_in_the_copy_is_found_and_repaired(copied: Copied) -> None:
    rows = [read(TABLE, key=key, after={"name": "Ada", "age": 36}) for key in range(1, 1501)]
    copied.flow.backfill(TABLE, rows)
    before = copied.rows()
    change = copied.program.database.execute
    change('UPDATE rows SET row = \'{"name": "Eve", "age": 36}\' WHERE key = \'[7]\'')
    change("DELETE FROM rows WHERE key = '[8]'")
    change("INSERT INTO rows SELECT name, '[1600]', shard, generation, row FROM rows WHERE key = '[9]'")
    found = copied.flow.verify(TABLE, rows, chunks=3)
    assert [(one.kind.value, decode_key(one.key), one.columns) for one in found.differences] == [
        ("differs", (7,), ("name",)),
        ("missing", (8,), ()),
        ("extra", (1600,), ()),
    ]
    found = copied.flow.verify(TABLE, rows, repair=True)
    assert (found.repaired, found.removed) == (2, 1)
    assert copied.rows() == before
    assert copied.flow.verify(TABLE, rows).equal


def test_a_dropped_column_goes_from_every_row(copied: Copied) -> None:
    rows = [read(TABLE, key=key, after={"name": "Ada", "old": 1}) for key in (1, 2, 3)]
    copied.flow.backfill(TABLE, rows)
    copied.flow.commit(update(TABLE, key=1, before={"name": "Ada"}, after={"name": "Bo"}))
    assert copied.rows() == {"[1]": {"name": "Bo"}, "[2]": {"name": "Ada"}, "[3]": {"name": "Ada"}}
