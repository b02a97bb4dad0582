"""A standalone Spark cluster on this machine: a master and workers, from the classes that PySpark brings, on loopback
and in a private folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from benchmarks.cases import free_ports
from wormhole.host import process_guard

__all__ = ["Cluster", "cluster", "surroundings"]

_START_S = 60.0
_DAEMONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # they do little
_MEMORY_GIB = 1  # memory of one core: an executor asks for it by default


class Cluster:
    """``master``: the URL for ``--master``; ``environment``: what a driver needs beside its own; ``workers``: their
    processes.
    """

    def __init__(self, master: str, environment: Mapping[str, str], workers: Sequence[int]) -> None:
        self.master = master
        self.environment = dict(environment)
        self.workers = tuple(workers)


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a driver that keeps to loopback and to ``folder``."""
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "spark-defaults.conf").write_text(
        "spark.ui.enabled false\nspark.driver.host 127.0.0.1\nspark.driver.bindAddress "
        "127.0.0.1\nspark.sql.shuffle.partitions 4\n"
    )
    return {
        **os.environ,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@contextmanager
def cluster(
    folder: Path, workers: int, start_s: float = _START_S, cores: int = 1, java: str = _DAEMONS
) -> Iterator[Cluster]:
    """One master and ``workers`` that declare ``cores`` each, ended with the block and with this process, however it
    ends. ``start_s``: how long each may take to come up. ``java``: options of their JVMs.

    Raises ``RuntimeError`` with what they said when they do not come up.
    """
    # Their class path is Spark's own: the settings of a driver, which would be a folder of it, are none of theirs.
    environment = {**surroundings(folder), "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": java}
    del environment["SPARK_CONF_DIR"]
    port = free_ports(1)[0]
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        said = folder / "master.log"
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(_daemon("master.Master", words, said, environment))
        _await(said, "I have been elected leader", 1, start_s)
        started = []
        for number in range(workers):
            work = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", str(cores)]
            work += ["--memory", f"{cores * _MEMORY_GIB}g", "--work-dir", str(folder / f"work{number}"), url]
            started.append(
                stack.enter_context(_daemon("worker.Worker", work, folder / f"worker{number}.log", environment))
            )
        _await(said, "Registering worker", workers, start_s)
        yield Cluster(url, surroundings(folder), started)


@contextmanager
def _daemon(name: str, words: list[str], log: Path, environment: Mapping[str, str]) -> Iterator[int]:
    """The process of the JVM: the script that starts it becomes it."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), ""]
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*guard, str(spark_class), f"org.apache.spark.deploy.{name}", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env=dict(environment),
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _await(log: Path, text: str, times: int, start_s: float) -> None:
    until = time.monotonic() + start_s
    while log.read_text(errors="replace").count(text) < times:
        if time.monotonic() > until:
            raise RuntimeError(f"the Spark cluster did not come up; its master said:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)
