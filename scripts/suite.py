"""`make test`: the suite as built. `make extended`: what it leaves out (tests/support/extended.py).

The suite tests both forms of each hot module, each with the compiled forms of the others. `make coverage` runs the
unit tests with nothing compiled.

It uses six processes on the two cores of CI: many tests wait for servers, sessions and timeouts. Which runs what is
decided in tests/support/one_jvm.py.

A few tests that failed beside others are run once more, alone. One that passes then is named as unsteady and does not
fail the run; it is a race to be found, in the test or in the product (docs/decisions.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.prepare import ROOT
from tests.support.extended import EXTENDED

__all__ = ["MOST_UNSTEADY", "TESTS_FAILED", "WORKERS", "failed_tests", "main", "run_again", "write_byte_code"]

_DISTRIBUTED = ("--dist", "loadfile", "--no-loadscope-reorder")
WORKERS = ("-n", "6", *_DISTRIBUTED)

_FEW_MODULES = 50
MOST_UNSTEADY = 3  # more failures than this are no coincidence
TESTS_FAILED = 1  # pytest's exit status
_LAST_FAILED = Path(".pytest_cache", "v", "cache", "lastfailed")


def failed_tests(root: Path) -> list[str]:
    """The tests that failed in the last run of pytest below ``root``, by node id; none where it left no record."""
    record = root / _LAST_FAILED
    return sorted(json.loads(record.read_text())) if record.exists() else []


def run_again(root: Path, run: Callable[[Sequence[str]], int]) -> int:
    """Run the few tests that failed below ``root`` once more, alone. Returns the exit status of ``run``; 1 when there
    were too many.
    """
    failed = failed_tests(root)
    if not 0 < len(failed) <= MOST_UNSTEADY:
        return TESTS_FAILED
    print(f"== again, alone: {', '.join(failed)}", flush=True)
    status = run(failed)
    if status == 0:
        print(f"UNSTEADY, failed beside others and passed alone: {', '.join(failed)}")
    return status


def _run_alone(failed: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=ROOT, check=False).returncode


def write_byte_code(root: Path, halves: Sequence[Sequence[str]], environment: Mapping[str, str]) -> None:
    """Have the test modules of ``halves`` below ``root`` compiled, as they are not in a fresh clone or copy.

    Otherwise each of the processes compiles all of them, asserts included, which takes 20 s of a core each.
    """
    collect = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    started = [
        subprocess.Popen([*collect, *half], cwd=root, env=environment, stdout=subprocess.DEVNULL) for half in halves
    ]
    for process in started:
        process.wait()  # what cannot be collected fails the run that follows


def _write_missing_byte_code() -> None:
    modules = [file for file in (ROOT / "tests").rglob("test_*.py") if not _has_byte_code(file)]
    if len(modules) < _FEW_MODULES:
        return
    parts = [child for child in (ROOT / "tests").iterdir() if child.is_dir() and any(child.glob("**/test_*.py"))]
    halves = [["tests/unit"], [f"tests/{child.name}" for child in parts if child.name != "unit"]]
    write_byte_code(ROOT, halves, os.environ)


def _has_byte_code(file: Path) -> bool:
    return any(
        kept.stat().st_mtime >= file.stat().st_mtime
        for kept in file.parent.glob(f"__pycache__/{file.stem}.*-pytest-*.pyc")
    )


def main(arguments: Sequence[str]) -> int:
    """Run the suite; ``arguments`` choose other tests, and ``--extended`` runs what it leaves out. Returns 0 when all
    passed.
    """
    if not arguments:
        name, chosen = "suite", [*WORKERS]
    elif arguments == ["--extended"]:
        name, chosen = "extended", [*WORKERS, *EXTENDED]
    else:  # mostly small, and easier to follow in one process
        name, chosen = "selection", [*arguments]
    started = time.monotonic()
    if name == "suite":
        _write_missing_byte_code()
    (ROOT / _LAST_FAILED).unlink(missing_ok=True)
    status = subprocess.run([sys.executable, "-m", "pytest", *chosen], cwd=ROOT, check=False).returncode
    if status == TESTS_FAILED and name != "selection":
        status = run_again(ROOT, _run_alone)
    outcome = "passed" if status == 0 else f"FAILED (pytest exit {status})"
    seconds = time.monotonic() - started
    print(f"make {'extended' if name == 'extended' else f'test: {name}'}: {outcome} in {seconds:.0f} s")
    return int(status != 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
