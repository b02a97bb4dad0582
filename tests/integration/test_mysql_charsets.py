"""Every character set of both servers, as the servers list them: text, names of members, columns and tables, as
SELECT shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pymysql.cursors import Cursor

from publisher.sources import open_source
from tests.support.databases import DatabaseServer
from wormhole.filters import Filter
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.wire.update import Update
from wormholectl.tail.log_tail import Selected

_CHARACTERS = "éäøßşłčžōђяіґğאשبكٹΩάאสขაბաբ日本表ー～①ⅲ髙한국字幕𠮷😀€"
_ALL_BYTES = 256


@pytest.fixture
def source(database_server: DatabaseServer, tmp_path: Path) -> Iterator[LogSource]:
    one = open_source(
        database_server.url, log="log", state_dir=tmp_path, sharding=Sharding("log"), server_ids="",
        login=Login(database_server.password_file),
    )  # fmt: skip
    one.start()
    yield one
    one.stop()


def known(cursor: Cursor, charset: str) -> str:
    """Those of the characters that the character set has."""
    found = ""
    for character in _CHARACTERS:
        cursor.execute(f"SELECT CONVERT(CONVERT(%s USING {charset}) USING utf8mb4)", (character,))
        ((back,),) = cursor.fetchall()
        found += character if back == character and character not in found else ""
    return found


def fill(cursor: Cursor, charset: str, longest: int) -> str:
    """A table of the character set with one row for each of its bytes, or of the characters above; its name."""
    own = known(cursor, charset)
    quoted = [character for character in own if character <= "\uffff"] or ["x"]
    table = f"t_{charset}_{quoted[0]}"
    members = [*quoted, f"{''.join(quoted[:8])} it", "plain"]
    names = ", ".join(f"'{member}'" for member in members)
    cursor.execute(
        f"CREATE TABLE `{table}` (id INT PRIMARY KEY AUTO_INCREMENT, c CHAR(40), v VARCHAR(40), x TEXT, e "
        f"ENUM({names}), "
        f"s SET({names}), `{quoted[-1]}ö` INT) CHARACTER SET {charset}"
    )
    values = [own[i : i + 10] for i in range(0, len(own), 10)]
    for at, value in enumerate(values):
        cursor.execute(f"INSERT INTO `{table}` VALUES (NULL, %s, %s, %s, 1, 1, 1)", (value,) * 3)
        cursor.execute(f"INSERT INTO `{table}` (e, s) VALUES (%s, %s)", (at % len(members) + 1, 1 << at | 1))
    for at in range(len(members)):
        cursor.execute(f"INSERT INTO `{table}` (e, s) VALUES (%s, %s)", (at + 1, (1 << at + 1) - 1))
    if longest == 1:
        every = [byte for byte in range(1, _ALL_BYTES) if charset != "ascii" or byte < 0x80]
        cursor.execute(f"INSERT INTO `{table}` (v) VALUES " + ", ".join(f"(X'{byte:02X}2E')" for byte in every))
    return table


def test_every_character_set(database_server: DatabaseServer, source: LogSource) -> None:
    start = source.latest()
    database = "charsets_of_both"
    database_server.sql(f"CREATE DATABASE {database}")
    try:
        expected: dict[str, list[dict[str, object]]] = {}
        with closing(database_server.connect(database=database)) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            cursor.execute("SHOW CHARACTER SET")
            charsets = {str(name): int(longest) for name, _, _, longest in cursor.fetchall() if name != "binary"}
            assert len(charsets) > 35
            for charset, longest in charsets.items():
                table = fill(cursor, charset, longest)
                cursor.execute(f"SELECT * FROM `{table}` ORDER BY id")
                columns = [str(column[0]) for column in cursor.description]
                expected[f"{database}.{table}"] = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
        last = source.latest().order
        reader = source.open(start)
        arrived: dict[str, list[dict[str, object]]] = {}
        try:
            end = start.order
            while end < last:
                segment = reader.read(1 << 20, 10.0)
                assert segment is not None
                assert not segment.broken
                end = segment.end
                found: Iterator[Update] = Selected(Filter.parse(None)).of(segment)
                for update in found:
                    arrived.setdefault(update.table, []).append(dict(update.after or {}))
        finally:
            reader.close()
        for table, rows in expected.items():
            for row, got in zip(rows, arrived[table], strict=True):
                assert got == row, table
        assert arrived.keys() == expected.keys()
    finally:
        database_server.sql(f"DROP DATABASE {database}")
