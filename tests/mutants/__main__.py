"""`make mutants`: ``python -m tests.mutants [name ...]``; 0 only when every fault turned its tests red.

``--check`` runs nothing: 0 when every fault fits the tree, also those that the simulation finds. `make check` does
that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scripts.prepare import ROOT
from tests.mutants.faults import FAULTS
from tests.mutants.runner import FaultError, check_faults, run_all, table
from tests.simulation.mutants import SIMULATED_FAULTS
from tests.support import scratch


def main(arguments: Sequence[str]) -> int:
    """Run all faults, or those named in ``arguments``; or look whether all fit the tree."""
    if list(arguments) == ["--check"]:
        try:
            check_faults([*FAULTS, *SIMULATED_FAULTS], ROOT)
        except FaultError as error:
            print(f"mutants: {error}", file=sys.stderr)
            return 1
        return 0
    known = {fault.name: fault for fault in FAULTS}
    if unknown := set(arguments) - set(known):
        print(f"no fault {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    faults = [known[name] for name in arguments] if arguments else list(FAULTS)
    try:
        results = run_all(faults, scratch.make_copy(ROOT / "build" / "mutants"))
    except FaultError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    caught = sum(result.caught for result in results)
    print(f"\n{table(results)}\n\nmutants: {caught} of {len(results)} faults turned the suite red")
    return int(caught != len(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
