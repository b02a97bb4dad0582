"""Kinds of values: what is taken, and the sentence for what is not."""

from __future__ import annotations

import json

import pytest

from wormhole.config import CaravanCaps, DatasetConfig, LogConfig, MonitorConfig, check_address
from wormhole.model.sharding import Sharding


@pytest.mark.parametrize("address", ["h:1", "db-1.internal:65535", "127.0.0.1:0", "[::1]:7400"])
def test_addresses(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address", ["", "h", ":1", "h:", "h:x", "h:65536", "::1:7400", "h:-1", "a b:1", "h:1/x", "[x]:1", "h:٣"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        check_address(address)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("log", Sharding("log")), ("table", Sharding("table")), ({"hash": 16}, Sharding("hash", 16))],
)
def test_sharding(given: object, expected: Sharding) -> None:
    copies = {"main": {"logs": {"db1": {"source": "rocksdb:///x"}}}}
    dataset = DatasetConfig.model_validate({"name": "shop", "shard_by": given, "copies": copies})
    assert dataset.shard_by == expected


@pytest.mark.parametrize(
    "given", [{"hash": 0}, {"hash": True}, {"hash": 65537}, {"hash": 1, "x": 2}, {}, ["log"], 3, None]
)
def test_what_is_no_sharding(given: object) -> None:
    copies = {"main": {"logs": {"db1": {"source": "rocksdb:///x"}}}}
    with pytest.raises(ValueError, match="hash = N"):
        DatasetConfig.model_validate({"name": "shop", "shard_by": given, "copies": copies})


@pytest.mark.parametrize("host", ["a/b", "a b", "[::1]", "-x", "x" * 254, "h\0"])
def test_what_is_no_host(host: str) -> None:
    for model in (MonitorConfig, LogConfig):
        with pytest.raises(ValueError, match="name of a host"):
            model.model_validate({"host": host, "source": "rocksdb:///x"})


def test_sizes_and_rates_are_written_as_people_write_them() -> None:
    caps = CaravanCaps(max_read_rate=40 << 20, max_total_read_rate=100_000_001)
    assert json.loads(caps.model_dump_json()) == {
        "max": 4, "max_read_rate": "40MiB/s", "max_total_read_rate": "100000001B/s",
    }  # fmt: skip
    assert CaravanCaps.model_validate_json(caps.model_dump_json()) == caps
    assert json.loads(LogConfig(source="rocksdb:///x", pin_budget=1 << 30).model_dump_json())["pin_budget"] == "1GiB"
