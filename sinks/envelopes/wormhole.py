"""Our own envelope: one JSON object for each update, with everything that the update contains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from sinks.records.record import Record
from wormhole.formats.json_values import listed_as_json, row_as_json, time_as_json
from wormhole.wire.update import Update

__all__ = ["WormholeEnvelope"]

_VERSION: Final = 1
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class WormholeEnvelope:
    """Makes one record of each update, also of a TRUNCATE. Its value is never a tombstone."""

    def records(self, update: Update) -> Sequence[Record]:
        """One record."""
        transaction = update.transaction
        id_ = update.id
        key, old_key = listed_as_json(update.key), listed_as_json(update.old_key)
        document = {
            "version": _VERSION,
            "id": id_,
            "op": update.op.value,
            "table": update.table,
            "shard": update.shard,
            "key": key,
            "old_key": old_key,
            "key_end": listed_as_json(update.key_end),
            "before": row_as_json(update.before),
            "after": row_as_json(update.after),
            "too_large": update.too_large,
            "committed_at": time_as_json(transaction.committed_at),
            "position": str(transaction.position),
            "transaction": transaction.id,
            "ends_transaction": update.ends_transaction,
        }
        return [Record(id_, id_, update.table, _key(key), _dump(document).encode(), _key(old_key))]


def _key(values: list[Any] | None) -> bytes:
    return _dump(values).encode() if values else b""
