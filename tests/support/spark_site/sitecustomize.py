"""What each Python process that Spark starts in tests does first: it imports, and has no archives on the path.

Spark puts a zip of PySpark's sources and a jar of thousands of classes on the path. Every process compiled the first
anew and read the second's table of contents for every task, and it imported Arrow, pandas and our packages. Here that
is done once by each process that forks others. A cluster has none of it (``tests/system/test_spark_cluster.py``).
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

_IMPORTED: Final = ("pyspark.worker", "pandas", "pyarrow.parquet", "spark_replay.tables.snapshot")
_PLANNING: Final = ("pyspark.sql.worker.plan_data_source_read", "spark_replay.tables.source")

if "-m" in sys.orig_argv:
    started = sys.orig_argv[sys.orig_argv.index("-m") + 1 :]
    if started[0].startswith("pyspark."):
        sys.path[:] = [place for place in sys.path if not place.endswith((".zip", ".jar"))]
        sys.path_importer_cache.clear()
    if started[0] == "pyspark.daemon":
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no thread is to run where processes are forked
        for name in _IMPORTED if started[1:] == ["pyspark.worker"] else _IMPORTED + _PLANNING:
            importlib.import_module(name)
