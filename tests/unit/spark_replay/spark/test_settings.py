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


def test_an_idle_worker_is_ended_only_where_a_time_is_set() -> None:
    kills = {"spark.python.worker.killOnIdleTimeout": "true"}
    assert list(check_settings(kills, pushing=True)) == []
    assert list(check_settings(kills | {"spark.python.worker.idleTimeoutSeconds": "60"}, pushing=True))


def test_memory_is_counted_for_each_core() -> None:
    four = {"spark.executor.cores": "4"}
    bytes_ = str((1504 << 20) - 1)
    few = (("1503m", "4095m"), (f"{bytes_}b", "4194303k"), (f"{bytes_}B", "4194303kb"))
    names = ("spark.executor.memoryOverhead", "spark.executor.pyspark.memory")
    for name, size in (pair for sizes in few for pair in zip(names, sizes, strict=True)):
        assert list(check_settings(four | {name: size}, pushing=True)), name
    for name, size in (("spark.executor.memoryOverhead", "1504"), ("spark.executor.pyspark.memory", "4GB")):
        assert not list(check_settings(four | {name: size}, pushing=True)), name
    own = {"spark.executor.memoryOverhead": "384m", "spark.executor.pyspark.memory": "4g"}
    assert not list(check_settings(four | own, pushing=True)), "Python's memory is then counted apart"
    unread = {"spark.executor.memoryOverhead": "much", "spark.executor.pyspark.memory": "1.5g"}
    assert not list(check_settings(unread, pushing=True)), "Spark itself says what it cannot read"


def test_containers_get_room_for_the_workers_unless_the_user_said_how_much() -> None:
    assert filled_in("yarn", {}) == {"spark.executor.memoryOverhead": "664m"}
    assert filled_in("k8s://https://h", {"spark.executor.cores": "4"}) == {"spark.executor.memoryOverhead": "1504m"}
    assert filled_in("yarn", {"spark.executor.cores": "all"}) == {"spark.executor.memoryOverhead": "664m"}
    assert filled_in("yarn", {"spark.executor.memoryOverheadFactor": "0.4"}) == {}
    assert filled_in("spark://h:7077", {}) == {}


def test_the_page_of_clusters_has_a_line_for_each_setting() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in page] == []
