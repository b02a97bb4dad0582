"""The options of Spark's JVM in tests, which include an archive of its classes.

A JVM that loads and verifies Spark's classes anew uses twice the processor time until its first jobs are done. The
archive is made once for an environment, by ``python -m tests.support.spark_java FILE``. A JVM that it does not fit, of
another version or with other jars, loads the classes as usual.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scripts.prepare import ROOT
from spark_replay.spark.session import spark_session

if TYPE_CHECKING:
    from pyarrow import RecordBatch

__all__ = ["CHEAP", "PLAIN", "PYTHON", "environment", "options", "settings"]

# In the environment, which a copy of the tree borrows.
_KEPT: Final = Path(sys.prefix) / "spark-classes"
PYTHON: Final = {"PYTHONPATH": f"{Path(__file__).with_name('spark_site')}{os.pathsep}{ROOT}"}
"""Variables of the processes that Spark's JVM starts. They import this tree, also where it is a copy with a fault in it
that borrows the environment of another tree."""
# Nothing runs long enough here to pay for the optimizing compiler: without it, a third less processor time.
PLAIN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of every JVM of Spark."""


CHEAP: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of every session: plans made over, and code made for a few rows, take longer than the work."""
_SETTINGS: Final = CHEAP | {
    # Two hundred tasks of nothing take longer than the work.
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # On a busy machine Python needs longer than 15 s to start and to connect back.
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.log.level": "ERROR",
}


def settings(folder: Path) -> dict[str, str]:
    """The settings of a session that has its files in ``folder``."""
    places = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}
    return places | _SETTINGS


@cache
def options() -> str:
    """The options of a driver's JVM. This makes the archive of classes if it does not exist yet."""
    java = shutil.which("java", path=str(Path(os.environ["JAVA_HOME"], "bin")) if "JAVA_HOME" in os.environ else None)
    found = importlib.util.find_spec("pyspark")  # to import it takes long
    if java is None or found is None or found.origin is None:
        return PLAIN  # whoever starts Spark is told
    jars = Path(found.origin).with_name("jars")
    made_from = json.dumps([str(jars), jars.stat().st_mtime_ns, os.path.realpath(java), PLAIN])
    kept = _KEPT / f"{hashlib.sha256(made_from.encode()).hexdigest()[:12]}.jsa"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="draft-", dir=kept.parent) as folder:
            draft = Path(folder, kept.name)
            subprocess.run([sys.executable, "-m", __name__, str(draft)], cwd=ROOT, check=True)
            draft.rename(kept)
    return f"{PLAIN} -XX:SharedArchiveFile={kept}"


def environment() -> dict[str, str]:
    """What gives a command these options, and the settings of the tests' session.

    The folder of a ``spark-defaults.conf`` would do the same, but it becomes a part of the class path, which is then
    not the archive's.
    """
    named = {"spark.driver.extraJavaOptions": options()} | _SETTINGS
    words = [f"--conf '{name}={value}'" for name, value in named.items()]
    return {"PYSPARK_SUBMIT_ARGS": " ".join([*words, "pyspark-shell"])} | PYTHON


def _make(archive: Path) -> None:
    """Do what tests do with Spark, in a JVM that writes down at its end which classes it had."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = {"spark.driver.extraJavaOptions": f"{PLAIN} -XX:ArchiveClassesAtExit={archive}"}
        session = spark_session("classes", "local[2]", settings(folder) | written)

        def same(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            yield from batches

        numbers = session.range(100).selectExpr("id", "id % 7 AS k")
        numbers.mapInArrow(same, numbers.schema).repartition(2).groupBy("k").count().orderBy("k").collect()
        numbers.write.partitionBy("k").parquet(str(folder / "table"))
        session.read.parquet(str(folder / "table")).createOrReplaceTempView("t")
        session.sql("SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) AS n FROM t WHERE id > 3").toPandas()
        session.sparkContext.parallelize([1, 2], 2).map(str).collect()
        gateway: Any = session.sparkContext._gateway
        session.stop()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
