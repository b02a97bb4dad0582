"""The latency of an application whose subscriber dials, beside a publisher that is attacked by others that dial; and
the publisher's memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

import pytest

from tests.hostile.mad_dialler import ATTACKS
from tests.hostile.test_malicious_subscriber_soak import BUDGET, LENGTH_S, MIB, ROUNDS, feels_little, latencies, p99
from tests.support.ports import free_port
from tests.system.conftest import running, say
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.processes import Process, others_time, peak_memory, processor_time

__all__ = ["running", "say"]

HANDSHAKES = 10_000

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_subscriber_that_dials_feels_little_and_memory_stays_within_the_budget(
    attack: str,
    running: Callable[[Plan], AbstractContextManager[Ensemble]],
    tmp_path: Path,
    say: Callable[[str], None],
) -> None:
    address = f"127.0.0.1:{free_port()}"
    dials = {"coordinator": "", "dial": [address]}
    plan = Plan(
        {
            "good": Application({"good-1": {"options": dials}}, dials=True),
            "mad": Application({}, dials=True),
        },
        zookeeper=False,
        shard_by="{ hash = 8 }",
        measured=True,
        publisher=f'attach_listen = "{address}"',
    )
    unharmed: list[float] = []
    harmed: list[float] = []
    attacks = 0
    with running(plan) as ensemble:
        publisher = ensemble.publisher.pid
        ensemble.tell("fill 50 64")
        ensemble.await_all(["good"])
        latencies(ensemble, 2.0)  # until everything has been touched once
        mad = Process("mad", ["-m", "tests.hostile.mad_dialler", address, "mad"], tmp_path, talks=True)
        mad.start()

        def attacked() -> int:
            mad.say("state")
            return int(json.loads(mad.hear())["attacked"])

        others, since = others_time(), time.monotonic()
        try:
            for _ in range(ROUNDS):
                mad.say("behave")
                unharmed.append(p99(latencies(ensemble, LENGTH_S)))
                mad.say(f"attack {attack}")
                ensemble.await_true(attacked, "the attack does not begin")
                began = processor_time(publisher)
                harmed.append(p99(latencies(ensemble, LENGTH_S)))
                if attack == "handshakes":
                    ensemble.await_true(lambda: attacked() >= HANDSHAKES, "too few connections")
                attacks += attacked()
                say(
                    f"\n{attack}: p99 {unharmed[-1] * 1000:.1f} ms unharmed, {harmed[-1] * 1000:.1f} ms beside "
                    f"{attacked()} attacks, {(processor_time(publisher) - began) / LENGTH_S:.3f} cores"
                )
            others = (others_time() - others) / (time.monotonic() - since)
        finally:
            mad.kill()
        peak = peak_memory(publisher)
        connected = [one.application for one in ensemble.status().subscribers if one.state == "connected"]
    before, beside = median(unharmed), median(harmed)
    say(
        f"{attack}: p99 {before * 1000:.1f} ms unharmed, {beside * 1000:.1f} ms beside {attacks} attacks "
        f"({beside / before:.2f} times), {others:.1f} cores of others; publisher at most {peak / MIB:.0f} MiB"
    )
    assert "good" in connected
    assert peak <= BUDGET
    feels_little(before, beside, others)
