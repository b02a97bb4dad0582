"""A relay, as a test of it says (:func:`scene_with`) or with the settings of a cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.relay_scene import RelayScene


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Iterator[RelayScene]:
    made = RelayScene(**getattr(request, "param", {}))
    yield made
    made.close()
