"""Values of single settings; whole files are in `test_load.py`."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pydantic import BaseModel

from scripts.prepare import ROOT
from wormhole.config import (
    ApplicationConfig,
    CaravanCaps,
    Config,
    CoordinatorConfig,
    DatasetConfig,
    LogConfig,
    MonitorConfig,
    PublisherConfig,
    RestartConfig,
    RetryConfig,
    TlsFiles,
    check_address,
)
from wormhole.sharding import Sharding


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


def test_a_value_in_an_error_is_not_shown_by_pydantic() -> None:
    with pytest.raises(ValueError) as caught:
        LogConfig(source="rocksdb://u:secret@h/x")
    assert "secret" not in str(caught.value)


def test_programs_may_make_settings_too() -> None:
    assert CoordinatorConfig(zookeeper="zk1:2181/root/").zookeeper == "zk1:2181/root"
    assert RetryConfig(longest_wait=3.0).longest_wait == 3.0


def test_a_monitor_keeps_its_state_beside_that_of_its_publishers() -> None:
    publisher = PublisherConfig(state_dir=Path("/srv/w"))
    assert Config(version=1, publisher=publisher).monitor_state_dir == Path("/srv/w/monitor")
    assert Config(version=1, monitor=MonitorConfig(state_dir=Path("/m"))).monitor_state_dir == Path("/m")


def test_a_monitor_speaks_for_the_machine_it_is_on() -> None:
    assert MonitorConfig().host_name == socket.gethostname()
    assert MonitorConfig(host="db-7").host_name == "db-7"


@pytest.mark.parametrize("host", ["a/b", "a b", "[::1]", "-x", "x" * 254, "h\0"])
def test_what_is_no_host(host: str) -> None:
    for model in (MonitorConfig, LogConfig):
        with pytest.raises(ValueError, match="name of a host"):
            model.model_validate({"host": host, "source": "rocksdb:///x"})


def test_restarts_wait_longer_and_longer() -> None:
    with pytest.raises(ValueError, match="longer than longest_wait"):
        RestartConfig(first_wait=3.0, longest_wait=1.0)


def test_the_manual_lists_every_key() -> None:
    manual = (ROOT / "docs" / "configuration.md").read_text()
    prefixes: dict[type[BaseModel], str] = {
        CaravanCaps: "caravans.",
        LogConfig: "copies.COPY.logs.LOG.",
        RetryConfig: "retry.",
        RestartConfig: "restart.",
        TlsFiles: "tls.",
    }
    nested = {
        "name",
        "tls",
        "coordinator",
        "publisher",
        "datasets",
        "applications",
        "caravans",
        "copies",
        "logs",
        "retry",
        "monitor",
        "restart",
    }
    models: list[type[BaseModel]] = [
        Config,
        CoordinatorConfig,
        PublisherConfig,
        MonitorConfig,
        DatasetConfig,
        ApplicationConfig,
        *prefixes,
    ]
    missing = [
        f"{model.__name__}.{name}"
        for model in models
        for name, field in model.model_fields.items()
        if name not in nested and f"`{prefixes.get(model, '')}{field.alias or name}`" not in manual
    ]
    assert missing == []
