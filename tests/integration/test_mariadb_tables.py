"""MariaDB's own kinds of tables: system-versioned ones, and those with times of the format before 10.1.2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from publisher.sources import open_source
from tests.support.databases import DatabaseServer, start_server
from tests.support.given import given
from wormhole.filters import Filter
from wormhole.model.errors import DecodeError
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Login
from wormhole.ports.log_source import LogSource
from wormhole.wire.update import Update
from wormholectl.tail.log_tail import Selected

Opened = Callable[..., LogSource]


@pytest.fixture(scope="module")
def own_server() -> Iterator[DatabaseServer]:
    """One for all tests here, which set what it logs."""
    with start_server("mariadb") as one:
        yield one


def begin(server: DatabaseServer, image: str, fractions: str) -> DatabaseServer:
    """An empty database ``v``, of whose rows so much is logged. ``fractions``: whether table maps have their digits."""
    settings = f"SET GLOBAL binlog_row_image = {image}", f"SET GLOBAL mysql56_temporal_format = {fractions}"
    server.sql(*settings, "DROP DATABASE IF EXISTS v", "CREATE DATABASE v")
    return server


@pytest.fixture(params=["FULL", "MINIMAL", "NOBLOB"])
def server(own_server: DatabaseServer, request: pytest.FixtureRequest) -> DatabaseServer:
    return begin(own_server, request.param, "ON")


@pytest.fixture
def old_server(own_server: DatabaseServer) -> DatabaseServer:
    return begin(own_server, "FULL", "OFF")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made: list[LogSource] = []

    def make(server: DatabaseServer, *, history: str = "", skip: str = "") -> LogSource:
        one = open_source(
            server.url, log="log", state_dir=tmp_path / str(len(made)), sharding=Sharding("log"), server_ids="",
            login=Login(server.password_file), history_tables=frozenset({history} - {''}),
            skip_tables=frozenset({skip} - {''}),
        )  # fmt: skip
        one.start()
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()


def read(source: LogSource, start: Datamarker) -> tuple[list[Update], list[DecodeError]]:
    """Everything up to the present end of the log, and what broke."""
    last = source.latest().order
    updates: list[Update] = []
    broken: list[DecodeError] = []
    with closing(source.open(start)) as reader:
        end = start.order
        while end < last:
            segment = given(reader.read(1 << 20, 10.0))
            end = segment.end
            broken.extend(segment.broken.values())
            updates.extend(Selected(Filter.parse(None)).of(segment))
    return updates, broken


def told(updates: list[Update]) -> list[tuple[str, tuple[object, ...], tuple[object, ...] | None]]:
    return [(one.op.value, one.key, one.old_key) for one in updates]


VERSIONED = {
    "implicit": "(id INT PRIMARY KEY, n INT, b TEXT) WITH SYSTEM VERSIONING",
    "explicit": "(id INT PRIMARY KEY, n INT, b TEXT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) "
    "GENERATED "
    "ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME(s, e)) WITH SYSTEM VERSIONING",
    "hidden": "(s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END "
    "INVISIBLE, "
    "id INT PRIMARY KEY, n INT, b TEXT, PERIOD FOR SYSTEM_TIME(s, e)) WITH SYSTEM VERSIONING",
    "partitioned": "(id INT PRIMARY KEY, n INT, b TEXT) WITH SYSTEM VERSIONING "
    "PARTITION BY SYSTEM_TIME (PARTITION h HISTORY, PARTITION c CURRENT)",
    # ROW END is not the last column of the key.
    "key_names_it": "(id INT, n INT, b TEXT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW "
    "START, e TIMESTAMP(6) GENERATED ALWAYS AS "
    "ROW END, PERIOD FOR SYSTEM_TIME(s, e), PRIMARY KEY (e, id)) WITH SYSTEM VERSIONING",
}
CHANGES = (
    "INSERT INTO v.{0} (id, n, b) VALUES (1, 1, 'x'), (2, 2, 'y')",
    "UPDATE v.{0} SET n = 10 WHERE id = 1",
    "DELETE FROM v.{0} WHERE id = 2",
    "REPLACE INTO v.{0} (id, n) VALUES (1, 5)",
    "UPDATE v.{0} SET id = 7 WHERE id = 1",
    "INSERT INTO v.{0} (id, n) VALUES (7, 3) ON DUPLICATE KEY UPDATE n = 99",
    "DELETE HISTORY FROM v.{0}",
)


@pytest.mark.parametrize("kind", list(VERSIONED))
def test_the_current_rows_of_a_versioned_table(server: DatabaseServer, opened: Opened, kind: str) -> None:
    server.sql(f"CREATE TABLE v.{kind} {VERSIONED[kind]}")
    source = opened(server)
    start = source.latest()
    server.sql(*(change.format(kind) for change in CHANGES))
    updates, broken = read(source, start)
    assert not broken
    assert told(updates) == [
        ("insert", (1,), None),
        ("insert", (2,), None),
        ("update", (1,), None),
        ("delete", (2,), None),
        ("delete", (1,), None),
        ("insert", (1,), None),
        ("update", (7,), (1,)),
        ("update", (7,), None),
    ]
    after = given(updates[-1].after)
    assert (after["id"], after["n"]) == (7, 99)
    assert server.sql(f"SELECT id, n FROM v.{kind}") == [(7, 99)]


BITEMPORAL = {
    "dates": "(id INT, f DATE, t DATE, PERIOD FOR p (f, t), PRIMARY KEY (id, p "
    "WITHOUT OVERLAPS)) WITH SYSTEM VERSIONING",
    "moments": "(id INT, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
    "f TIMESTAMP(6) NOT NULL, t TIMESTAMP(6) NOT NULL, PERIOD FOR SYSTEM_TIME (s, e), PERIOD FOR p (f, t), "
    "PRIMARY KEY (id, p WITHOUT OVERLAPS)) WITH SYSTEM VERSIONING",
}


@pytest.mark.parametrize("kind", list(BITEMPORAL))
def test_a_versioned_table_with_a_period_without_overlaps(server: DatabaseServer, opened: Opened, kind: str) -> None:
    """The server puts ROW END before the columns of the period in the key."""
    name = f"v.bitemporal_{kind}"
    server.sql(f"CREATE TABLE {name} {BITEMPORAL[kind]}")
    source = opened(server)
    start = source.latest()
    server.sql(
        f"INSERT INTO {name} (id, f, t) VALUES (1, '2020-01-01', '2021-01-01')",
        f"DELETE FROM {name} FOR PORTION OF p FROM '2020-03-01' TO '2020-04-01'",
        f"UPDATE {name} FOR PORTION OF p FROM '2020-05-01' TO '2020-06-01' SET id = 2",
    )
    updates, broken = read(source, start)
    assert not broken
    assert [one.op.value for one in updates] == ["insert", "delete", "insert", "insert", "update", "insert", "insert"]
    assert all(len(one.key) == 3 for one in updates)
    server.sql(f"DROP TABLE {name}")
    updates, broken = read(opened(server), start)
    assert bool(broken) is (kind == "moments"), "without the server only the implicit columns' names tell it"


def test_the_history_on_request(server: DatabaseServer, opened: Opened) -> None:
    server.sql(f"CREATE TABLE v.told {VERSIONED['implicit']}")
    source = opened(server, history="v.told")
    start = source.latest()
    server.sql(*(change.format("told") for change in CHANGES[:3]))
    updates, _ = read(source, start)
    assert [(one.op.value, one.key[0]) for one in updates] == [
        ("insert", 1), ("insert", 2), ("update", 1), ("insert", 1), ("update", 2),
    ]  # fmt: skip
    assert all(len(one.key) == 2 for one in updates)


def test_a_table_that_only_looks_versioned(server: DatabaseServer, opened: Opened) -> None:
    server.sql(
        "CREATE TABLE v.own (id INT, since TIMESTAMP(6) NOT NULL DEFAULT '2020-01-01', until TIMESTAMP(6) NOT "
        "NULL DEFAULT "
        "'2020-01-01', PRIMARY KEY (id, until))"
    )
    source = opened(server)
    start = source.latest()
    server.sql("SET time_zone = '+00:00'", "INSERT INTO v.own VALUES (1, '2020-01-01', '2038-01-19 03:14:07.999999')")
    server.sql("UPDATE v.own SET until = '2021-01-01 00:00:00'")
    updates, broken = read(source, start)
    assert not broken
    assert [(one.op.value, len(one.key)) for one in updates] == [("insert", 2), ("update", 2)]


def test_what_is_not_known_any_more_holds_its_table(server: DatabaseServer, opened: Opened) -> None:
    server.sql(f"CREATE TABLE v.gone {VERSIONED['explicit']}", f"CREATE TABLE v.lost {VERSIONED['implicit']}")
    source = opened(server)
    start = source.latest()
    server.sql("INSERT INTO v.lost (id, n) VALUES (1, 1)", "INSERT INTO v.gone (id, n) VALUES (1, 1)")
    server.sql("DROP TABLE v.gone", "DROP TABLE v.lost")
    updates, broken = read(source, start)
    assert [one.key for one in updates if one.op.value == "insert"] == [(1,)], (
        "the implicit columns tell it by their names"
    )
    (error,) = broken
    assert "v.gone" in str(error)
    assert "history_tables" in str(error)
    updates, broken = read(opened(server, history="v.gone"), start)
    assert not broken


def test_a_year_of_two_digits_is_the_whole_year(old_server: DatabaseServer, opened: Opened) -> None:
    old_server.sql("CREATE TABLE v.years (id INT PRIMARY KEY, y YEAR(2))")
    source = opened(old_server)
    start = source.latest()
    rows = old_server.sql(
        "INSERT INTO v.years VALUES (1, 69), (2, 70), (3, 2000), (4, NULL)", "SELECT id, CONCAT(y) FROM v.years"
    )
    assert rows == [(1, "69"), (2, "70"), (3, "00"), (4, None)]
    updates, broken = read(source, start)
    assert not broken
    assert [one.after and one.after["y"] for one in updates] == [2069, 1970, 2000, None]


TIMES = (
    "('2026-11-22 11:45:46.123456', '-838:59:59.5', '2026-11-22 11:45:46.654321')",
    "('0000-00-00 00:00:00', '00:00:00', '0000-00-00 00:00:00')",
    "('9999-12-31 23:59:59.999999', '838:59:59.999999', '1970-01-01 00:00:01.000001')",
    "('2000-02-29 00:00:00', '-00:00:00.000001', '2038-01-19 03:14:07')",
    "(NULL, NULL, NULL)",
)


def old_table(server: DatabaseServer, table: str, digits: int, *, logged_after_s: int) -> list[list[object]]:
    """A table with rows that seem to be logged so long after it was made: what ``SELECT`` shows of them."""
    rows = server.sql(
        f"CREATE TABLE v.{table} (id INT PRIMARY KEY AUTO_INCREMENT, d DATETIME({digits}), t TIME({digits}), "
        f"s TIMESTAMP({digits}) NULL)",
        f"SET timestamp = UNIX_TIMESTAMP() + {logged_after_s}, time_zone = '+00:00', sql_mode = ''",
        f"INSERT IGNORE INTO v.{table} (d, t, s) VALUES {', '.join(TIMES)}",
        f"SELECT id, CONCAT(d), CONCAT(t), CONCAT(s) FROM v.{table} ORDER BY id",
    )
    return [list(row) for row in rows]


def test_times_of_the_old_format_have_the_digits_that_the_server_tells(
    old_server: DatabaseServer, opened: Opened
) -> None:
    source = opened(old_server)
    start = source.latest()
    expected = {f"v.t{digits}": old_table(old_server, f"t{digits}", digits, logged_after_s=100) for digits in range(7)}
    updates, broken = read(source, start)
    assert not broken
    got: dict[str, list[object]] = {}
    for one in updates:
        after = given(one.after)
        got.setdefault(one.table, []).append([after["id"], after["d"], after["t"], after["s"]])
    assert got == expected


@pytest.mark.parametrize("change", ["MODIFY t TIME(6)", "FORCE", "DROP COLUMN t"])
def test_times_of_a_table_that_was_changed_hold_it_by_name(
    old_server: DatabaseServer, opened: Opened, change: str
) -> None:
    table = f"v.changed_{change.split()[-2 if ' ' in change else 0].lower()}"
    source = opened(old_server)
    start = source.latest()
    old_table(old_server, table.removeprefix("v."), 3, logged_after_s=-100)
    old_server.sql(f"ALTER TABLE {table} {change}")
    updates, broken = read(source, start)
    assert not [one for one in updates if one.op.value == "insert"]
    (error,) = broken
    assert table in str(error)
    assert f"ALTER TABLE `v`.`{table.removeprefix('v.')}` FORCE" in str(error)
    _, broken = read(opened(old_server, skip=table), start)
    assert not broken
