"""A program for ``spark-submit`` that runs ``wormholectl replay`` on a cluster::

    spark-submit spark_replay/submit.py --app A ...

Options before this file, such as ``--master``, are Spark's, as for every job. Options after it are those of
``wormholectl replay``.
"""

from __future__ import annotations

import runpy
import sys

__all__ = ["main"]


def main() -> None:
    """Run ``wormholectl replay`` with the arguments of this process; ends it with its exit code."""
    sys.argv[1:1] = ["replay"]
    # Imported by name, because in spark_replay only ``commands`` may import the command line.
    runpy.run_module("wormholectl", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
