"""Keys and values of PostgreSQL's existing rows: as the log has them, ordered and compared by the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal

import pytest

from datastores.postgres.existing_rows.keys import above, literals_of, up_to
from datastores.postgres.existing_rows.reading import copied
from datastores.postgres.existing_rows.source import PostgresTables
from tests.support.postgres_scene import PostgresScene
from tests.support.postgres_server import PostgresServer, new_database
from tests.support.postgres_types import EXTENSIONS, SETUP, TYPES, VERSION
from wormhole.model.errors import SourceUnavailable, UnreadableTable
from wormhole.model.values import UNAVAILABLE
from wormhole.ports.table_source import ChunkLimits
from wormhole.wire.rows import decode_row, encode_key

pytestmark = pytest.mark.usefixtures("quick_end")

_ALL = ChunkLimits(rows=1_000, seconds=30.0)
_TWO = ChunkLimits(rows=2, seconds=30.0)
_LOOSE = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
_WORDS = (
    "'a', 'B', 'c', 'b ', 'Z', 'aa', 'ab', '', '_', '10', '9', 'ß', 'ss', 'ä', 'é', 'E', 'œ', 'ij', 'ch', 'ÿ', "
    "E'q''\\\\'"
)
_KEYS = {
    "int8": "-9223372036854775808, 9223372036854775807, 0, -1, 10, 9",
    "text": _WORDS,
    'text COLLATE "und-x-icu"': _WORDS,
    "text COLLATE loose": _WORDS,
    "citext": _WORDS,
    "varchar(3)": "'abc', 'ab', '', 'B'",
    "bpchar(3)": "'abc', 'ab', '', 'B'",
    '"char"': "'a', 'B', ''",
    "bytea": r"'\x', '\x00', '\xff', '\x61', '\x6100'",
    "numeric": "'NaN', 0, 1.0, 1.50, -1e-30, 1e30" + ", 'Infinity', '-Infinity'" * (VERSION >= 14),
    "float8": "'NaN', 'Infinity', '-Infinity', 0.1, -0.0, 5e-324, 1e22",
    "float4": "'NaN', 'Infinity', 0.1, 16777217, 123456.79",
    "timestamp": "'infinity', '-infinity', '0001-01-01 BC', '2024-02-29 12:34:56.789', '294276-12-31 23:59:59.9'",
    "timestamptz": "'infinity', '-infinity', '2024-02-29 12:34:56.789+02', '4713-01-01 00:00+00 BC'",
    "date": "'infinity', '2024-02-29', '4713-01-01 BC'",
    "interval": "'1 mon', '29 days', '1 year', '-1 day', '00:00:01'",
    "uuid": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '00000000-0000-0000-0000-000000000000'",
    "mood": "'glücklich', 'sad', 'so, so', ''",
    "mooded": "'glücklich', 'sad', 'so, so', ''",
    "bool": "true, false",
    "xid8": "'3', '18446744073709551615', '9223372036854775808'",
    "jsonb": "'1', '\"ü\"', '{\"a\": [1, 2]}', 'null'",
    "int4[]": "'{1,2}', '{}', '{NULL}', '{1}'",
    "pair": "'(1,\"a, b\")', '(,)', '(-1,)'",
    "positive": "1, 2147483647",
    "int4range": "'[1,5)', 'empty', '(,)'",
    "inet": "'192.168.0.1/24', '192.168.0.1', '::1'",
    "bit(3)": "'101', '000'",
    "money": "'12.34', '-1'",
}


@pytest.fixture(scope="module")
def scene(postgres_server: PostgresServer) -> Iterator[PostgresScene]:
    """One for all tests, each of which has tables of its own."""
    statements = (*(f"CREATE EXTENSION {name}" for name in EXTENSIONS), *SETUP, f"CREATE COLLATION loose {_LOOSE}")
    with new_database(postgres_server) as database, PostgresScene(postgres_server, database, *statements) as scene:
        # The log's session was there before, and the tables' comes after: neither may see what is set here.
        settings = ("DateStyle = 'SQL, DMY'", "TimeZone = 'Asia/Kolkata'", "quote_all_identifiers = on")
        scene.sql(*(f"ALTER DATABASE {database} SET {setting}" for setting in settings))
        yield scene


def plan_of(scene: PostgresScene, table: str, after: bytes, until: bytes) -> str:
    """How the server would read a chunk."""
    assert isinstance(scene.tables, PostgresTables)
    definition = scene.tables._definitions[table][1]
    conditions = [
        above(definition.key, literals_of(definition.key, after)),
        up_to(definition.key, literals_of(definition.key, until)),
    ]
    select = copied(definition, conditions, 1 << 20, 100).removeprefix("COPY (").removesuffix(") TO STDOUT")
    ((plan,),) = scene.sql("SET enable_sort = off", f"EXPLAIN (FORMAT json) {select}")
    return json.dumps(plan)


def check(scene: PostgresScene, table: str) -> None:
    """All rows come once, as the log has them, in the order of the index, over which each range is read."""
    found = scene.read(table, _TWO)
    keys = list(found)
    assert found == scene.rows[table]
    assert list(scene.chunk(table, limits=_ALL).rows) == keys, "the limits change the order"
    assert scene.chunk(table, limits=_ALL).schema == scene.schemas[table]
    plan = plan_of(scene, table, keys[0], keys[-1])
    assert "Index Cond" in plan, plan
    assert '"Sort"' not in plan, plan
    assert list(scene.chunk(table, keys[0], keys[-2], _ALL).rows) == keys[1:-1]
    assert scene.tables.rows(table, keys, scene.marker).rows == found
    assert all(scene.tables.can_ask(table, key) for key in keys)
    assert scene.tables.skip(table, None, 2) == keys[1]


def test_keys_of_one_column(scene: PostgresScene) -> None:
    """A key of each type is read. All share one database, since to make one takes longer than all of them."""
    for at, (declared, values) in enumerate(_KEYS.items()):
        rows = ", ".join(f"({value})" for value in _literals(values))
        scene.sql(f"CREATE TABLE k{at} (k {declared} PRIMARY KEY, v int)", f"INSERT INTO k{at} (k) VALUES {rows}")
    scene.follow()
    for at in range(len(_KEYS)):
        check(scene, f"public.k{at}")
    listed = {table.name: table.portable for table in scene.tables.tables(lambda name: "k" in name)}
    portable = [declared for at, declared in enumerate(_KEYS) if listed[f"public.k{at}"]]
    assert portable == ["int8", "bytea", "xid8", "positive"]


def _literals(text: str) -> list[str]:
    """Literals, which may hold commas."""
    found, begin, inside = [], 0, False
    for at, char in enumerate(text):
        inside ^= char == "'"
        if char == "," and not inside:
            found.append(text[begin:at])
            begin = at + 1
    return [*found, text[begin:]]


def test_keys_of_several_columns(scene: PostgresScene) -> None:
    """The index has them in an order of its own; the log's keys in that of the table."""
    scene.run(
        'CREATE TABLE two (v int, "B ""c""" text COLLATE "und-x-icu", n int, "case" bytea, '
        'PRIMARY KEY (n, "B ""c""") INCLUDE (v))',
        *(f"INSERT INTO two VALUES (0, '{word}', {n})" for n in (3, 1, 2) for word in ("a", "B", "ä", "")),
        "CREATE TABLE whole (v int, n int, PRIMARY KEY (n) INCLUDE (v)); ALTER TABLE whole REPLICA IDENTITY FULL",
        "INSERT INTO whole VALUES (1, 1), (2, 2), (3, 3)",
        "CREATE TABLE mixed (c citext, n int, p text, v int)",
        "CREATE UNIQUE INDEX mixed_key ON mixed (n, c, p text_pattern_ops)",
        "ALTER TABLE mixed ALTER c SET NOT NULL, ALTER n SET NOT NULL, ALTER p SET NOT NULL",
        "ALTER TABLE mixed REPLICA IDENTITY USING INDEX mixed_key",
        *(f"INSERT INTO mixed VALUES ('{c}', {n}, '{p}')" for n in (2, 1) for c in "aBc" for p in ("é", "z", "")),
        'CREATE TABLE three ("case" int, b text, a int, v text, PRIMARY KEY ("case", b, a))',
        *(f"INSERT INTO three VALUES ({n}, 'x', {-n})" for n in range(5)),
    )
    check(scene, "public.two")
    check(scene, "public.three")
    check(scene, "public.mixed")
    check(scene, "public.whole")
    assert scene.tables.tables(lambda name: name == "public.two")[0].portable is False
    keys = [[value.int or value.text for value in decode_row(row).key] for row in scene.read("public.two").values()]
    assert keys[:4] == [["", 1], ["a", 1], ["ä", 1], ["B", 1]]


def test_another_spelling_of_a_key_is_not_gone(scene: PostgresScene) -> None:
    scene.run(
        "CREATE TABLE words (k text COLLATE loose PRIMARY KEY)",
        "INSERT INTO words VALUES ('a'), ('b')",
        "CREATE TABLE numbers (k numeric PRIMARY KEY)",
        "INSERT INTO numbers VALUES (1.0), (2)",
    )
    a, b, upper = (encode_key((key,)) for key in ("a", "b", "A"))
    chunk = scene.tables.rows("public.words", [b, upper, encode_key(("gone",))], scene.marker)
    assert (list(chunk.rows), list(chunk.unclear)) == ([b], [upper])
    assert list(scene.chunk("public.words", upper, None, _ALL).rows) == [b]
    assert list(scene.chunk("public.words", None, upper, _ALL).rows) == [a]
    one = decode_row(next(iter(scene.rows["public.numbers"].values()))).key[0]
    assert one.decimal == "1.0"
    spelled = encode_key((Decimal("1.000"),))
    assert list(scene.tables.rows("public.numbers", [spelled], scene.marker).unclear) == [spelled]


def test_keys_that_somebody_named_cost_no_table(scene: PostgresScene) -> None:
    scene.run("CREATE TABLE named (k mood, d positive, PRIMARY KEY (k, d))", "INSERT INTO named VALUES ('sad', 1)")
    asks = scene.tables.can_ask
    assert asks("public.named", encode_key(("sad", 1)))
    for key in (("happy", 1), ("sad", 0), ("sad", "x"), ("sad", 1 << 40), ("sad\0", 1), ("sad", None), ("sad",)):
        assert not asks("public.named", encode_key(key)), key
    assert not asks("public.named", encode_key((UNAVAILABLE, 1)))
    assert not asks("public.named", b"\xff\xff")
    assert len(scene.read("public.named")) == 1


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX other_key", "NOTHING"])
def test_every_type_under_every_identity(scene: PostgresScene, identity: str) -> None:
    scene.sql("DROP TABLE IF EXISTS t")
    scene.rows.pop("public.t", None)
    names = [f"c{n}" for n in range(len(TYPES))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, TYPES, strict=True))
    most = max(map(len, TYPES.values()))
    rows = [[values[row % len(values)].replace("'", "''") for values in TYPES.values()] for row in range(most)]
    scene.run(
        f"CREATE TABLE t (id int PRIMARY KEY, {columns}, other text NOT NULL DEFAULT 'o')",
        "CREATE UNIQUE INDEX other_key ON t (other, id)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        *(
            f"INSERT INTO t VALUES ({at}, "
            + ", ".join(f"'{value}'::{kind}" for value, kind in zip(row, TYPES, strict=True))
            + ")"
            for at, row in enumerate(rows)
        ),
        f"INSERT INTO t (id) VALUES ({most})",
    )
    found = scene.read("public.t", ChunkLimits(rows=5, seconds=30.0))
    assert found == scene.rows["public.t"]
    assert len(found) == most + 1
    assert scene.chunk("public.t").schema == scene.schemas["public.t"]
    assert scene.tables.rows("public.t", list(found), scene.marker).rows == found
    if identity == "DEFAULT":
        check(scene, "public.t")
        scene.run(
            "ALTER TABLE t DROP COLUMN c3",
            "ALTER TABLE t RENAME c4 TO renamed",
            "CREATE UNLOGGED TABLE spare AS TABLE t",
            "DELETE FROM t",
            "INSERT INTO t TABLE spare",  # an UPDATE would log no value that is stored apart
            "ALTER TABLE t ADD made int GENERATED ALWAYS AS (id * 2) STORED",
        )
        check(scene, "public.t")


def test_a_changed_key_has_another_fingerprint(scene: PostgresScene) -> None:
    def fingerprint() -> str:
        (table,) = scene.tables.tables(lambda name: name == "public.f")
        return table.fingerprint

    scene.run(
        "CREATE TYPE feeling AS ENUM ('sad', '')",
        "CREATE TABLE f (k feeling, v int NOT NULL, PRIMARY KEY (k, v))",
        "INSERT INTO f VALUES ('sad', 1), ('', 2)",
    )
    known = [fingerprint()]
    first = scene.chunk("public.f", limits=ChunkLimits(rows=1))
    scene.run("ALTER TABLE f ADD COLUMN more int")
    scene.sql("TRUNCATE f", "VACUUM FULL f")
    assert fingerprint() == known[0]
    for change in (
        "ALTER TYPE feeling RENAME VALUE 'sad' TO 'sadder'",
        "ALTER TABLE f ALTER v TYPE bigint",
        "ALTER TABLE f DROP CONSTRAINT f_pkey, ADD PRIMARY KEY (v, k)",
        "ALTER TABLE f REPLICA IDENTITY FULL, DROP CONSTRAINT f_pkey, ADD PRIMARY KEY (v)",
    ):
        scene.sql(change)
        with pytest.raises(SourceUnavailable, match="another one than when its backfill began"):
            scene.chunk("public.f", first.last)
        known.append(fingerprint())
    scene.sql("CREATE TABLE g (LIKE f INCLUDING ALL)", "ALTER TABLE f RENAME TO old", "ALTER TABLE g RENAME TO f")
    known.append(fingerprint())
    assert len(set(known)) == len(known)
    with pytest.raises(UnreadableTable, match="does not fit the table's present key"):
        scene.chunk("public.f", first.last)


@pytest.mark.parametrize("kind", ["xid[]", "pair"])
def test_a_key_without_an_order(postgres_of_each: PostgresServer, kind: str) -> None:
    """The server creates the index, and compares these values only where the columns before them are equal."""
    with new_database(postgres_of_each) as database, PostgresScene(postgres_of_each, database) as scene:
        value = "'{1}'" if kind == "xid[]" else "'(1)'"
        scene.run(
            "CREATE TYPE pair AS (a xid)",
            f"CREATE TABLE k (n int, v {kind}, PRIMARY KEY (n, v))",
            f"INSERT INTO k VALUES (1, {value}), (2, {value})",
        )
        with pytest.raises(UnreadableTable, match="a type without an order"):
            scene.chunk("public.k")


def test_rows_of_all_sizes(postgres_server: PostgresServer, postgres_database: str) -> None:
    """What the server sends beyond a full chunk is not kept; a row over the limit comes without its values."""
    with PostgresScene(postgres_server, postgres_database, max_update_bytes=300_000) as scene:
        scene.run(
            "CREATE TABLE sizes (n int PRIMARY KEY, v text, w bytea)",
            "INSERT INTO sizes SELECT n, repeat('x', CASE WHEN n % 500 < 450 THEN 1 ELSE 20000 END) "
            "FROM generate_series(1, 1000) n",
            "INSERT INTO sizes VALUES (-1, repeat('x', 200000), convert_to(repeat('y', 200000), 'UTF8')), "
            "(-2, repeat('z', 299000), NULL), (-3, NULL, convert_to(repeat('y', 300001), 'UTF8'))",
        )
        chunks = list(scene.chunks("public.sizes", ChunkLimits(rows=5000, bytes=100_000)))
        found = {key: update for chunk in chunks for key, update in chunk.rows.items()}
        assert found == scene.rows["public.sizes"]
        assert [decode_row(update).too_large for update in list(found.values())[:4]] == [True, False, True, False]
        assert max(chunk.size for chunk in chunks) < 500_000
        assert len(chunks) < 60
