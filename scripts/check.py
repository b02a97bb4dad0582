"""`make check`: checks everything about the code that needs no run of it. Every step runs; all must pass."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from scripts.prepare import PACKAGES, ROOT

__all__ = ["STEPS", "main"]

_OTHERS = ("scripts", "tests", "benchmarks", "examples", "conformance")
_FOLDERS = [name for name in (*PACKAGES, *_OTHERS) if (ROOT / name).exists()]

STEPS: dict[str, list[str]] = {
    "lint": ["-m", "ruff", "check", "--quiet", "."],
    "format": ["-m", "ruff", "format", "--check", "--quiet", "."],
    "types": ["-m", "mypy", "--strict", "--no-error-summary", *_FOLDERS],
    "programs": ["-m", "scripts.programs"],
    "import directions": ["-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"],
    "generated code": ["-m", "scripts.proto", "--check"],
    "runbook": ["-m", "scripts.runbook", "--check"],
    "tree": ["-m", "scripts.tree"],
    "mutants": ["-m", "tests.mutants", "--check"],
}


_MYPY = {"types", "programs"}
"""They share a cache and are half of the time, so they run one after the other, beside the other steps."""


def _failed(names: Sequence[str]) -> list[str]:
    """Run the steps ``names`` one after the other; returns those that did not pass."""
    failed = []
    for name in names:
        started = time.monotonic()
        result = subprocess.run(
            [sys.executable, *STEPS[name]],
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        ok = result.returncode == 0
        printed = "" if ok else f"\n{result.stdout.rstrip()}"
        print(
            f"check: {name:<18} {'ok' if ok else 'FAILED':<6} {time.monotonic() - started:5.1f} s{printed}", flush=True
        )
        if not ok:
            failed.append(name)
    return failed


def main(arguments: Sequence[str]) -> int:
    """Run all steps, or those whose names are given; returns 0 when every one passed."""
    if unknown := set(arguments) - set(STEPS):
        print(f"make check knows no step {', '.join(sorted(unknown))}; it knows: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    chosen = list(arguments or STEPS)
    lanes = [[name for name in chosen if (name in _MYPY) is mypy] for mypy in (True, False)]
    with ThreadPoolExecutor() as beside:
        failed = [name for lane in beside.map(_failed, lanes) for name in lane]
    print(f"make check: {'failed: ' + ', '.join(failed) if failed else 'all steps passed'}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
