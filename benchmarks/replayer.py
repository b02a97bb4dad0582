"""Runs several ``wormholectl`` commands in one process, so that only the first command starts Spark, with its JVM and
Python workers.

Run as ``python -m benchmarks.replayer LOG``. Each line on standard input is a list of words in JSON; the answer is a
line with the exit code and the seconds. What commands print goes to ``LOG``.
"""

from __future__ import annotations

import json
import os
import sys
import time

__all__ = ["main"]


def main() -> None:
    """See the module."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(sys.argv[1], "ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    from pyspark.sql import SparkSession

    from wormholectl.app import app

    SparkSession.stop = lambda self: None  # type: ignore[method-assign]
    for line in sys.stdin:
        began = time.monotonic()
        try:
            app(json.loads(line), prog_name="wormholectl")
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        print(json.dumps([code, time.monotonic() - began]), file=answers)


if __name__ == "__main__":
    main()
