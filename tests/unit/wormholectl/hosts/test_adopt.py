"""From sources that stand in ZooKeeper to the host's own list."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.command_line import run
from wormhole.config import Config, CoordinatorConfig, load, source_of, unlisted
from wormhole.coordination.port import StoredConfig
from wormhole.coordination.zookeeper import ZooKeeperCoordinator

RECORD = {
    "copies": {
        "main": {
            "logs": {
                "db1": {"source": "mysql://w@h:1", "password_file": "/etc/w", "host": "db-7"},
                "db2": {"source": "mysql://w@other:1", "host": "db-8"},
            }
        }
    }
}


@pytest.fixture
def host(tmp_path: Path, zookeeper: str) -> Path:
    """The file of db-7, and a ZooKeeper that an earlier release wrote."""

    async def write() -> None:
        client = ZooKeeperCoordinator(CoordinatorConfig(zookeeper=zookeeper))
        await client.start()
        await client._nodes.put(client._paths.dataset("shop"), json.dumps(RECORD).encode())
        await client.stop()

    asyncio.run(write())
    path = tmp_path / "host.toml"
    path.write_text(
        f'# ours\nversion = 1\n[monitor]\nhost = "db-7"\n[coordinator]\nzookeeper = "{zookeeper}"  # the fleet\'s\n'
    )
    path.chmod(0o666)
    return path


def output(*command: str) -> str:
    code, out, err = run(*command)
    assert code == 0, err
    return out


async def stored(config: Config) -> StoredConfig:
    client = ZooKeeperCoordinator(config.coordinator)
    await client.start()
    try:
        return await client.configuration()
    finally:
        await client.stop()


def test_a_host_adopts_what_is_its_own(host: Path) -> None:
    before = host.read_text()
    shown = output("hosts", "adopt", "-c", str(host), "--print")
    assert '[sources."shop/main/db1"]' in shown
    assert "other" not in shown
    assert host.read_text() == before
    output("hosts", "adopt", "-c", str(host), "--yes")
    config = load(host)
    assert host.read_text().startswith(before.rstrip("\n")), "what stood there stays, comments too"
    assert host.stat().st_mode & 0o777 == 0o644
    assert config.sources is not None
    assert (*config.sources,) == ("shop/main/db1",)
    assert config.sources["shop/main/db1"].password_file == Path("/etc/w")
    assert "nothing to adopt" in output("hosts", "adopt", "-c", str(host), "--yes")
    assert [*unlisted(config, asyncio.run(stored(config)).datasets)] == ["shop/main/db2"]


def test_a_host_that_has_nothing_there_lists_nothing(host: Path) -> None:
    host.write_text(host.read_text().replace("db-7", "db-9"))
    output("hosts", "adopt", "-c", str(host), "--yes")
    assert load(host).sources == {}


def test_a_source_that_zookeeper_holds_no_more_is_named(host: Path) -> None:
    """`config apply` came first: the host would read nothing, and adopting would seem to have worked."""
    named = {"copies": {"main": {"logs": {"db1": {"source": "shop/main/db1", "kind": "mysql", "host": "db-7"}}}}}

    coordinator = load(host).coordinator

    async def apply() -> None:
        client = ZooKeeperCoordinator(coordinator)
        await client.start()
        await client._nodes.put(client._paths.dataset("shop"), json.dumps(named).encode())
        await client.stop()

    asyncio.run(apply())
    for expected in ("added 0 sources", "nothing to adopt"):
        code, out, err = run("hosts", "adopt", "-c", str(host), "--yes")
        assert code == 0
        assert expected in out
        assert "warning: shop/main/db1 names the source 'shop/main/db1', which this file does not list" in err


def test_a_file_that_cannot_be_added_to_stays(host: Path) -> None:
    before = "sources = {}\n" + host.read_text()
    host.write_text(before)
    code, _, err = run("hosts", "adopt", "-c", str(host), "--yes")
    assert (code, host.read_text()) == (2, before)
    assert "TOML" in err


def test_the_static_form_has_its_sources_itself(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(
        "version = 1\n[coordinator]\nstatic = true\n[datasets.shop.copies.main.logs.db1]\nsource = 'mysql://w@h:1'\n"
    )
    assert source_of(load(path), "shop", "main", "db1").source == "mysql://w@h:1"
    code, _, err = run("hosts", "adopt", "-c", str(path))
    assert code == 2
    assert "static form" in err
