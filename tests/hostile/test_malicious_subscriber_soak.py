"""What an application that does no harm feels of one that does: beside an unharmed run of the same length, and in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.hostile.mad_subscriber import ATTACKS
from tests.system.conftest import running, say
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.logs import Received
from tests.system.harness.processes import Process, peak_memory

__all__ = ["running", "say"]

MIB = 1 << 20
BUDGET = 256 * MIB
LENGTH_S = 20.0
WAIT_S = 60.0

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(600)]


def latencies(ensemble: Ensemble, seconds: float) -> list[float]:
    """Commits one change after the other for so long; seconds from before each commit until the application has it."""
    asked: list[tuple[int, float]] = []
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        ensemble.tell("fill 1 64")
        asked.append((int(ensemble.tell("sequence")), now))
        time.sleep(0.01)
    ensemble.await_all(WAIT_S, ["good"])
    arrived: dict[int, float] = {}
    for entry in ensemble.entries("good-1"):
        if isinstance(entry, Received):
            arrived.setdefault(entry.sequence, entry.at)
    return sorted(arrived[sequence] - at for sequence, at in asked if sequence in arrived)


def p99(of: list[float]) -> float:
    assert len(of) > 100
    return of[int(len(of) * 0.99)]


@pytest.mark.parametrize("attack", [*ATTACKS, "all"])
def test_an_unharmed_application_feels_little_and_memory_stays_within_the_budget(
    attack: str,
    running: Callable[[Plan], AbstractContextManager[Ensemble]],
    tmp_path: Path,
    say: Callable[[str], None],
) -> None:
    applications = {
        "good": Application({"good-1": {}}),
        "mad": Application({"mad-1": None}, settings='on_failure = "park"'),
    }
    with running(Plan(applications, zookeeper=False, shard_by="{ hash = 8 }")) as ensemble:
        ensemble.tell("fill 50 64")
        ensemble.await_all(WAIT_S, ["good"])
        latencies(ensemble, 2.0)  # until everything has been touched once
        unharmed = latencies(ensemble, LENGTH_S)
        names = list(ATTACKS) if attack == "all" else [attack]
        arguments = ["-m", "tests.hostile.mad_subscriber", f"127.0.0.1:{ensemble.ports['mad-1']}", *names]
        mad = Process("mad", arguments, tmp_path)
        mad.start()
        try:
            ensemble.await_true(
                lambda: "mad-1" in ensemble.publisher.output.read_text(), WAIT_S, "the attack does not begin"
            )
            harmed = latencies(ensemble, LENGTH_S)
        finally:
            mad.kill()
        peak = peak_memory(ensemble.publisher.pid)
        say(
            f"\n{attack}: p99 {p99(unharmed) * 1000:.1f} ms unharmed, {p99(harmed) * 1000:.1f} ms beside it "
            f"({p99(harmed) / p99(unharmed):.2f} times; longest {harmed[-1] * 1000:.0f} ms; {len(harmed)} changes); "
            f"publisher at most {peak / MIB:.0f} MiB"
        )
        assert peak <= BUDGET
        # What the attacker's own process takes from the machine's cores is no harm that the publisher could prevent.
        assert p99(harmed) <= max(2 * p99(unharmed), 0.1)
