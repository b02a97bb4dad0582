"""Values in columns that an operator made: what arrives is found again, and whatever is not held is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest

from sinks.sql import mirrored
from subscriber_sdk import HandlerFailed
from subscriber_sdk.testing import Kit, read, update
from tests.support.sql_targets import SqlTarget
from wormhole.model.errors import TargetRefused

# The kit calls plain `def` callbacks on its loop. In production they run in threads.
pytestmark = pytest.mark.allow_blocking

UUID: Final = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
VALUES: Final[dict[str, list[Any]]] = {
    "text": ["a", "A", "a ", "á", "b,a", "", "1", "01", "true", "t", UUID, UUID.upper(), UUID.replace("-", "")],
    "int": [0, 1, -1, 256, 2020, (1 << 63) - 1],
    "decimal": [Decimal(text) for text in ("0", "1", "0.25", "100", "-7.125", "1e20")],
    "double": [0.0, 1.0, 0.1, 1e300, 16777217.0],
    "bool": [True, False],
    "bytes": [b"", b"\0", b"a", b"A", b"a\0", b"a ", bytes(16)],
}
"""Values that differ in the source, many of which some types make equal."""
_MYSQL: Final = ("VARCHAR(50)", "CHAR(40)", "VARBINARY(50)", "BINARY(16)", "INT", "DECIMAL(20,4)", "FLOAT", "BIT(8)")
_MEMBERS: Final = ("ENUM('a','b') COLLATE utf8mb4_bin", "SET('b','a')")
TYPES: Final[dict[str, tuple[str, ...]]] = {
    "postgres": ("VARCHAR(50)", "CHAR(40)", "BYTEA", "INTEGER", "NUMERIC(20,4)", "REAL", "BOOLEAN", "UUID", "members"),
    "mysql": (*_MYSQL, *_MEMBERS, "VARCHAR(50) COLLATE utf8mb4_0900_bin"),
    "mariadb": (*_MYSQL, *_MEMBERS, "VARCHAR(50) COLLATE utf8mb4_nopad_bin", "UUID"),
    "sqlite": ("TEXT", "TEXT COLLATE NOCASE", "BLOB", "INTEGER", "NUMERIC", "DATE", ""),
    "duckdb": ("VARCHAR COLLATE NOCASE", "BLOB", "INTEGER", "DECIMAL(20,4)", "UUID", "ENUM('b','a','A','1')"),
}


class TestKeys:
    """Keys of every type, read in small portions."""

    @pytest.fixture(autouse=True)
    def small_portions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mirrored, "_PORTION", 2)

    @pytest.mark.parametrize("generic", VALUES)
    def test_keys_are_found_again_or_refused(self, sql_target: SqlTarget, wormhole_kit: Kit, generic: str) -> None:
        if sql_target.name == "postgres":
            sql_target.sql("CREATE TYPE members AS ENUM ('b', 'a', 'A', '1')")
        sink = sql_target.open()
        for number, type_ in enumerate(TYPES[sql_target.name]):
            table = f"shop.t{number}"
            sql_target.sql(f"CREATE TABLE t{number} (id {type_} NOT NULL PRIMARY KEY, a BIGINT)")
            flow = wormhole_kit.attach(sink.subscriber, shard=f"s{number}", on_failure="park", retry=1)
            try:
                flow.commit(*(update(table, key=value, after={"a": 0}) for value in VALUES[generic]))
            except HandlerFailed as failed:
                if not isinstance(failed.__cause__, TargetRefused):
                    raise
                flow.revoke()
                continue
            parked = {int(update_id.rpartition(":")[2]) for update_id in flow.parked}
            kept = [value for place, value in enumerate(VALUES[generic]) if place not in parked]
            first, last = kept[: len(kept) // 2 + 1], kept[len(kept) // 2 + 1 :]
            assert flow.verify(table, [read(table, key=value, after={"a": 0}) for value in kept]).equal, type_
            flow.commit(
                *(update(table, key=value, before={"a": 0}, after={"a": 1}) for value in first),
                *(update(table, key=value, before={"a": 0}) for value in last),
            )
            assert flow.verify(table, [read(table, key=value, after={"a": 1}) for value in first]).equal, type_
            if first:
                alone = [read(table, key=first[0], after={"a": 1})]
                assert flow.verify(table, alone, repair=True).extra == len(first) - 1, type_
                assert flow.verify(table, alone).equal, type_
            assert len(sql_target.rows(f"t{number}", "id")) == len(first[:1]), type_
            flow.revoke()
