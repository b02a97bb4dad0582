"""Which dataset `wormholectl archive run` means, and from where it knows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.cli.archiving import archived_dataset, archiving_config
from wormhole.config import Config, load
from wormhole.errors import ConfigError, UsageError


def config(folder: Path, *archived: str) -> Config:
    parts = ["version = 1", '[coordinator]\nzookeeper = "127.0.0.1:2181/x"']
    for name in ("orders", "users"):
        parts.append(f'[datasets.{name}.copies.main.logs.db1]\nsource = "rocksdb:///srv/{name}"')
        if name in archived:
            parts.append(f'[datasets.{name}.archive]\nto = "/srv/archive/{name}"\napplication = "{name}-archive"')
            parts.append(f'[applications.{name}-archive]\ndataset = "{name}"\nstart = "earliest"')
    (folder / "shop.toml").write_text("\n".join(parts))
    return load(folder / "shop.toml")


def test_the_only_one_need_not_be_named(tmp_path: Path) -> None:
    assert archived_dataset(config(tmp_path, "users"), "") == "users"


def test_of_several_one_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name one: orders, users"):
        archived_dataset(config(tmp_path, "orders", "users"), "")
    assert archived_dataset(config(tmp_path, "orders", "users"), "orders") == "orders"


def test_none_has_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"add \[datasets\.NAME\.archive\]"):
        archived_dataset(config(tmp_path), "")


def test_a_file_is_read(tmp_path: Path) -> None:
    wanted = config(tmp_path, "orders")
    assert archiving_config(str(tmp_path / "shop.toml")).datasets == wanted.datasets


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"shop\.toml"):
        archiving_config(str(tmp_path / "shop.toml"))
