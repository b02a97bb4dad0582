"""`make mutants`: ``python -m tests.mutants [name ...]``; 0 only when every fault turned its tests red.

``--check`` runs nothing: 0 when every fault fits the tree, also those that the simulation finds. `make check` does
that. ``--touched [COMMIT]`` runs some of the faults in what changed since the commit (:mod:`tests.mutants.touched`), as
CI does for a push; without a commit to compare with it runs none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from scripts.prepare import ROOT
from tests.mutants.faults import FAULTS
from tests.mutants.runner import FaultError, Result, check_faults, run_all, table
from tests.mutants.touched import NoBaseError, changed_files, draw, run_within
from tests.simulation.mutants import ALL_FAULTS
from tests.support import scratch


def main(arguments: Sequence[str]) -> int:
    """Run all faults, or those named in ``arguments``; or look whether all fit the tree."""
    if list(arguments) == ["--check"]:
        try:
            check_faults([*FAULTS, *ALL_FAULTS], ROOT)
        except FaultError as error:
            print(f"mutants: {error}", file=sys.stderr)
            return 1
        return 0
    if arguments[:1] == ["--touched"]:
        return _run_touched(*arguments[1:])
    known = {fault.name: fault for fault in FAULTS}
    if unknown := set(arguments) - set(known):
        print(f"no fault {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    faults = [known[name] for name in arguments] if arguments else list(FAULTS)
    return _report(partial(run_all, faults))


def _run_touched(base: str = "") -> int:
    try:
        commit, base, files = changed_files(ROOT, base)
    except NoBaseError as error:
        print(f"mutants: none is run, since there is no commit to compare with: {error}")
        return 0
    faults, touched = draw(FAULTS, files, commit)
    print(
        f"mutants: {len(files)} files differ from {base[:12]}. They touch {touched} faults or the tests of these; "
        f"{len(faults)} are run, drawn by {commit[:12]}",
        flush=True,
    )
    return _report(partial(run_within, faults)) if faults else 0


def _report(run: Callable[[Path], list[Result]]) -> int:
    try:
        results = run(scratch.make_copy(ROOT / "build" / "mutants"))
    except FaultError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    caught = sum(result.caught for result in results)
    print(f"\n{table(results)}\n\nmutants: {caught} of {len(results)} faults turned the suite red")
    return int(caught != len(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
