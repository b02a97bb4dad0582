"""``python -m conformance --client "COMMAND"``: run the cases, and print what is wrong (docs/conformance.md)."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from conformance.catalogue import cases
from conformance.performance import perform
from conformance.process import ClientProcess

__all__ = ["Outcome", "main", "run"]

_PATIENCE_S: Final = 5.0
_START_S: Final = 30.0


@dataclass(slots=True)
class Outcome:
    """The result of a run. ``found``: by case what is wrong, empty for a case that passed. ``known``: the cases that
    are listed as known failures."""

    found: dict[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    left_out: int = 0

    @property
    def failed(self) -> dict[str, str]:
        """The cases that failed and are not listed as known failures."""
        return {name: wrong for name, wrong in self.found.items() if wrong and name not in self.known}

    @property
    def passed_after_all(self) -> list[str]:
        """The cases that passed although they are listed as known failures."""
        return [name for name, wrong in self.found.items() if not wrong and name in self.known]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


async def run(
    command: str,
    declared: Mapping[str, Any],
    patterns: Sequence[str] = (),
    *,
    patience: float = _PATIENCE_S,
    start: float = _START_S,
) -> Outcome:
    """Run the cases that a client declares. ``patience``: seconds to wait for an expected frame or line; ``start``:
    seconds to wait for the client's process."""
    every = await asyncio.to_thread(cases)
    features = declared.get("features") or {case["feature"] for case in every}
    known = declared.get("known_failures", ())
    outcome = Outcome(known=frozenset(case["name"] for case in every if _matches(case["name"], known)))
    client = ClientProcess(command)
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp))
    try:
        for number, case in enumerate(every):
            if case["feature"] in features and _matches(case["name"], patterns or "*"):
                place = folder / str(number)
                outcome.found[case["name"]] = await perform(case, client, place, patience=patience, start=start)
        code = await client.close()
    finally:
        await client.close(kill=True)
        await asyncio.to_thread(shutil.rmtree, folder)
    outcome.left_out = len(every) - len(outcome.found)
    if code != 0:
        outcome.found["end-of-input"] = f"the client's exit code is {code} at the end of its input, not 0"
    return outcome


def main(arguments: Sequence[str]) -> int:
    """Run the program. Returns the exit code: 1 if a case failed unexpectedly, or passed despite a known failure."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--client", required=True, help="the command of the client process")
    parser.add_argument("--declares", type=Path, help="the file with its features and known failures (default: all)")
    parser.add_argument("--patience", type=float, default=_PATIENCE_S, help="seconds to wait for what is expected")
    parser.add_argument("cases", nargs="*", help="names of cases, as patterns (default: all)")
    options = parser.parse_args(arguments)
    declared = {} if options.declares is None else tomllib.loads(options.declares.read_text(encoding="utf-8"))
    outcome = asyncio.run(run(options.client, declared, options.cases, patience=options.patience))
    for name, wrong in outcome.failed.items():
        print(f"FAILED {name}: {wrong}")
    for name in outcome.passed_after_all:
        print(f"PASSED {name}, which is listed as a known failure: remove it from the list")
    known = sum(1 for name, wrong in outcome.found.items() if wrong and name in outcome.known)
    print(
        f"{len(outcome.found)} cases, {len(outcome.failed)} failed, {known} known failures, {outcome.left_out} left out"
    )
    return int(bool(outcome.failed or outcome.passed_after_all))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
