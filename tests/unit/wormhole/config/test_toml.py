"""TOML that is read and written."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.unit.wormhole.config.test_load import FILES
from wormhole.config import ApplicationConfig, parse, parse_json, to_toml
from wormhole.config.toml_input import read_toml
from wormhole.model.errors import ConfigError

# --- TOML that Python's parser takes, and configuration cannot use


def test_what_is_right_is_read() -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    assert read_toml(f"a = {least}\nb = {most}\nc.d = [[true, 1.5]]") == {
        "a": least,
        "b": most,
        "c": {"d": [[True, 1.5]]},
    }
    assert read_toml("a = " + "[" * 90 + "]" * 90)


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 19, "-9223372036854775809", "0x" + "f" * 5000])
@pytest.mark.parametrize("text", ["a = {}", "a.b = [1, {}]", "[[a]]\nb = [[{}]]"])
def test_a_number_of_too_many_digits_is_refused(text: str, number: str) -> None:
    with pytest.raises(ValueError, match=r"^a number has too many digits$"):
        read_toml(text.replace("{}", number))


@pytest.mark.parametrize("text", ["a = " + "[" * 100 + "]" * 100, "a = " + "[" * 100_000, ".".join("a" * 200) + " = 1"])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        read_toml(text)


def test_what_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        read_toml("a = 1\nb = =\n")


# --- Settings as TOML: whatever can be configured reads back as it was


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
