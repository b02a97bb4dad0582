"""A small fleet in ZooKeeper, as processes of the release before wrote it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wormhole.config import CoordinatorConfig, load
from wormhole.coordination.access import Access, digest_id
from wormhole.coordination.differences import differences
from wormhole.coordination.port import (
    Coordinator,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    MonitorInfo,
    PublisherInfo,
    SubscriberInfo,
)
from wormhole.coordination.zookeeper import ZooKeeperCoordinator

STARTED = 1_700_000_000.0


@pytest.fixture
async def coordinator(planted: str) -> AsyncIterator[Coordinator]:
    client = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=planted, session_timeout=20.0))
    await client.start()
    yield client
    await client.stop()


async def test_the_configuration_is_the_one_that_was_applied(coordinator: Coordinator, before: Path) -> None:
    stored = await coordinator.configuration()
    assert stored.version == 1
    assert sorted(stored.datasets) == ["bank", "shop"]
    assert sorted(stored.applications) == ["cache", "keep"]
    applied = await asyncio.to_thread(load, before / "fleet.toml")
    assert differences(stored, applied, prune=True).empty


async def test_who_is_there_is_seen(coordinator: Coordinator) -> None:
    assert await coordinator.subscribers() == (
        SubscriberInfo("cache", "a", "127.0.0.1:7001", 1.0, STARTED, 1000),
        SubscriberInfo("cache", "b", "127.0.0.1:7002", 2.5, STARTED + 1),
    )
    assert await coordinator.publishers() == (
        PublisherInfo("bank", "main", "db2", "host2", 43, "", STARTED),
        PublisherInfo("shop", "main", "db1", "host1", 42, "127.0.0.1:7000", STARTED, "dev:8:1:ino:77"),
    )
    phases = {"bank/main/db2": "given up", "shop/main/db1": "running"}
    assert await coordinator.monitors() == (MonitorInfo("host1", 41, "http://127.0.0.1:7480/", STARTED, phases),)


async def test_flows_and_their_epochs_are_known(coordinator: Coordinator) -> None:
    owner = "shop/main/db1@host1:42"
    assert await coordinator.flows() == {
        ("cache", "db1.h0"): FlowRecord(owner, "a", 3, "live"),
        ("keep", "db1.h1"): FlowRecord(owner, "", 0, "waiting"),
    }
    assert await coordinator.recorded_epochs("cache", ["db1.h0", "db1.h1"]) == {"db1.h0": 3}


async def test_a_drained_host_stays_drained(coordinator: Coordinator) -> None:
    assert await anext(aiter(coordinator.watch_host("host2"))) == HostRequest(True, "eve@host1", STARTED + 2.5)


async def test_the_history_is_reported_newest_first(coordinator: Coordinator) -> None:
    newest, oldest = await coordinator.history()
    assert newest == HistoryEntry(STARTED + 3.5, "eve@host1", "flows pause", "cache/db1.h0", "", "paused: ü")
    assert (oldest.who, oldest.before) == ("eve@host1", "")
    assert 'datasets.shop.copies.main.logs.db1.host = "host1"' in oldest.after.splitlines()


def test_identities_of_a_zookeeper_that_is_being_secured_are_known(before: Path) -> None:
    node = json.loads((before / "zookeeper.json").read_text())["/access"]
    subscribers = {"cache": digest_id("subscriber-cache:secret")}
    identities = Access(digest_id("operator:secret"), digest_id("publisher:secret"), subscribers, closed=False)
    assert Access.from_json(base64.b64decode(node["data"]), "/access") == identities
