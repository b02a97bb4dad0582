"""The factory: the configured store, opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.stores.markers import LocalMarkerStore, MemoryMarkerStore, ZooKeeperMarkerStore, open_store
from tests.support.markers import CACHE, marker
from wormhole.config import parse
from wormhole.model.errors import ConfigError


@pytest.mark.parametrize(("kind", "form"), [("local", LocalMarkerStore), ("memory", MemoryMarkerStore)])
def test_the_configured_store_is_opened(kind: str, form: type, tmp_path: Path) -> None:
    config = parse(f'version = 1\n[publisher]\nmarkers = "{kind}"\nstate_dir = "{tmp_path}"\n', "test.toml")
    store = open_store(config, "shop", "main", "db1")
    assert isinstance(store, form)
    assert store.register(CACHE, marker(1), "latest").epoch == 0
    assert (tmp_path / "shop" / "main" / "db1").exists() == (kind == "local")
    store.close()


def test_the_zookeeper_store_may_use_an_embedded_one(zookeeper: str) -> None:
    config = parse('version = 1\n[publisher]\nmarkers = "zookeeper"\n', "test.toml")
    store = open_store(config, "shop", "main", "db1", zookeeper=zookeeper)
    assert isinstance(store, ZooKeeperMarkerStore)
    assert store.load() == {}
    store.close()


def test_the_zookeeper_store_needs_a_zookeeper() -> None:
    config = parse('version = 1\n[publisher]\nmarkers = "zookeeper"\n', "test.toml")
    with pytest.raises(ConfigError, match="needs a ZooKeeper"):
        open_store(config, "shop", "main", "db1")
