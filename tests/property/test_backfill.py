"""Existing rows against a model of the whole: whatever happens on the way, each application's copy becomes the source.

:mod:`tests.support.backfill_world` has the model and its script.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caravan.scan import scanner as scanner_module
from tests.support.backfill_world import BackfillWorld
from tests.support.seed import examples


def _round(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = BackfillWorld(seed)
    monkeypatch.setattr(scanner_module, "wait_at_most", world.pause)
    monkeypatch.setattr(world.fleet, "may_leave", lambda caravan: True)
    try:
        asyncio.run(world.run())
        world.check()
    finally:
        for reader in world.readers.values():
            reader.close()


@examples(60)
@example(seed=6)  # the first ones that find faults of tests/mutants which few others find
@example(seed=19)
@given(seed=st.integers(0, 1 << 32))
def test_every_copy_becomes_the_source(seed: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        _round(seed, monkeypatch)
