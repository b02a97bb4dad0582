"""One real ZooKeeper for the whole run, and a part of it for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.model.errors import ConfigError

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

_numbers = itertools.count(1)
_SHARED: Final = pytest.StashKey[EmbeddedZooKeeper]()
_HOSTS: Final = "zookeeper"


def _started_or_skipped() -> EmbeddedZooKeeper:
    try:
        return EmbeddedZooKeeper().__enter__()
    except ConfigError as error:  # no Java, no PySpark; in CI a skip is a failure
        pytest.skip(str(error))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """All processes of ``pytest -n`` share a server: a new one takes most of its time to become warm."""
    stash = node.config.stash
    if _SHARED not in stash:
        try:
            stash[_SHARED] = EmbeddedZooKeeper().__enter__()
        except ConfigError:  # a test says why
            return
    node.workerinput[_HOSTS] = stash[_SHARED].hosts


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the server that the processes shared."""
    if (server := config.stash.get(_SHARED, None)) is not None:
        server.close()


@pytest.fixture(scope="session")
def zookeeper_hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """``host:port`` of the server that tests share."""
    if (shared := getattr(request.config, "workerinput", {}).get(_HOSTS)) is not None:
        yield shared
        return
    server = _started_or_skipped()
    yield server.hosts
    server.close()


@pytest.fixture
def zookeeper(zookeeper_hosts: str) -> str:
    """``host:port/root`` with a root of this test's own (it does not exist yet)."""
    return f"{zookeeper_hosts}/test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="module")
def frail_zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A server of a module's own, which a test may stop, and starts again. Each test uses a root of its own."""
    server = _started_or_skipped()
    yield server
    server.close()


@pytest.fixture
def own_zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A server of this test's own, to be killed, stopped and started as it likes."""
    server = _started_or_skipped()
    yield server
    server.close()
