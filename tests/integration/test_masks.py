"""Columns and masks of a real MariaDB: what is hidden is in no byte that a subscriber receives."""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path

from publisher.sources import open_source
from tests.integration.publisher.conftest import World
from tests.support.databases import DatabaseServer
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op, Value
from wormhole.ports.datastore import Login
from wormhole.wire.update import Update

SECRET = b"0123456789abcdef0123456789abcdef"
# Each is written once as what it is, and hidden in another way.
MAIL, OTHER_MAIL, PHONE, NOTES, DOCUMENT = (
    "ada@hidden.example",
    "countess@hidden.example",
    "+44-hidden-1843",
    "hidden-notes " * 300,
    '{"hidden": "document"}',
)
STATEMENTS = f"""
CREATE TABLE masks.people (id INT PRIMARY KEY, name VARCHAR(40), email VARCHAR(80) NOT NULL UNIQUE,
    phone VARBINARY(40), notes MEDIUMTEXT, doc JSON, balance DECIMAL(10, 2), seen DOUBLE);
CREATE TABLE masks.visits (email VARCHAR(80), page INT UNSIGNED);
INSERT INTO masks.people VALUES (1, 'ada', '{MAIL}', '{PHONE}', '{NOTES}', '{DOCUMENT}', 4711.5, 4711.25);
UPDATE masks.people SET email = '{OTHER_MAIL}' /* was {MAIL} */ WHERE email = '{MAIL}';
UPDATE masks.people SET doc = JSON_SET(doc, '$.more', '{PHONE}'), notes = CONCAT(notes, '{MAIL}') WHERE id = 1;
UPDATE masks.people SET id = 2, name = 'countess' WHERE phone = '{PHONE}';
ALTER TABLE masks.people COMMENT '{MAIL}', ADD COLUMN added VARCHAR(40) DEFAULT '{PHONE}';
UPDATE masks.people SET name = 'ada', added = '{NOTES[:30]}';
SET STATEMENT binlog_row_image = MINIMAL FOR UPDATE masks.people SET email = '{MAIL}' WHERE id = 2;
INSERT INTO masks.visits VALUES ('{MAIL}', 7), ('{MAIL}', 8);
UPDATE masks.people SET notes = REPEAT('{MAIL} ', 5000);
DELETE FROM masks.people WHERE email = '{MAIL}';
DELETE FROM masks.visits WHERE page = 8;
TRUNCATE masks.visits;
"""


def hashed(text: str) -> str:
    return hmac.new(SECRET, text.encode(), "sha256").hexdigest()


def shown(update: Update) -> dict[str, Value]:
    return dict(update.after or update.before or {})


async def test_what_is_hidden_is_in_no_byte_that_is_sent(mariadb_server: DatabaseServer, tmp_path: Path) -> None:
    server = mariadb_server
    key = tmp_path / "mask.key"
    key.write_bytes(SECRET)
    world = World()
    world.settings["mask_key_file"] = key
    await asyncio.to_thread(server.sql, "CREATE DATABASE masks")
    world.source = source = open_source(  # type: ignore[assignment]
        server.url, log="log", state_dir=tmp_path / "state", sharding=Sharding("log"), max_update_bytes=64 << 10,
        disk_budget=1 << 30, login=Login(server.password_file),
    )  # fmt: skip
    await asyncio.to_thread(source.start)
    world.application(
        start="latest",
        tables=["masks.*"],
        columns=["-notes", "-masks.people.added"],
        mask={"Email": "hash", "masks.people.phone": "null", "doc": "hash", "balance": "hash", "seen": "hash"},
    )
    try:
        async with scripted_subscriber("app", "s1") as s1, world.publisher():
            await world.register(s1)
            await s1.accepts(await s1.hears_later("assign"))
            for statement in STATEMENTS.strip().removesuffix(";").split(";\n"):
                await asyncio.to_thread(server.sql, statement)
            updates: list[Update] = []
            while not updates or updates[-1].op is not Op.TRUNCATE:
                frame = await s1.hears_later("batch")
                updates += s1.updates(frame)
                await s1.processed(frame)
            wire = bytes(s1.wire)
    finally:
        await asyncio.to_thread(source.stop)
        await asyncio.to_thread(server.sql, "DROP DATABASE masks")

    hidden = [MAIL, OTHER_MAIL, "hidden", "4711", PHONE, "document"]
    assert [text for text in hidden if text.encode() in wire] == []
    people = [update for update in updates if update.table == "masks.people"]
    assert [update.op for update in people] == [Op.INSERT, *[Op.UPDATE] * 6, Op.DELETE]
    first, renamed, rewritten, moved, added, partial, large, last = people
    ada = {
        "id": 1, "name": "ada", "email": hashed(MAIL), "phone": None, "doc": hashed(DOCUMENT),
        "balance": hashed("4711.50"), "seen": hashed("4711.25"),
    }  # fmt: skip
    assert (first.key, first.after) == ((1,), ada)
    assert (renamed.before, renamed.after) == (ada, {**ada, "email": hashed(OTHER_MAIL)})
    assert renamed.changed == frozenset({"email"})
    assert rewritten.changed == frozenset({"doc"})
    assert (moved.key, moved.old_key, moved.changed) == ((2,), (1,), frozenset({"id", "name"}))
    assert added.changed == frozenset({"name"})
    assert set(shown(added)) == set(ada), "columns that are left out are not in the schema"
    assert shown(partial)["email"] == hashed(MAIL)
    assert large.too_large
    assert last.too_large
    visits = [shown(update) for update in updates if update.table == "masks.visits"]
    assert visits == [*({"email": hashed(MAIL), "page": page} for page in (7, 8, 8)), {}], "equal values can be joined"
