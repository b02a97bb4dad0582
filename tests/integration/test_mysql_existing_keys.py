"""Keys of existing rows: the server orders and compares them, over the index, whatever they are made of."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from decimal import Decimal
from itertools import product

import pytest

from datastores.mysql.existing_rows.key_order import above, literals_of, up_to
from datastores.mysql.existing_rows.reading import select
from datastores.mysql.existing_rows.source import MySqlTables
from tests.support.databases import DatabaseServer
from tests.support.table_scene import TableScene
from wormhole.model.errors import SourceUnavailable
from wormhole.model.values import UNAVAILABLE, Value
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.rows import decode_row, encode_key
from wormhole.wire.v1 import update_pb2

TWO = ChunkLimits(rows=2)
WORDS = (
    "'a', 'B', 'c', 'A', 'b ', 'Z', 'aa', 'ab', '', '_', '10', '9', 'ß', 'ss', 'ä', 'Ä', 'é', 'E', 'œ', 'ij', 'ch', 'ÿ'"
)


@pytest.fixture
def scene(database_server: DatabaseServer) -> Iterator[TableScene]:
    database_server.sql("DROP DATABASE IF EXISTS keyed", "CREATE DATABASE keyed")
    with TableScene(database_server) as scene:
        yield scene


def check(scene: TableScene, table: str, order: str, limits: ChunkLimits = TWO) -> list[tuple[object, ...]]:
    """All rows come once, as the log has them, in the order of the index; each range is read over the index.

    ``table`` has a column ``n``. Returns it in the order of the rows.
    """
    found = scene.read(table, limits)
    assert found == scene.rows[table]
    index = definition(scene, table).index
    wanted = scene.server.sql(f"SELECT n FROM {table} FORCE INDEX (`{index}`) ORDER BY {order}")
    keys = list(found)
    position = [column.name for column in scene.schemas[table].columns].index("n")
    assert [(decode_row(update).after[position].int,) for update in found.values()] == wanted
    if len(keys) > 2:
        explain(scene, table, keys[0], keys[-1])
        chunk = scene.chunk(table, keys[0], keys[-2], ChunkLimits())
        assert list(chunk.rows) == keys[1:-1]
    assert scene.tables.rows(table, keys, scene.marker).rows == found
    return wanted


def definition(scene: TableScene, table: str):  # type: ignore[no-untyped-def]
    assert isinstance(scene.tables, MySqlTables)
    return scene.tables._definitions[table]


def explain(scene: TableScene, table: str, after: bytes, until: bytes | None) -> None:
    """The SELECT of a chunk is a range of the key's index, already in its order."""
    found = definition(scene, table)
    conditions = [above(found.key, literals_of(found.key, after))]
    if until is not None:
        conditions.append(up_to(found.key, literals_of(found.key, until)))
    sql = select(found, conditions, 1 << 20, 100)
    with scene.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = ''")
        cursor.execute(f"EXPLAIN {'FORMAT=TRADITIONAL ' if scene.server.flavour == 'mysql' else ''}{sql}")
        (row,) = cursor.fetchall()
        columns = [column[0] for column in cursor.description or ()]
    plan = dict(zip(columns, row, strict=True))
    assert plan["key"] == found.index, (sql, plan)
    assert plan["type"] == "range", (sql, plan)
    assert "filesort" not in (plan["Extra"] or ""), (sql, plan)


KINDS = (
    ("INT", "0, -1, 2147483647, -2147483648, 7"),
    ("BIGINT UNSIGNED", "0, 18446744073709551615, 9223372036854775808, 9223372036854775807, 1"),
    ("TINYINT", "-128, 127, 0, -1"),
    ("DECIMAL(20,6)", "0, -0.000001, 99999999999999.999999, -12, 1.5"),
    ("DATE", "'2024-02-29', '0000-00-00', '9999-12-31', '2024-00-00'"),
    ("DATETIME(6)", "'2024-02-29 12:00:00.000001', '2024-02-29 12:00:00', '1000-01-01', '0000-00-00'"),
    ("TIMESTAMP(3)", "'2024-02-29 12:00:00.001', '2024-02-29 12:00:00', '2038-01-19 03:14:07'"),
    ("TIME(2)", "'-838:59:59', '838:59:59', '-00:00:00.01', '00:00:00', '12:00:00.50'"),
    ("YEAR", "0, 1901, 2155, 2000"),
    ("BIT(9)", "b'0', b'1', b'111111111', b'100000000'"),
    ("FLOAT", "0, 0.1, -0.1, 1e10, 3.4028234663852886e38, 16777217"),
    ("DOUBLE", "0, 0.1, -0.1, 1e300, 5e-324, 0.30000000000000004"),
    ("DOUBLE(20,4)", "0, 1.84, -1.84, 36.987, 12345678.9"),
    ("BINARY(4)", "x'00', x'ff', x'61', x'6100ff', x'0000ff'"),
    ("VARBINARY(9)", "'', x'00', x'0000', x'ff', x'61', x'6120'"),
    ("ENUM('z', 'y', 'x', 'a', 'b')", "'a', 'x', 'y', 'z', 'none'"),
    ("VARCHAR(20) CHARACTER SET latin1", "'a', 'ä', 'Z', 'é', '', '€'"),
    ("CHAR(10) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", "'a', 'ä ', 'Z', 'é', 'ß', '€'"),
)  # fmt: skip
"""Types of a key's only column, and values of it."""

_FEW = ", ".join(f"({n}, {n})" for n in range(25))
_LESS = "VALUES LESS THAN"
KEYED = {
    "mixed": (
        "(a INT, b VARCHAR(20), c DECIMAL(6,2), n INT, PRIMARY KEY (b, a, c))",
        ", ".join(
            f"({a}, '{b}', {c}, {n})"
            for n, (a, b, c) in enumerate(product((-1, 0, 5), ("x", "Y", "yy"), ("1.50", "-2.00")))
        ),
        "b, a, c",
    ),
    "ranked": (  # an ENUM before other columns
        "(k ENUM('z', 'y', 'x', 'a', 'w'), id INT, n INT, PRIMARY KEY (k, id))",
        ", ".join(f"('{'zyxw'[n % 4]}', {n}, {n})" for n in range(40)) + ", ('no such member', 41, 41)",
        "k, id",
    ),
    "down": (
        "(a INT, b INT, n INT, PRIMARY KEY (a, b DESC))",
        ", ".join(f"({n % 3}, {n}, {n})" for n in range(12)),
        "a, b DESC",
    ),
    "uniq": (  # a unique key that is not the primary one
        "(n INT, a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE (c), UNIQUE KEY tight (b, a))",
        ", ".join(f"({n}, {n}, {n % 4}, NULL)" for n in range(12)),
        "b, a",
    ),
    "longest": (  # a key of 3072 bytes
        "(k VARCHAR(768) CHARACTER SET utf8mb4 PRIMARY KEY, n INT)",
        ", ".join(f"(REPEAT('{letter}', 768), {n})" for n, letter in enumerate("aBcöß€😀x")),
        "k",
    ),
    "hashed": ("(id INT PRIMARY KEY, n INT) PARTITION BY HASH (id) PARTITIONS 4", _FEW, "id"),
    "ranges": (
        f"(id INT PRIMARY KEY, n INT) PARTITION BY RANGE (id) (PARTITION a {_LESS} (10), PARTITION b {_LESS} MAXVALUE)",
        _FEW,
        "id",
    ),
}
"""Tables with keys of other forms, their rows, and the order in which they are read."""


def test_keys_of_other_forms(scene: TableScene) -> None:
    for name, (columns, rows, _) in KEYED.items():
        scene.run(f"CREATE TABLE keyed.{name} {columns}", f"INSERT INTO keyed.{name} VALUES {rows}")
    for name, (_, _, order) in KEYED.items():
        check(scene, f"keyed.{name}", order, ChunkLimits(rows=3))
    portable = {table.name: table.portable for table in scene.tables.tables(lambda name: name.startswith("keyed."))}
    assert (portable["keyed.mixed"], portable["keyed.down"]) == (False, False)
    assert [column.name for column in scene.schemas["keyed.uniq"].key] == ["b", "a"]


def test_keys_of_one_column(scene: TableScene) -> None:
    """One table for each type."""
    counts = {}
    for at, (declared, values) in enumerate(KINDS):
        words = [value.strip() for value in values.split(", ")]
        rows = ", ".join(f"({value}, {n})" for n, value in enumerate(words))
        scene.run(
            f"CREATE TABLE keyed.k{at} (k {declared} NOT NULL PRIMARY KEY, n INT)",
            f"INSERT INTO keyed.k{at} VALUES {rows}",
        )
        counts[f"keyed.k{at}"] = len(words)
    listed = {table.name: table for table in scene.tables.tables(counts.__contains__)}
    for (table, count), (declared, _) in zip(counts.items(), KINDS, strict=True):
        assert len(check(scene, table, "k")) == count
        whole = declared.startswith(("INT", "BIGINT", "TINYINT", "BINARY", "VARBINARY"))
        assert listed[table].portable == whole, declared
        assert not listed[table].refused
        assert listed[table].fingerprint


def test_every_collation_of_the_server(scene: TableScene) -> None:
    listed = "information_schema.COLLATIONS c"
    charset, full = "c.CHARACTER_SET_NAME", "c.COLLATION_NAME"
    if scene.server.flavour == "mariadb":
        listed += " JOIN information_schema.COLLATION_CHARACTER_SET_APPLICABILITY a USING (COLLATION_NAME)"
        charset, full = "a.CHARACTER_SET_NAME", "a.FULL_COLLATION_NAME"
    names = scene.server.sql(f"SELECT {charset}, {full} FROM {listed} WHERE c.IS_COMPILED = 'Yes'")
    if "WORMHOLE_ROUNDS" not in os.environ:  # MariaDB has its newest ones once for each of five character sets
        names = [(charset, full) for charset, full in names if "uca1400" not in full or charset == "utf8mb4"]
        names = sorted(names)[::3]  # neighbours are rules of one language, with and without accents or case
    tables = {}
    with scene.server.connect(database="keyed") as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        for number, (charset, collation) in enumerate(names):
            declared = (
                "VARBINARY(20)" if collation == "binary" else f"VARCHAR(20) CHARACTER SET {charset} COLLATE {collation}"
            )
            cursor.execute(f"CREATE TABLE c{number} (k {declared} NOT NULL PRIMARY KEY, n INT)")
            rows = ", ".join(f"({word}, {n})" for n, word in enumerate(WORDS.split(", ")))
            cursor.execute(f"INSERT IGNORE INTO c{number} VALUES {rows}")
            tables[f"keyed.c{number}"] = collation
    scene.follow()
    assert len(tables) > 70
    failures = []
    for table, collation in tables.items():
        try:
            check(scene, table, "k", ChunkLimits(rows=8))
        except Exception as error:  # all of them are listed
            failures.append(f"{collation}: {type(error).__name__} {error!s:.600}")
    assert not failures, "\n".join(failures)


def test_a_changed_key_has_another_fingerprint(scene: TableScene) -> None:
    def fingerprint(*statements: str) -> str:
        scene.run(*statements)
        (table,) = scene.tables.tables(lambda name: name == "keyed.printed")
        return table.fingerprint

    first = fingerprint("CREATE TABLE keyed.printed (a VARCHAR(9) COLLATE utf8mb4_bin, b INT, PRIMARY KEY (a))")
    assert fingerprint("ALTER TABLE keyed.printed ADD COLUMN c INT FIRST, MODIFY b BIGINT") == first
    found = {
        first,
        fingerprint("ALTER TABLE keyed.printed MODIFY a VARCHAR(9) COLLATE utf8mb4_general_ci"),
        fingerprint("ALTER TABLE keyed.printed MODIFY a VARCHAR(10) COLLATE utf8mb4_general_ci"),
        fingerprint("ALTER TABLE keyed.printed DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)"),
        fingerprint("ALTER TABLE keyed.printed DROP PRIMARY KEY, ADD PRIMARY KEY (b, a)"),
    }
    assert len(found) == 5


def test_no_chunk_is_read_in_another_order_than_the_one_that_was_described(scene: TableScene) -> None:
    """A key that was reached in the former order says nothing in the new one: rows would be passed over."""
    scene.run(
        "CREATE TABLE keyed.turned (a VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY)",
        "INSERT INTO keyed.turned VALUES ('B'), ('C'), ('a'), ('d')",
    )
    list(scene.tables.tables("keyed.turned".__eq__))
    last = scene.chunk("keyed.turned", limits=TWO).last
    scene.run("ALTER TABLE keyed.turned MODIFY a VARCHAR(9) COLLATE utf8mb4_general_ci")
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="another one"):
            scene.chunk("keyed.turned", last, limits=TWO)
    list(scene.tables.tables("keyed.turned".__eq__))
    first = next(iter(scene.chunk("keyed.turned").rows.values()))
    assert decode_row(first).key[0].text == "a"


_TYPES = {
    "whole": "INT",
    "exact": "DECIMAL(9, 2)",
    "real": "DOUBLE",
    "short": "FLOAT",
    "day": "DATE",
    "moment": "DATETIME",
    "word": "VARCHAR(20) CHARACTER SET latin1",
    "raw": "VARBINARY(20)",
    "one_of": "ENUM('x', 'y')",
}


def test_keys_that_somebody_named_cost_no_table(scene: TableScene) -> None:
    """Whatever a key is made of, it cannot be asked for, or is read without an error."""
    for name, declared in _TYPES.items():
        scene.run(f"CREATE TABLE keyed.{name} (k {declared} NOT NULL PRIMARY KEY, n INT)")
        first = "'x'" if name in ("word", "raw", "one_of") else "20240229"
        scene.run(f"INSERT INTO keyed.{name} VALUES ({first}, 1)")
    texts = ("", "x", "?", "\\", "€", "😀", "2024-13-45", "0000-00-00", "' OR 1", "x" * 10_000, "1e400", ":", "-")
    given: list[Value] = [
        None,
        True,
        0,
        -(1 << 63),
        1.5,
        math.inf,
        math.nan,
        1e300,
        b"",
        b"x",
        b"\xff" * 10_000,
        *texts,
    ]
    given += [Decimal("1.0"), Decimal("1e40"), Decimal("NaN"), UNAVAILABLE]
    keys = [encode_key((value,)) for value in given]
    keys += [
        encode_key(()),
        encode_key((1, 2)),
        b"\xff",
        update_pb2.RowKey(values=[update_pb2.Value()]).SerializeToString(),
    ]
    for name in _TYPES:
        table = f"keyed.{name}"
        asked = [key for key in keys if scene.tables.can_ask(table, key)]
        (there,) = scene.rows[table]
        assert scene.tables.can_ask(table, there)
        for key in asked:
            assert scene.tables.rows(table, [key], scene.marker).rows.keys() <= {there}
        assert scene.tables.rows(table, [there, *asked], scene.marker).rows.keys() == {there}


def test_another_spelling_of_a_key_is_not_gone(scene: TableScene) -> None:
    """Whoever compares as the server does would remove the row that is there."""
    scene.run(
        "CREATE TABLE keyed.spelled (k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)",
        "INSERT INTO keyed.spelled VALUES ('abc', 1), ('x', 2)",
    )
    spelled = [encode_key((word,)) for word in ("ABC", "Abc ", "abd", "X")]
    chunk = scene.tables.rows("keyed.spelled", spelled, scene.marker)
    assert (chunk.rows, set(chunk.unclear)) == ({}, {spelled[0], spelled[1], spelled[3]})
    assert scene.tables.rows("keyed.spelled", spelled[2:3], scene.marker).unclear == []
