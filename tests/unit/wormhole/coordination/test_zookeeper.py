"""What the ZooKeeper form adds to the contract: bad nodes, addresses nobody could dial, servers that are not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.test_coordinator import DB1, MONITOR, PLAIN, A, config, soon
from tests.support.present import present
from wormhole.config import CoordinatorConfig
from wormhole.coordination.connect import publish_config
from wormhole.coordination.ephemeral_node import EphemeralNode
from wormhole.coordination.port import HostRequest, SubscriberInfo
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError, CoordinationLost


async def put(client: ZooKeeperCoordinator, path: str, data: bytes) -> None:
    await client._nodes.put(f"{client._paths.root}{path}", data)


async def test_a_bad_application_is_left_out_and_the_others_go_on(client: ZooKeeperCoordinator) -> None:
    await put(client, "/applications/bad", b'{"dataset": 3}')
    applications = client.watch_applications()
    assert set(await soon(applications)) == {"cache", "search"}
    (path,) = client.problems
    assert path.endswith("/applications/bad")
    assert "start: is required" in str(client.problems[path])
    with pytest.raises(ConfigError, match="applications/bad"):
        await client.register_subscriber(SubscriberInfo("bad", "a", "127.0.0.1:1"))
    await put(client, "/applications/bad", b'{"dataset": "shop", "start": "latest"}')
    assert set(await soon(applications)) == {"bad", "cache", "search"}
    assert client.problems == {}


async def test_what_was_right_before_goes_on_when_its_node_turns_bad(client: ZooKeeperCoordinator) -> None:
    applications = client.watch_applications()
    good = await soon(applications)
    await put(client, "/applications/cache", b"not json")
    await put(client, "/applications/search", b'{"dataset": "shop", "start": "latest"}')
    found = await soon(applications, lambda state: state["search"].start == "latest")
    assert found["cache"] == good["cache"]
    assert len(client.problems) == 1


async def test_applications_of_a_later_release_do_not_hide_the_dataset(client: ZooKeeperCoordinator) -> None:
    data = present(await client._nodes.get(f"{client._paths.root}/datasets/shop"))
    assert b'"source": "shop/main/db1"' in data


async def test_an_address_on_loopback_is_not_reported_to_other_machines(client: ZooKeeperCoordinator) -> None:
    client._on_loopback = False
    with pytest.raises(ConfigError, match="no other machine can reach"):
        await client.register_subscriber(A)
    await client.register_publisher(DB1)
    await client.register_monitor(MONITOR)
    assert [info.address for info in await client.publishers()] == [""]
    assert [info.address for info in await client.monitors()] == [""]


async def test_with_credentials_nodes_are_closed_to_others(zookeeper: str, tmp_path: Path) -> None:
    (tmp_path / "auth").write_text("user:password")
    ours = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper, auth_file=tmp_path / "auth"))
    theirs = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper))
    await ours.start()
    await publish_config(config(PLAIN), ours)
    await ours.register_subscriber(A)
    with pytest.raises(ConfigError, match="NoAuthError") as caught:
        await theirs.start()
        await theirs.subscribers()
    assert "auth_file" in str(caught.value.hint)
    await theirs.stop()
    await ours.stop()


async def test_servers_that_are_not_there() -> None:
    made = ZooKeeperCoordinator(CoordinatorConfig(zookeeper="127.0.0.1:1/root", connect_timeout=0.3))
    with pytest.raises(CoordinationLost, match="does not answer"):
        await made.start()
    with pytest.raises(CoordinationLost):
        await made.publishers()
    await made.stop()
    assert "lost" in repr(made)


async def test_a_failed_start_can_be_repeated(zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper))

    async def refused(_path: str) -> None:
        raise CoordinationLost("gone again")

    with monkeypatch.context() as patch:
        patch.setattr(made._nodes, "ensure", refused)
        with pytest.raises(CoordinationLost, match="gone again"):
            await made.start()
        assert not made._session.running
    await made.start()
    await publish_config(config(PLAIN), made)
    assert set(await soon(made.watch_applications())) == {"cache"}
    await made.stop()


async def test_a_request_that_makes_no_sense_leaves_the_one_before(client: ZooKeeperCoordinator) -> None:
    watch = client.watch_host("host1")
    assert await soon(watch) == HostRequest()
    await client.set_host("host1", HostRequest(True, "eve", 1.0))
    assert (await soon(watch)).drained
    await put(client, "/hosts/host1", b"{}")
    await client.set_host("host1", HostRequest(True, "eve", 2.0))
    assert (await soon(watch)) == HostRequest(True, "eve", 2.0)


async def test_no_secret_is_stored(client: ZooKeeperCoordinator, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    (tmp_path / "auth").write_text("user:hunter2")
    text = f"""
    version = 1
    [coordinator]
    zookeeper = "zk1:2181"
    auth_file = "{tmp_path}/auth"
    [datasets.shop.copies.main.logs.db1]
    source = "mysql://wormhole@db1:3306"
    password_file = "{tmp_path}/password"
    [applications.cache]
    dataset = "shop"
    start = "latest"
    """
    await publish_config(config(text), client)
    with pytest.raises(ConfigError) as caught:
        config(text.replace("wormhole@", "wormhole:hunter2@"))
    assert "hunter2" not in str(caught.value)
    stored = [data async for data in every_node(client, client._paths.root)]
    assert any(b'"source": "shop/main/db1"' in data for data in stored)
    assert not any(part in data for data in stored for part in (b"hunter2", b"db1:3306", b"password"))


async def every_node(client: ZooKeeperCoordinator, path: str) -> AsyncIterator[bytes]:
    yield await client._nodes.get(path) or b""
    for name in await client._nodes.children(path):
        async for data in every_node(client, f"{path}/{name}"):
            yield data


async def test_the_entry_of_a_publisher_that_was_killed_is_replaced_by_who_holds_its_lock(
    client: ZooKeeperCoordinator, zookeeper: str
) -> None:
    killed = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper, session_timeout=40.0))
    await killed.start()
    try:
        left = await killed.register_publisher(replace(DB1, owner="boot/1:2"))
        assert isinstance(left, EphemeralNode)
        assert left._keeper is not None
        left._keeper.cancel()  # its process is dead, only its session is not
        next_one = replace(DB1, pid=99, owner="boot/1:2")
        entry = await client.register_publisher(next_one)  # the session that keeps the entry does not end
        assert entry.held
        assert await client.publishers() == (next_one,)
    finally:
        await killed.stop()
