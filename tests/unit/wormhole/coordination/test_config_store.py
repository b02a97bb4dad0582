"""The configuration and its history in ZooKeeper: together or not at all, bounded, repaired by the next change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.test_coordinator import MORE, PLAIN, config, soon
from tests.support.eventually import eventually
from tests.support.zookeeper_nodes import delete_together
from wormhole.coordination.connect import publish_config
from wormhole.coordination.differences import differences
from wormhole.coordination.port import HistoryEntry
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError, CoordinationLost


async def lose_everything(client: ZooKeeperCoordinator) -> None:
    nodes = ("config", "applications/cache", "applications/search")
    await delete_together(client, *(f"{client._paths.root}/{node}" for node in nodes))


async def test_a_whole_change_that_zookeeper_would_refuse_is_refused_first(client: ZooKeeperCoordinator) -> None:
    text = PLAIN + "".join(
        f"[applications.a{number}]\ndataset = 'shop'\nstart = 'latest'\ntables = ['{'x' * 60_000}']\n"
        for number in range(20)
    )
    before = await client.configuration()
    with pytest.raises(
        ConfigError, match=r"at most 1,000,000 at once; the largest part is .*/applications/a"
    ) as caught:
        await publish_config(config(text), client)
    assert "in parts" in str(caught.value.hint)
    assert await client.configuration() == before


async def test_the_history_keeps_so_many(client: ZooKeeperCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wormhole.coordination.config_store.HISTORY_KEPT", 5)
    for number in range(8):
        await client.record(HistoryEntry(float(number), "eve", "drain", "host1"))
    await publish_config(config(PLAIN.replace('"latest"', '"earliest"')), client)
    assert [entry.at for entry in await client.history()][1:] == [7.0, 6.0, 5.0, 4.0]


async def test_a_node_that_was_broken_by_hand_is_replaced(client: ZooKeeperCoordinator) -> None:
    await client._nodes.put(f"{client._paths.root}/applications/cache", b"not json")
    assert set((await client.configuration()).applications) == {"search"}
    await publish_config(config(MORE), client)
    assert set((await client.configuration()).applications) == {"cache", "search"}
    assert client.problems == {}


async def test_a_change_that_went_out_without_an_answer_says_so(
    client: ZooKeeperCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = differences(await client.configuration(), config(PLAIN.replace('"latest"', '"earliest"')))
    call = client._session.call

    async def cut(what: str, ask: Callable[[Any], Any]) -> Any:
        if what == "store the configuration":
            raise CoordinationLost("cut")
        return await call(what, ask)

    monkeypatch.setattr(client._session, "call", cut)
    with pytest.raises(CoordinationLost) as caught:
        await client.publish(found.change, HistoryEntry(1.0, "eve", "config apply", "x"))
    assert "not known" in str(caught.value.hint)


async def test_a_configuration_that_is_stored_while_one_looks_for_it_is_not_taken_for_none(
    client: ZooKeeperCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    applications = client.watch_applications()
    known = await soon(applications)
    nodes = client._config._nodes
    version = nodes.version

    async def stored_meanwhile(path: str) -> int:
        monkeypatch.undo()
        await publish_config(config(PLAIN.replace('"latest"', '"earliest"')), client)
        return await version(path)

    monkeypatch.setattr(nodes, "version", stored_meanwhile)
    following = asyncio.create_task(soon(applications, lambda state: state != known))
    await lose_everything(client)
    assert {one.start for one in (await following).values()} == {"earliest"}


async def test_a_zookeeper_without_any_configuration_is_not_obeyed(
    client: ZooKeeperCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    applications = client.watch_applications()
    known = await soon(applications)
    assert set(known) == {"cache", "search"}
    following = asyncio.create_task(soon(applications, lambda state: state != known))
    await lose_everything(client)
    await eventually(lambda: "holds no configuration at all" in caplog.text, "said so")
    assert "wormholectl config apply FILE" in caplog.text
    await publish_config(config(PLAIN.replace('"latest"', '"earliest"')), client)
    assert {one.start for one in (await following).values()} == {"earliest"}
