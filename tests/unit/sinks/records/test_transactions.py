"""The updates of a batch by their transactions."""

from __future__ import annotations

from collections.abc import Sequence

from sinks.records.transactions import runs, transactions
from subscriber_sdk.testing import update
from wormhole.wire.body import ParsedBody
from wormhole.wire.update import Batch, Update

SCHEMAS = [update(table, key=1, after={"a": 1}).schema for table in ("a", "b")]


def batch(schemas: Sequence[int], tx_end: Sequence[int], transactions: int) -> Sequence[Update]:
    """Updates of these schemas. ``tx_end``: where the transactions end that do."""
    body = ParsedBody(
        updates=[update("a", key=1, after={"a": 1}).row] * len(schemas),
        schema_ids=(0, 1),
        schema_index=schemas,
        update_index=(),
        first_index=0,
        sources=("s",),
        tx_source=(),
        tx_number=range(transactions),
        incarnation=1,
        tx_file=(1,),
        tx_offset=range(transactions),
        tx_committed_at_us=(0,),
        tx_end=tx_end,
    )
    return Batch(body, "shard", 1, False, SCHEMAS.__getitem__).updates()


def test_transactions_of_several_schemas_and_without_updates() -> None:
    """Transactions 0 and 2 have no update here. Number 4 has not ended."""
    updates = batch([0, 0, 1, 1, 1, 0, 0], [0, 3, 3, 5], 5)
    spans = [(run.begin, run.end, run.tx, run.ordinal) for run in runs(updates)]
    assert spans == [(0, 2, 1, 0), (2, 3, 1, 2), (3, 5, 3, 3), (5, 7, 4, 5)]
    assert [[one.index for one in part] for part in transactions(updates)] == [[0, 1, 2], [0, 1], [0, 1]]
    assert [part[-1].ends_transaction for part in transactions(updates)] == [True, True, False]


def test_updates_that_were_left_out_and_a_second_batch() -> None:
    updates = [*batch([0, 0, 0, 0], [2, 4], 2)[1:3], *batch([0], [1], 1)]
    assert [len(part) for part in transactions(updates)] == [1, 1, 1]
    assert [run.ordinal for run in runs(updates)] == [1, 2, 0]
