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

from subscriber_sdk import ModelMismatch, Update, decode
from tests.support.command_line import run
from tests.support.databases import DatabaseServer
from tests.support.server_tail import Tail
from wormhole.filters import Filter
from wormhole.model.position import Datamarker
from wormholectl.log_tail import Selected

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
def updates(database_server: DatabaseServer, shop: str, tail: Callable[..., Tail]) -> Callable[[str], list[Update]]:
    """What a statement writes to the log."""

    def after(statement: str) -> list[Update]:
        source = tail(database_server).source
        start = source.latest()
        database_server.sql(statement)
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
    updates: Callable[[str], list[Update]],
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
    assert err.count("error: ") == err.count("next: ") == 1
    assert not list(tmp_path.iterdir())
