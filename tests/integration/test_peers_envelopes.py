"""Our envelopes beside the real Debezium and Maxwell, over the same changes, field by field.

What differs is exactly what docs/envelopes.md lists: a new difference fails, and so does one that is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sinks.envelopes import envelope_named
from subscriber_sdk import Update, Value
from subscriber_sdk.testing import update
from tests.support.databases import DatabaseServer, NewServer
from tests.support.envelope_corpus import MYSQL, POSTGRES, Corpus
from tests.support.envelopes import Made, made, updates_of
from tests.support.eventually import until
from tests.support.pages import Page
from tests.support.peers import Peer, debezium, maxwell, maxwell_key
from tests.support.postgres_scene import PostgresScene
from tests.support.postgres_server import NewPostgres
from tests.support.table_scene import Scene, TableScene
from wormhole.ports.table_source import Chunk
from wormhole.wire.body import ParsedBody, build_body, parse_body
from wormhole.wire.update import Batch

Difference = tuple[str, str, str]
"""A column's type, or a field; what the peer sends, and what we send. For a field that is not of a row: the field."""

MISSING: Final = "left out"
ROWS: Final = ("before", "after", "data", "old", "key")
EXISTED: Final = "existing: "
LONGEST: Final = 33
EXISTING: Final = {"r", "bootstrap-insert"}
WRITER: Final = "writer"
SECONDS: Final = 1_795_930_200
SESSION: Final = "SET SESSION sql_mode = '', time_zone = '+00:00'"
CONNECTORS: Final = {
    "mariadb": ("io.debezium.connector.mariadb.MariaDbConnector", "disable"),
    "mysql": ("io.debezium.connector.mysql.MySqlConnector", "preferred"),
}


def read_changes(scene: Scene) -> list[Update]:
    """What the log has from the scene's beginning to its present end."""
    end, found = scene.source.latest().order, list[Update]()

    def reached() -> bool:
        segment = scene._reader.read(1 << 20, 0.2)
        if segment is not None:
            assert not segment.broken
            scene.marker = segment.marker or scene.marker
            for shard, run in segment.runs.items():
                body = build_body(run, segment.end.incarnation)
                assert body is not None
                schemas = {schema.id: schema for schema in run.schemas}
                found.extend(Batch(parse_body(body.data), shard, 1, False, schemas.__getitem__).updates())
        return scene.marker.order >= end

    until(reached, f"the reader does not reach {end}")
    return found


def read_rows(chunk: Chunk) -> list[Update]:
    """The rows of a chunk, as a backfill sends them."""
    rows, schema = tuple(chunk.rows.values()), chunk.schema
    body = ParsedBody(rows, (schema.id,), (), (), 0, ("chunk",), (), (1,), 1, (1,), (1,), (0,), (len(rows),))
    return Batch(body, "db", 1, False, {schema.id: schema}.__getitem__).updates()


def fields(record: Made) -> dict[str, Any]:
    """The fields of key and value, those of objects by a path."""
    found: dict[str, Any] = {}
    for name, field in {"key": record.key, **(record.value or {"value": None})}.items():
        if isinstance(field, dict) and field and name in (*ROWS, "source"):
            found |= {f"{name}.{inner}": value for inner, value in field.items()}
        else:
            found[name] = field
    return found


def differences(theirs: Sequence[Made], ours: Sequence[Made], corpus: Corpus) -> Iterator[Difference]:
    """What differs between records that lie side by side."""
    assert [shape(record) for record in theirs] == [shape(record) for record in ours]
    for their, our in zip(theirs, ours, strict=True):
        left, right = fields(their), fields(our)
        for path in left.keys() | right.keys():
            said = [json.dumps(side[path], ensure_ascii=False) if path in side else MISSING for side in (left, right)]
            if said[0] == said[1]:
                continue
            part, _, column = path.partition(".")
            if part in ROWS:
                label = corpus.types[column] if their.table.endswith(".types") else path
                yield label, cut(said[0]), cut(said[1])
            else:
                yield f"{EXISTED}{path}" if shape(our)[1] in EXISTING else path, "", ""


def cut(text: str) -> str:
    """As the page shows it."""
    return text if len(text) < LONGEST else f"{text[: LONGEST - 1]}…"


def shape(record: Made) -> tuple[str, str]:
    """Which records belong together."""
    value = record.value or {"op": "tombstone"}
    return record.table, value.get("op") or value["type"]


def listed(section: str, flavour: str) -> set[Difference]:
    """The differences of a section of the page, those of another flavour left out."""
    text = Page("docs/envelopes.md", {}).text.replace("`", "")
    (body,) = re.findall(rf"^### {re.escape(section)}$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    found = set[Difference]()
    for line in re.findall(r"^\| (?!field|type)(.*) \|$", body, re.MULTILINE):
        first, *cells = line.split(" | ")
        values = (cells[0], cells[1]) if len(cells) == 3 else ("", "")
        for name in [first] if len(cells) == 3 else first.split(", "):
            only = re.search(r" \((MariaDB|MySQL)\)$", name)
            if only is None or only[1].lower() == flavour:
                found.add((name.removesuffix(only[0] if only else ""), *values))
    return found


def compare(found: set[Difference], section: str, flavour: str = "") -> None:
    always = {f"{EXISTED}{name}" for name, _, _ in found}
    found = {one for one in found if one[0] not in always}
    said = listed(section, flavour)
    assert (sorted(found - said), sorted(said - found)) == ([], [])


MARIADB: Final = pytest.mark.parametrize("flavour", ["mariadb"])  # Maven's Maxwell connects to no MySQL of today


def without_key(records: Sequence[Made]) -> list[Made]:
    """Without the tombstones that name no row."""
    return [record for record in records if record.value is not None or record.key is not None]


@pytest.fixture
def changed(new_server: NewServer) -> DatabaseServer:
    """A server with the existing rows, and an account for the peers."""
    server = new_server()
    account = f"'{WRITER}'@'127.0.0.1'"
    server.sql(f"CREATE USER {account} IDENTIFIED BY '{WRITER}'", f"GRANT ALL ON *.* TO {account}")
    server.sql(SESSION, *MYSQL.tables, *MYSQL.existing)
    return server


def change(server: DatabaseServer) -> None:
    # MariaDB logs seconds, which would differ where one ends inside a transaction; MySQL the time of the commit.
    at = f", timestamp = {SECONDS}" if server.flavour == "mariadb" else ""
    for transaction in MYSQL.changes:
        server.sql(SESSION + at, "BEGIN", *transaction, "COMMIT")


def test_debezium_of_mysql(changed: DatabaseServer, tmp_path: Path) -> None:
    connector, ssl = CONNECTORS[changed.flavour]
    settings = {
        "database.port": changed.port,
        "database.user": WRITER,
        "database.password": WRITER,
        "database.server.id": 4711,
        "database.ssl.mode": ssl,
        "table.include.list": r"shop\\..*",
    }
    with TableScene(changed) as scene, debezium(connector, settings, tmp_path) as peer:
        peer.until(lambda records: len(records) == len(MYSQL.existing), "there is no snapshot")
        rows = [row for table in ("orders", "types") for row in read_rows(scene.chunk(f"shop.{table}"))]
        change(changed)
        theirs = peer.until(
            lambda records: (records[-1].key or {}).get("ordered") == 9, "the last change does not come"
        )
        ours = made(envelope_named("debezium"), [*rows, *read_changes(scene)])
    found = set(differences(without_key(theirs), ours, MYSQL)) | {("tombstone without a key", "", "")}
    assert len(theirs) - len(without_key(theirs)) == 1
    compare(found, "What differs from Debezium for MySQL and MariaDB", changed.flavour)


def test_debezium_of_postgres(new_postgres: NewPostgres, tmp_path: Path) -> None:
    server = new_postgres()
    server.sql("CREATE DATABASE shop")
    server.sql(*POSTGRES.tables, *POSTGRES.existing, database="shop")
    settings = {
        "plugin.name": "pgoutput",
        "database.port": server.port,
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "shop",
        "table.include.list": r"public\\..*",
    }
    connector = "io.debezium.connector.postgresql.PostgresConnector"
    with PostgresScene(server, "shop") as scene, debezium(connector, settings, tmp_path) as peer:
        peer.until(lambda records: len(records) == len(POSTGRES.existing), "there is no snapshot")
        rows = [row for table in ("orders", "types") for row in read_rows(scene.chunk(f"public.{table}"))]
        for transaction in POSTGRES.changes:
            server.sql("BEGIN", *transaction, "COMMIT", database="shop")
        theirs = peer.until(
            lambda records: (records[-1].key or {}).get("ordered") == 9, "the last change does not come"
        )
        ours = made(envelope_named("debezium", "shop"), [*rows, *read_changes(scene)])
    (message,) = (record for record in theirs if record.value and record.value["op"] == "m")
    (row,) = (record for record in ours if record.table == "@message")
    content = {"prefix": "note", "content": "aGVsbG8="}
    assert (message.value["message"], row.value["op"], row.value["after"]) == (
        content,
        "c",
        content | {"transactional": True},
    )
    theirs.remove(message)
    ours.remove(row)
    compare(set(differences(theirs, ours, POSTGRES)), "What differs from Debezium for PostgreSQL")


@contextmanager
def beside_maxwell(server: DatabaseServer, folder: Path) -> Iterator[tuple[Peer, TableScene]]:
    """Maxwell, and ours, at the present end of the log."""
    options = [f"--{name}={WRITER}" for name in ("user", "password")] + ["--host=127.0.0.1", f"--port={server.port}"]
    begun = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'maxwell' AND table_name = 'positions'"
    with maxwell(*options, "--filter=exclude: *.*, include: shop.*", "--output_ddl=true", folder=folder) as peer:
        peer.until(
            lambda _: bool(server.sql(begun)) and bool(server.sql("SELECT 1 FROM maxwell.positions")),
            "Maxwell does not begin",
        )
        with TableScene(server) as scene:
            yield peer, scene


@MARIADB
def test_maxwell(changed: DatabaseServer, tmp_path: Path) -> None:
    with beside_maxwell(changed, tmp_path) as (peer, scene):
        # It knows no utf8mb3, which MariaDB makes of the character set of its table.
        changed.sql("ALTER TABLE maxwell.bootstrap CONVERT TO CHARACTER SET utf8mb4")
        changed.sql("INSERT INTO maxwell.bootstrap (database_name, table_name) VALUES ('shop', 'orders')")
        peer.until(lambda records: kinds(records)[-1:] == ["bootstrap-complete"], "the existing rows do not come")
        rows = read_rows(scene.chunk("shop.orders"))
        change(changed)
        theirs = peer.until(lambda records: records[-1].value["data"].get("ordered") == 9, "the last does not come")
        ours = made(envelope_named("maxwell"), [*rows, *read_changes(scene)])
    only_theirs, only_ours = {"bootstrap-start", "bootstrap-complete"}, {"table-truncate"}
    assert (only_theirs & set(kinds(theirs)), only_ours & set(kinds(ours))) == (only_theirs, only_ours)
    theirs = [record for record in theirs if record.value["type"] not in only_theirs]
    ours = [record for record in of_shop(ours) if record.value["type"] not in only_ours]
    found = {(name, "", "") for name in only_theirs | only_ours}
    compare(found | set(differences(theirs, ours, MYSQL)), "What differs from Maxwell")


@MARIADB
def test_maxwell_of_rows_that_the_log_holds_in_part(changed: DatabaseServer, tmp_path: Path) -> None:
    orders = "shop.orders"
    with beside_maxwell(changed, tmp_path) as (peer, scene):
        changed.sql(
            f"{SESSION}, timestamp = {SECONDS}, binlog_row_image = MINIMAL",
            f"UPDATE {orders} SET status = 'paid'",
            f"UPDATE {orders} SET id = 2, note = 'x'",
            f"INSERT INTO {orders} (id, status) VALUES (3, 'new')",
            f"DELETE FROM {orders}",
        )
        theirs = peer.until(lambda records: kinds(records)[-2:] == ["delete"] * 2, "the deletes do not come")
        ours = of_shop(made(envelope_named("maxwell"), read_changes(scene)))
    assert {path for path, _, _ in differences(theirs, ours, MYSQL)} == {"xid"}


def of_shop(records: Sequence[Made]) -> list[Made]:
    """Without what Maxwell writes into tables of its own; and without keys, which it does not print."""
    return [record._replace(key=None) for record in records if record.table.startswith("shop.")]


def kinds(records: Sequence[Made]) -> list[str]:
    return [record.value["type"] for record in records]


def test_the_key_of_maxwell() -> None:
    key: dict[str, Value] = {"id": 7, "line": 8}
    (record,) = made(envelope_named("maxwell"), updates_of([update("shop.orders", key=key, after=key)]))
    assert record.key == maxwell_key("shop", "orders", id=7, line=8)
