"""A ZooKeeper with a configuration, and sessions of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contract.test_coordinator import MORE, config
from wormhole.config import CoordinatorConfig
from wormhole.coordination.connect import publish_config
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.zookeeper import ZooKeeperCoordinator


@pytest.fixture
async def client(zookeeper: str) -> AsyncIterator[ZooKeeperCoordinator]:
    made = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0))
    await made.start()
    await publish_config(config(MORE), made)
    yield made
    await made.stop()


@pytest.fixture
def session_timeout() -> float:
    """Long: on a slow machine a short session ends under a test that is about something else."""
    return 6.0


@pytest.fixture
async def session(zookeeper: str, session_timeout: float) -> AsyncIterator[ZooKeeperSession]:
    made = ZooKeeperSession(CoordinatorConfig(zookeeper=zookeeper, session_timeout=session_timeout))
    await made.start()
    yield made
    await made.stop()
