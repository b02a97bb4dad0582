"""``spark-submit spark_replay/submit.py --app A ...``: ``wormholectl replay`` with the same options, on the cluster
that Spark gets.

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
    # By name: of the parts of spark_replay only its commands import the command line.
    runpy.run_module("wormholectl", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
