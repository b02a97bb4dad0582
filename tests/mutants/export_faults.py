"""The faults around open tables: each range once, nothing of others taken for ours, no value that is not known."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Fault

_EXPORT: Final = "tests/unit/spark_replay/export/test_exporter.py::"

EXPORT_FAULTS: list[Fault] = [
    Fault(
        name="delta-tries-a-commit-again-on-a-newer-version",
        file="spark_replay/export/delta.py",
        old="max_commit_retries=0)",
        new="max_commit_retries=5)",
        tests=(f"{_EXPORT}test_an_older_run_that_ends_late_changes_nothing",),
        promise="of two exporters one applies a range",
    ),
    Fault(
        name="iceberg-tries-a-commit-again-on-a-newer-snapshot",
        file="spark_replay/export/iceberg.py",
        old="    def _register_snapshot_producer(self, producer: Any) -> None:\n        pass\n",
        new="",
        tests=(f"{_EXPORT}test_of_two_exporters_one_applies_a_range",),
        promise="of two exporters one applies a range",
    ),
    Fault(
        name="rows-of-somebody-else-are-taken-for-a-compaction-in-delta",
        file="spark_replay/export/delta.py",
        old='if any(action.get(kind, {}).get("dataChange", False) for',
        new='if any(action.get(kind, {}).get("dataChanged", False) for',
        tests=(f"{_EXPORT}test_what_somebody_else_changed_is_refused",),
        promise="a table whose rows somebody else changed is refused",
    ),
    Fault(
        name="rows-of-somebody-else-are-taken-for-a-compaction-in-iceberg",
        file="spark_replay/export/iceberg.py",
        old="            if done is not Operation.REPLACE:\n",
        new="            if done is Operation.DELETE:\n",
        tests=(f"{_EXPORT}test_what_somebody_else_changed_is_refused",),
        promise="a table whose rows somebody else changed is refused",
    ),
    Fault(
        name="the-files-of-a-run-that-may-still-commit-are-deleted",
        file="spark_replay/export/leftovers.py",
        old="        if base == version:\n",
        new="        if not version:\n",
        tests=("tests/unit/spark_replay/export/test_expiry.py",),
        promise="a run's files are deleted only once it cannot commit",
    ),
    Fault(
        name="the-files-of-a-commit-are-deleted",
        file="spark_replay/export/leftovers.py",
        old="        if committed is False:\n",
        new="        if committed is not None:\n",
        tests=(f"{_EXPORT}test_a_run_that_was_killed_is_done_again_once_and_leaves_nothing",),
        promise="a run that was killed after its commit loses nothing",
    ),
    Fault(
        name="a-commit-whose-answer-was-lost-is-made-again",
        file="spark_replay/export/exporter.py",
        old="            if not opened.committed(run.name, seen.version):\n",
        new="            if opened.committed(run.name, seen.version) is not None:\n",
        tests=(f"{_EXPORT}test_a_commit_whose_answer_was_lost_counts",),
        promise="the files of a commit whose answer was lost stay",
    ),
    Fault(
        name="an-unknown-value-of-the-table-becomes-null",
        file="spark_replay/export/columns.py",
        old="        UNAVAILABLE if column.shown in unknown else",
        new="        None if column.shown in unknown else",
        tests=(f"{_EXPORT}test_an_unknown_value_is_named",),
        promise="a value that the log does not hold never becomes a NULL",
    ),
    Fault(
        name="rows-before-a-new-column-stay-as-they-are",
        file="spark_replay/export/exporter.py",
        old="            before != plan.columns,\n",
        new="            False,\n",
        tests=(f"{_EXPORT}test_a_new_column_is_unknown_in_rows_that_were_written_before",),
        promise="an added column is named as unknown in rows that were written before",
    ),
    Fault(
        name="an-archive-of-another-history-is-taken",
        file="spark_replay/export/plan.py",
        old="marker.anchor.id not in there:\n",
        new="not marker.anchor.id:\n",
        tests=(f"{_EXPORT}test_an_archive_of_another_history_is_refused",),
        promise="an archive that was replaced by another is refused",
    ),
    Fault(
        name="an-archive-that-began-later-is-exported-as-if-whole",
        file="spark_replay/export/plan.py",
        old="        if one.shard not in selection.whole or lost",
        new="        if lost",
        tests=(f"{_EXPORT}test_where_something_else_is_no_table_begins",),
        promise="a table without the rows from before the archive is not exported as if it were whole",
    ),
]
