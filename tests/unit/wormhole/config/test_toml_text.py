"""Settings as TOML: whatever can be configured reads back as it was."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given, reject
from hypothesis import strategies as st

from tests.unit.wormhole.config.test_load import FILES
from wormhole.config import ApplicationConfig, parse, parse_json, to_toml
from wormhole.model.errors import ConfigError


@given(plain=FILES)
def test_what_is_written_reads_back_the_same(plain: dict[str, Any]) -> None:
    try:
        config = parse_json(json.dumps(plain), "given.json", folder=Path("/etc/wormhole"))
    except ConfigError:
        reject()
    again = parse(to_toml(config.datasets, config.applications), "shown.toml", folder=Path("/elsewhere"))
    assert (again.datasets, again.applications) == (config.datasets, config.applications)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_is_a_text(text: str) -> None:
    application = ApplicationConfig(name="a.b", dataset="shop", start="latest", tables=(text,), pin={text: "x"})
    read = tomllib.loads(to_toml({}, {"a.b": application}))["applications"]["a.b"]
    assert (read["tables"], read["pin"]) == ([text], {text: "x"})


def test_it_reads_like_a_file() -> None:
    text = """version = 1
[datasets.shop]
shard_by = { hash = 16 }
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///x"
[applications.cache]
dataset = "shop"
start = "latest"
allow = ["a", "b"]
"""
    config = parse(text, "site.toml")
    assert to_toml(config.datasets, config.applications).splitlines() == [
        "version = 1",
        "",
        "[datasets.shop.shard_by]",
        "hash = 16",
        "",
        "[datasets.shop.copies.main.logs.db1]",
        'source = "rocksdb:///x"',
        "",
        "[applications.cache]",
        'dataset = "shop"',
        'start = "latest"',
        'allow = ["a", "b"]',
    ]


def test_nothing_is_a_file_too() -> None:
    assert parse(to_toml({}, {}), "empty.toml").datasets == {}
