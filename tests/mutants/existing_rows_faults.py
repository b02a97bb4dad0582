"""The faults of existing rows at the subscriber and in the archive; :mod:`tests.mutants.faults` lists them with the
others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_CALLS = "tests/unit/subscriber_sdk/work/test_backfill_calls.py"
_POSTGRES = "tests/unit/datastores/postgres"
_ARCHIVE = "tests/unit/spark_replay/archive/test_existing_rows.py"

EXISTING_ROWS_FAULTS: list[Fault] = [
    Fault(
        name="reads-passed-over-by-the-archive",
        file="spark_replay/archive/shard_writer.py",
        old="    return not update.in_unfinished and not is_read_transaction(update.transaction.id)\n",
        new="    return not update.in_unfinished\n",
        tests=(f"{_ARCHIVE}::test_rows_read_where_the_archive_ends_are_not_passed_over",),
        promise="rows that a backfill read while the log was idle are archived",
    ),
    Fault(
        name="scan-end-before-the-last-rows",
        file="subscriber_sdk/work/acks.py",
        old="            waiting.append(item)\n            if isinstance(item, BatchItem):\n",
        new="            (waiting.appendleft if isinstance(item, ScanEndItem) else waiting.append)(item)\n"
        "            if isinstance(item, BatchItem):\n",
        tests=(
            f"{_CALLS}::test_an_end_waits_for_every_callback_before_it_and_is_acknowledged_after",
            "tests/unit/subscriber_sdk/work/test_acks.py",
        ),
        promise="on_scan_end runs after the callbacks of the table's last rows have returned",
    ),
    Fault(
        name="settled-behind-an-end-that-failed",
        file="subscriber_sdk/work/acks.py",
        old="        return bool(self._running) or self._single is not None\n",
        new="        return bool(self._running)\n",
        tests=(f"{_CALLS}::test_a_datamarker_is_not_settled_behind_an_end_that_failed_as_the_flow_went",),
        promise="a datamarker is stored only when every callback before it has returned",
    ),
    Fault(
        name="parked-rows-deleted-at-the-end",
        file="subscriber_sdk/work/backfill_calls.py",
        old="self._generation, parked, rows)",
        new="self._generation, frozenset(), rows)",
        tests=(f"{_CALLS}::test_a_row_that_is_parked_is_not_deleted_at_the_end",),
        promise="nothing live is deleted: a row whose update is parked was not received",
    ),
    Fault(
        name="end-amid-a-transaction-is-taken",
        file="subscriber_sdk/stream/flow.py",
        old="        if self._unfinished:\n",
        new="        if self._unfinished and not kind:\n",
        tests=("tests/unit/subscriber_sdk/test_backfill.py::test_an_end_comes_amid_no_transaction",),
        promise="the end of a range follows all of its rows",
    ),
    Fault(
        name="existing-rows-are-counted-as-changes",
        file="subscriber_sdk/stream/counts.py",
        old="    if not count or len(reads) == len(body.sources):\n        return {}\n    if reads:\n",
        new="    if not count:\n        return {}\n    if False and reads:\n",
        tests=(f"{_CALLS}::test_rows_of_a_backfill_are_in_no_delivery_count",),
        promise="the audit compares changes with changes",
    ),
    Fault(
        name="the-archivers-progress-is-offered",
        file="spark_replay/replay/pieces.py",
        old='    marker = replace(marker, backfill=b"")\n',
        new="",
        tests=(f"{_ARCHIVE}::test_a_replay_offers_nothing_of_the_archivers_own_backfill",),
        promise="a flow's backfill goes on where its own came to",
    ),
    Fault(
        name="existing-rows-are-asked-about-a-row-before",
        file="wormhole/filters/bound_to_schema.py",
        old="        case Op.INSERT | Op.MERGE | Op.READ:\n",
        new="        case Op.INSERT | Op.MERGE:\n",
        tests=("tests/unit/wormhole/filters/test_filter.py",),
        promise="a filter selects existing rows by what they are",
    ),
    Fault(
        name="a-delivered-commit-is-taken-to-be-visible",
        file="datastores/postgres/existing_rows/snapshot.py",
        old="            if not unseen:\n",
        new="            if True:\n",
        tests=(f"{_POSTGRES}/existing_rows/test_source.py",),
        promise="no row goes back: a chunk shows every transaction that was delivered before it",
    ),
    Fault(
        name="unfinished-transactions-are-no-suspects",
        file="datastores/postgres/history/delivered_transactions.py",
        old="                    return frozenset(late) | (self._unfinished - self._ends.keys())\n",
        new="                    return frozenset(late)\n",
        tests=(f"{_POSTGRES}/history/test_history.py",),
        promise="a commit that was delivered before the publisher's start may be invisible still",
    ),
    Fault(
        name="an-answer-from-before-the-floor-counts",
        file="datastores/postgres/history/delivered_transactions.py",
        old="            if self._beginnings == beginnings:  #",
        new="            if True:  #",
        tests=(f"{_POSTGRES}/history/test_history.py",),
        promise="what may be invisible is asked for when the log has come to where nothing was noted",
    ),
    Fault(
        name="an-extensions-type-is-compared-as-text",
        file="datastores/postgres/existing_rows/definition.py",
        old="    return sign if sign in PLAIN else ",
        new='    return sign.rpartition(".")[2] if sign else ',
        tests=(f"{_POSTGRES}/existing_rows/test_rows.py",),
        promise="keys are compared as their index orders them",
    ),
    Fault(
        name="a-file-that-truncate-made-is-a-change",
        file="datastores/postgres/log/reader.py",
        old="            truncated = change.files and ",
        new="            truncated = False and ",
        tests=(f"{_POSTGRES}/log/test_reader.py",),
        promise="a TRUNCATE, which is in the log, asks for no backfill",
    ),
    Fault(
        name="rows-in-a-new-file-pass-for-a-truncate",
        file="datastores/postgres/tables/unlogged_changes.py",
        old="            by_truncate = change.files and not ",
        new="            by_truncate = change.files or not ",
        tests=(f"{_POSTGRES}/tables/test_unlogged_changes.py",),
        promise="unlogged rows that were written within a second of a TRUNCATE are reported",
    ),
    Fault(
        name="a-renamed-table-keeps-its-former-name",
        file="datastores/postgres/log/reader.py",
        old="            self._encoder.rename(noticed.names)\n",
        new="",
        tests=(f"{_POSTGRES}/log/test_reader.py",),
        promise="rows of a renamed table's partitions arrive under its present name",
    ),
    Fault(
        name="a-new-name-is-reported-in-an-open-transaction",
        file="datastores/postgres/log/reader.py",
        old="self._encoder.commit + 1 if self._encoder.in_transaction else 0\n",
        new="0\n",
        tests=(f"{_POSTGRES}/log/test_reader.py",),
        promise="no row arrives under the former name behind the report of the new one",
    ),
    Fault(
        name="a-partition-is-attached-without-a-word",
        file="datastores/postgres/tables/facts.py",
        old="    return leaf in before.known or leaf in now.altered\n",
        new="    return False\n",
        tests=(f"{_POSTGRES}/tables/test_unlogged_changes.py",),
        promise="rows of a table that becomes a partition are reported",
    ),
]
