"""Every type under every replica identity: what is decoded is what SELECT shows, what psycopg reads from that, and what
PostgreSQL's own test_decoding prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from types import ModuleType

import psycopg
import pytest
from psycopg.adapt import Transformer

from tests.support.given import given
from tests.support.hot import hot_module
from tests.support.postgres_changes import Change, Slot, decoded, keyed
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_types import EXTENSIONS, NOT_IN_TABLES, SETUP, TYPES
from wormhole.model.values import UNAVAILABLE, Value

encoder = hot_module("datastores.postgres.decode.encoder")

_NAMES = [f"c{n}" for n in range(len(TYPES))]
_ROWS = max(map(len, TYPES.values()))
_TYPED = {"bool": bool, "int2": int, "int4": int, "int8": int, "oid": int, "xid": int, "cid": int, "xid8": int,
          "numeric": Decimal, "float4": float, "float8": float, "bytea": bytes, "positive": int, "more_positive": int,
          "price": Decimal, "raw": bytes}  # fmt: skip


@pytest.fixture
def slot(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Slot]:
    extensions = [f"CREATE EXTENSION {name}" for name in EXTENSIONS]
    postgres_server.sql(*extensions, *SETUP, database=postgres_database)
    found = Slot(
        postgres_server, postgres_database, "FOR ALL TABLES WITH (publish = 'insert, update, delete')", printed=True
    )
    yield found
    found.close()


def _assigned(row: int) -> list[str]:
    """A literal for each column; one row more is all NULL."""
    if row == _ROWS:
        return ["NULL"] * len(TYPES)
    chosen = [values[row % len(values)].replace("'", "''") for values in TYPES.values()]
    return [f"'{value}'::{kind}" for value, kind in zip(chosen, TYPES, strict=True)]


def _read(text: bytes | None, kind: str) -> Value:
    """What a typed value has to be, by Python and by psycopg's loader; of the others the text itself."""
    python = None if kind.endswith("[]") else _TYPED.get(kind.partition("(")[0])
    if text is None:
        return None
    if python is None:
        return text.decode()
    if python is bytes:
        assert text.startswith(b"\\x")
        return bytes.fromhex(text[2:].decode())
    value: Value = {"t": True, "f": False}[text.decode()] if python is bool else python(text.decode())
    if isinstance(value, Decimal) and not value.is_finite():
        return text.decode()
    info = psycopg.adapters.types.get(kind.partition("(")[0])
    if info is not None and python is not int:
        loaded = Transformer().get_loader(info.oid, psycopg.pq.Format.TEXT).load(text)
        assert _same(loaded, value), (loaded, value)
    return value


def _same(a: Value, b: Value) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex() if not math.isnan(a) else math.isnan(b)
    return type(a) is type(b) and str(a) == str(b)


def _expected(rows: Sequence[tuple[bytes | None, ...]]) -> dict[Value, dict[str, Value]]:
    """Rows by id."""
    kinds = ["int4", *TYPES]
    names = ["id", *_NAMES]
    found = [dict(zip(names, map(_read, row, kinds), strict=True)) for row in rows]
    return {row["id"]: row for row in found}


def _check(changes: Sequence[Change], images: Sequence[str], *expected: dict[Value, dict[str, Value]]) -> None:
    for change in changes:
        for image, rows in zip(images, expected, strict=True):
            values = given(getattr(change, image))
            row = rows[values["id"]]
            wrong = {
                f"{name} {kind}": (values[name], row[name])
                for name, kind in zip(["id", *_NAMES], ["int4", *TYPES], strict=True)
                if not _same(values[name], row[name])
            }
            assert not wrong


def test_no_built_in_type_is_missing(postgres_server: PostgresServer) -> None:
    rows = postgres_server.sql(
        "SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype IN ('b', 'r', 'm') "
        "AND typisdefined AND typelem = 0 OR typname IN ('point', 'box', 'lseg', 'line', 'name', 'int2vector', "
        "'oidvector')"
    )
    tested = {name.partition("(")[0].strip('"') for name in TYPES} | {"bit", "varbit", "bpchar", "varchar"}
    assert {name for (name,) in rows} - tested - NOT_IN_TABLES == set()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX other_key", "NOTHING"])
def test_every_type(
    encoder: ModuleType, postgres_server: PostgresServer, postgres_database: str, slot: Slot, identity: str
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(_NAMES, TYPES, strict=True))

    def sql(*statements: str) -> None:
        postgres_server.sql("SET lc_monetary = 'C'", *statements, database=postgres_database)

    sql(
        f"CREATE TABLE t (id int PRIMARY KEY, {columns}, other text NOT NULL DEFAULT 'o')",
        "CREATE UNIQUE INDEX other_key ON t (id, other)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
        *(f"INSERT INTO t VALUES ({row}, {', '.join(_assigned(row))})" for row in range(_ROWS + 1)),
    )
    query = f"SELECT id, {', '.join(_NAMES)} FROM public.t"
    first = _expected(slot.shown(query))
    inserted = decoded(slot.messages(), encoder, find_key=keyed("id"))
    by_index = identity.startswith("USING")
    assert [change.key for change in inserted] == [(n, "o") if by_index else (n,) for n in range(_ROWS + 1)]
    _check(inserted, ["after"], first)
    _check(inserted, ["after"], _expected(slot.rows_printed(["id", *_NAMES])))
    if identity == "NOTHING":
        return

    sets = [
        ", ".join(f"{name} = {value}" for name, value in zip(_NAMES, _assigned((row + 1) % (_ROWS + 1)), strict=True))
        for row in range(_ROWS + 1)
    ]
    sql(*(f"UPDATE t SET {values} WHERE id = {row}" for row, values in enumerate(sets)))
    second = _expected(slot.shown(query))
    updated = decoded(slot.messages(), encoder, find_key=keyed("id"))
    assert [change.op for change in updated] == ["update"] * (_ROWS + 1)
    _check(updated, ["after"], _expected(slot.rows_printed(["id", *_NAMES])))
    if identity == "FULL":
        _check(updated, ["before", "after"], first, second)
    else:
        _check(updated, ["after"], second)
        assert {change.before is None for change in updated} == {True}

    sql("UPDATE t SET id = -1 - id, other = 'p'", "DELETE FROM t")
    changes = decoded(slot.messages(), encoder, find_key=keyed("id"))
    moved, deleted = changes[: _ROWS + 1], changes[_ROWS + 1 :]
    assert sorted(change.old_key for change in moved) == sorted(change.key for change in inserted)
    assert sorted(map(str, (change.key for change in moved))) == sorted(map(str, (change.key for change in deleted)))
    if identity == "FULL":
        _check(moved, ["before"], second)
        _check(deleted, ["before"], {-1 - n: {**row, "id": -1 - n} for n, row in second.items() if isinstance(n, int)})
    else:
        kept = {"id"} if identity == "DEFAULT" else {"id", "other"}
        for change in (*moved, *deleted):
            assert {name for name, value in given(change.before).items() if value is not UNAVAILABLE} == kept
