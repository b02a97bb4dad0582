"""Which tables the server lets be published: what is foreseen of every form of table and publication, compared with
what the server does with UPDATE and DELETE. Our setup must never break the application's writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psycopg
import pytest

from datastores.postgres.datastore import DATASTORE
from datastores.postgres.server.address import parse
from datastores.postgres.server.connection import connect
from datastores.postgres.sql_text import quote_identifier
from datastores.postgres.tables.identities import Refusal, TableIdentity, read_tables
from tests.support.postgres_server import PostgresServer, new_database
from wormhole.model.errors import UsageError
from wormhole.model.findings import Severity
from wormhole.ports.datastore import Login

_COLUMNS: Final = "id int NOT NULL, a int NOT NULL, b int"
_KEYS: Final = {
    "keyed": "PRIMARY KEY (id)",
    "two_columns": "PRIMARY KEY (id, a)",
    "late": "PRIMARY KEY (id) DEFERRABLE",
    "latest": "PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED",
    "unique_only": "UNIQUE (id)",
    "by_index": "CONSTRAINT {table}_key UNIQUE (id, a)",
}
_GENERATED: Final = {"": "", "_stored": ", g int GENERATED ALWAYS AS (a + 1) STORED"}
_VIRTUAL: Final = {"_virtual": ", g int GENERATED ALWAYS AS (a + 1) VIRTUAL"}
_IDENTITIES: Final = {"": "", "_full": "FULL", "_nothing": "NOTHING"}
_FORMS: Final = ("", " (id)", " (id, a)", " (a)", " WHERE (id > 0)", " WHERE (b > 0)", " (id) WHERE (a > 0)")
"""What stands behind a table's name in the list of a publication."""


def tables_of(version: int) -> dict[str, list[str]]:
    """The statements that make each form of table with a row, by its name."""
    stored = ", g int GENERATED ALWAYS AS (a + 1) STORED"
    made = {
        "by_sum": [f"CREATE TABLE by_sum ({_COLUMNS}{stored}, PRIMARY KEY (id, g))"],
        "by_sum_full": [
            f"CREATE TABLE by_sum_full ({_COLUMNS}{stored}, PRIMARY KEY (id, g))",
            "ALTER TABLE by_sum_full REPLICA IDENTITY FULL",
        ],
        "no_index": [
            f"CREATE TABLE no_index ({_COLUMNS}, CONSTRAINT gone UNIQUE (id))",
            "ALTER TABLE no_index REPLICA IDENTITY USING INDEX gone",
            "ALTER TABLE no_index DROP CONSTRAINT gone",
        ],
        "parent": [f"CREATE TABLE parent ({_COLUMNS}, PRIMARY KEY (id))"],
        "heir": ["CREATE TABLE heir () INHERITS (parent)"],
        'odd "name"': [f'CREATE TABLE "odd ""name""" ({_COLUMNS})'],
    }
    generated = _GENERATED | (_VIRTUAL if version >= 180000 else {})
    for (kind, key), (more, column), (end, identity) in itertools.product(
        _KEYS.items(), generated.items(), _IDENTITIES.items()
    ):
        name = f"{kind}{more}{end}"
        identity = f"USING INDEX {name}_key" if kind == "by_index" and not identity else identity
        made[name] = [f"CREATE TABLE {name} ({_COLUMNS}{column}, {key.format(table=name)})"]
        made[name] += _with_identity(name, identity)
    for end, identity in {**_IDENTITIES, "_by_index": "USING INDEX parted_by_index_2_pkey"}.items():
        name = f"parted{end}"
        made[name] = [
            f"CREATE TABLE {name} ({_COLUMNS}, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
            f"CREATE TABLE {name}_1 PARTITION OF {name} FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
            f"CREATE TABLE {name}_2 PARTITION OF {name}_1 DEFAULT",
            *_with_identity(f"{name}_2", identity),
        ]
    return {name: [*statements, _row(name)] for name, statements in made.items()}


def _with_identity(table: str, identity: str) -> list[str]:
    return [f"ALTER TABLE {table} REPLICA IDENTITY {identity}"] if identity else []


def _row(table: str) -> str:
    return f"INSERT INTO {quote_identifier(table)} (id, a, b) VALUES (1, 1, 1)"


def _make_tables(server: PostgresServer, database: str) -> tuple[int, list[str]]:
    ((version,),) = server.sql("SELECT current_setting('server_version_num')::int")
    made = tables_of(version)
    server.sql(*itertools.chain.from_iterable(made.values()), database=database)
    return version, list(made)


@pytest.fixture
def database(postgres_of_each: PostgresServer) -> Iterator[str]:
    with new_database(postgres_of_each) as name:
        yield name


def _identities(server: PostgresServer, database: str, publication: str) -> dict[str, TableIdentity]:
    connection = connect(parse(server.url(database), "log", password_file=server.password_file))
    try:
        return {one.name: one for one in read_tables(connection, publication)}
    finally:
        connection.close()


def _refused(server: PostgresServer, database: str, tables: Sequence[str]) -> set[str]:
    """Those of which the server refuses UPDATE or DELETE now. Every change is rolled back."""
    found = set()
    with server.connect(database) as connection:
        for table in tables:
            for change in ("UPDATE {} SET b = 2", "DELETE FROM {}"):
                try:
                    with connection.transaction(force_rollback=True):
                        connection.execute(change.format(_changed(table)).encode())
                except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.InvalidColumnReference):
                    found.add(table)
    return found


def _changed(table: str) -> str:
    """A change of a parent is one of its heirs too, which are published or not by themselves."""
    return f"ONLY {table}" if table == "parent" else quote_identifier(table)


def test_what_the_setup_makes_leaves_every_write_permitted(postgres_of_each: PostgresServer, database: str) -> None:
    server = postgres_of_each
    version, names = _make_tables(server, database)
    assert not _refused(server, database, names)
    url = server.url(database).replace(f"{server.user}@", "postgres@") + "?publication=ours&slot=ours"
    objects = DATASTORE.server_objects(url, Login())
    server.sql(objects.missing[0], database=database)
    assert not _refused(server, database, names)
    published = {name for name, one in _identities(server, database, "ours").items() if one.published}
    left_out = set(names) - published
    # What is left out would have been refused, or has no key in the log, so nothing is left out in vain.
    hidden = {name for name in names if name.startswith("by_sum") and version < 180000}
    assert ("a generated column in the key" in objects.left_out) is bool(hidden)
    for name in left_out:
        server.sql(f"ALTER PUBLICATION ours ADD TABLE ONLY {quote_identifier(name)}", database=database)
    assert _refused(server, database, names) | hidden == left_out
    assert {"keyed", "unique_only_full", "parted_full", "parent", *({"by_sum"} - hidden)} <= published
    assert {"late", "latest", "unique_only", "no_index", "parted_nothing", "heir", 'odd "name"'} <= left_out


def test_what_a_handmade_publication_has_refused_is_foreseen(postgres_of_each: PostgresServer, database: str) -> None:
    """Every form of table in every form of list, with partitions under the root's name and under their own."""
    server = postgres_of_each
    version, names = _make_tables(server, database)
    options = ["publish_via_partition_root = true", "publish = 'insert, update'", "publish = 'insert'"]
    if version >= 180000:
        options.append("publish_generated_columns = stored")
    seen = set()
    for form, option in itertools.product(_FORMS, options):
        # A partitioned table has a list or a filter only where it is published under its own name.
        chosen = [name for name in names if "via" in option or not form or not name.startswith("parted")]
        listed = ", ".join(f"ONLY {quote_identifier(name)}{form}" for name in chosen)
        server.sql(f"CREATE PUBLICATION mine FOR TABLE {listed} WITH ({option})", database=database)
        found = _identities(server, database, "mine")
        foreseen = {name: one.refusal for name, one in found.items() if one.refusal is not None and name in chosen}
        assert set(foreseen) == _refused(server, database, chosen), (form, option)
        seen |= set(foreseen.values())
        server.sql("DROP PUBLICATION mine", database=database)
    assert seen == set(Refusal) - (set() if version >= 180000 else {Refusal.GENERATED, Refusal.VIRTUAL})


def _findings(server: PostgresServer, database: str, tmp_path: Path) -> dict[str, str]:
    report = DATASTORE.examine(f"{server.url(database)}?publication=mine", tmp_path, Login(server.password_file))
    return {one.check: one.next_step for one in report.findings if one.severity is Severity.PROBLEM}


def test_doctors_remedies_end_what_is_refused(
    postgres_server: PostgresServer, postgres_database: str, tmp_path: Path
) -> None:
    server, database = postgres_server, postgres_database
    server.sql(
        f"CREATE TABLE listed ({_COLUMNS}, PRIMARY KEY (id))",
        f"CREATE TABLE filtered ({_COLUMNS}, PRIMARY KEY (id))",
        f"CREATE TABLE late ({_COLUMNS}, PRIMARY KEY (id) DEFERRABLE)",
        f"CREATE TABLE parted ({_COLUMNS}, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted DEFAULT",
        "ALTER TABLE part REPLICA IDENTITY NOTHING",
        "CREATE PUBLICATION mine FOR TABLE listed (a), filtered WHERE (b > 0), late, parted "
        "WITH (publish_via_partition_root = true)",
        *(_row(name) for name in ("listed", "filtered", "late", "parted")),
        database=database,
    )
    names = ["listed", "filtered", "late", "parted"]
    assert _refused(server, database, names) == set(names)
    for _ in range(2):  # one of two findings of one name is shown first
        found = _findings(server, database, tmp_path)
        for check in ("publication_columns", "publication_filters", "replica_identity"):
            server.sql(*found.get(check, "").splitlines()[1:], database=database)
    assert not _refused(server, database, names)
    assert not {"publication_columns", "publication_filters", "replica_identity"} & set(
        _findings(server, database, tmp_path)
    )


def test_a_table_that_is_created_later_is_offered_and_its_writes_go_on(
    postgres_server: PostgresServer, postgres_database: str
) -> None:
    server, database = postgres_server, postgres_database
    admin = server.url(database).replace(f"{server.user}@", "postgres@")
    server.sql(f"CREATE TABLE first ({_COLUMNS}, PRIMARY KEY (id))", database=database)
    DATASTORE.run_statements(admin, Login(), DATASTORE.server_objects(admin, Login()).missing)
    server.sql(
        f"CREATE TABLE later ({_COLUMNS}, PRIMARY KEY (id))",
        f"CREATE TABLE keyless ({_COLUMNS})",
        _row("later"),
        _row("keyless"),
        database=database,
    )
    assert not _refused(server, database, ["first", "later", "keyless"])
    offered = DATASTORE.server_objects(admin, Login())
    assert offered.missing == ()
    assert "public.later" in offered.left_out
    assert "public.keyless" in offered.left_out
    added = DATASTORE.server_objects(admin, Login(), ["public.*"])
    assert len(added.missing) == 1
    DATASTORE.run_statements(admin, Login(), added.missing)
    assert DATASTORE.server_objects(admin, Login(), ["public.*"]).missing == ()
    found = _identities(server, database, f"wormhole_{database}")
    assert {name for name, one in found.items() if one.published} == {"first", "later"}
    with pytest.raises(UsageError, match="no table of the database is called"):
        DATASTORE.server_objects(admin, Login(), ["public.none"])
