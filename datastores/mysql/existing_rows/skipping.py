"""Keys that divide a table into ranges: the server counts rows along its index and sends one key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import pymysql
from pymysql.connections import Connection

from datastores.mysql.existing_rows.definition import Definition
from datastores.mysql.existing_rows.exact_keys import is_exact
from datastores.mysql.existing_rows.key_order import above, order_by
from datastores.mysql.existing_rows.reading import TIMEOUTS
from datastores.mysql.existing_rows.result_rows import rows_of
from datastores.mysql.existing_rows.snapshot import Snapshots
from datastores.mysql.existing_rows.values import RowEncoder
from datastores.mysql.server.connection import bound, server_text
from datastores.mysql.sql_text import quoted, sql_name
from wormhole.model.errors import SourceUnavailable, UnreadableTable

__all__ = ["key_behind"]

_SECONDS: Final = 2.0
_GRACE_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20  # an answer with a few keys takes at most this
_NEIGHBOURS: Final = 8  # keys that are asked for, of which one has to be exact


def key_behind(
    connection: Connection[Any], snapshots: Snapshots, definition: Definition, after: Sequence[str] | None, rows: int
) -> bytes | None:
    """The key ``rows`` rows behind ``after`` (literals), or nearer where the server takes too long to count so far;
    ``None``: fewer follow, or no chunk may begin behind the keys there.

    Raises :class:`~wormhole.model.errors.WormholeError`, and the driver's errors.
    """
    while True:
        sql = _select(definition, after, rows - 1)
        bound(connection, _SECONDS + _GRACE_S, _MOST_BYTES)
        try:
            answer = rows_of(connection, snapshots.timed(sql, _SECONDS))
            found = list(chain.from_iterable(iter(answer.take, [])))
        except pymysql.MySQLError as error:
            if server_text(error)[0] not in TIMEOUTS:
                raise
            if rows == 1:
                raise SourceUnavailable(
                    f"{definition.name}: the server found no key within {_SECONDS:g} s and ended the query",
                    hint="it is tried again; look for a lock on the table (LOCK TABLES, ALTER TABLE)",
                ) from None
            rows = max(1, rows // 4)
            continue
        break
    positions = definition.key_positions
    encoder = RowEncoder([definition.entries[at] for at in positions], range(len(positions)), _MOST_BYTES)
    keys: dict[bytes, list[bytes | None]] = {}
    try:
        encoder.add(found, {}, keys, _MOST_BYTES)
    except (ValueError, LookupError, OverflowError) as error:
        raise UnreadableTable(
            f"{definition.name}: the server sends what is no value of its column ({error!s:.200})",
            hint="report this, with the table's definition",
        ) from error
    for key, row in keys.items():
        if is_exact(connection, definition, key, row if any(definition.coded_key) else None):
            return key
    return None


def _select(definition: Definition, after: Sequence[str] | None, offset: int) -> str:
    listed = definition.listed
    parts = [
        f"SELECT {', '.join(definition.asked[at] for at in definition.key_positions)}",
        f"FROM {sql_name(listed.database, listed.table)} FORCE INDEX ({quoted(definition.index)})",
        f"WHERE {above(definition.key, after)}" if after is not None else "",
        f"ORDER BY {order_by(definition.key)} LIMIT {_NEIGHBOURS} OFFSET {offset}",
    ]
    return " ".join(filter(None, parts))
