"""Ownership of logs under schedules of faults, of which `make soak` runs thousands: see the package.

``WORMHOLE_ROUNDS``: 500 schedules for each; without it 100. The message of a failure has the seed;
``python -m tests.simulation SEED`` shows what happened.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from scripts.prepare import ROOT
from tests.simulation.mutants import ALL_FAULTS, ATTACH_FAULTS, MOVE_FAULTS

SOAK = "WORMHOLE_ROUNDS" in os.environ
SCHEDULES = int(os.environ["WORMHOLE_ROUNDS"]) * 500 if SOAK else 100
FINDERS = (126, 170, 184, 264, 357, 611, 613, 761, 1175, 1466)
"""Schedules that show a fault of tests/simulation/mutants.py which none of the first ones does."""
QUICK = ("epoch-not-raised-in-the-store", "kept-datamarker-of-a-former-move")
"""Faults that the first schedules show: a simulation that finds nothing would be green too."""
UNANSWERED_MOVES = (1809, 2280, 2384)
"""Schedules with moves in which the marker store makes a move, and the publisher does not get its answer: it takes
effect."""
CHANGED_SIDES = (1523, 1861)
"""Schedules in which a process is dialled and another one of its id dials: the former one is waited for."""


def simulate(*arguments: str, counted: bool = False) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own: it replaces parts of the product.

    ``counted``: `make coverage` counts its branches. A schedule takes three times as long then, and hundreds more take
    hardly any other branch.
    """
    environment = {name: value for name, value in os.environ.items() if counted or not name.startswith("COVERAGE_")}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)


def none_fails(count: int, seeds: Sequence[int], *options: str) -> None:
    """The first so many schedules, and those of the seeds: to start a process takes as long as twenty schedules."""
    ran = simulate(*options, ",".join((f"1-{count}", *map(str, seeds))), counted=True)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-4000:]
    assert f"{count + len(seeds)} schedules, 0 failed" in ran.stdout


def test_schedules() -> None:
    none_fails(SCHEDULES, FINDERS)


def test_schedules_with_moves() -> None:
    """An application that keeps its datamarker: each effect is stored once, each move adopted once."""
    none_fails(SCHEDULES // 3, UNANSWERED_MOVES, "--moves")


@pytest.mark.parametrize("moves", [(), ("--moves",)] if SOAK else [()], ids=" ".join)
def test_schedules_with_subscribers_that_dial(moves: tuple[str, ...]) -> None:
    """They attach, lose the connection and come back, also as another process; operators change the direction."""
    none_fails(SCHEDULES // 4, CHANGED_SIDES, "--attach", *moves)


def test_a_seed_means_the_same_every_time() -> None:
    one, among_others = simulate("7"), simulate("6-7", "--trace")
    lines = one.stdout.splitlines()[:-1]
    assert len(lines) > 100
    assert among_others.stdout.splitlines()[:-1][-len(lines) :] == lines


def find(fault: str, schedules: int) -> str:
    """What the first of so many schedules reports that shows the fault; empty when none does."""
    moves = ["--moves"] if fault in {one.name for one in MOVE_FAULTS} else []
    attach = ["--attach"] if fault in {one.name for one in ATTACH_FAULTS} else []
    ran = simulate(*moves, *attach, "--fault", fault, "--stop", f"1-{schedules}")
    assert ran.returncode in (0, 1), ran.stderr
    return next((line for line in ran.stdout.splitlines() if line.startswith("FAILED seed")), "")


@pytest.mark.parametrize("fault", QUICK)
def test_a_fault_is_found(fault: str) -> None:
    assert find(fault, 200)


@pytest.mark.soak
def test_every_fault_is_found() -> None:
    names = [fault.name for fault in ALL_FAULTS]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(names, pool.map(lambda name: find(name, 20_000), names), strict=True))
    assert [name for name, line in found.items() if not line] == []
