"""Starts the Spark session for replays, snapshots, exports, merging and the audit."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from spark_replay.spark.executors import checked, executor_fault
from spark_replay.spark.scratch import Scratch, set_variables
from spark_replay.spark.settings import check_settings, filled_in
from spark_replay.spark.yarn import resource_managers
from wormhole.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["check_spark", "local_master", "local_slots", "reach_master", "spark_session"]

_log = logging.getLogger(__name__)

_LEAST_JAVA: Final = 17
_ATTEMPTS: Final = 4  # attempts of a task: locally Spark makes only one, unless the master's URL has a number
_JAVA_S: Final = 30.0
_LONGEST: Final = 400
_REACH_S: Final = 10.0
_PYTHONS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_UNNAMED: Final = {None, "pyspark-shell", "submit.py"}  # Spark's names for an application without a name
_MASTERS: Final = {
    "spark": ("Spark master", "start the master (Spark's sbin/start-master.sh)"),
    "k8s": ("API server of Kubernetes", "see with `kubectl cluster-info` where it is"),
    "yarn": ("resource manager of YARN", "start it, or name another configuration with HADOOP_CONF_DIR"),
}
_CONFIGURING: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", "MASTER")
"""Variables of the environment by which an empty master may be another one than ``local[*]``."""
_NO_ROOM: Final = {
    "yarn": "see with `yarn logs -applicationId {}` whether the queue has free cores and memory",
    "k8s": "see with `kubectl describe pods -l spark-app-selector={}` whether a node has free cores and memory",
    "spark": "see on the master's page whether a worker has free cores and memory",
}
_WAIT: Final = "spark.wormhole.executorWait"
_WAIT_DEFAULT: Final = "5min"
_TELLING: Final = re.compile(r"Exception|Error|not found|cannot", re.IGNORECASE)
_GIVEN_UP: Final = "stopped SparkContext"  # it stops by itself a minute after its first request to a master
_ALWAYS: Final = {
    "spark.speculation": "false",
    # A flow that is folded has hundreds of tasks. With FAIR they leave slots for the tasks of other flows.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    # Rows may be megabytes each; ten thousand of them, Spark's default, need not fit into a worker.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    # A worker that sorts rows uses so much memory, the interpreter included, before it uses the disk.
    "spark.python.worker.memory": "256m",
}
_LOCAL: Final = {
    # The driver's ports deserialize all input. For a local master Spark generates the secret itself. A secret from us
    # would be visible in the JVM's arguments.
    "spark.authenticate": "true",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Two hundred, Spark's default, cost a machine of a few cores more than they spread.
    "spark.sql.shuffle.partitions": "16",
}


def check_spark() -> None:
    """Check that Spark can start here, without starting it. It is cheap, and is called before any flow is held.

    Raises :class:`~wormhole.model.errors.UsageError` if PySpark or Java is missing, or Java is too old.
    """
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "this command needs pyspark, which is not installed",
            hint="pip install 'wormhole-pubsub[spark]'",
            code="extra-missing",
        ) from error
    if remote := os.environ.get("SPARK_REMOTE"):
        raise UsageError(
            f"SPARK_REMOTE is {remote}: Spark Connect runs no jobs of this kind",
            hint="unset SPARK_REMOTE, and name a master with --master or spark-submit; nothing was changed",
            code="spark-unavailable",
        )
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # spark-submit started this process, so Java runs
    java = _java()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java in PATH"
        raise UsageError(
            f"Spark needs Java {_LEAST_JAVA} or newer: {where}",
            hint=f"install a Java runtime (openjdk-{_LEAST_JAVA}-jre-headless) or set JAVA_HOME; nothing was changed",
            code="spark-unavailable",
        )
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"{java} does not run: {error}",
            hint="mend the Java installation; nothing was changed",
            code="spark-unavailable",
        ) from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    major = int(found[2] if found[1] == "1" and found[2] else found[1]) if found else 0
    if major < _LEAST_JAVA:
        version = said.splitlines()[0] if said.strip() else "no version"
        raise UsageError(
            f"Spark needs Java {_LEAST_JAVA} or newer; {java} has {version}",
            hint="install a newer one, or name it with JAVA_HOME; nothing was changed",
            code="spark-unavailable",
        )


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java")
    java = Path(home) / "bin" / "java"
    return str(java) if java.exists() else None


def local_master(master: str) -> str:
    """A local master with several attempts per task. Other masters stay as they are.

    ``local[2]`` would give each task only one attempt, unlike a cluster.
    """
    found = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{found[1] or 1},{_ATTEMPTS}]" if found else master


def local_slots(master: str) -> int | None:
    """How many tasks a local master would run at one time, without starting it.

    An empty master is the default of :func:`spark_session`. ``None``: the master is not local, or ``spark-submit`` or a
    configuration of Spark may name another one.
    """
    if not master and any(name in os.environ for name in _CONFIGURING):
        return None
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master or "local[*]")
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None, *, pushing: bool = False
) -> SparkSession:
    """The session of this process, which the first call makes.

    ``master``: ``None`` is the master of ``spark-submit`` or ``spark-defaults.conf``, else ``local[*]``. ``settings``:
    of Spark; they take precedence over ours. Settings of ``spark-submit --conf`` and ``spark-defaults.conf`` are kept,
    and logged by name if they cost something. ``pushing``: its tasks push to subscribers.

    Spark's files on the driver's machine are in folders that only this user may enter. With a local master Spark
    listens on loopback only, and each of its ports requires a secret.

    The first call blocks for seconds. On a cluster it blocks until the first executor runs, at most for the setting
    ``spark.wormhole.executorWait``. Spark's own output is discarded, because a JVM that we start would write its
    warnings into our output.

    Raises as :func:`check_spark`, and :class:`~wormhole.model.errors.UsageError` if Spark does not start (with its
    output), if no master listens, if a setting would make results wrong, if no executor starts, or if the executor has
    other packages than this process.
    """
    check_spark()
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if master:
        reach_master(master)
    chosen = local_master(master) if master else "the master that is configured"
    # Local workers run this interpreter, unless the environment names one; those of a cluster have their own.
    ours = set() if master and not master.startswith("local") else set(_PYTHONS) - os.environ.keys()
    os.environ.update(dict.fromkeys(ours, sys.executable))
    scratch = Scratch()
    with tempfile.TemporaryFile() as said:
        try:
            # The JVM is connected first, because only it knows the settings of spark-submit and spark-defaults.conf.
            given = _connected(master, settings or {}, said, scratch)
            chosen = local_master(master or given.get("spark.master", None) or "local[*]")
            if not master:
                reach_master(chosen)
            set_ = dict(given.getAll())
            for sentence in check_settings(set_, pushing=pushing):
                _log.warning("Spark's setting %s", sentence)
            local = chosen.startswith("local")
            if not local:
                for variable in ours:
                    del os.environ[variable]
            builder = SparkSession.builder.master(chosen)
            if given.get("spark.app.name", None) in _UNNAMED:
                builder = builder.appName(name)
            for key, value in {**_ALWAYS, **(_LOCAL if local else {}), **filled_in(chosen, set_)}.items():
                if key not in set_:
                    builder = builder.config(key, value)
            for key, value in (settings or {}).items():
                builder = builder.config(key, value)
            if local and SparkContext._active_spark_context is None:
                for key, value in scratch.settings({**set_, **(settings or {})}).items():
                    builder = builder.config(key, value)
            session = builder.getOrCreate()
            scratch.remove_with(session.sparkContext._jvm)
        except (Py4JError, PySparkException) as error:
            scratch.remove()
            said.seek(0)
            lines = [*said.read().decode(errors="replace").splitlines(), *str(error).splitlines()]
            raise UsageError(
                f"Spark does not start on {chosen}: {_cause(lines)}",
                hint=(
                    "check --master, and Spark's settings in spark-defaults.conf or SPARK_CONF_DIR; nothing was changed"
                ),
                code="spark-unavailable",
            ) from error
    session.sparkContext.setLogLevel("ERROR")
    if not local:
        _await_executor(session, chosen)
    return session


def _cause(lines: Sequence[str]) -> str:
    """The line of Spark's output with the reason why it did not start."""
    why = next((line for line in reversed(lines) if _TELLING.search(line)), lines[-1] if lines else "")
    if _GIVEN_UP in why:
        return "no master registered the application: what listens there is no master, or one of another release"
    return why.strip()[:_LONGEST]


def reach_master(master: str, timeout_s: float = _REACH_S) -> None:
    """Check that the port of a cluster's master accepts connections, because Spark and Hadoop would try for minutes.

    The port is that of a standalone master, of the API server of Kubernetes, or of the resource manager in YARN's
    configuration. Raises :class:`~wormhole.model.errors.UsageError` for a URL without host and port, and if none of its
    hosts answers within ``timeout_s`` seconds each.
    """
    problems = []
    for host in (hosts := _hosts_of(master)):
        url = urlsplit(f"//{host}")
        try:
            if not url.hostname or url.port is None:
                raise ValueError("it has no host and port")
            socket.create_connection((url.hostname, url.port), timeout_s).close()
            return
        except (OSError, ValueError) as error:
            problems.append(f"{host}: {error}")
    if not hosts:
        return
    what, then = _MASTERS[master.partition(":")[0]]
    at = "the address in yarn-site.xml" if master == "yarn" else master
    raise UsageError(
        f"no {what} answers at {at}: {'; '.join(problems)}",
        hint=f"{then}, or name another one with --master; nothing was changed",
        code="spark-unavailable",
    )


def _hosts_of(master: str) -> list[str]:
    """The hosts, one of which has to answer. Empty: the hosts are not known, or no answer is required."""
    kind, _, rest = master.partition("://")
    if kind == "spark":
        return rest.split(",")
    if kind == "k8s":
        url = urlsplit(rest if "://" in rest else f"https://{rest}")
        known = url.port or {"http": 80, "https": 443}.get(url.scheme)
        return [f"{url.hostname or ''}:{known}"]
    return resource_managers(os.environ) if master == "yarn" else []


def _connected(master: str | None, settings: Mapping[str, str], said: IO[bytes], scratch: Scratch) -> SparkConf:
    """Connect to the JVM that ``spark-submit`` started. Without one, start a JVM unless it already runs.

    The new JVM has ``said`` as its output and uses the folders of ``scratch``. Returns the JVM's configuration of
    Spark."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    # A JVM that Spark starts would write into our output. No setting changes this.
    if SparkContext._gateway is None:
        conf = SparkConf().setAll([*settings.items(), *([("spark.master", local_master(master))] if master else [])])
        launch: Any = launch_gateway
        local = local_slots(master or "") is not None
        with set_variables(scratch.variables(local=local)):
            gateway = launch(conf, {"stdout": said, "stderr": said})
        SparkContext._ensure_initialized(gateway=gateway)
        scratch.remove_with(SparkContext._jvm)  # also if a refused setting ends the session
    return SparkConf()


def _await_executor(session: SparkSession, master: str) -> None:
    """Wait until an executor runs tasks, for a limited time. In a full cluster a job waits for ever."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context = session.sparkContext
    jvm: Any = context._jvm
    said = context.getConf().get(_WAIT, _WAIT_DEFAULT)
    wait_s = float(jvm.org.apache.spark.network.util.JavaUtils.timeStringAsSec(said))
    timer = threading.Timer(wait_s, context.cancelAllJobs)
    timer.daemon = True
    timer.start()
    try:
        context.parallelize([0], 1).map(checked(_ready)).count()
    except (Py4JError, PySparkException) as error:
        application, found = context.applicationId, executor_fault(error)
        session.stop()
        if timer.is_alive():
            if found is None:
                raise
            raise UsageError(found[0], hint=f"{found[1]}; nothing was changed", code="spark-unavailable") from error
        where = next((then for kind, then in _NO_ROOM.items() if master.startswith(kind)), _NO_ROOM["spark"])
        raise UsageError(
            f"no executor ran on {master} within {wait_s:g} s",
            hint=f"{where.format(application)}, free some, or wait longer with the Spark setting {_WAIT}; nothing was "
            "changed",
            code="spark-unavailable",
        ) from error
    finally:
        timer.cancel()


def _ready(slot: int) -> int:
    import pandas  # noqa: F401 - every job of ours needs it
    import pyarrow  # noqa: F401

    return slot
