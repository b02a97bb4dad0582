"""Sessions of Spark: their settings, and YARN."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from spark_replay.spark.session import _cause, check_spark, local_master, local_slots, reach_master, spark_session
from spark_replay.spark.settings import RULES, check_settings, filled_in
from spark_replay.spark.yarn import resource_managers
from tests.support.eventually import PATIENCE_S
from tests.support.ports import free_port
from wormhole.model.errors import UsageError

# --- session ---


def test_local_tasks_are_tried_again_as_on_a_cluster() -> None:
    assert [local_master(one) for one in ("local", "local[2]", "local[*]", "local[2,1]", "spark://h:7077")] == [
        "local[1,4]", "local[2,4]", "local[*,4]", "local[2,1]", "spark://h:7077"
    ]  # fmt: skip


def java(folder: Path, does: str) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "new_enough"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('java version "21" 2023-09-19', True),
        ('java version "1.8.0_402"', False),
        ('openjdk version "11.0.1"', False),
        ("nonsense", False),
        ("", False),
    ],
)
def test_a_java_that_is_too_old_is_named(
    says: str, new_enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java(tmp_path, f"echo '{says}' >&2")
    with nullcontext() if new_enough else pytest.raises(UsageError, match="17 or newer"):
        check_spark()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # what spark-submit started is not asked
    check_spark()


def test_no_java_is_reported_with_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no bin/java") as caught:
        check_spark()
    assert "nothing was changed" in str(caught.value.hint)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no java in PATH"):
        check_spark()


def test_what_java_writes_is_reported_when_it_does_not_start_and_shown_to_nobody(tmp_path: Path) -> None:
    java(
        tmp_path,
        '[ "$1" = -version ] && echo \'openjdk version "17.0.1"\' >&2 && exit\n'
        "echo 'Error: Could not reserve enough space' >&2\necho noise\nexit 1",
    )
    start = (
        "from spark_replay.spark.session import spark_session\nfrom wormhole.model.errors import UsageError\n"
        "try:\n    spark_session('test', 'local[1]')\nexcept UsageError as error:\n    print(error.message)"
    )
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    done = subprocess.run(
        [sys.executable, "-c", start], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "Spark does not start on local[1,4]: Error: Could not reserve enough space\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[*]", os.cpu_count()),
        ("", os.cpu_count()),
        ("spark://h:7077", None),
        ("local-cluster[2,1,1024]", None),
        ("yarn", None),
    ],
)
def test_what_a_local_master_runs_is_known_before_it_is_started(
    monkeypatch: pytest.MonkeyPatch, master: str, slots: int | None
) -> None:
    for name in (configuring := ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", "MASTER")):
        monkeypatch.delenv(name, raising=False)
    assert local_slots(master) == slots
    for name in configuring:
        with monkeypatch.context() as one:
            one.setenv(name, "1")
            assert local_slots(master) == (slots if master else None)


def test_a_master_that_nobody_listens_at_is_an_error_before_anything_is_started() -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(UsageError, match=f"no Spark master answers at {master}: .*refused") as caught:
        spark_session("test", master)
    assert "start the master" in str(caught.value.hint)


def test_what_spark_says_when_no_master_registers_it_is_translated() -> None:
    said = [": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", "at org.apache.spark"]
    assert _cause(said).startswith("no master registered the application")
    assert _cause(["Error: no room ", "noise"]) == "Error: no room"
    assert _cause(["noise"]) == "noise"
    assert _cause([]) == ""


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://host:port"])
def test_a_url_of_no_host_and_port_is_refused(master: str) -> None:
    with pytest.raises(UsageError, match="no Spark master answers at"):
        reach_master(master)


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_what_has_no_known_master_is_spark_s_business(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    for name in ("YARN_CONF_DIR", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    reach_master(master)


def test_a_resource_manager_and_an_api_server_have_to_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path))

    def named(port: int) -> None:
        site = f"<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:{port}</value></property>"
        (tmp_path / "yarn-site.xml").write_text(f"<configuration>{site}</configuration>")

    nobody = free_port()
    named(nobody)
    with pytest.raises(UsageError, match="no resource manager of YARN answers at the address in yarn-site") as caught:
        reach_master("yarn")
    assert "HADOOP_CONF_DIR" in str(caught.value.hint)
    with pytest.raises(UsageError, match=f"no API server of Kubernetes answers at k8s://http://127.0.0.1:{nobody}"):
        reach_master(f"k8s://http://127.0.0.1:{nobody}")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        named(port)
        for master in ("yarn", f"k8s://127.0.0.1:{port}", f"spark://127.0.0.1:{nobody},127.0.0.1:{port}"):
            reach_master(master)


def test_spark_connect_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(UsageError, match="SPARK_REMOTE is sc://host"):
        check_spark()


# --- settings ---


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


# --- yarn ---


def site(folder: Path, **given: str) -> dict[str, str]:
    lines = [
        f"<property><name>yarn.resourcemanager.{name}</name><value> {value} </value></property>"
        for name, value in given.items()
    ]
    (folder / "yarn-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    return {"HADOOP_CONF_DIR": str(folder)}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"address": "rm:1"}, ["rm:1"]),
        ({"address": "rm"}, ["rm:8032"]),
        ({"hostname": "rm"}, ["rm:8032"]),
        ({"hostname": "rm", "address": "${yarn.resourcemanager.hostname}:7"}, ["rm:7"]),
        ({"address": "${somewhere.else}:7"}, []),
        ({"address.a": "one:1", "hostname.b": "two", "ha.rm-ids": "a, b", "ha.enabled": "true"}, ["one:1", "two:8032"]),
        ({}, []),
    ],
)
def test_hosts_and_ports_are_those_that_hadoop_s_clients_use(
    tmp_path: Path, given: dict[str, str], found: list[str]
) -> None:
    assert resource_managers(site(tmp_path, **given)) == found


def test_without_a_configuration_nothing_is_known(tmp_path: Path) -> None:
    assert resource_managers({}) == []
    assert resource_managers({"YARN_CONF_DIR": str(tmp_path)}) == []
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    assert resource_managers({"YARN_CONF_DIR": str(tmp_path)}) == []
