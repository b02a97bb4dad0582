"""Fixtures of the system tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.system.harness.ensemble import Ensemble, Plan


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print past pytest's capture: seeds and figures are to be seen in a green run too."""

    def printed(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    return printed


@pytest.fixture
def running(tmp_path: Path) -> Callable[[Plan], AbstractContextManager[Ensemble]]:
    """``with running(plan) as ensemble``: started, and ended with the block."""

    @contextmanager
    def run(plan: Plan) -> Iterator[Ensemble]:
        ensemble = Ensemble(plan, tmp_path)
        try:
            ensemble.start()
            yield ensemble
        finally:
            ensemble.close()

    return run
