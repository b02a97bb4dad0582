"""Subscribers of ``clients/typescript`` at a real publisher, killed with ``kill -9``: nothing is lost, in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.system.harness.ensemble import Ensemble, Plan
from tests.system.harness.other_languages import nothing_is_lost


def test_nothing_is_lost_when_its_subscribers_are_killed(
    typescript: Path, running: Callable[[Plan], AbstractContextManager[Ensemble]], say: Callable[[str], None]
) -> None:
    program = ["node", str(typescript / "build" / "test" / "programs" / "recorder.js")]
    nothing_is_lost(program, running, say, ready="is connected")
