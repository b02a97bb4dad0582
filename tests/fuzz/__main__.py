"""`make fuzz`: ``python -m tests.fuzz --seconds 60 --seed 1``; or one input again with ``--target`` and ``--hex``."""

from __future__ import annotations

import argparse
import faulthandler
import resource
import sys
import time
from collections.abc import Sequence

from tests.fuzz.runner import Failure, Tally, fuzz_target, outcome_of, table
from tests.fuzz.target import Target, discover

# A length field that a decoder trusts becomes a MemoryError instead of a dead machine.
MEMORY = 4 << 30
# A loop that never ends inside compiled code cannot be interrupted: print where it is, and end.
STUCK = 60.0


def _again(target: Target, data: bytes) -> int:
    status = 0
    for form, module in target.forms().items():
        outcome = outcome_of(target, module, data)
        print(f"{target.name} ({form}): {outcome.kind} {outcome.failure or repr(outcome.seen)}")
        status |= bool(outcome.failure)
    return status


def main(arguments: Sequence[str]) -> int:
    """Returns 1 when any input gave something other than a value or a documented error."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", help="only this one (may be given again)")
    parser.add_argument("--hex", help="decode these bytes with the one --target instead")
    options = parser.parse_args(arguments)
    targets = discover()
    if options.target:
        unknown = set(options.target) - {target.name for target in targets}
        if unknown:
            known = ", ".join(target.name for target in targets)
            parser.error(f"no target {', '.join(sorted(unknown))}; there are: {known}")
        targets = [target for target in targets if target.name in options.target]
    if not targets:
        parser.error("there are no targets in tests/fuzz/targets")
    if options.hex is not None:
        if len(targets) != 1:
            parser.error("--hex needs exactly one --target")
        return _again(targets[0], bytes.fromhex(options.hex))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    tallies: list[Tally] = []
    failures: list[Failure] = []
    end = time.monotonic() + options.seconds
    for index, target in enumerate(targets):
        now = time.monotonic()
        share = (end - now) / (len(targets) - index)
        faulthandler.dump_traceback_later(share + STUCK, exit=True)
        found = fuzz_target(target, options.seed, until=now + share)
        tallies += found[0]
        failures += found[1]
    faulthandler.cancel_dump_traceback_later()
    print(table(tallies))
    print(*failures, sep="\n", end="\n" if failures else "")
    total = sum(tally.inputs for tally in tallies)
    print(f"fuzz: {total:,} inputs, seed {options.seed}, {len(failures)} failures")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
