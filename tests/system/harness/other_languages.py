"""Two subscribers of a library in another language at a real publisher, killed with ``kill -9``."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tests.support.ports import free_port
from tests.support.seed import SEED
from tests.system.harness.ensemble import Application, Ensemble, Plan
from tests.system.harness.programs import SubscriberProcess

__all__ = ["nothing_is_lost"]

_ROUNDS: Final = int(os.environ.get("WORMHOLE_ROUNDS", "2"))
_VICTIMS: Final = ("subscriber", "publisher+subscriber")


class _Subscriber(SubscriberProcess):
    """``program``: its words, which it runs in place of :mod:`tests.system.harness.subscriber`."""

    def __init__(self, program: Sequence[str], name: str, folder: Path, settings: dict[str, Any]) -> None:
        super().__init__(name, "pair", folder, settings, whole=True)
        dies = "from tests.system.harness.child import die_with_parent as d; d()"
        words = f"[*{[*program]!r}, sys.argv[1]]"
        self.arguments[:2] = ["-c", f"import os, sys; {dies}; os.execvp({program[0]!r}, {words})"]


def nothing_is_lost(
    program: Sequence[str],
    running: Callable[[Plan], AbstractContextManager[Ensemble]],
    say: Callable[[str], None],
    *,
    ready: str = "",
    **settings: object,
) -> None:
    """Two of one application, without a filter and with four shards. The checker also proves the order, whole
    transactions, and datamarkers that tell the truth. ``ready``: what one writes that hears a signal.
    """
    address = f"127.0.0.1:{free_port()}"
    plan = Plan(
        {"pair": Application({"one": None, "two": None}, dials=True)},
        zookeeper=False,
        shard_by="{ hash = 4 }",
        publisher=f'attach_listen = "{address}"',
    )
    plan.seed = f"{SEED}/{Path(program[-1]).name}"
    with running(plan) as ensemble:
        for name in ("one", "two"):
            given = {"options": {"id": name, "dial": [address]}, **settings}
            ensemble.members[name] = _Subscriber(program, name, ensemble.folder, given)
            ensemble.members[name].start()
        ensemble.tell("go")
        ensemble.await_all()
        for number in range(_ROUNDS):
            ensemble.kill_and_start(_VICTIMS[number % len(_VICTIMS)], random.Random(f"{plan.seed}/{number}"))
            ensemble.await_all()
            figures = ensemble.figures()["pair"]
            say(f"  round {number} seed {plan.seed}/{number}: updates {figures.updates}, repeated {figures.duplicates}")
        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.check_state()
        for member in ensemble.members.values():
            member.await_output(ready)
            assert member.stop() == 0, member.tail()
        assert ensemble.publisher.stop() == 0, ensemble.publisher.tail()
        ensemble.gather()
        ensemble.check()
        assert all(checker.reached() for checker in ensemble.checkers.values())
