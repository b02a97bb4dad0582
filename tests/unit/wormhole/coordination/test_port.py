"""The values of the port, and that every form offers all of it; the suite itself is
`tests/contract/test_coordinator.py`."""

from __future__ import annotations

import pytest

from wormhole.config import Config, CoordinatorConfig
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import Coordinator, SubscriberInfo
from wormhole.coordination.static import StaticCoordinator
from wormhole.coordination.zookeeper import ZooKeeperCoordinator


async def test_every_form_is_a_coordinator() -> None:
    forms: list[Coordinator] = [
        MemoryCoordinator(),
        StaticCoordinator(Config(version=1)),
        ZooKeeperCoordinator(CoordinatorConfig(zookeeper="127.0.0.1:1")),
    ]
    for form in forms:
        assert not form.contact.value.startswith("conn") or isinstance(form, StaticCoordinator)


def test_infos_are_values() -> None:
    assert SubscriberInfo("cache", "a", "h:1") == SubscriberInfo("cache", "a", "h:1", 1.0, 0.0)
    with pytest.raises(AttributeError):
        SubscriberInfo("cache", "a", "h:1").id = "b"  # type: ignore[misc]
