"""One real ZooKeeper for the whole run, and a part of it for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.model.errors import ConfigError

_numbers = itertools.count(1)


def _started() -> EmbeddedZooKeeper:
    server = EmbeddedZooKeeper()
    try:
        server.start()
    except ConfigError as error:  # no Java, no PySpark; in CI a skip is a failure
        server.close()
        pytest.skip(str(error))
    return server


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[EmbeddedZooKeeper]:
    """The server that tests share; do not end it."""
    server = _started()
    yield server
    server.close()


@pytest.fixture
def zookeeper(zookeeper_server: EmbeddedZooKeeper) -> str:
    """``host:port/root`` with a root of this test's own (it does not exist yet)."""
    return f"{zookeeper_server.hosts}/test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def own_zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A server of this test's own, to be killed, stopped and started as it likes."""
    server = _started()
    yield server
    server.close()
