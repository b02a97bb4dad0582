"""Servers, databases and accounts with random settings and encodings, and one odd row beside a healthy table.

The healthy table's rows are the same bytes as with no setting at all, from the log and as existing rows, and of the odd
table both agree. Each round prints its seed; ``WORMHOLE_SEED`` repeats it, ``WORMHOLE_ROUNDS`` is how many there are.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import psycopg
import pymysql
import pytest

from tests.support.databases import DatabaseServer, start_server
from tests.support.postgres_scene import PostgresScene
from tests.support.postgres_server import PostgresServer
from tests.support.seed import SEED
from tests.support.table_scene import Scene, TableScene
from wormhole.model.sharding import Sharding

ROUNDS: Final = int(os.environ.get("WORMHOLE_ROUNDS", "8"))
_Choices = Mapping[str, Sequence[str]]

# Beside these, the server converts what it sends (EUC_JIS_2004, EUC_JP, EUC_KR, EUC_TW, MULE_INTERNAL).
_ENCODINGS: Final = (
    *("UTF8", "SQL_ASCII", "WIN1252", "WIN1253", "WIN1255", "WIN1257", "WIN874", "LATIN1", "LATIN7", "ISO_8859_6"),
    *("ISO_8859_7", "ISO_8859_8", "KOI8R", "WIN866", "EUC_CN"),
)
_OF_POSTGRES: Final[_Choices] = {
    "DateStyle": ("'German'", "'SQL, DMY'", "'Postgres, MDY'"),
    "IntervalStyle": ("'iso_8601'", "'sql_standard'", "'postgres_verbose'"),
    "TimeZone": ("'Asia/Kathmandu'", "'America/New_York'", "'UTC'"),
    "bytea_output": ("'escape'", "'hex'"),
    "extra_float_digits": ("'-15'", "'0'", "'3'"),
    "standard_conforming_strings": ("'off'", "'on'"),
    "lc_numeric": ("'C'",),
    "array_nulls": ("'off'",),
    "transform_null_equals": ("'on'",),
    "quote_all_identifiers": ("'on'",),
    "search_path": ("'pg_temp'", "'nowhere'"),
    "statement_timeout": ("'1ms'", "'20ms'"),
    "lock_timeout": ("'1ms'",),
    "idle_in_transaction_session_timeout": ("'1ms'", "'20ms'"),
    "idle_session_timeout": ("'20ms'",),
    "transaction_timeout": ("'1s'",),
    "default_transaction_isolation": ("'serializable'", "'repeatable read'"),
    "default_transaction_read_only": ("'on'",),
    "default_transaction_deferrable": ("'on'",),
    "synchronous_commit": ("'off'",),
    "exit_on_error": ("'on'",),
    "enable_indexscan": ("'off'",),
    "client_min_messages": ("'debug5'",),
    "client_encoding": ("'LATIN1'", "'UTF8'"),
    "row_security": ("'off'",),
    "wal_sender_timeout": ("'1s'", "'0'"),
}
_ODD: Final = (
    "'bytes', E'BYTES'",
    "E'BYTES', 'key'",
    "'long', repeat('y', 3000000)",
    "'null', NULL",
    "'', ''",
    "'-infinity', 'NaN'",
    "E'\\n\\t\\\\.', E'\\\\N'",
)
_GOOD_OF_POSTGRES: Final = (
    (
        "CREATE TABLE good (k int PRIMARY KEY, v text, t timestamptz, d date, i interval, f float8, r real, b bytea, "
        "n numeric(8,2), j jsonb, a text[], o bool, m timestamp)"
    ),
    (
        "INSERT INTO good SELECT g, 'plain ' || g, timestamptz '2024-02-29 12:34:56.789+05:30', date '2024-03-01', "
        "interval '1 year 2 mons -3 days 04:05:06.7', 0.1 + g, 1e-7, decode('00ff5c27', 'hex'), 12.5, "
        """'{"a": [1, 2]}', ARRAY['x', NULL, 'a"b'], g = 1, timestamp '0044-03-15 00:00:00 BC' """
        "FROM generate_series(1, 9) g"
    ),
)
_OF_MYSQL: Final[_Choices] = {
    "sql_mode": (
        "'ANSI'",
        "'NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "'PAD_CHAR_TO_FULL_LENGTH'",
        "'NO_ZERO_DATE,STRICT_ALL_TABLES'",
    ),
    "time_zone": ("'+05:45'", "'-09:30'"),
    "sql_select_limit": ("1", "2"),
    "sql_big_selects": ("0",),
    "max_join_size": ("1",),
    "wait_timeout": ("1",),
    "net_write_timeout": ("1",),
    "net_read_timeout": ("1",),
    "completion_type": ("'CHAIN'", "'RELEASE'"),
    "sql_auto_is_null": ("1",),
    "div_precision_increment": ("0",),
    "max_execution_time": ("1",),
    "max_statement_time": ("0.001",),
    "idle_transaction_timeout": ("1",),
    "idle_readonly_transaction_timeout": ("1",),
    "transaction_isolation": ("'READ-UNCOMMITTED'", "'SERIALIZABLE'"),
    "lc_time_names": ("'de_DE'",),
    "character_set_server": ("latin1", "utf8mb4"),
    "character_set_results": ("latin1",),
    "binlog_row_value_options": ("'PARTIAL_JSON'",),
    "sql_quote_show_create": ("0",),
}
_CHARSETS: Final = ("utf8mb4", "latin1", "cp1251", "sjis", "gbk", "ucs2", "utf16", "koi8r", "greek", "ascii", "binary")
_GOOD_OF_MYSQL: Final = (
    ("(k INT PRIMARY KEY, v VARCHAR(40) CHARACTER SET utf8mb4, t TIMESTAMP(3) NULL, d DATE, f DOUBLE, "
    "r FLOAT, b VARBINARY(9), n DECIMAL(8,2), y YEAR, c CHAR(5) CHARACTER SET latin1, e "
    "ENUM('a','ö') CHARACTER SET latin1, j JSON)"),
    "VALUES " + ", ".join(
        f"({k}, 'plain ü', '2024-02-29 12:34:56.789', '2024-03-01', 0.1, 0.5, x'00ff5c27', 12.5, 1999, 'c', 'ö', "
        """'{"a": 1}')"""
        for k in range(1, 10)
    ),
)  # fmt: skip


def _chosen(draw: random.Random, choices: _Choices) -> dict[str, str]:
    names = draw.sample(sorted(choices), draw.randint(1, len(choices) // 2))
    return {name: draw.choice(choices[name]) for name in names}


def _garbage(draw: random.Random) -> str:
    return "".join(rf"\x{byte:02x}" for byte in draw.choices(range(0x80, 0x100), k=draw.randint(1, 6)))


def _rows(scene: Scene, prefix: str) -> dict[bytes, bytes]:
    """Rows of the healthy table; the log and the tables agree on both."""
    for table in ("odd", "good"):
        name = f"{prefix}.{table}"
        assert scene.read(name) == scene.rows.get(name, {}), table
    return scene.rows[f"{prefix}.good"]


def _of_postgres(server: PostgresServer, draw: random.Random, database: str, *, plain: bool) -> dict[bytes, bytes]:
    encoding = "UTF8" if plain else draw.choice(_ENCODINGS)
    settings = {} if plain else _chosen(draw, _OF_POSTGRES)
    print(f"{database}: {encoding}, {settings}")
    server.sql(f"CREATE DATABASE {database} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    for name, value in settings.items():
        with contextlib.suppress(psycopg.errors.UndefinedObject):  # only a newer server has it
            server.sql(f"ALTER ROLE {server.user} IN DATABASE {database} SET {name} = {value}")
    tables = ("CREATE TABLE odd (k text PRIMARY KEY, v text)", _GOOD_OF_POSTGRES[0])
    with PostgresScene(server, database, *tables, sharding=Sharding("table")) as scene:
        for row in _ODD:
            with contextlib.suppress(psycopg.errors.CharacterNotInRepertoire):  # its encoding has no such bytes
                scene.sql(f"INSERT INTO odd VALUES ({row.replace('BYTES', _garbage(draw))}) ON CONFLICT DO NOTHING")
        scene.run(_GOOD_OF_POSTGRES[1])
        return _rows(scene, "public")


def _of_mysql(server: DatabaseServer, draw: random.Random, database: str, *, plain: bool) -> dict[bytes, bytes]:
    charset = "utf8mb4" if plain else draw.choice(_CHARSETS)
    settings = {} if plain else _chosen(draw, _OF_MYSQL)
    print(f"{database}: {charset}, {settings}")
    server.sql(
        f"CREATE DATABASE {database} CHARACTER SET {charset}",
        f"CREATE TABLE {database}.odd (k VARCHAR(60) PRIMARY KEY, v LONGTEXT)",
        f"CREATE TABLE {database}.good {_GOOD_OF_MYSQL[0]}",
    )
    before: dict[str, object] = {}
    try:
        for name, value in settings.items():
            with contextlib.suppress(pymysql.MySQLError):  # only the other flavour has it
                ((_, old),) = server.sql(f"SHOW GLOBAL VARIABLES LIKE '{name}'") or ((name, None),)
                server.sql(f"SET GLOBAL {name} = {value}")
                before[name] = old
        with TableScene(server, sharding=Sharding("table")) as scene:
            for number in range(4):
                data = bytes(draw.choices(range(256), k=2 * draw.randint(1, 9))).hex()
                with contextlib.suppress(pymysql.MySQLError):  # what the character set does not have
                    value = f"x'{data}'" if charset == "binary" else f"CONVERT(x'{data}' USING {charset})"
                    server.sql(
                        f"SET SESSION sql_mode = '{draw.choice(('', 'STRICT_ALL_TABLES'))}'",
                        f"INSERT INTO {database}.odd VALUES ('{number}', {value})",
                    )
            scene.run(f"INSERT INTO {database}.good {_GOOD_OF_MYSQL[1]}")
            return _rows(scene, database)
    finally:
        for name, old in before.items():
            server.sql(f"SET GLOBAL {name} = {old if str(old).lstrip('-').replace('.', '').isdigit() else repr(old)}")
        server.sql(f"DROP DATABASE {database}")


def test_a_healthy_table_of_postgres_goes_on(postgres_server: PostgresServer) -> None:
    wanted = _of_postgres(postgres_server, random.Random(0), "odd_plain", plain=True)
    for number in range(ROUNDS):
        seed = SEED + number
        print(f"WORMHOLE_SEED={seed}")
        found = _of_postgres(postgres_server, random.Random(seed), f"odd_{number}", plain=False)
        assert found == wanted
        _drop(postgres_server, f"odd_{number}")
    _drop(postgres_server, "odd_plain")


def test_a_healthy_table_of_mysql_goes_on(own_server: DatabaseServer) -> None:
    wanted = _of_mysql(own_server, random.Random(0), "odd_plain", plain=True)
    for number in range(ROUNDS):
        seed = SEED + number
        print(f"WORMHOLE_SEED={seed}")
        found = _of_mysql(own_server, random.Random(seed), f"odd_{number}", plain=False)
        assert found == wanted


@pytest.fixture
def own_server(flavour: str) -> Iterator[DatabaseServer]:
    """Whose global settings this test may change."""
    with start_server(flavour) as server:
        yield server


def _drop(server: PostgresServer, database: str) -> None:
    slots = server.sql(f"SELECT slot_name FROM pg_replication_slots WHERE database = '{database}'")
    server.sql(*(f"SELECT pg_drop_replication_slot('{slot}')" for (slot,) in slots))
    server.sql(f"DROP DATABASE {database} WITH (FORCE)")
