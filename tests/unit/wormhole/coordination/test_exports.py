"""`connect` and `publish_config`: which coordinator a target names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.test_coordinator import PLAIN, STATIC, config
from wormhole.coordination.connect import connect, publish_config
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.static import StaticCoordinator
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError


def test_targets(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(STATIC)
    assert isinstance(connect(path), StaticCoordinator)
    assert isinstance(connect(str(path)), StaticCoordinator)
    assert isinstance(connect(config(STATIC)), StaticCoordinator)
    named = connect("zk1:2181,zk2:2181/root", session_timeout=3.0)
    assert isinstance(named, ZooKeeperCoordinator)
    assert named.lease_s() == 2.0
    from_file = connect(config('version = 1\n[coordinator]\nzookeeper = "zk1:2181"\nsession_timeout = "9s"'))
    assert isinstance(from_file, ZooKeeperCoordinator)
    assert from_file.lease_s() == 6.0


@pytest.mark.parametrize("target", ["", "nonsense", "/etc/wormhole", "zk1", "zk1:x/root"])
def test_what_names_nothing(target: str) -> None:
    with pytest.raises(ConfigError, match="neither a configuration file nor a ZooKeeper"):
        connect(target)


def test_a_file_that_names_no_coordinator_is_reported_both_ways() -> None:
    with pytest.raises(ConfigError) as caught:
        connect(config(PLAIN))
    for way in ("zookeeper = ", "subscribers"):
        assert way in str(caught.value)


async def test_publishing_to_memory_and_to_nowhere() -> None:
    memory = MemoryCoordinator()
    await memory.start()
    await publish_config(config(PLAIN), memory)
    assert set(memory.world.applications) == {"cache"}
    with pytest.raises(ConfigError, match="nowhere to publish"):
        await publish_config(config(STATIC))


def test_a_password_that_was_put_into_the_address_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        connect("wormhole:hunter2@zk1:2181/root")
    assert 'coordinator = "wormhole:***@zk1:2181/root"' in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        config('version = 1\n[coordinator]\nzookeeper = "wormhole:hunter2@zk1:2181"')
    assert "hunter2" not in str(caught.value)
