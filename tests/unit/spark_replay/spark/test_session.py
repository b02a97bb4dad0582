from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from spark_replay.spark.session import _cause, check_spark, local_master, local_slots, reach_master, spark_session
from tests.support.eventually import PATIENCE_S
from tests.support.ports import free_port
from wormhole.model.errors import UsageError


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
    assert _cause(said).startswith("nobody registered the application")
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
