"""Groups the updates of a batch by their transactions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wormhole.wire.update import Batch, Update, stretch

__all__ = ["Run", "runs", "transactions"]


class Run(NamedTuple):
    """Consecutive updates of one transaction and one schema in a batch. ``tx``: the index of the transaction in the
    batch; ``ordinal``: the index of the first of these updates in the batch.
    """

    begin: int
    end: int
    batch: Batch
    tx: int
    ordinal: int


def runs(updates: Sequence[Update]) -> Iterator[Run]:
    """All updates, in order."""
    at = 0
    while at < len(updates):
        count, ordinal = stretch(updates, at)
        batch = updates[at].batch
        ends, until = batch.body.tx_end, ordinal + count
        tx = batch.body.transaction_of(ordinal)
        while ordinal < until:
            stop = min(until, ends[tx]) if tx < len(ends) else until
            if stop > ordinal:
                yield Run(at, at + stop - ordinal, batch, tx, ordinal)
            at, ordinal, tx = at + stop - ordinal, stop, tx + 1


def transactions(updates: Sequence[Update]) -> Iterator[Sequence[Update]]:
    """All updates in order, grouped by transaction."""
    begin, of = 0, None
    for run in runs(updates):
        if of is not None and (of.batch is not run.batch or of.tx != run.tx):
            yield updates[begin : run.begin]
            begin = run.begin
        of = run
    yield updates[begin:]
