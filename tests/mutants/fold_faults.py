"""The faults around the last changes of keys."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Fault

_LATEST: Final = "tests/unit/spark_replay/replay/test_latest.py"
_KEYED: Final = "tests/unit/spark_replay/replay/test_shuffled.py"
_SHUFFLED: Final = "tests/unit/spark_replay/replay/test_shuffled.py"

FOLD_FAULTS: list[Fault] = [
    Fault(
        name="what-a-key-came-to-forgets-how-it-began",
        file="spark_replay/replay/latest.py",
        old="    return {_INSERT: _INSERT, _UPSERT: _UPSERT, _READ: _UPSERT}.get(first, _UPDATE)\n",
        new="    return last\n",
        tests=(f"{_LATEST}::test_of_whole_rows_there_is_one_per_key_with_the_net_change",),
        promise="a row that the range inserted comes as an INSERT, also when it changed since",
    ),
    Fault(
        name="last-changes-in-the-order-of-keys",
        file="spark_replay/replay/keyed.py",
        old='pc.array_sort_indices(rows.column("place"))',
        new="pa.array(range(rows.num_rows))",
        tests=(f"{_KEYED}::test_the_rows_are_those_of_the_fold_by_place",),
        promise="a pass goes by place, or one that is taken up again skips rows that nobody has",
    ),
    Fault(
        name="keys-of-two-tables-are-one",
        file="spark_replay/combine.py",
        old='for column in (rows.column("key"), rows.column("table"), *more):',
        new='for column in (rows.column("key"), *more):',
        tests=(f"{_KEYED}::test_one_key_in_two_tables_is_two_keys",),
        promise="every key comes once, with all that became of it",
    ),
    Fault(
        name="rows-without-a-key-are-dropped-before-the-fold",
        file="spark_replay/combine.py",
        old="pc.if_else(alone, pa.array(range(count, count + rows.num_rows), pa.int64()), found)",
        new="found",
        tests=(f"{_SHUFFLED}::test_rows_without_a_key_are_spread_over_the_parts",),
        promise="every change of a table without a key arrives, also from a range of several tasks",
    ),
    Fault(
        name="last-changes-from-before-the-range",
        file="spark_replay/replay/keyed.py",
        old='after(chosen.begin) if chosen.begin is not None else b""',
        new='b""',
        tests=(f"{_KEYED}::test_only_the_range_counts",),
        promise="a replay pushes its range",
    ),
    Fault(
        name="first-changes-are-left-behind",
        file="spark_replay/combine.py",
        old="pc.invert(pc.and_(plain.take(firsts), plain.take(lasts)))",
        new="pc.less(firsts, 0)",
        tests=(f"{_SHUFFLED}::test_the_rows_are_those_of_one_task",),
        promise="a large range comes to the same as a small one",
    ),
    Fault(
        name="columns-of-earlier-changes-are-lost",
        file="spark_replay/combine.py",
        old="image = fold(image, schema, read_row(self._updates[at].as_py()))",
        new="image = fold(None, schema, read_row(self._updates[at].as_py()))",
        tests=(f"{_SHUFFLED}::test_the_rows_are_those_of_one_task",),
        promise="a large range comes to the same as a small one",
    ),
    Fault(
        name="changes-forget-the-delete-before-them",
        file="spark_replay/combine.py",
        old="    if pc.any(deletes).as_py():\n",
        new="    if False:\n",
        tests=(f"{_SHUFFLED}::test_the_rows_are_those_of_one_task",),
        promise="a large range comes to the same as a small one",
    ),
    Fault(
        name="a-column-that-was-added-keeps-what-a-delete-removed",
        file="spark_replay/replay/latest.py",
        old="if since and not image.complete:",
        new="if since and image.schema is self._schemas[changes[since]] and not image.complete:",
        tests=(_LATEST,),
        promise="a DELETE removes the values of every column, also where only a later schema shows that one is missing",
    ),
    Fault(
        name="pieces-in-the-order-in-which-they-arrive",
        file="spark_replay/replay/shelf.py",
        old="for number, about, data in sorted(self._memory, key=itemgetter(0)):",
        new="for number, about, data in self._memory:",
        tests=(f"{_SHUFFLED}::test_the_rows_are_those_of_one_task",),
        promise="a large range comes to the same as a small one",
    ),
    Fault(
        name="what-a-change-does-not-know-is-what-was-there-before",
        file="spark_replay/images.py",
        old="return [named.get(column.name, _UNKNOWN) for column in schema.columns]",
        new="return [named.get(column.name, ABSENT) for column in schema.columns]",
        tests=("tests/unit/spark_replay/test_combine.py",),
        promise="a column that was dropped and added again does not get its value back",
    ),
    Fault(
        name="files-that-were-merged-during-a-fold-end-it",
        file="spark_replay/replay/flow.py",
        old="                    if self._newest(task) == files:\n                        raise",
        new="                    raise",
        tests=(
            "tests/unit/spark_replay/replay/test_flow.py::test_files_that_were_merged_while_they_were_read_are_read_where_they_went",
        ),
        promise="an archive may be compacted while a large range is replayed",
    ),
    Fault(
        name="parts-of-rows-cost-as-little-as-rows",
        file="spark_replay/replay/mode.py",
        old="_OF_PARTS: Final = 0.5",
        new="_OF_PARTS: Final = 1.0",
        tests=("tests/unit/spark_replay/replay/test_mode.py::test_auto_knows_from_the_manifest_what_a_fold_costs",),
        promise="auto replays every change where folding them costs more than it saves",
    ),
    Fault(
        name="rows-that-could-not-be-read-are-all-rows",
        file="spark_replay/replay/pieces.py",
        old="self._failed = True",
        new="pass",
        tests=(
            "tests/unit/spark_replay/replay/test_flow_plans.py::test_a_pass_whose_rows_could_not_be_computed_computes_them_anew",
        ),
        promise="a storage that was away for a moment costs a replay nothing",
    ),
    Fault(
        name="an-application-that-has-less-than-before-does-not-get-it",
        file="spark_replay/replay/pieces.py",
        old="self._passed_over = last",
        new="pass",
        tests=(
            "tests/unit/spark_replay/replay/test_flow_plans.py::test_rows_are_computed_as_often_as_they_are_needed",
        ),
        promise="what an application says that it has is asked for at each connection",
    ),
]
