"""The nodes' JSON: there and back, and one clear error that names the node for anything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wormhole.coordination.port import FlowRecord, PublisherInfo, SubscriberInfo
from wormhole.coordination.records import (
    Paths,
    flow_from_json,
    flow_to_json,
    publisher_from_json,
    publisher_to_json,
    subscriber_from_json,
    subscriber_to_json,
)
from wormhole.errors import ConfigError

SUBSCRIBER = SubscriberInfo("cache", "a", "h:1", 2.0, 3.5)
PUBLISHER = PublisherInfo("shop", "main", "db1", "host", 7, "", 1.5)
FLOW = FlowRecord("shop/main/db1@host:7", "a", 3, "live")


def test_paths() -> None:
    paths = Paths("/wormhole")
    assert paths.subscriber("cache", "a") == "/wormhole/applications/cache/subscribers/a"
    assert paths.flow("cache", "db1.t") == "/wormhole/applications/cache/flows/db1.t"
    assert paths.marker("cache", "db1.t") == "/wormhole/applications/cache/markers/db1.t"
    assert paths.publisher("shop", "main", "db1") == "/wormhole/publishers/shop/main/db1"
    assert Paths("").dataset("shop") == "/datasets/shop"


def test_there_and_back() -> None:
    assert subscriber_from_json("cache", "a", subscriber_to_json(SUBSCRIBER), "/n") == SUBSCRIBER
    assert publisher_from_json("shop", "main", "db1", publisher_to_json(PUBLISHER), "/n") == PUBLISHER
    assert flow_from_json(flow_to_json(FLOW), "/n") == FLOW


def test_weight_and_start_may_be_left_out() -> None:
    assert subscriber_from_json("cache", "a", b'{"address": "h:1"}', "/n") == SubscriberInfo("cache", "a", "h:1")


@pytest.mark.parametrize(
    "change",
    [{"address": 1}, {"address": None}, {"weight": "x"}, {"weight": -1}, {"weight": True}, {"weight": float("nan")}],
)
def test_a_wrong_subscriber_names_node_and_field(change: dict[str, object]) -> None:
    data = json.dumps({"address": "h:1"} | change).encode()
    with pytest.raises(ConfigError, match=f"^/n: {next(iter(change))} must be"):
        subscriber_from_json("cache", "a", data, "/n")


@pytest.mark.parametrize("change", [{"epoch": "3"}, {"epoch": True}, {"state": None}])
def test_a_wrong_flow_names_node_and_field(change: dict[str, object]) -> None:
    data = json.dumps(json.loads(flow_to_json(FLOW)) | change).encode()
    with pytest.raises(ConfigError, match=f"^/n: {next(iter(change))} must be"):
        flow_from_json(data, "/n")


@given(st.binary(max_size=60))
def test_any_bytes_give_a_record_or_one_config_error(data: bytes) -> None:
    for parse in (
        lambda: subscriber_from_json("cache", "a", data, "/n"),
        lambda: publisher_from_json("d", "c", "l", data, "/n"),
        lambda: flow_from_json(data, "/n"),
    ):
        with pytest.raises(ConfigError, match=r"^/n: "):
            parse()
