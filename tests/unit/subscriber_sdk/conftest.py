"""Fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from subscriber_sdk import Subscriber
from subscriber_sdk.testing import ScriptedPublisher
from tests.support.flows import NewWorld, World


@pytest.fixture
async def new_world() -> AsyncIterator[NewWorld]:
    """Makes a subscriber's process and the stream of a publisher; it is closed after the test."""
    worlds: list[World] = []

    def make(subscriber: Subscriber, **options: Any) -> tuple[World, ScriptedPublisher]:
        world = World(subscriber, **options)
        worlds.append(world)
        return world, world.dial()

    yield make
    for world in worlds:
        await world.shards.close()
