"""The faults around effects that are committed with the datamarker."""

from __future__ import annotations

from tests.mutants.runner import Fault

_SYSTEM = "tests/system/test_exactly_once.py::"
_SHARD = "tests/contract/test_shard_transactions.py::"

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
    Fault(
        name="epoch-never-raised",
        file="subscriber_sdk/transactional/marker_row.py",
        old="    raised = replace(row, epoch=notice.epoch)\n",
        new="    raised = row\n",
        tests=(f"{_SHARD}test_an_assignment_alone_fences_the_owner_before[psycopg]",),
        promise="an owner of a former epoch stores nothing",
    ),
    Fault(
        name="epoch-not-raised-at-once",
        file="subscriber_sdk/transactional/shard.py",
        old="                await session.execute(sql.UPDATE, values)\n",
        new="                pass\n",
        tests=(f"{_SHARD}test_an_assignment_alone_fences_the_owner_before[psycopg]",),
        promise="an owner of a former epoch stores nothing from the assignment on",
    ),
    Fault(
        name="row-read-without-its-lock",
        file="subscriber_sdk/transactional/shard.py",
        old="session.row(sql.READ + self._store.dialect.locking, ",
        new="session.row(sql.READ, ",
        tests=(f"{_SHARD}test_an_assignment_waits_for_the_transaction_of_the_owner_before[psycopg]",),
        promise="what an owner stored last is where the next one begins",
    ),
    Fault(
        name="unknown-commit-taken-for-done",
        file="subscriber_sdk/transactional/shard.py",
        old="        return found == row\n",
        new="        return True\n",
        tests=(f"{_SHARD}test_a_commit_without_answer_and_without_effect_is_delivered_again[psycopg]",),
        promise="what a COMMIT without answer did not store is delivered again",
    ),
    Fault(
        name="unknown-commit-taken-for-lost",
        file="subscriber_sdk/transactional/shard.py",
        old="        return found == row\n",
        new="        return False\n",
        tests=(f"{_SHARD}test_a_commit_without_answer_and_with_effect_is_not[psycopg]",),
        promise="a COMMIT without answer that had its effect is no failure",
    ),
    Fault(
        name="commit-repeated-blindly",
        file="subscriber_sdk/transactional/shard.py",
        old="                if not await self._holds(after):\n",
        new="                if await session.commit():\n",
        tests=(f"{_SHARD}test_a_commit_without_answer_and_without_effect_is_delivered_again[psycopg]",),
        promise="a COMMIT is never repeated",
    ),
    Fault(
        name="lost-connection-counted-as-an-attempt",
        file="subscriber_sdk/transactional/shard.py",
        old="        if refusal is None and lost:\n",
        new="        if False:\n",
        tests=(f"{_SHARD}test_a_connection_that_is_lost_before_the_commit_is_no_failure_of_an_update[psycopg]",),
        promise="a lost connection parks no update",
    ),
]
