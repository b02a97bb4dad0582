"""Statements as real servers execute and log them: a barrier for every table that lost rows, and for no other.

``WORMHOLE_ROUNDS`` is how many scripts each server executes, ``WORMHOLE_SEED`` the first one's seed.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from datastores.mysql.decode.name_folding import fold
from datastores.mysql.decode.rare_events import parse_query
from publisher.sources import open_source
from tests.support.databases import DatabaseServer, start_server
from tests.support.mysql_statements import Script
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import read_log

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "1"))
SEED = int(os.environ.get("WORMHOLE_SEED", "1"))
STATEMENTS = 150 if "WORMHOLE_ROUNDS" in os.environ else 80


@pytest.fixture(scope="module", params=["mariadb", "mysql", "mariadb-folds", "mysql-folds"])
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """Every server as it is, and with ``lower_case_table_names = 1``."""
    flavour, _, folds = request.param.partition("-")
    if not folds:
        yield request.getfixturevalue(f"{flavour}_server")
        return
    with start_server(flavour, lower_case_table_names="1") as private:
        yield private


def barriers(server: DatabaseServer, state: Path, script: Script, statements: int) -> list[set[str]]:
    """What a reader reports for each statement that ``script`` executes while no publisher runs."""

    def source() -> LogSource:
        return open_source(
            server.url, log="log", state_dir=state, sharding=Sharding("log"), login=Login(server.password_file)
        )

    before = source()
    before.start()
    start = before.latest()
    before.stop()
    script.go(statements)
    after = source()
    after.start()
    try:
        read = read_log(after, start)
    finally:
        after.stop()
    assert not read.broken
    found: list[set[str]] = [set() for _ in script.done]
    ends = [done.end for done in script.done]
    for update in read.updates:
        if update.op == "truncate":
            found[next(i for i, end in enumerate(ends) if update.place <= end)].add(update.table)
    return found


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_a_barrier_for_every_table_that_lost_rows_and_for_no_other(
    server: DatabaseServer, tmp_path: Path, seed: int
) -> None:
    script = Script(server, seed, f"st{zlib.crc32(f'{seed}'.encode()) % 1000}_")
    try:
        found = barriers(server, tmp_path, script, STATEMENTS)
    finally:
        script.close()
    wrong = []
    for done, came in zip(script.done, found, strict=True):
        lost, kept = ({f"{database}.{table}" for database, table in tables} for tables in (done.lost, done.kept))
        if lost - came or kept & came:
            wrong.append(
                f"{done.sql!r} ({done.session}; {done.error or 'done'}): lost {lost - came}, kept {kept & came}"
            )
    assert not wrong, "\n".join(wrong)
    assert sum(bool(done.lost) for done in script.done) > STATEMENTS // 20


def test_names_are_folded_as_the_servers_fold_them(database_server: DatabaseServer) -> None:
    characters = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
    for at in range(0, len(characters), 8000):
        some = characters[at : at + 8000]
        asked = ", ".join(
            f"LOWER(CONVERT(_ucs2 0x{ord(one):04x} USING utf8mb3) COLLATE utf8mb3_general_ci)" for one in some
        )
        # In one text: a column each takes seconds.
        (answer,) = database_server.sql(f"SELECT CONCAT_WS(CHAR(0), {asked})")
        assert str(answer[0]).split("\0") == [fold(one) for one in some]


class TestEveryClientCharset:
    """White space in the client's character set, and names that its text and the servers' own text are written in."""

    def test_a_byte_that_is_white_space(self, database_server: DatabaseServer) -> None:
        charsets = [
            str(name)
            for (name,) in database_server.sql("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")
        ]
        with database_server.connect() as connection:
            session: Any = connection
            for charset in charsets:
                if charset in ("ucs2", "utf16", "utf16le", "utf32"):
                    continue
                spaces = {
                    byte
                    for byte in range(128, 256)
                    if self._accepted(session, charset, b"SELECT" + bytes([byte]) + b"1 AS x")
                }
                (collation,) = {
                    int(row[0])
                    for row in database_server.sql(
                        f"SELECT ID FROM information_schema.COLLATIONS WHERE CHARACTER_SET_NAME = '{charset}' "
                        "AND IS_DEFAULT = 'Yes'"
                    )
                }
                status = b"\x04" + struct.pack("<HHH", collation, collation, collation)
                for byte in range(128, 256):
                    found = parse_query(
                        struct.pack("<IIBHH", 7, 0, 0, 0, len(status)) + status + b"\0TRUNCATE" + bytes([byte]) + b"t"
                    )
                    assert (found.sql[8] in found.spaces) is (byte in spaces), (charset, hex(byte))

    @staticmethod
    def _accepted(session: Any, charset: str, sql: bytes) -> bool:
        try:
            for text in (f"SET NAMES {charset}".encode(), sql):
                session._execute_command(3, text)
                session._affected_rows = session._read_query_result()
        except pymysql.MySQLError:
            return False
        return True
