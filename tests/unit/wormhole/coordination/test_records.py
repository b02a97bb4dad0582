"""The nodes' JSON: there and back, and one clear error that names the node for anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.coordination.port import FlowRecord, HistoryEntry, HostRequest, MonitorInfo, PublisherInfo, SubscriberInfo
from wormhole.coordination.records import (
    Paths,
    flow_from_json,
    history_from_json,
    host_from_json,
    monitor_from_json,
    monitor_to_json,
    publisher_from_json,
    publisher_to_json,
    record_to_json,
    subscriber_from_json,
    subscriber_to_json,
)
from wormhole.model.errors import ConfigError

SUBSCRIBER = SubscriberInfo("cache", "a", "h:1", 2.0, 3.5, 1000)
PUBLISHER = PublisherInfo("shop", "main", "db1", "host", 7, "", 1.5)
MONITOR = MonitorInfo("host1", 7, "http://127.0.0.1:7480/", 2.5, {"shop/main/db1": "running"})
HISTORY = HistoryEntry(3.5, "eve@host1", "config apply", "applications.cache", "a = 1", "a = 2")
FLOW = FlowRecord("shop/main/db1@host:7", "a", 3, "live")


def test_paths() -> None:
    paths = Paths("/wormhole")
    assert paths.subscriber("cache", "a") == "/wormhole/applications/cache/subscribers/a"
    assert paths.flow("cache", "db1.t") == "/wormhole/applications/cache/flows/db1.t"
    assert paths.marker("cache", "db1.t") == "/wormhole/applications/cache/markers/db1.t"
    assert paths.publisher("shop", "main", "db1") == "/wormhole/publishers/shop/main/db1"
    assert Paths("").dataset("shop") == "/datasets/shop"
    assert paths.monitor("db-7") == "/wormhole/hosts/db-7/monitor"
    assert (paths.config, paths.history) == ("/wormhole/config", "/wormhole/history")


def test_there_and_back() -> None:
    assert subscriber_from_json("cache", "a", subscriber_to_json(SUBSCRIBER), "/n") == SUBSCRIBER
    assert publisher_from_json("shop", "main", "db1", publisher_to_json(PUBLISHER), "/n") == PUBLISHER
    assert flow_from_json(record_to_json(FLOW), "/n") == FLOW
    assert monitor_from_json("host1", monitor_to_json(MONITOR), "/n") == MONITOR
    assert host_from_json(record_to_json(HostRequest(True, "eve", 2.0)), "/n") == HostRequest(True, "eve", 2.0)
    assert host_from_json(b"", "/n") == HostRequest()
    assert history_from_json(record_to_json(HISTORY), "/n") == HISTORY


def test_weight_and_start_may_be_left_out() -> None:
    assert subscriber_from_json("cache", "a", b'{"address": "h:1"}', "/n") == SubscriberInfo("cache", "a", "h:1")


READERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "subscriber": (b'{"address": "h:1"}', lambda data: subscriber_from_json("cache", "a", data, "/n")),
    "flow": (record_to_json(FLOW), lambda data: flow_from_json(data, "/n")),
    "monitor": (monitor_to_json(MONITOR), lambda data: monitor_from_json("host1", data, "/n")),
    "host": (record_to_json(HostRequest()), lambda data: host_from_json(data, "/n")),
}
WRONG: dict[str, list[dict[str, object]]] = {
    "subscriber": [
        {"address": 1},
        {"address": None},
        {"weight": "x"},
        {"weight": -1},
        {"weight": True},
        # With these every publisher ended: shares are computed by adding weights up and dividing by them.
        {"weight": 0},
        {"weight": 1e308},
        {"weight": 10**39},
        {"started": 10**39},
        {"user": "root"},
        {"user": None},
    ],
    "flow": [{"epoch": "3"}, {"epoch": True}, {"state": None}],
    "monitor": [
        {"publishers": []},
        {"publishers": {"a": 1}},
        {"pid": "7"},
        {"address": None},
        {"address": "127.0.0.1:7400"},
        {"address": "file:///etc/"},
        {"address": "http://h:1/x"},
        {"address": "http://h/"},
    ],
    "host": [{"drained": 1}, {"by": None}, {"at": "now"}],
}


@pytest.mark.parametrize(("kind", "change"), [(kind, change) for kind, some in WRONG.items() for change in some])
def test_a_wrong_record_names_node_and_field(kind: str, change: dict[str, object]) -> None:
    right, parse = READERS[kind]
    parse(right)
    with pytest.raises(ConfigError, match=f"^/n: {next(iter(change))} must be"):
        parse(json.dumps(json.loads(right) | change).encode())


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 10**400])
def test_a_number_that_cannot_be_used_names_its_node(weight: float) -> None:
    data = json.dumps({"address": "h:1", "weight": weight}).encode()
    with pytest.raises(ConfigError, match=r"^/n: no valid JSON: .{1,20} is no number that can be here$"):
        subscriber_from_json("cache", "a", data, "/n")


@pytest.mark.parametrize("page", ["", "http://127.0.0.1:7480/", "https://db-7.internal:7480/", "http://[::1]:7480/"])
def test_a_monitor_names_its_status_page(page: str) -> None:
    info = replace(MONITOR, address=page)
    assert monitor_from_json("host1", monitor_to_json(info), "/n") == info


@pytest.mark.parametrize(
    "page", ["127.0.0.1:7480", "unix:///run/x", "http:///", "http://h:1/x", "ftp://h:1/", "http://h/"]
)
def test_a_monitor_names_nothing_else(page: str) -> None:
    data = monitor_to_json(replace(MONITOR, address=page))
    with pytest.raises(ConfigError, match=r"^/n: address must be a page "):
        monitor_from_json("host1", data, "/n")


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_give_a_record_or_one_config_error(data: bytes) -> None:
    for parse in (
        lambda: subscriber_from_json("cache", "a", data, "/n"),
        lambda: publisher_from_json("d", "c", "l", data, "/n"),
        lambda: flow_from_json(data, "/n"),
        lambda: monitor_from_json("h", data, "/n"),
        lambda: host_from_json(data, "/n"),
        lambda: history_from_json(data, "/n"),
    ):
        with pytest.raises(ConfigError, match=r"^/n: "):
            parse()
