"""Parked updates in the SQLite file of the datamarkers. One transaction checks the epoch and writes the letter."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Final

from publisher.stores.dead_letters.rules import check_epoch, letter_from_json, letter_to_json
from wormhole.model.position import flow_name
from wormhole.ports.dead_letters import DeadLetter, Parcel, in_order, marked
from wormhole.ports.marker_store import FlowKey

__all__ = ["LocalDeadLetters"]

# A separate table, made when it is first needed, so that a release without it can still read the file's other tables.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS dead_letters (
    application TEXT NOT NULL, shard TEXT NOT NULL, id TEXT NOT NULL, letter TEXT NOT NULL,
    table_schema BLOB NOT NULL, body BLOB NOT NULL, PRIMARY KEY (application, shard, id)
)
"""
_ALL: Final = "SELECT letter FROM dead_letters WHERE application = ? AND shard = ?"
_FLOWS: Final = "SELECT DISTINCT application, shard FROM dead_letters"
_ONE: Final = "SELECT letter FROM dead_letters WHERE application = ? AND shard = ? AND id = ?"
_BYTES: Final = "SELECT table_schema, body FROM dead_letters WHERE application = ? AND shard = ? AND id = ?"
_MARK: Final = "UPDATE dead_letters SET letter = ? WHERE application = ? AND shard = ? AND id = ?"
_DELETE: Final = "DELETE FROM dead_letters WHERE application = ? AND shard = ? AND id = ?"
_FORGET: Final = "DELETE FROM dead_letters WHERE application = ? AND shard = ?"
_EPOCH: Final = "SELECT epoch FROM flows WHERE application = ? AND shard = ?"


class LocalDeadLetters:
    """The local form of the port. ``transaction``: begins a transaction of the marker store, which commits at its
    end."""

    largest = 128 << 20
    most_bytes = 64 << 20

    def __init__(self, transaction: Callable[[str], AbstractContextManager[sqlite3.Connection]], where: str) -> None:
        self._transaction = transaction
        self._where = where

    def load(self, flow: FlowKey) -> tuple[DeadLetter, ...]:
        with self._transaction(f"read the parked updates of {flow_name(*flow)}") as database:
            database.execute(_SCHEMA)
            rows = database.execute(_ALL, flow).fetchall()
            return in_order(letter_from_json(flow, text, self._where) for (text,) in rows)

    def parked(self, flows: Collection[FlowKey]) -> Collection[FlowKey]:
        with self._transaction("look for parked updates") as database:
            database.execute(_SCHEMA)
            return {*flows} & {*database.execute(_FLOWS).fetchall()}

    def read(self, flow: FlowKey, id_: str) -> Parcel:
        with self._transaction(f"read a parked update of {flow_name(*flow)}") as database:
            database.execute(_SCHEMA)
            row = database.execute(_BYTES, (*flow, id_)).fetchone()
            if row is None:
                raise KeyError(id_)
            return Parcel(*row)

    def park(self, flow: FlowKey, epoch: int, letter: DeadLetter, parcel: Parcel) -> None:
        with self._transaction(f"park an update of {flow_name(*flow)}") as database:
            database.execute(_SCHEMA)
            self._check(database, flow, epoch)
            database.execute(
                (
                    "INSERT OR REPLACE INTO dead_letters (application, shard, id, letter, table_schema, body) VALUES "
                    "(?,?,?,?,?,?)"
                ),
                (*flow, letter.id, letter_to_json(letter), parcel.schema, parcel.body),
            )

    def retry(self, flow: FlowKey, ids: Sequence[str], *, anyone: bool = False) -> None:
        with self._transaction(f"mark parked updates of {flow_name(*flow)}") as database:
            database.execute(_SCHEMA)
            for id_ in ids:
                row = database.execute(_ONE, (*flow, id_)).fetchone()
                if row is not None:
                    text = letter_to_json(marked(letter_from_json(flow, row[0], self._where), anyone=anyone))
                    database.execute(_MARK, (text, *flow, id_))

    def remove(self, flow: FlowKey, ids: Sequence[str], epoch: int | None = None) -> None:
        with self._transaction(f"delete parked updates of {flow_name(*flow)}") as database:
            database.execute(_SCHEMA)
            if epoch is not None:
                self._check(database, flow, epoch)
            database.executemany(_DELETE, [(*flow, id_) for id_ in ids])

    def forget(self, flow: FlowKey) -> None:
        with self._transaction(f"delete the parked updates of {flow_name(*flow)}") as database:
            database.execute(_SCHEMA)
            database.execute(_FORGET, flow)

    def _check(self, database: sqlite3.Connection, flow: FlowKey, epoch: int) -> None:
        row = database.execute(_EPOCH, flow).fetchone()
        check_epoch(flow, epoch, None if row is None else int(row[0]))
