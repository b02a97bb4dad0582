from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.cli.discovery import Where
from wormhole.cli.replaying import setting_of
from wormhole.errors import UnknownApplication, UsageError

CONFIG = """version = 1
[coordinator]
static = true
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///store"
[applications.cache]
dataset = "shop"
start = "earliest"
"""


def test_what_is_configured_of_an_application_and_its_archive(tmp_path: Path) -> None:
    config = tmp_path / "wormhole.toml"
    config.write_text(CONFIG)
    where = Where(coordinator=str(config))
    with pytest.raises(UnknownApplication, match="cahe") as caught:
        setting_of(where, "cahe")
    assert "cache" in str(caught.value.hint)
    with pytest.raises(UsageError, match="has no archive"):
        setting_of(where, "cache")
