"""The faults around snapshots: what is in them, from which the next one is made, and what retention leaves for it."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Fault

_TABLES: Final = "tests/unit/spark_replay/tables"

SNAPSHOT_FAULTS: list[Fault] = [
    Fault(
        name="retention-drops-what-the-next-snapshot-needs",
        file="spark_replay/archive/retention.py",
        old="        count = min(old, _before(manifest, needed_from))\n",
        new="        count = old\n",
        tests=("tests/unit/spark_replay/archive/test_retention.py::test_what_the_next_one_needs_is_not_too_old",),
        promise="files after the newest snapshot's places stay until the next snapshot is made",
    ),
    Fault(
        name="retention-drops-rows-that-were-read-at-the-snapshot-s-place",
        file="spark_replay/archive/retention.py",
        old="(reads and entry.end.order == needed_from)",
        new="False",
        tests=(
            "tests/unit/spark_replay/archive/test_retention.py::test_rows_that_were_read_at_the_place_itself_are_needed",
        ),
        promise="rows that a backfill read at the snapshot's place are in the next one",
    ),
    Fault(
        name="a-table-has-what-a-task-left-that-was-given-up",
        file="spark_replay/tables/folder.py",
        old='            if f"{name}/{one.name}" not in known:\n',
        new="            if not known:\n",
        tests=(f"{_TABLES}/test_snapshot.py::test_files_that_tasks_left_are_no_part_of_it",),
        promise="a snapshot's table has each row once, whatever became of the tasks that wrote it",
    ),
    Fault(
        name="a-file-that-was-not-finished-stays",
        file="spark_replay/tables/updates.py",
        old="                storage.delete(path)\n            raise\n",
        new="                pass\n            raise\n",
        tests=(f"{_TABLES}/test_rows.py::test_a_file_that_was_not_finished_is_not_there",),
        promise="a task that fails leaves no file in a table",
    ),
    Fault(
        name="a-snapshot-has-columns-that-are-gone",
        file="spark_replay/tables/columns.py",
        old="            if not only or column.name in kept:\n",
        new="            if kept is not None:\n",
        tests=(f"{_TABLES}/test_columns.py::test_columns_that_the_table_has_no_more_are_left_out",),
        promise="a snapshot has the columns of the newest schema only",
    ),
    Fault(
        name="the-first-shard-s-schema-is-the-newest",
        file="spark_replay/tables/newest.py",
        old="            if kept is None or kept.place < last.place:\n",
        new="            if kept is None:\n",
        tests=(f"{_TABLES}/test_columns.py::test_shards_of_one_log_are_compared_by_place",),
        promise="the newest schema is that of the last row in the log, over all its shards",
    ),
    Fault(
        name="a-snapshot-continues-one-that-the-archive-does-not-reach-back-to",
        file="spark_replay/tables/rolling.py",
        old="    elif not manifest.begin.order <= before.marker.order <= manifest.end.order:\n",
        new="    elif not before.marker.order <= manifest.end.order:\n",
        tests=(
            f"{_TABLES}/test_snapshot.py::test_what_the_archive_let_go_cannot_be_continued_and_all_shards_are_named",
        ),
        promise="a snapshot that lacks a part of the archive is refused",
    ),
    Fault(
        name="an-accepted-loss-is-not-seen-by-the-next-snapshot",
        file="spark_replay/tables/rolling.py",
        old="    whole = frozenset(one.shard for one in ranges if not lost_after(manifests[one.shard], one))\n",
        new="    whole = frozenset(one.shard for one in ranges)\n",
        tests=(f"{_TABLES}/test_snapshot.py::test_an_accepted_loss_makes_the_next_one_incomplete",),
        promise="a snapshot of an archive with a hole is not complete",
    ),
    Fault(
        name="every-table-s-problem-concerns-every-application",
        file="spark_replay/tables/about.py",
        old="for table in self._known if wants(table) and (own",
        new="for table in self._known if (own",
        tests=(f"{_TABLES}/test_snapshot.py::test_only_what_an_application_wants_is_refused",),
        promise="a replay is refused for tables that the application wants and that are not complete",
    ),
    Fault(
        name="a-row-that-was-read-is-an-insert-in-the-snapshot",
        file="spark_replay/tables/history.py",
        old='frozenset({_UPSERT, Row(op="READ").op})',
        new="frozenset({_UPSERT})",
        tests=(f"{_TABLES}/test_history.py::test_a_row_that_a_backfill_read_replaces_what_was_known_of_it",),
        promise="a row that a backfill read may have been there before",
    ),
]
