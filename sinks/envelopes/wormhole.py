"""This project's own envelope: one JSON object for each update, with everything that the update contains."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.envelopes.texts import list_text, quoted, row_text, value_text
from sinks.records.record import Record
from wormhole.formats.json_values import time_as_json
from wormhole.wire.update import Transaction, Update

__all__ = ["WormholeEnvelope"]


class WormholeEnvelope:
    """Makes one record of each update, including TRUNCATE. No record is a tombstone."""

    def __init__(self) -> None:
        self._transaction: Transaction | None = None  # the last transaction, whose text is cached
        self._commit = ""

    def records(self, update: Update) -> Sequence[Record]:
        """One record."""
        transaction, id_, table = update.transaction, update.id, update.table
        if transaction is not self._transaction:
            self._transaction, self._commit = transaction, _commit(transaction)
        key, old_key = update.key, update.old_key
        key_text, old_text = list_text(key), list_text(old_key)
        document = (
            f'{{"version":1,"id":{quoted(id_)},"op":"{update.op.value}","table":{quoted(table)},'
            f'"shard":{quoted(update.shard)},"key":{key_text},"old_key":{old_text},'
            f'"key_end":{list_text(update.key_end)},"before":{row_text(update.before)},'
            f'"after":{row_text(update.after)},"too_large":{"true" if update.too_large else "false"},'
            f'{self._commit},"ends_transaction":{"true" if update.ends_transaction else "false"}}}'
        )
        key_bytes, old_bytes = key_text.encode() if key else b"", old_text.encode() if old_key else b""
        return [Record(id_, id_, table, key_bytes, document.encode(), old_bytes)]


def _commit(transaction: Transaction) -> str:
    committed_at, position = value_text(time_as_json(transaction.committed_at)), quoted(str(transaction.position))
    return f'"committed_at":{committed_at},"position":{position},"transaction":{quoted(transaction.id)}'
