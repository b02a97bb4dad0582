"""What a publication's slot holds, decoded, without the product's reader: changes are fetched by a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import psycopg

from publisher.sources.encode.piece import Piece
from publisher.sources.postgres.decode import encoder as compiled
from publisher.sources.postgres.decode.kinds import SESSION_SETTINGS
from publisher.sources.postgres.decode.tables import FindKey, Tables
from tests.support.postgres_messages import log_data
from tests.support.postgres_server import PostgresServer
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding
from wormhole.model.values import Value
from wormhole.wire.rows import decode_row, op_of, values_of

__all__ = ["Change", "Slot", "changes_of", "decoded"]


@dataclass(frozen=True)
class Change:
    """An update; images without values are ``None``."""

    op: str
    table: str
    key: tuple[Value, ...]
    after: Mapping[str, Value] | None = None
    before: Mapping[str, Value] | None = None
    old_key: tuple[Value, ...] = ()
    too_large: bool = False


class Slot:
    """A slot and a publication of all tables, in a database of the shared server."""

    def __init__(
        self, server: PostgresServer, database: str, publication: str = "FOR ALL TABLES", **settings: str
    ) -> None:
        self._name = f"slot_{database}"
        options = " ".join(
            f"-c {name}={value.replace(' ', '')}" for name, value in (SESSION_SETTINGS | settings).items()
        )
        self._connection: psycopg.Connection[Any] = server.connect(database, options=options)
        self._connection.execute(f"CREATE PUBLICATION p {publication}".encode())
        self._connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._name])

    def messages(self) -> list[bytes]:
        """What was logged since the last call."""
        rows = self._connection.execute(
            "SELECT lsn - '0/0', data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', "
            "'publication_names', 'p', 'messages', 'true')",
            [self._name],
        ).fetchall()
        return [log_data(data, int(lsn)) for lsn, data in rows]

    def shown(self, query: str) -> list[tuple[bytes | None, ...]]:
        """What a query shows, as text, in a session with the walsender's settings."""
        cursor = self._connection.execute(query.encode(), binary=False)
        result = cursor.pgresult
        assert result is not None
        return [tuple(result.get_value(r, c) for c in range(result.nfields)) for r in range(result.ntuples)]

    def close(self) -> None:
        """Close the session; the slot goes with the database."""
        self._connection.close()


def decoded(
    messages: Sequence[bytes],
    module: ModuleType = compiled,
    *,
    sharding: Sharding = Sharding("log"),  # noqa: B008 - frozen
    skipped: frozenset[str] = frozenset(),
    find_key: FindKey | None = None,
    max_update_bytes: int = 1 << 20,
) -> list[Change]:
    """The changes in whole transactions. Raises what breaks a table."""
    tables = Tables("log", sharding, skipped, find_key)
    encoder = module.Encoder(tables, max_update_bytes, sharding.count)
    for message in messages:
        encoder.add(message)
    for error in tables.take_broken().values():
        raise error
    assert not encoder.in_transaction
    return changes_of(encoder.take(), tables.schemas)


def changes_of(piece: Piece, schemas: Sequence[Schema]) -> list[Change]:
    """The updates of a piece."""
    found = []
    begin = 0
    for i, end in enumerate(piece.ends):
        entry = piece.blob[begin:end]
        row = decode_row(entry[1 + next(n for n in range(1, 6) if entry[n] < 0x80) :])
        schema = schemas[piece.schema_of[i if len(piece.schema_of) > 1 else 0]]
        after, before = values_of(row.after), values_of(row.before)
        found.append(
            Change(
                op_of(row).value,
                schema.table,
                values_of(row.key),
                dict(zip(schema.names, after, strict=True)) if after else None,
                dict(zip(schema.names, before, strict=True)) if before else None,
                values_of(row.old_key),
                row.too_large,
            )
        )
        begin = end
    return found
