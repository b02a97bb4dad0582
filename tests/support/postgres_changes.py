"""What a publication's slot holds, decoded, without the product's reader: changes are fetched by a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import psycopg

from datastores.common.encode.piece import Piece
from datastores.postgres.decode import encoder as compiled
from datastores.postgres.decode.catalogue_keys import CatalogueColumn, CatalogueKey
from datastores.postgres.decode.kinds import SESSION_SETTINGS
from datastores.postgres.decode.messages import Relation
from datastores.postgres.decode.tables import FindKey, FindLoggedKeys, Tables
from datastores.postgres.log.opening import MESSAGES_SINCE
from tests.support.postgres_messages import log_data
from tests.support.postgres_server import PostgresServer
from wormhole.model.schema import Schema
from wormhole.model.sharding import Sharding
from wormhole.model.values import Value
from wormhole.wire.rows import decode_row, op_of, values_of

__all__ = ["Change", "Slot", "changes_of", "decoded", "keyed"]


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
    """A slot and a publication of all tables, in a database of the shared server. ``printed``: a second slot, for
    :meth:`rows_printed`.
    """

    def __init__(
        self,
        server: PostgresServer,
        database: str,
        publication: str = "FOR ALL TABLES",
        *,
        printed: bool = False,
        **settings: str,
    ) -> None:
        self._name = f"slot_{database}"
        options = " ".join(
            f"-c {name}={value.replace(' ', '')}"
            for name, value in ({"client_encoding": "UTF8"} | SESSION_SETTINGS | settings).items()
        )
        self._connection: psycopg.Connection[Any] = server.connect(database, options=options)
        self._connection.execute(f"CREATE PUBLICATION p {publication}".encode())
        self._connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._name])
        self._printed = f"printed_{database}"
        if printed:
            self._connection.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [self._printed])

    def messages(self) -> list[bytes]:
        """What was logged since the last call."""
        messages = ", 'messages', 'true'" if self._connection.info.server_version >= MESSAGES_SINCE else ""
        rows = self._connection.execute(
            "SELECT lsn - '0/0', data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', "
            f"'publication_names', 'p'{messages})".encode(),
            [self._name],
        ).fetchall()
        return [log_data(data, int(lsn)) for lsn, data in rows]

    def rows_printed(self, columns: Sequence[str]) -> list[tuple[bytes | None, ...]]:
        """The new rows that were logged since the last call, in a second decoder's text: PostgreSQL's test_decoding."""
        lines = self._connection.execute(
            "SELECT data FROM pg_logical_slot_get_changes(%s, NULL, NULL, 'include-xids', 'false')", [self._printed]
        ).fetchall()
        changes = [line for (line,) in lines if line.startswith("table ")]
        return [
            _printed_row(line.rpartition(" new-tuple: ")[2], columns) for line in changes if ": DELETE:" not in line
        ]

    def shown(self, query: str) -> list[tuple[bytes | None, ...]]:
        """What a query shows, as text, in a session with the walsender's settings."""
        cursor = self._connection.execute(query.encode(), binary=False)
        result = cursor.pgresult
        assert result is not None
        return [tuple(result.get_value(r, c) for c in range(result.nfields)) for r in range(result.ntuples)]

    def close(self) -> None:
        """Close the session; the slot goes with the database."""
        self._connection.close()


def _printed_row(line: str, columns: Sequence[str]) -> tuple[bytes | None, ...]:
    """``… name[type]:value …``: a value is null, in quotes, or without a space; the bits of ``B'101'`` are in quotes,
    and a boolean is a word.
    """
    row: list[bytes | None] = []
    at = 0
    for name in columns:
        at = line.index("]:", line.index(f" {name}[", at)) + 2 if row else line.index("]:", line.index(f"{name}[")) + 2
        if line[at] == "'" or line.startswith("B'", at):
            begin = end = line.index("'", at) + 1
            while line[end] != "'" or line[end + 1 : end + 2] == "'":
                end += 1 if line[end] != "'" else 2
            row.append(line[begin:end].replace("''", "'").encode())
        else:
            end = line.find(" ", at)
            text = line[at : end if end >= 0 else len(line)]
            row.append({"null": None, "true": b"t", "false": b"f"}.get(text, text.encode()))
        at = end
    return tuple(row)


def keyed(*names: str) -> FindKey:
    """A catalogue that has the table as the log has it, with this key."""

    def find(relation: Relation, _commit: int) -> CatalogueKey:
        columns = [
            CatalogueColumn(number, column.name, column.type, column.name in names)
            for number, column in enumerate(relation.columns, 1)
        ]
        return CatalogueKey(tuple(columns), 1 if names else 0)

    return find


def decoded(
    messages: Sequence[bytes],
    module: ModuleType = compiled,
    *,
    sharding: Sharding = Sharding("log"),  # noqa: B008 - frozen
    skipped: frozenset[str] = frozenset(),
    find_key: FindKey | None = None,
    find_logged: FindLoggedKeys | None = None,
    max_update_bytes: int = 1 << 20,
) -> list[Change]:
    """The changes in whole transactions. Raises what breaks a table."""
    tables = Tables("log", sharding, skipped, find_key, find_logged)
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
