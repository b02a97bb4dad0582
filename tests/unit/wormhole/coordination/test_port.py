"""The values of the port, and that every form offers all of it; the suite itself is
`tests/contract/test_coordinator.py`."""

from __future__ import annotations

import pytest

from wormhole.config import Config, CoordinatorConfig
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import CandidateInfo, Coordinator, LogGroup, SubscriberInfo
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


def test_a_log_includes_its_shards_and_no_other_logs() -> None:
    group = LogGroup("shop", "@failover", "db1")
    assert str(group) == "shop/@failover/db1"
    assert [group.includes(shard) for shard in ("db1", "db1.h0", "db1.t%2Fx", "db10", "db2", "db")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_a_candidate_is_called_by_copy_and_host() -> None:
    assert CandidateInfo("west", "db-7.example.org", 1, "", 1.0, 0).name == "west@db-7.example.org"
