"""Classes that ``wormholectl models`` makes of real tables take the rows that the log has of them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from datastores.mysql.datastore import MySqlDatastore
from datastores.mysql.server.address import parse
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.connection import connect
from datastores.mysql.server.table_names import look
from subscriber_sdk import ModelMismatch, Update, decode
from tests.support.command_line import run
from tests.support.databases import DatabaseServer
from tests.support.server_tail import Tail
from wormhole.filters import Filter
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import Login
from wormholectl.tail.log_tail import Selected

COLUMNS = r"""
id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT NOT NULL, flag BOOL, bits BIT(9), made YEAR,
price DECIMAL(30,2) UNSIGNED, small FLOAT, big DOUBLE,
born DATE, placed DATETIME(3), seen TIMESTAMP(6) NULL, spent TIME(2),
name VARCHAR(20) NOT NULL, old TEXT CHARACTER SET latin1, code CHAR(3), photo BLOB, pad BINARY(4), place GEOMETRY,
doc JSON, plain LONGTEXT,
state ENUM('new','it''s','b\\c','a\nb') NOT NULL, marks SET('x','it''s','b\\c'),
`class` INT, `a b` INT, twice INT GENERATED ALWAYS AS (tiny * 2) VIRTUAL
"""
ROW = r"""
18446744073709551615, -7, true, b'100000001', 2024, 1234567890123456789012345678.50, 0.1, 1e300,
'2024-02-29', '2024-02-29 12:30:00.250', '2024-02-29 12:30:00.250001', '-838:59:58.25',
'Zoë', 'Grüße', 'abc', x'ff00', 'ab', ST_GeomFromText('POINT(1 2)'),
'{"a": [1, 2.5, null]}', 'text',
'a\nb', 'x,b\\c', 5, NULL, DEFAULT
"""


@pytest.fixture
def url(database_server: DatabaseServer, shop: str) -> str:
    return f"{database_server.flavour}://{database_server.user}@{database_server.host}:{database_server.port}/{shop}"


@pytest.fixture
def updates(database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]) -> Callable[..., list[Update]]:
    """What statements write to the log."""

    def after(*statements: str) -> list[Update]:
        source = tail(database_server).source
        start = source.latest()
        database_server.sql(*statements)
        return list(read(source, start, shop))

    return after


def read(source: Any, start: Datamarker, shop: str) -> Iterator[Update]:
    last, end = source.latest().order, start.order
    wanted = Selected(Filter.parse(None, [f"{shop}.*"]))
    with closing(source.open(start)) as reader:
        while end < last:
            segment = reader.read(1 << 20, 10.0)
            assert segment is not None
            end = segment.end
            yield from wanted.of(segment)


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found
    spec.loader.exec_module(found)
    return found


def test_a_row_of_every_type_and_a_table_that_changes(
    flavour: str,
    database_server: DatabaseServer,
    shop: str,
    url: str,
    updates: Callable[..., list[Update]],
    tmp_path: Path,
) -> None:
    database_server.sql(f"CREATE TABLE {shop}.every_type ({COLUMNS})", f"CREATE TABLE {shop}.other (id INT)")
    file = tmp_path / f"{shop}_models.py"
    words = ["models", url, "--password-file", str(database_server.password_file)]
    made = run(*words, "--style", "dataclass" if flavour == "mariadb" else "pydantic", "-o", str(file))
    assert made == (0, f"wrote {file}: 2 tables: {shop}.every_type, {shop}.other\n", "")
    models = imported(file)

    (update,) = updates(f"INSERT INTO {shop}.every_type VALUES ({ROW})")
    row: Any = decode(update, models.EveryType)
    assert (row.id, row.tiny, row.flag, row.bits, row.made) == (2**64 - 1, -7, 1, 0b100000001, 2024)
    assert (row.price, row.small, row.big) == (Decimal("1234567890123456789012345678.50"), 0.1, 1e300)
    assert (row.born, row.placed) == (date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 0, 250000))
    assert row.seen.astimezone(UTC) == row.seen
    assert row.seen.tzinfo is UTC
    assert row.spent == -timedelta(hours=838, minutes=59, seconds=58, milliseconds=250)
    assert (row.name, row.old, row.code, row.photo, row.pad) == ("Zoë", "Grüße", "abc", b"\xff\x00", b"ab\0\0")
    assert isinstance(row.place, bytes)
    assert (row.doc, row.plain) == ({"a": [1, 2.5, None]}, "text")
    assert (row.state, row.marks) == ("a\nb", {"x", "b\\c"})
    assert (row.class_, row.a_b, row.twice) == (5, None, -14)

    check = ["models", "--check", str(file), *words[2:]]
    assert run(*check) == (0, f"{file}: no table changed (2 compared)\n", "")
    database_server.sql(f"ALTER TABLE {shop}.every_type DROP COLUMN big, MODIFY tiny INT NOT NULL")
    code, out, _ = run(*check)
    assert (code, out.splitlines()[0]) == (1, f"{shop}.every_type: changed")
    (update,) = updates(f"DELETE FROM {shop}.every_type")
    assert decode(update, models.EveryType) is None
    with pytest.raises(
        ModelMismatch, match=rf"{shop}\.every_type is no EveryType: column big: .* `wormholectl models`"
    ):
        decode(update, models.EveryType, before=True)


# Without a primary key, the first unique index without NULL or a prefix is the key: in the order of their declaration.
KEYS = {
    "primary_key": "(a INT NOT NULL UNIQUE, b INT NOT NULL, c INT NOT NULL, PRIMARY KEY (c, b))",
    "primary_prefix": "(a VARCHAR(9) NOT NULL, b INT NOT NULL UNIQUE, c INT, PRIMARY KEY (a(3)))",
    "one": "(a INT NOT NULL UNIQUE, b INT, c INT)",
    "two": "(a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE z (c, b), UNIQUE a (a), UNIQUE b (b, c))",
    "with_null": "(a INT UNIQUE, b INT NOT NULL, c INT NOT NULL, UNIQUE (a, b), UNIQUE (c))",
    "with_prefix": "(a VARCHAR(9) NOT NULL, b INT NOT NULL, c INT, UNIQUE (a(3)), UNIQUE (b))",
    "only_null": "(a INT UNIQUE, b INT, c INT)",
    "only_prefix": "(a VARCHAR(9) NOT NULL, b INT, c INT, UNIQUE (a(3)))",
}
KEYS_OF = {
    "mysql": {
        "functional": "(a INT, b INT NOT NULL, c INT NOT NULL, UNIQUE ((a + 1)), UNIQUE (b))",
        "virtual": "(a INT NOT NULL, b INT, c INT, d INT AS (a + 1) VIRTUAL NOT NULL UNIQUE)",
    },
    "mariadb": {
        "long": "(a TEXT NOT NULL UNIQUE, b INT, c INT)",
        "versioned": "(a INT NOT NULL UNIQUE, b INT, c INT) WITH SYSTEM VERSIONING",
        "versioned_key": "(a INT, b INT, c INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED "
        "ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s, e), PRIMARY KEY (e, b)) WITH SYSTEM VERSIONING",
    },
}


def test_the_key_is_the_one_that_the_server_logs(
    flavour: str,
    database_server: DatabaseServer,
    shop: str,
    url: str,
    updates: Callable[..., list[Update]],
    tmp_path: Path,
) -> None:
    tables = KEYS | KEYS_OF[flavour]
    database_server.sql(*(f"CREATE TABLE {shop}.{name} {definition}" for name, definition in tables.items()))
    logged = {
        one.table: tuple("abc"[int(str(value)) - 1] for value in one.key)
        for one in updates(*(f"INSERT INTO {shop}.{name} (a, b, c) VALUES ('1', '2', '3')" for name in tables))
    }
    assert len(logged) == len(tables)
    hide = "SET GLOBAL show_gipk_in_create_table_and_information_schema = {}"
    if flavour == "mysql":  # a key that the server makes, and may hide
        made = ("SET SESSION sql_generate_invisible_primary_key = ON", f"CREATE TABLE {shop}.made (a INT)")
        database_server.sql(*made, hide.format("OFF"))
        (update,) = updates(f"INSERT INTO {shop}.made VALUES (7)")
        logged[update.table] = ("my_row_id",) if [str(value) for value in update.key] == ["1"] else ()
    try:
        login = Login(database_server.password_file)
        server = url.rpartition("/")[0]
        described = MySqlDatastore().describe(server, login, logged.__contains__)
        assert {table.name: table.key for table in described} == logged
        with closing(connect(parse(server, password_file=login.password_file))) as connection:
            known = look(connection, Catalog(tmp_path / "tables.jsonl"))
        keyed = {f"{database}.{name}": keyed for database, name, keyed in known if database == shop}
        assert keyed == {name: bool(key) for name, key in logged.items()}
        seen = MySqlDatastore().examine(server, tmp_path, login).tables
        assert {f"{one.database}.{one.table}" for one in seen if one.key_columns} >= {
            name for name, key in logged.items() if key
        }
    finally:
        if flavour == "mysql":
            database_server.sql(hide.format("ON"))


def test_config_check_refuses_a_mask_on_a_unique_index_that_is_the_key(
    database_server: DatabaseServer, shop: str, url: str, tmp_path: Path
) -> None:
    database_server.sql(f"CREATE TABLE {shop}.uk (email VARCHAR(40) NOT NULL UNIQUE, n INT)")
    secret = tmp_path / "mask.key"
    secret.write_bytes(b"0" * 32)
    secret.chmod(0o600)
    config = tmp_path / "wormhole.toml"
    config.write_text(
        f'''
version = 1
coordinator.static = true
[publisher]
mask_key_file = "{secret}"
[datasets.shop.copies.main.logs.db1]
source = "{url.rpartition("/")[0]}"
password_file = "{database_server.password_file}"
[applications.analytics]
dataset = "shop"
start = "latest"
tables = ["{shop}.*"]
mask = {{ email = "hash" }}
'''
    )
    code, _, err = run("config", "check", str(config))
    assert code == 2
    assert f"applications.analytics.mask: email names email, a column of the key of {shop}.uk" in err


def test_an_account_that_may_only_select(database_server: DatabaseServer, shop: str, tmp_path: Path) -> None:
    """As publishers have: JSON columns are known all the same."""
    user = f"{shop}_reader"
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    database_server.sql(
        f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, doc JSON)",
        f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY 'secret'",
        f"GRANT SELECT ON {shop}.* TO '{user}'@'127.0.0.1'",
    )
    try:
        url = f"{database_server.flavour}://{user}@{database_server.host}:{database_server.port}"
        code, out, err = run("models", url, "--password-file", str(password))
    finally:
        database_server.sql(f"DROP USER '{user}'@'127.0.0.1'")
    assert (code, err) == (0, "")
    assert "    doc: Json[Any] | None\n" in out
    assert out.count("# table ") == 1


def test_a_server_that_is_away(tmp_path: Path) -> None:
    code, out, err = run("models", "mysql://a@127.0.0.1:1", "-o", str(tmp_path / "models.py"))
    assert (code, out) == (3, "")
    assert err.count("error [") == err.count("next: ") == 1
    assert not list(tmp_path.iterdir())
