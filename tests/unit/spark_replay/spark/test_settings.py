from __future__ import annotations

from pathlib import Path

import pytest

from spark_replay.spark.settings import RULES, check_settings, filled_in
from wormhole.model.errors import UsageError

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("spark.python.worker.reuse", "false", "true"),
        ("spark.python.use.daemon", "FALSE", "true"),
        ("spark.task.maxFailures", "1", "2"),
        ("spark.task.cpus", "2", "1"),
        ("spark.scheduler.mode", "FIFO", "fair"),
        ("spark.excludeOnFailure.enabled", "true", "false"),
        ("spark.executor.pyspark.memory", "600m", "1g"),
        ("spark.executor.memoryOverhead", "600", "664"),
    ],
)
def test_a_setting_that_costs_something_is_reported_with_its_value_and_a_better_one(
    name: str, bad: str, good: str
) -> None:
    (sentence,) = check_settings({name: bad}, pushing=True)
    assert sentence.startswith(f"{name} is {bad}: ")
    assert ". Better: " in sentence
    assert list(check_settings({name: good}, pushing=True)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.speculation", "true"),
        ("spark.sql.execution.arrow.useLargeVarTypes", "true"),
        ("spark.api.mode", "connect"),
        ("spark.remote", "sc://host"),
    ],
)
def test_a_setting_that_would_make_results_wrong_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is {value}: ") as caught:
        check_settings({name: value}, pushing=True)
    assert f"--conf {name}=" in str(caught.value.hint)


def test_all_that_are_refused_are_named_at_once() -> None:
    given = {"spark.speculation": "true", "spark.api.mode": "connect", "spark.task.cpus": "2"}
    with pytest.raises(UsageError, match=r"spark.api.mode is connect.*; spark.speculation is true"):
        check_settings(given, pushing=True)


def test_what_counts_for_a_push_only_is_not_said_of_other_jobs() -> None:
    given = {"spark.speculation": "true", "spark.task.maxFailures": "1", "spark.task.cpus": "4"}
    assert list(check_settings(given, pushing=False)) == []


OVERHEAD, PYTHON = "spark.executor.memoryOverhead", "spark.executor.pyspark.memory"
FEW = str((1504 << 20) - 1)
KILLS = {"spark.python.worker.killOnIdleTimeout": "true"}


@pytest.mark.parametrize(
    ("given", "costs"),
    [
        *(({"spark.executor.cores": "4", OVERHEAD: size}, True) for size in ("1503m", f"{FEW}b", f"{FEW}B")),
        *(({"spark.executor.cores": "4", PYTHON: size}, True) for size in ("4095m", "4194303k", "4194303kb")),
        ({"spark.executor.cores": "4", OVERHEAD: "1504"}, False),
        ({"spark.executor.cores": "4", PYTHON: "4GB"}, False),
        # Python's memory is then counted apart.
        ({"spark.executor.cores": "4", OVERHEAD: "384m", PYTHON: "4g"}, False),
        # Spark itself says what it cannot read.
        ({OVERHEAD: "much", PYTHON: "1.5g"}, False),
        # An idle worker is ended only where a time is set.
        (KILLS, False),
        (KILLS | {"spark.python.worker.idleTimeoutSeconds": "60"}, True),
    ],
)
def test_memory_is_counted_for_each_core_and_idle_workers_by_two_settings(given: dict[str, str], costs: bool) -> None:
    assert bool(list(check_settings(given, pushing=True))) is costs


@pytest.mark.parametrize(
    ("master", "given", "filled"),
    [
        ("yarn", {}, "664m"),
        ("k8s://https://h", {"spark.executor.cores": "4"}, "1504m"),
        ("yarn", {"spark.executor.cores": "all"}, "664m"),
        ("yarn", {"spark.executor.memoryOverheadFactor": "0.4"}, None),
        ("spark://h:7077", {}, None),
    ],
)
def test_containers_get_room_for_the_workers_unless_the_user_said_how_much(
    master: str, given: dict[str, str], filled: str | None
) -> None:
    assert filled_in(master, given).get(OVERHEAD) == filled


def test_the_page_of_clusters_has_a_line_for_each_setting() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in page] == []
