"""`make coverage`: branch coverage of all packages, which must not fall below ``fail_under`` in pyproject.toml.

The tests run in a copy of the tree that has nothing compiled, since compiled modules cannot be measured. Processes that
a test starts are measured too. Only the tests that need few other processes run; the whole suite takes minutes more and
changes the figure little.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from scripts.prepare import PACKAGES, ROOT
from scripts.suite import TESTS_FAILED, WORKERS, run_again, write_byte_code
from tests.support import scratch

__all__ = ["TESTS", "main"]

# Those of scripts and of what only the tests use run no line of a package.
_UNIT = tuple(f"tests/unit/{name}" for name in (*PACKAGES, "examples"))
TESTS = (
    *_UNIT,
    "tests/contract",
    "tests/property",
    "tests/integration/publisher",
    "tests/integration/test_nats_sink.py",
    "tests/integration/test_redis_sink.py",
    "tests/integration/test_sink_duckdb.py",
    "tests/integration/test_sink_tables.py",
)
# Thirty servers are started and killed, for at most twenty lines and branches that nothing else runs.
_LEFT_OUT = ("--ignore", "tests/contract/test_private_server.py")


def main(arguments: Sequence[str]) -> int:
    """Measure ``TESTS``, or the tests in ``arguments``; returns 0 when they pass and the figure is high enough."""
    copy = scratch.make_copy(ROOT / "build" / "coverage")
    chosen = arguments or (*TESTS, *_LEFT_OUT)
    if not arguments:
        write_byte_code(copy, (_UNIT, TESTS[len(_UNIT) :]), scratch.environment(copy))
    program = ("coverage", "run", "-m", "pytest")
    status, _ = scratch.run_tests(copy, ["-q", "--no-header", *WORKERS, *chosen], program=program)
    if status == TESTS_FAILED:
        status = run_again(copy, lambda failed: scratch.run_tests(copy, ["-q", "--no-header", *failed])[0])
    for command in (["combine", "--quiet"], ["report", "--skip-covered"]):
        done = subprocess.run([sys.executable, "-m", "coverage", *command], cwd=copy, check=False)
        status = status or done.returncode
    print(f"make coverage: {'passed' if status == 0 else f'FAILED (exit {status})'}")
    return int(status != 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
