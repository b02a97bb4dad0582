"""The pytest plugin: fixtures of the contract suite. A source's test module defines ``new_harness``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every run of pytest loads this module where the package is installed
    from wormhole.model.sharding import Sharding
    from wormhole.ports.testing.contract import Harness, MakeHarness

__all__ = ["harness", "make_harness", "new_harness"]

# Lets a failed assertion of these modules show both sides.
pytest.register_assert_rewrite(
    *(f"wormhole.ports.testing.{module}" for module in ("contract", "images", "reading", "table_contract"))
)


@pytest.fixture
def new_harness() -> MakeHarness:
    """Makes the harness of a source from a sharding. The test module of the source defines this fixture."""
    pytest.fail("define a fixture new_harness that returns the class of your harness: docs/write-a-source.md shows one")


@pytest.fixture
def make_harness(new_harness: MakeHarness) -> Iterator[MakeHarness]:
    """Makes harnesses, and closes them after the test."""
    with ExitStack() as made:

        def make(sharding: Sharding) -> Harness:
            harness = new_harness(sharding)
            made.callback(harness.close)
            return harness

        yield make


@pytest.fixture
def harness(make_harness: MakeHarness) -> Harness:
    """A harness whose log is one shard."""
    from wormhole.model.sharding import Sharding

    return make_harness(Sharding("log"))
