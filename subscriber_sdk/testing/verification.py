"""The reports of a subscriber while the kit runs a verification."""

from __future__ import annotations

from subscriber_sdk.backfill import Key
from wormhole.model.verification import Difference, DifferenceKind, TableVerification
from wormhole.wire.rows import decode_key
from wormhole.wire.v1 import push_pb2
from wormhole.wire.verification import kind_of

__all__ = ["Reports"]


class Reports:
    """The reports on verified tables in one epoch."""

    def __init__(self) -> None:
        self._tables: dict[str, TableVerification] = {}
        self._extra: dict[str, list[Key]] = {}
        self._asked: set[str] = set()

    def add(self, frame: push_pb2.Verified) -> None:
        """Add a frame, which contains the findings since the frame before it."""
        found = _found(frame)
        self._tables[frame.table] = self.of(frame.table).plus(found)
        extra = self._extra.setdefault(frame.table, [])
        extra.extend(decode_key(one.key) for one in found.differences if one.kind is DifferenceKind.EXTRA)
        if frame.confirm:
            self._asked.add(frame.table)

    def of(self, table: str) -> TableVerification:
        """All findings about a table."""
        return self._tables.get(table, TableVerification(table))

    def to_confirm(self, table: str) -> list[Key]:
        """The keys that a publisher has to read alone, to confirm that their rows do not exist."""
        return self._extra[table] if table in self._asked else []


def _found(frame: push_pb2.Verified) -> TableVerification:
    differences = []
    for one in frame.differences:
        kind = kind_of(one.kind)
        assert kind is not None, one
        differences.append(Difference(kind, one.key.SerializeToString(deterministic=True), tuple(one.columns)))
    return TableVerification(
        frame.table,
        frame.compared,
        frame.not_compared,
        frame.differs,
        frame.missing,
        frame.extra,
        frame.repaired,
        frame.removed,
        tuple(differences),
        frame.ended,
        frame.trouble,
    )
