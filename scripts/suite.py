"""`make test`: a quick pass over the interpreted forms, then the whole suite as built; both always run.

The interpreted pass takes what runs a hot module, and of that what is fast: the hot modules are pure, so the processes
and servers of the other tests would repeat themselves, not test them again. It runs in a copy of the tree that has
nothing compiled, which is what ``WORMHOLE_BUILD_EXT=no`` builds, so it needs no second environment. It comes first
because it takes seconds, and because the last thing pytest prints is then the count of the whole suite.

Both passes use three processes on the two cores of CI: many tests wait for servers, sessions and timeouts. Which runs
what is decided in tests/support/one_jvm.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from scripts.prepare import ROOT, hot_sources
from tests.support import scratch

__all__ = ["main", "near_hot"]

WORKERS = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
NEAR = (
    "tests/unit/publisher/sources",
    "tests/property/test_mysql_decoders.py",
    "tests/property/test_mysql_rare.py",
    "tests/property/test_rocksdb_decoders.py",
    "tests/fuzz",
)
"""What runs hot modules, beside the unit tests of each of them."""


def main(arguments: Sequence[str]) -> int:
    """Run both passes; ``arguments`` go to the second. Returns 0 when both passed."""
    outcomes: list[tuple[str, int, float]] = []
    compiled = bool(hot_sources()) and os.environ.get("WORMHOLE_BUILD_EXT") != "no"
    if compiled and not arguments:
        near = near_hot([source.relative_to(ROOT) for source in hot_sources()])
        print(f"== pass 1 of 2: the hot modules interpreted ({', '.join(near)})", flush=True)
        started = time.monotonic()
        copy = scratch.make_copy(ROOT / "build" / "interpreted")
        status, _ = scratch.run_tests(copy, ["-q", "--no-header", *WORKERS, *near])
        outcomes.append(("interpreted", status, time.monotonic() - started))
        print("== pass 2 of 2: the whole suite as built", flush=True)
    started = time.monotonic()
    chosen = arguments or WORKERS  # a selection is mostly small, and easier to follow in one process
    status = subprocess.run([sys.executable, "-m", "pytest", *chosen], cwd=ROOT, check=False).returncode
    outcomes.append(("whole suite" if not arguments else "selection", status, time.monotonic() - started))
    for name, status, seconds in outcomes:
        print(f"make test: {name}: {'passed' if status == 0 else f'FAILED (pytest exit {status})'} in {seconds:.0f} s")
    return int(any(status for _, status, _ in outcomes))


def near_hot(sources: Sequence[Path]) -> list[str]:
    """The tests to run interpreted, as arguments of pytest; ``sources``: the hot modules, seen from the tree's top."""
    units = (PurePosixPath("tests/unit", *source.parent.parts, f"test_{source.name}") for source in sources)
    return [*NEAR, *sorted(str(unit) for unit in units if not any(unit.is_relative_to(place) for place in NEAR))]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
