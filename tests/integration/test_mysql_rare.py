"""The rare decoders over what real servers write: their JSON, character sets, tags, XA and compressed events."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import pytest

from datastores.mysql.decode import events
from datastores.mysql.decode.charsets import ERRORS, charset_name_of, codec_of
from datastores.mysql.decode.gtid import GtidSet
from datastores.mysql.decode.json_diff import apply_diffs
from datastores.mysql.decode.json_text import json_text
from datastores.mysql.decode.large_event import Body, LargeEvent
from datastores.mysql.decode.payload import inflate, plain_event
from datastores.mysql.decode.rare_events import (
    parse_format_description,
    parse_gtid_tagged,
    parse_mariadb_gtid,
    parse_query,
    parse_rotate,
    parse_xa_prepare,
)
from datastores.mysql.decode.statement import Kind, classify
from tests.support.databases import DatabaseServer, start_server
from tests.support.mysql_differential import Follower, Session, Table
from tests.support.mysql_types import NULL, UNAVAILABLE
from tests.support.mysql_workload import INT


def body_of(data: bytes) -> Body:
    return Body(io.BytesIO(data).read, len(data))


def whole(event: bytes | LargeEvent) -> bytes:
    return event if isinstance(event, bytes) else event.header + event.body.take(event.body.left)


def logged(server: DatabaseServer, *statements: str) -> list[bytes]:
    """What these statements write into a file of their own: whole events without checksums, the file's own ones
    among them."""
    connection = server.connect()
    with connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        for statement in statements:
            cursor.execute(statement)
        path = server.binlogs[-1]
        cursor.execute("FLUSH BINARY LOGS")
    file = path.read_bytes()
    found, at = [], 4
    tail = 0
    while at < len(file):
        (length,) = struct.unpack_from("<I", file, at + 9)
        if file[at + 4] == events.FORMAT_DESCRIPTION:
            tail = 4 if parse_format_description(file[at : at + length]).checksum else 0
            found.append(file[at : at + length])
        else:
            found.append(file[at : at + length - tail])
        at += length
    return found


def bodies(found: list[bytes], kind: int) -> list[bytes]:
    return [event[events.HEADER :] for event in found if event[4] == kind]


def cells(body: bytes, at: int) -> Iterator[bytes]:
    """JSON values of rows of (INT NOT NULL, JSON NOT NULL), from the first row's null bitmap on."""
    while at < len(body):
        (size,) = struct.unpack_from("<I", body, at + 5)
        yield body[at + 9 : at + 9 + size]
        at += 9 + size


DOCUMENTS = [
    r"""'{"b": 1, "aa": [1.0, 1e15, 123456789012345.0, 1e-15, 1e-16, -0.0, 1e100, 1234567890123456.8, 0.1]}'""",
    r"""'[9223372036854775807, -9223372036854775808, 18446744073709551615, 32768, -32769, 65536, 4294967295, 99999999999999999999]'""",  # noqa: E501
    r"""'"\\u0001\\u001f\\u007f\\b\\t\\n\\f\\r\\"/\\\\ größe 😀"'""",
    r"""'{"": {}, "a": [], "ä": null, "true": [true, false]}'""",
    (
        "JSON_ARRAY(CAST(123.450 AS DECIMAL(65,30)), CAST(-0.5 AS DECIMAL(10,4)), CAST(99999999999999999999 AS "
        "DECIMAL(20)))"
    ),
    "JSON_ARRAY(DATE'2015-12-31', TIMESTAMP'2015-01-15 23:24:25', TIMESTAMP'2015-01-15 23:24:25.12', TIME'-838:59:59')",
    "JSON_ARRAY(REPEAT(x'78', 57), REPEAT(x'78', 58), b'101', x'')",
    "JSON_ARRAY(REPEAT('long ', 40000), 1, JSON_OBJECT('k', REPEAT('y', 200)))",
    "CAST(1.5e0 AS JSON)",
    "CAST(NULLIF(0, 0) IS NULL AS JSON)",
]


def test_json_is_shown_as_select_shows_it(mysql_server: DatabaseServer) -> None:
    mysql_server.sql("CREATE DATABASE rare_json", "CREATE TABLE rare_json.t (id INT PRIMARY KEY, doc JSON NOT NULL)")
    rows = ",".join(f"({number}, {document})" for number, document in enumerate(DOCUMENTS))
    found = logged(mysql_server, f"INSERT INTO rare_json.t VALUES {rows}")
    stored = [cell for body in bodies(found, events.WRITE_ROWS_V2) for cell in cells(body, 12)]
    shown = [row[0] for row in mysql_server.sql("SELECT CAST(doc AS CHAR) FROM rare_json.t ORDER BY id")]
    assert [json_text(cell, 0, len(cell)) for cell in stored] == shown
    assert len(shown) == len(DOCUMENTS)


CHANGES = [
    """JSON_SET(doc, '$.a[1]."b c"', 1.5e0)""",
    "JSON_SET(doc, '$.new', JSON_ARRAY(1, 'x'))",
    "JSON_REMOVE(doc, '$.n')",
    "JSON_REPLACE(doc, '$.a[0]', 18446744073709551615, '$.größe', 'kleiner')",
    "JSON_SET(JSON_REMOVE(doc, '$.a[2]'), '$.a[1].z', TIME'10:11:12')",
    """JSON_SET(doc, '$."q\\\\"x"', 1)""",
    "JSON_SET(doc, '$.a[9]', CAST(1.50 AS DECIMAL(5,2)))",
]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_json_give_what_select_shows(mysql_server: DatabaseServer, change: str) -> None:
    document = '{"a": [1, {"b c": 1.0, "d": "x"}, [null, true]], "größe": "mittel", "n": null, "pad": "%s"}' % (
        "p" * 500
    )
    mysql_server.sql(
        "CREATE DATABASE IF NOT EXISTS rare_diff",
        "DROP TABLE IF EXISTS rare_diff.t",
        "CREATE TABLE rare_diff.t (id INT PRIMARY KEY, doc JSON NOT NULL)",
        f"INSERT INTO rare_diff.t VALUES (1, '{document}')",
    )
    before = mysql_server.sql("SELECT CAST(doc AS CHAR) FROM rare_diff.t")[0][0]
    found = logged(
        mysql_server,
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        f"UPDATE rare_diff.t SET doc = {change}",
    )
    (body,) = bodies(found, events.PARTIAL_UPDATE_ROWS)
    at = 13
    (size,) = struct.unpack_from("<I", body, at + 5)
    assert json_text(body, at + 9, at + 9 + size) == before
    at += 9 + size
    assert body[at : at + 2] == b"\1\1"  # this row's JSON columns: the first one is given by its changes
    (length,) = struct.unpack_from("<I", body, at + 7)
    start = at + 11
    assert start + length == len(body)
    after = mysql_server.sql("SELECT CAST(doc AS CHAR) FROM rare_diff.t")[0][0]
    assert after != before
    assert apply_diffs(before, body, start, len(body)) == after


DOUBLE = {"eucjpms", "big5", "cp932", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"}


def test_every_code_of_every_charset_is_what_select_shows(database_server: DatabaseServer) -> None:
    connection = database_server.connect()
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, collation_name FROM information_schema.collations WHERE id IS NOT NULL")
        collations: dict[str, int] = {}
        for number, name in cursor.fetchall():
            charset = str(name).split("_")[0].replace("utf8mb3", "utf8")
            assert charset_name_of(number).replace("utf8mb3", "utf8") == charset, name
            collations[charset] = number
        for charset, number in collations.items():
            codec = codec_of(number)
            if codec is None or charset.startswith(("utf", "ucs2")):
                continue
            codes = [bytes([n]) for n in range(256)]
            if charset in DOUBLE:
                codes = [bytes([a, b]) for a in range(0x81, 0xFF) for b in range(0x40, 0xFF)]
            cursor.execute("SET NAMES utf8mb4")
            words = b"".join(codes).hex()
            size = len(codes[0])
            cursor.execute(
                "SET SESSION cte_max_recursion_depth = 100000" if database_server.flavour == "mysql" else "DO 0"
            )
            cursor.execute(
                f"WITH RECURSIVE c AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM c WHERE n < {len(codes) - 1}) "
                f"SELECT n, HEX(CONVERT(CONVERT(SUBSTRING(x'{words}', n * {size} + 1, {size}) USING {charset}) "
                "USING utf8mb4)) FROM c"
            )
            for n, shown in cursor.fetchall():
                expected = bytes.fromhex(shown or "").decode()
                if shown is None or "?" in expected or "\ufffd" in expected:
                    continue
                assert codes[n].decode(codec, ERRORS) == expected, (charset, codes[n].hex())


def test_mysqls_rare_events(mysql_server: DatabaseServer) -> None:
    mysql_server.sql("CREATE DATABASE rare_mysql", "CREATE TABLE rare_mysql.t (id INT PRIMARY KEY, v VARCHAR(2000))")
    found = logged(
        mysql_server,
        "SET GTID_NEXT = 'AUTOMATIC:a_tag'",
        "INSERT INTO rare_mysql.t VALUES (1, 'one')",
        "SET GTID_NEXT = 'AUTOMATIC'",
        "SET SESSION binlog_transaction_compression = ON",
        "INSERT INTO rare_mysql.t VALUES (2, REPEAT('x', 2000)), (3, REPEAT('y', 2000))",
        "SET SESSION binlog_transaction_compression = OFF",
        "XA START 'gt', 'bq', 7",
        "INSERT INTO rare_mysql.t VALUES (4, 'four')",
        "XA END 'gt', 'bq', 7",
        "XA PREPARE 'gt', 'bq', 7",
        "XA COMMIT 'gt', 'bq', 7",
        "TRUNCATE TABLE rare_mysql.t",
        "CREATE TABLE rare_mysql.u SELECT 1 AS a",
        "DROP TABLE rare_mysql.u, rare_mysql.t",
    )
    uuid = mysql_server.sql("SELECT @@server_uuid")[0][0]
    before = GtidSet.decode(bodies(found, events.PREVIOUS_GTIDS)[0])
    now = GtidSet.parse(mysql_server.sql("SELECT @@gtid_executed")[0][0])
    assert before.issubset(now)
    (tagged,) = (parse_gtid_tagged(body) for body in bodies(found, events.GTID_TAGGED))
    assert tagged.source == f"{uuid}:a_tag"
    assert now.contains(tagged.source, tagged.number)
    assert str(now.subtract(before)).endswith(f":a_tag:{tagged.number}")
    assert GtidSet.decode(now.encode()) == now
    (payload,) = bodies(found, events.TRANSACTION_PAYLOAD)
    inner = [whole(event) for event in inflate(body_of(payload), 1 << 20, 1 << 20)]
    assert [event[4] for event in inner] == [events.QUERY, events.TABLE_MAP, events.WRITE_ROWS_V2, events.XID]
    assert b"x" * 2000 in inner[2]
    (prepared,) = (parse_xa_prepare(body) for body in bodies(found, events.XA_PREPARE))
    statements = [
        classify(query.sql, query.database)
        for query in map(parse_query, bodies(found, events.QUERY))
        if query.error_code == 0
    ]
    kinds = [statement.kind for statement in statements]
    assert kinds == [
        Kind.BEGIN,
        Kind.XA_START,
        Kind.XA_END,
        Kind.XA_COMMIT,
        Kind.TRUNCATE,
        Kind.BEGIN,
        Kind.OTHER_DDL,
        Kind.DROP_TABLE,
    ]
    assert {statement.xid for statement in statements[1:4]} == {prepared.xid}
    assert str(prepared.xid) == "X'6774',X'6271',7"
    assert statements[4].tables == (("rare_mysql", "t"),)
    assert statements[6].rows_follow
    assert statements[7].tables == (("rare_mysql", "u"), ("rare_mysql", "t"))
    assert parse_rotate(bodies(found, events.ROTATE)[0]).position == 4


def test_mariadbs_rare_events() -> None:
    with start_server("mariadb", log_bin_compress="ON", log_bin_compress_min_len="10") as server:
        server.sql("CREATE DATABASE rare", "CREATE TABLE rare.t (id INT PRIMARY KEY, v VARCHAR(2000))")
        before = server.sql("SELECT @@gtid_binlog_pos")[0][0]
        found = logged(
            server,
            "INSERT INTO rare.t VALUES (1, REPEAT('x', 2000))",
            "UPDATE rare.t SET v = REPEAT('y', 2000)",
            "DELETE FROM rare.t WHERE id = 1",
            "XA START 'gt', 'bq', 7",
            "INSERT INTO rare.t VALUES (4, 'four')",
            "XA END 'gt', 'bq', 7",
            "XA PREPARE 'gt', 'bq', 7",
            "XA ROLLBACK 'gt', 'bq', 7",
            "CREATE OR REPLACE TABLE rare.t (a INT)",
        )
    plain = [
        whole(plain_event(event[: events.HEADER], body_of(event[events.HEADER :]), 1 << 20))
        for event in found
        if event[4] in range(165, 172)
    ]
    rows = [event for event in plain if event[4] != events.QUERY]
    assert [event[4] for event in rows][:3] == [events.WRITE_ROWS_V1, events.UPDATE_ROWS_V1, events.DELETE_ROWS_V1]
    assert all(len(event) == struct.unpack_from("<I", event, 9)[0] for event in plain)
    assert b"x" * 2000 + b"\1" not in rows[0]
    assert rows[0].endswith(b"x" * 2000)
    assert b"x" * 2000 in rows[1]
    assert rows[1].endswith(b"y" * 2000)
    gtids = [parse_mariadb_gtid(body) for body in bodies(found, events.MARIADB_GTID)]
    xids = [gtid.xid for gtid in gtids if gtid.xid]
    assert [str(xid) for xid in xids] == ["X'6774',X'6271',7"] * 2
    first = int(before.rsplit("-", 1)[1])
    assert [gtid.sequence for gtid in gtids] == list(range(first + 1, first + 1 + len(gtids)))
    queries = [event[events.HEADER :] for event in [*found, *plain] if event[4] == events.QUERY]
    statements = [classify(query.sql, query.database) for query in map(parse_query, queries)]
    assert {Kind.XA_END, Kind.XA_ROLLBACK, Kind.DROP_TABLE} <= {statement.kind for statement in statements}
    assert [s.xid for s in statements if s.kind is Kind.XA_ROLLBACK] == xids[1:]
    assert [s.tables for s in statements if s.kind is Kind.DROP_TABLE] == [(("rare", "t"),)]
    assert parse_xa_prepare(bodies(found, events.XA_PREPARE)[0]).xid == xids[0]


def test_what_a_replace_resets_is_not_in_the_log_of_mariadb_without_whole_rows(
    database_server: DatabaseServer,
) -> None:
    """As docs/mysql.md says; the day on which it fails, that can go."""
    table = Table("rare_replace.t", dict.fromkeys(("id", "named", "reset"), INT), ("id",))
    with Session(database_server, "rare_replace") as session, Follower(database_server) as follower:
        session.run(table.ddl(), "SET SESSION binlog_row_image = MINIMAL", "INSERT INTO t VALUES (1, 1, 1)")
        session.run("REPLACE INTO t (id, named) VALUES (1, 5)")
        (shown,) = session.rows(table)
        _, change = follower.read(session.place())
    assert change.op == "UPDATE"
    assert shown["reset"] == NULL
    assert change.after["reset"] == (UNAVAILABLE if database_server.flavour == "mariadb" else NULL)
