"""The Spark session of whatever needs one: a mass replay, snapshots, merging, the audit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from wormhole.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["check_spark", "local_master", "local_slots", "spark_session"]

_LEAST_JAVA: Final = 17
_ATTEMPTS: Final = 4  # of a task: locally Spark gives each one only, unless the master says otherwise
_JAVA_S: Final = 30.0
_LONGEST: Final = 400
_TELLING: Final = re.compile(r"Exception|Error|not found|cannot", re.IGNORECASE)
_ALWAYS: Final = {
    # A task pushes to a subscriber: a second copy of it would only take the flow from the first.
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    # Rows may be megabytes each; ten thousand of them, Spark's default, need not fit into a worker.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    # A worker that brings rows into order keeps so much in memory, the interpreter included, before it goes to the disk.
    "spark.python.worker.memory": "256m",
}
_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Two hundred, Spark's default, cost a machine of a few cores more than they spread.
    "spark.sql.shuffle.partitions": "16",
}


def check_spark() -> None:
    """Whether Spark can be started here, without starting it: cheap, so that nothing is held for a job that cannot run.

    Raises :class:`~wormhole.errors.UsageError` where PySpark or Java is missing, or Java is too old.
    """
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            "this command needs pyspark, which is not installed", hint="pip install 'wormhole-pubsub[spark]'"
        ) from error
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # spark-submit started us: its Java runs
    java = _java()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java in PATH"
        raise UsageError(
            f"Spark needs Java {_LEAST_JAVA} or newer: {where}",
            hint=f"install a Java runtime (openjdk-{_LEAST_JAVA}-jre-headless) or set JAVA_HOME; nothing was changed",
        )
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"{java} does not run: {error}", hint="mend the Java installation; nothing was changed"
        ) from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    major = int(found[2] if found[1] == "1" and found[2] else found[1]) if found else 0
    if major < _LEAST_JAVA:
        told = said.splitlines()[0] if said.strip() else "no version"
        raise UsageError(
            f"Spark needs Java {_LEAST_JAVA} or newer; {java} says {told}",
            hint="install a newer one, or name it with JAVA_HOME; nothing was changed",
        )


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java")
    java = Path(home) / "bin" / "java"
    return str(java) if java.exists() else None


def local_master(master: str) -> str:
    """A local master with attempts per task: ``local[2]`` gives each one only, unlike a cluster. Others as they are."""
    found = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{found[1] or 1},{_ATTEMPTS}]" if found else master


def local_slots(master: str) -> int | None:
    """How many tasks a local master would run at one time (empty: that of :func:`spark_session`), without starting it; ``None``: it is not
    local, or ``spark-submit`` says what it is."""
    if not master and "PYSPARK_GATEWAY_PORT" in os.environ:
        return None
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master or "local[*]")
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def spark_session(name: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, made if there is none yet. ``master`` ``None``: what ``spark-submit`` or ``spark-defaults.conf`` says,
    else ``local[*]``. ``settings``: Spark's own, over ours; those of ``spark-submit --conf`` are kept.

    Blocks for seconds at first. What Spark writes goes nowhere: a JVM that we start tells its warnings among what people and programs read of
    us. Raises as :func:`check_spark`, and :class:`~wormhole.errors.UsageError` with what it said when it does not start.
    """
    check_spark()
    from py4j.protocol import Py4JError
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    given = SparkConf()
    chosen = local_master(master or given.get("spark.master", None) or "local[*]")
    local = chosen.startswith("local")
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    wanted = {
        **{key: value for key, value in {**_ALWAYS, **(_LOCAL if local else {})}.items() if not given.contains(key)},
        **(settings or {}),
    }
    builder = SparkSession.builder.appName(name).master(chosen)
    for key, value in wanted.items():
        builder = builder.config(key, value)
        given.set(key, value)
    with tempfile.TemporaryFile() as said:
        try:
            _start_java(given.setAppName(name).setMaster(chosen), said)
            session = builder.getOrCreate()
        except (Py4JError, PySparkException) as error:
            said.seek(0)
            lines = [*said.read().decode(errors="replace").splitlines(), *str(error).splitlines()]
            why = next((line for line in reversed(lines) if _TELLING.search(line)), lines[-1] if lines else "")
            raise UsageError(
                f"Spark does not start on {chosen}: {why.strip()[:_LONGEST]}",
                hint="check --master, and Spark's settings in spark-defaults.conf or SPARK_CONF_DIR; nothing was changed",
            ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start_java(conf: SparkConf, said: IO[bytes]) -> None:
    """Start the JVM, unless it runs already, with ``said`` as its output."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    # Spark would start one itself, which has our output: there is no setting for that.
    if SparkContext._gateway is None:
        launch: Any = launch_gateway
        SparkContext._ensure_initialized(gateway=launch(conf, {"stdout": said, "stderr": said}))
