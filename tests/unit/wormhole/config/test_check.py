from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.config import load
from wormhole.config.check import check_config, logs_of, mask_key_warnings, only_log
from wormhole.model.errors import ConfigError

DATASET = """
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///store"
"""
SECOND = """
[datasets.shop.copies.main.logs.db2]
source = "rocksdb:///store2"
"""

NOW = 1_800_000_000.0


def toml(folder: Path, *parts: str) -> Path:
    path = folder / "shop.toml"
    path.write_text("version = 1\n" + "".join(parts))
    return path


def application(where: str) -> str:
    return f"[applications.cache]\ndataset = 'shop'\nstart = 'latest'\nwhere = '''{where}'''\n"


def test_the_only_log_needs_no_name(tmp_path: Path) -> None:
    config = load(toml(tmp_path, DATASET))
    assert logs_of(config) == ["shop/main/db1"]
    assert only_log(config, None) == only_log(config, "shop/main/db1") == ("shop", "main", "db1")


@pytest.mark.parametrize(
    ("parts", "log", "problem"),
    [
        ((), None, "configures no log"),
        ((DATASET, SECOND), None, "several logs.*shop/main/db1, shop/main/db2"),
        ((DATASET,), "shop/main/db9", "no log shop/main/db9.*shop/main/db1"),
    ],
)
def test_which_log_must_be_clear(tmp_path: Path, parts: tuple[str, ...], log: str | None, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        only_log(load(toml(tmp_path, *parts)), log)


def test_filters_are_checked_for_the_source_too(tmp_path: Path) -> None:
    check_config(toml(tmp_path, DATASET, application('op == "delete"')), NOW)
    with pytest.raises(ConfigError, match=r"(?s)applications\.cache\.where.*column 1: .*email.*\[config-invalid\]"):
        check_config(toml(tmp_path, DATASET, application('email == "x"')), NOW)


def test_a_start_in_the_future_is_refused(tmp_path: Path) -> None:
    config = application('op == "delete"').replace("latest", "2999-01-01T00:00:00Z")
    with pytest.raises(ConfigError, match=r"applications\.cache\.start: .*2999-.*\[config-invalid\]"):
        check_config(toml(tmp_path, DATASET, config), NOW)
    check_config(toml(tmp_path, DATASET, config.replace("2999", "2019")), NOW)


def test_a_wrong_table_is_reported_with_its_own_key(tmp_path: Path) -> None:
    server = DATASET.replace("rocksdb:///store", "mysql://wormhole@db1:3306")
    assert server != DATASET
    wanted = application("").replace("[applications.cache]", '[applications.cache]\ntables = ["users"]')
    with pytest.raises(ConfigError, match=r'applications\.cache\.tables: .*"users".*\[config-invalid\]'):
        check_config(toml(tmp_path, server, wanted), NOW)


def test_wrong_columns_and_masks_are_reported_with_their_own_keys(tmp_path: Path) -> None:
    server = DATASET.replace("rocksdb:///store", "mysql://wormhole@db1:3306")
    for dataset, setting, problem in (
        (server, 'columns = ["name."]', r"applications\.cache\.columns: 'name\.' names no column"),
        (server, 'mask = { "users.email" = "null" }', r"applications\.cache\.mask: no table is called \"users\""),
        (server, 'mask = { email = "plain" }', r'applications\.cache\.mask\.email.*"plain"'),
        (server, 'mask = { email = "hash" }', r"applications\.cache\.mask: hashes with a secret: .*mask_key_file"),
        (DATASET, 'columns = ["name"]', r"applications\.cache\.columns: an update of RocksDB has no columns"),
    ):
        wanted = application("").replace("[applications.cache]", f"[applications.cache]\n{setting}")
        with pytest.raises(ConfigError, match=problem):
            check_config(toml(tmp_path, dataset, wanted), NOW)
    fleet = "[coordinator]\nzookeeper = 'zk1:2181'\n"  # whose hosts name the key in files of their own
    wanted = application("").replace("[applications.cache]", '[applications.cache]\nmask = { email = "hash" }')
    check_config(toml(tmp_path, fleet, server, wanted), NOW)
    key = "[publisher]\nmask_key_file = 'mask.key'\n"
    config = check_config(toml(tmp_path, key, server, wanted), NOW)
    assert config.publisher.mask_key_file == tmp_path / "mask.key"
    [line] = mask_key_warnings(config)
    assert line.startswith("on this host: publisher.mask_key_file: ")
    assert "cannot be read" in line
    (tmp_path / "mask.key").write_bytes(bytes(32))
    (tmp_path / "mask.key").chmod(0o644)
    [line] = mask_key_warnings(config)
    assert line.startswith(f"on this host: publisher.mask_key_file: every user of this host can read {tmp_path}")
    assert line.endswith(f"Next: chmod o-rwx {tmp_path / 'mask.key'}")
    (tmp_path / "mask.key").chmod(0o640)
    assert mask_key_warnings(config) == []
    assert mask_key_warnings(check_config(toml(tmp_path, key.replace("mask.key", "none"), server), NOW)) == []


def test_value_formats_are_opened(tmp_path: Path) -> None:
    json = DATASET + '[datasets.shop]\nvalue_format = "json"\n'
    check_config(toml(tmp_path, json, application('email == "x"')), NOW)
    gone = (
        DATASET + '[datasets.shop.values]\nusers = { protobuf = { descriptor_set = "gone.desc", message = "a.B" } }\n'
    )
    with pytest.raises(ConfigError, match=r"datasets\.shop\.value_format: .*/gone\.desc.*\[config-invalid\]"):
        check_config(toml(tmp_path, gone, application('email == "x"')), NOW)
