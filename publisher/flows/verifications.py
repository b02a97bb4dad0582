"""Collects, in memory, the results of verifications, which compare an application's rows with the tables."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from caravan.backfill.progress import Unconfirmed
from publisher.push.flow import PublisherFlow
from wormhole.model.verification import Difference, DifferenceKind, TableVerification
from wormhole.model.visible import few
from wormhole.ports.dead_letters import row_text
from wormhole.ports.marker_store import FlowKey
from wormhole.wire.bounds import shortened
from wormhole.wire.v1 import update_pb2

__all__ = ["Verifications", "key_text", "unconfirmed_keys", "unread_keys"]

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 4 << 20  # the most memory for a flow's differences that are kept by name
_MOST_EXTRA_BYTES: Final = 8 << 20  # the most memory for a flow's keys that only its application holds
_UNKEPT: Final = "the keys that only the application holds take too much memory. Next: verify the table again"
_SHOWN: Final = 10
_LONGEST_TROUBLE: Final = 3000  # characters
_LONGEST_KEY: Final = 200  # characters
_COST: Final = 200  # memory of a difference without its key and column names


@dataclass(slots=True)
class _OfFlow:
    """``extra``: by table, keys that only the application holds, until they are taken."""

    generation: int
    epoch: int
    tables: dict[str, TableVerification] = field(default_factory=dict)
    extra: dict[str, dict[bytes, None]] = field(default_factory=dict)
    size: int = 0
    extra_size: int = 0

    def keep_extra(self, more: TableVerification) -> int:
        """Remember keys that only the application holds. Returns the number of keys that exceed the memory limit."""
        unkept = 0
        for one in more.differences:
            if one.kind is DifferenceKind.EXTRA:
                size, keys = _COST + len(one.key), self.extra.setdefault(more.table, {})
                if one.key in keys:
                    continue
                if self.extra_size + size <= _MOST_EXTRA_BYTES:
                    self.extra_size += size
                    keys[one.key] = None
                else:
                    unkept += 1
        return unkept

    def take_extra(self, table: str) -> Sequence[bytes]:
        """Remove and return the remembered keys of the table."""
        keys = tuple(self.extra.pop(table, ()))
        self.extra_size -= sum(_COST + len(key) for key in keys)
        return keys


class Verifications:
    """See the module. Methods are called on the event loop."""

    def __init__(self) -> None:
        self._flows: dict[FlowKey, _OfFlow] = {}

    def begin(self, flow: PublisherFlow, generation: int) -> None:
        """Begin the flow's verification, and discard the findings of its earlier epoch."""
        self._flows[flow.key] = _OfFlow(generation, flow.holding.epoch)

    def of(self, flow: PublisherFlow, generation: int) -> Sequence[TableVerification]:
        """The findings, by table."""
        found = self._flows.get(flow.key)
        return [found.tables[name] for name in sorted(found.tables)] if found and found.generation == generation else ()

    def add(self, flow: PublisherFlow, more: TableVerification) -> None:
        """Add findings of the subscriber or of this publisher."""
        found = self._flows.get(flow.key)
        if found is None or found.epoch != flow.holding.epoch:
            return
        unkept = found.keep_extra(more)
        if more.ended:
            found.take_extra(more.table)  # they will not be requested any more
        before = found.tables.get(more.table, TableVerification(more.table))
        # A named key can be requested. It is counted only when it is confirmed.
        unnamed = before.extra + more.extra - sum(one.kind is DifferenceKind.EXTRA for one in before.differences)
        kept = []
        for one in more.differences:
            if one.kind is DifferenceKind.EXTRA:
                if unnamed <= 0:
                    continue
                unnamed -= 1
            size = _COST + len(one.key) + sum(map(len, one.columns))
            if found.size + size <= _MOST_BYTES:
                found.size += size
                kept.append(one)
        trouble = "; ".join(filter(None, (more.trouble, _UNKEPT if unkept else "")))
        if before.trouble and trouble and trouble not in before.trouble:
            trouble = shortened(f"{before.trouble}; {trouble}", _LONGEST_TROUBLE)
        ended = before.ended or more.ended
        more = replace(more, not_compared=more.not_compared + unkept)
        found.tables[more.table] = before.plus(replace(more, differences=tuple(kept), trouble=trouble, ended=ended))

    def take_extra(self, flow: PublisherFlow, table: str) -> Sequence[bytes]:
        """Remove and return the named keys of the table that only the application holds."""
        found = self._flows.get(flow.key)
        return () if found is None else found.take_extra(table)

    def has_ended(self, flow: PublisherFlow, table: str) -> bool:
        """Whether no part of the table is left to compare."""
        found = self._flows.get(flow.key)
        return found is not None and table in found.tables and found.tables[table].ended

    def log_end(self, flow: PublisherFlow, table: str) -> None:
        """Log that the table is finished."""
        found = self._flows[flow.key].tables[table]
        if found.equal:
            _log.info("%s of %s is equal: %d rows compared", table, flow.name, found.compared, extra=flow.about)
            return
        first = ", ".join(_text(table, one) for one in found.differences[:_SHOWN])
        _log.warning(
            "%s of %s: of %d rows that were compared %d differ and %d are missing in the application, %d are only "
            "there, %d were not compared; %d repaired, %d removed%s%s",
            table,
            flow.name,
            found.compared,
            found.differs,
            found.missing,
            found.extra,
            found.not_compared,
            found.repaired,
            found.removed,
            f"; first: {first}" if first else "",
            f"; {found.trouble}" if found.trouble else "",
            extra=flow.about,
        )


def unconfirmed_keys(table: str, keys: Unconfirmed) -> TableVerification | None:
    """The finding about keys that the subscriber named but that could not be checked; ``None`` without such keys."""
    said = []
    if keys.foreign:
        said.append(
            f"{keys.foreign} keys that on_verify_keys listed belong to other shards, or are not as the table's "
            "updates have them. Next: let it list the keys of its shard only, as they were received"
        )
    if keys.changed:
        said.append(f"{keys.changed} keys changed while they were compared. Next: verify the table again")
    return TableVerification(table, not_compared=keys.foreign + keys.changed, trouble="; ".join(said)) if said else None


def unread_keys(table: str, keys: int) -> TableVerification:
    """The finding about rows of the table that could not be read. ``keys``: their number."""
    trouble = (
        f"{keys} rows changed each time that they were read, so the rows that only the application holds were not "
        "looked for. Next: verify the table again"
    )
    return TableVerification(table, not_compared=keys, ended=True, trouble=trouble)


def key_text(table: str, key: bytes) -> str:
    """A key of the table as operators write it."""
    row = update_pb2.RowKey.FromString(key)
    row.table = table
    return shortened(row_text(row.SerializeToString()), _LONGEST_KEY)


def _text(table: str, difference: Difference) -> str:
    columns = f" ({few(difference.columns)})" if difference.columns else ""
    return f"{difference.kind.value} {key_text(table, difference.key)}{columns}"
