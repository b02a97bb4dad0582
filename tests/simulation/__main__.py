"""``python -m tests.simulation SEED`` prints what happens under a seed; ``FIRST-LAST`` or ``FIRST-LAST,SEED`` runs many
and names those that fail. ``--fault NAME`` puts a fault of :mod:`tests.simulation.mutants` into the product first.

It runs with a fixed seed of hashes, so that a seed means the same everywhere.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence


def _seeds(named: str) -> Iterator[int]:
    for part in named.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main(arguments: Sequence[str]) -> int:
    """The status is 1 when a schedule failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", help="SEED, FIRST-LAST, or several of them with commas between")
    parser.add_argument("--fault", default="", help="a fault of tests/simulation/mutants.py")
    parser.add_argument("--stop", action="store_true", help="end at the first schedule that fails")
    parser.add_argument("--moves", action="store_true", help="flows are moved, of an application that keeps its place")
    parser.add_argument("--attach", action="store_true", help="subscribers dial, or begin or cease to")
    parser.add_argument("--trace", action="store_true", help="print the trace of each")
    given = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *arguments],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if given.fault:
        from tests.simulation.mutants import put_in

        put_in(given.fault)
    from tests.simulation.patches import install
    from tests.simulation.schedule import run

    traced = given.trace or given.seeds.isdecimal()
    install(traced=traced)
    gc.collect()
    gc.freeze()
    gc.disable()
    began, failed, seconds, terms, epochs, overlaps, count = time.process_time(), 0, 0.0, 0, 0, 0, 0
    for seed in _seeds(given.seeds):
        try:
            outcome = run(seed, traced=traced, moves=given.moves, attach=given.attach)
        except Exception:
            print(f"FAILED seed {seed}: the simulation itself failed", flush=True)
            raise
        for line in outcome.lines:
            print(line)
        count += 1
        seconds, terms = seconds + outcome.seconds, terms + outcome.terms
        epochs, overlaps = epochs + outcome.epochs, overlaps + outcome.overlaps
        if outcome.violation:
            failed += 1
            print(f"FAILED seed {seed}: {outcome.violation}", flush=True)
            if given.stop:
                break
        if count % 400 == 0:
            gc.collect()
    used = time.process_time() - began
    print(
        f"{count} schedules, {failed} failed; {1000 * used / count:.1f} ms of processor time and "
        f"{seconds / count:.1f} s of virtual time each; {terms / count:.1f} terms, {epochs / count:.1f} epochs, "
        f"{overlaps / count:.2f} overlaps"
    )
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
