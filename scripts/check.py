"""`make check`: everything that can be said about the code without running it. Every step runs; all must pass."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from scripts.prepare import PACKAGES, ROOT

__all__ = ["STEPS", "main"]

_FOLDERS = [name for name in (*PACKAGES, "scripts", "tests", "benchmarks", "examples") if (ROOT / name).exists()]

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


def main(arguments: Sequence[str]) -> int:
    """Run all steps, or those whose names are given; returns 0 when every one passed."""
    if unknown := set(arguments) - set(STEPS):
        print(f"make check knows no step {', '.join(sorted(unknown))}; it knows: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    failed = []
    for name in arguments or STEPS:
        started = time.monotonic()
        result = subprocess.run(
            [sys.executable, *STEPS[name]],
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        verdict = "ok" if result.returncode == 0 else "FAILED"
        print(f"check: {name:<18} {verdict:<6} {time.monotonic() - started:5.1f} s", flush=True)
        if result.returncode:
            failed.append(name)
            print(result.stdout.rstrip(), flush=True)
    print(f"make check: {'failed: ' + ', '.join(failed) if failed else 'all steps passed'}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
