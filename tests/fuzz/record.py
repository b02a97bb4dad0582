"""Writes the binlogs of ``tests/fuzz/corpus`` anew: ``python -m tests.fuzz.record``.

Small ones, of every kind of event, from real servers.

Without checksums, which would turn nearly every mutation into the same error.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.databases import start_server

CORPUS = Path(__file__).with_name("corpus")

_COMMON = (
    "CREATE DATABASE shop CHARACTER SET utf8mb4",
    """CREATE TABLE shop.things (id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, small SMALLINT UNSIGNED, medium MEDIUMINT, price DECIMAL(20,6),
    single FLOAT, wide DOUBLE, flags BIT(17), day DATE, took TIME(6), at DATETIME(3), seen TIMESTAMP(1) NULL, year_ YEAR, code CHAR(6) CHARACTER SET latin1,
    name VARCHAR(300), raw VARBINARY(20), fixed BINARY(8), data BLOB, note TEXT CHARACTER SET ucs2, state ENUM('new','done'),
    tags SET('a','b','c'), place GEOMETRY, INDEX (name))""",  # noqa: E501
    """INSERT INTO shop.things VALUES (1,-1,65535,-8388608,'-12345678901234.567891',0.1,1e300,b'10101','2024-02-29','-838:59:58.000001',
    '2024-12-31 23:59:59.999','2024-06-01 12:00:00.5',2024,'caf\xe9','w\xf6rld',x'00ff00',x'0102','blob',CONCAT('n',REPEAT('o',40)),'done','a,c',
    ST_GeomFromText('POINT(1 2)'))""",  # noqa: E501
    "INSERT INTO shop.things (id) VALUES (2),(3),(18446744073709551615)",
    "UPDATE shop.things SET id = id + 10, name = CONCAT('x', id) WHERE id < 10",
    "SET SESSION binlog_row_image = MINIMAL",
    "UPDATE shop.things SET tiny = 5 WHERE id = 11",
    "SET SESSION binlog_row_image = FULL",
    "CREATE TABLE shop.bare (a INT, b VARCHAR(10))",
    "INSERT INTO shop.bare VALUES (1, 'x'), (NULL, NULL)",
    "ALTER TABLE shop.bare ADD c INT FIRST, DROP a",
    "DELETE FROM shop.bare WHERE b = 'x'",
    "TRUNCATE shop.bare",
    "XA START 'x'",
    "INSERT INTO shop.bare VALUES (1, 'xa')",
    "XA END 'x'",
    "XA PREPARE 'x'",
    "XA COMMIT 'x'",
    "DELETE FROM shop.things",
)
_OWN = {
    "mariadb": (
        "CREATE TABLE shop.more (id INT PRIMARY KEY, address INET6, uid UUID, zipped VARCHAR(200) COMPRESSED)",
        "INSERT INTO shop.more VALUES (1, '2001:db8::1', '12345678-1234-5678-1234-567812345678', REPEAT('z', 150))",
        "SET GLOBAL log_bin_compress = ON",
        "INSERT INTO shop.more VALUES (2, NULL, NULL, REPEAT('long ', 30))",
    ),
    "mysql": (
        "CREATE TABLE shop.more (id INT PRIMARY KEY, doc JSON, near VECTOR(3))",
        """INSERT INTO shop.more VALUES (1, '{"a": [1, -2.5, "x", null, true], "b": {"c": 18446744073709551615}}', TO_VECTOR('[1,2,3]'))""",  # noqa: E501
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        "UPDATE shop.more SET doc = JSON_SET(doc, '$.a[0]', 7)",
        "SET SESSION binlog_transaction_compression = ON",
        "INSERT INTO shop.more VALUES (2, '[]', NULL)",
    ),
}


def main() -> None:
    """Write one file for each kind of server that is on this machine."""
    CORPUS.mkdir(exist_ok=True)
    for flavour, own in _OWN.items():
        with start_server(flavour, **{"binlog-checksum": "NONE"}) as server:
            server.sql("FLUSH BINARY LOGS", *_COMMON, *own, "FLUSH BINARY LOGS")
            (CORPUS / f"{flavour}.binlog").write_bytes(server.binlogs[-2].read_bytes())
            print(f"{flavour}: {server.version}")


if __name__ == "__main__":
    main()
