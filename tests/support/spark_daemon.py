"""Where Spark forks its Python processes from in tests: with what they import, and without archives on the path.

Spark puts a zip of PySpark's sources and a jar of thousands of classes on the path. Every process compiled the first
anew and read the second's table of contents for every task, and it imported Arrow, pandas and our packages. Here that
is done once for each session. A cluster has none of it (``tests/system/test_spark_cluster.py``).
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

_IMPORTED: Final = ("pyspark.worker", "pandas", "pyarrow.parquet", "spark_replay.tables.snapshot")

if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if not place.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # no thread is to run where processes are forked
    for name in _IMPORTED:
        importlib.import_module(name)

    from pyspark import daemon

    daemon.manager()
