"""A publisher over memory parts for tests with hostile peers: its clock is the real one."""

from __future__ import annotations

import pytest

from publisher.flows import marker_writer
from tests.integration.publisher.conftest import World
from wormhole.push import session


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    # Datamarkers are due, and acknowledged ones stored, every second: nearly every test waits for one.
    monkeypatch.setattr(session, "MARKER_EVERY_S", 0.1)
    monkeypatch.setattr(marker_writer, "_EVERY_S", 0.05)
    return World()
