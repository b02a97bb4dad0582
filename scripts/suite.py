"""`make test`: the suite as built. `make extended`: what it leaves out (tests/support/extended.py). `make coverage`:
the suite, and which branches it takes.

The suite tests both forms of each hot module, together with the same form of the hot modules beside it. Branches are
counted in the interpreted form, since compiled code cannot be measured, and also in the processes that a test starts.

It uses six processes on the two cores of CI: many tests wait for servers, sessions and timeouts. Which runs what is
decided in tests/support/one_jvm.py.

A few tests that failed beside others are run once more, alone. One that passes then is named as unsteady and does not
fail the run; it is a race to be found, in the test or in the product (docs/decisions.md).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.prepare import ROOT
from tests.support.extended import EXTENDED

__all__ = ["MOST_UNSTEADY", "failed_tests", "main", "run_again"]

_DISTRIBUTED = ("--dist", "loadfile", "--no-loadscope-reorder")
_WORKERS = ("-n", "6", *_DISTRIBUTED)

_FEW_MODULES = 50
MOST_UNSTEADY = 3  # more failures than this are no coincidence
_TESTS_FAILED = 1  # pytest's exit status
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
        return _TESTS_FAILED
    print(f"== again, alone: {', '.join(failed)}", flush=True)
    status = run(failed)
    if status == 0:
        print(f"UNSTEADY, failed beside others and passed alone: {', '.join(failed)}")
    return status


def _run_alone(failed: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *failed], cwd=ROOT, check=False).returncode


def _write_missing_byte_code() -> None:
    """Have the test modules compiled, as they are not in a fresh clone.

    Otherwise each of the processes compiles all of them, asserts included, which takes 20 s of a core each.
    """
    modules = [file for file in (ROOT / "tests").rglob("test_*.py") if not _has_byte_code(file)]
    if len(modules) < _FEW_MODULES:
        return
    parts = [child for child in (ROOT / "tests").iterdir() if child.is_dir() and any(child.glob("**/test_*.py"))]
    halves = [["tests/unit"], [f"tests/{child.name}" for child in parts if child.name != "unit"]]
    collect = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    started = [subprocess.Popen([*collect, *half], cwd=ROOT, stdout=subprocess.DEVNULL) for half in halves]
    for process in started:
        process.wait()  # what cannot be collected fails the run that follows


def _has_byte_code(file: Path) -> bool:
    return any(
        kept.stat().st_mtime >= file.stat().st_mtime
        for kept in file.parent.glob(f"__pycache__/{file.stem}.*-pytest-*.pyc")
    )


def _report_coverage() -> int:
    """Print the files whose branches are not all taken. Returns 1 when the figure is below ``fail_under``."""
    for command in (["combine", "--quiet"], ["report", "--skip-covered"]):
        if subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, check=False).returncode:
            return 1
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the suite; ``arguments`` choose other tests, and ``--extended`` runs what it leaves out. Returns 0 when all
    passed. ``--coverage`` measures branch coverage too, which must not fall below ``fail_under`` in pyproject.toml.
    """
    measured = "--coverage" in arguments
    arguments = [argument for argument in arguments if argument != "--coverage"]
    if not arguments:
        name, chosen = "suite", [*_WORKERS]
    elif arguments == ["--extended"]:
        name, chosen = "extended", [*_WORKERS, *EXTENDED]
    else:  # mostly small, and easier to follow in one process
        name, chosen = "selection", [*arguments]
    started = time.monotonic()
    if name == "suite":
        _write_missing_byte_code()
    (ROOT / _LAST_FAILED).unlink(missing_ok=True)
    program = ("coverage", "run", "-m", "pytest") if measured else ("pytest",)
    status = subprocess.run([sys.executable, "-m", *program, *chosen], cwd=ROOT, check=False).returncode
    if status == _TESTS_FAILED and name != "selection":
        status = run_again(ROOT, _run_alone)
    if measured:
        status = _report_coverage() or status
    outcome = "passed" if status == 0 else f"FAILED (exit {status})"
    seconds = time.monotonic() - started
    print(f"make {'extended' if name == 'extended' else f'test: {name}'}: {outcome} in {seconds:.0f} s")
    return int(status != 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
