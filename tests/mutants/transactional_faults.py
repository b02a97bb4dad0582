"""The faults around effects that are committed with the datamarker."""

from __future__ import annotations

from tests.mutants.runner import Fault

_SYSTEM = "tests/system/test_exactly_once.py::"

TRANSACTIONAL_FAULTS: list[Fault] = [
    Fault(
        name="effects-without-their-datamarker",
        file="subscriber_sdk/transactional/shard.py",
        old='values = {**self._mine(), "nonce": nonce, "marker": raw,',
        new='values = {**self._mine(), "nonce": nonce, "marker": stored.marker,',
        tests=(f"{_SYSTEM}test_a_fault_of_every_target[sqlite-subscriber_killed]",),
        promise="a datamarker is committed with the effects before it",
    ),
    Fault(
        name="transaction-that-ended-early",
        file="subscriber_sdk/transactional/marker_row.py",
        old="    if row.open is not None and row.epoch == mine.epoch:\n",
        new="    if False:\n",
        tests=(f"{_SYSTEM}test_a_table_made_by_the_handler_ends_the_transaction_and_halts[mariadb]",),
        promise="a transaction that something else committed halts the flow",
    ),
    Fault(
        name="dead-letter-twice",
        file="subscriber_sdk/transactional/shard.py",
        old="        if update_id in stored.letters or update_id in self._letters:\n",
        new="        if False:\n",
        tests=(f"{_SYSTEM}test_a_dead_letter_that_comes_twice_counts_once[postgres]",),
        promise="a dead letter that is delivered again counts once",
    ),
]
