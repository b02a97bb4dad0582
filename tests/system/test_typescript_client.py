"""Subscribers of ``clients/typescript`` at a real publisher, killed with ``kill -9``: nothing is lost, in order."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.seed import SEED
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.programs import SubscriberProcess

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "2"))
VICTIMS = ("subscriber", "publisher+subscriber")


class TypescriptSubscriberProcess(SubscriberProcess):
    """A subscriber of the TypeScript client, in place of :mod:`tests.system.harness.subscriber`."""

    def __init__(self, client: Path, name: str, application: str, folder: Path, settings: dict[str, Any]) -> None:
        super().__init__(name, application, folder, settings, whole=True)
        dies = "from tests.system.harness.child import die_with_parent as d; d()"
        program = client / "build" / "test" / "programs" / "recorder.js"
        words = ["node", str(program)]
        self.arguments[:2] = ["-c", f"import os, sys; {dies}; os.execvp('node', [*{words!r}, sys.argv[1]])"]


def test_nothing_is_lost_when_its_subscribers_are_killed(
    typescript: Path,
    running: Callable[[Plan], AbstractContextManager[Ensemble]],
    tmp_path: Path,
    say: Callable[[str], None],
) -> None:
    """Two of one application, with four shards. The checker also proves the order, whole transactions, and datamarkers
    that are true."""
    address = f"127.0.0.1:{free_port()}"
    plan = Plan(
        {"pair": Application({"ts-1": None, "ts-2": None}, dials=True)},
        zookeeper=False,
        shard_by="{ hash = 4 }",
        publisher=f'attach_listen = "{address}"',
    )
    plan.seed = f"{SEED}/typescript"
    with running(plan) as ensemble:
        for name in ("ts-1", "ts-2"):
            options = {"options": {"id": name, "dial": [address]}}
            ensemble.members[name] = TypescriptSubscriberProcess(typescript, name, "pair", tmp_path, options)
            ensemble.members[name].start()
        ensemble.tell("go")
        ensemble.await_all()
        for number in range(ROUNDS):
            ensemble.kill_and_start(VICTIMS[number % len(VICTIMS)], random.Random(f"{plan.seed}/{number}"))
            ensemble.await_all()
            figures = ensemble.figures()["pair"]
            say(f"  round {number} seed {plan.seed}/{number}: updates {figures.updates}, repeated {figures.duplicates}")
        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.check_state()
        for member in ensemble.members.values():
            # One that was started this moment would not hear the signal.
            member.await_output("is connected")
            assert member.stop() == 0, member.tail()
        assert ensemble.publisher.stop() == 0, ensemble.publisher.tail()
        ensemble.gather()
        ensemble.check()
        assert all(checker.reached() for checker in ensemble.checkers.values())
