"""Fields of the configuration: their forms, bounds and secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from scripts.prepare import ROOT
from wormhole.config import (
    ApplicationConfig,
    ArchiveConfig,
    CaravanCaps,
    Config,
    CoordinatorConfig,
    DatasetConfig,
    ExistingRows,
    FailoverConfig,
    LogConfig,
    MonitorConfig,
    PublisherConfig,
    RestartConfig,
    RetryConfig,
    SourceConfig,
    TlsFiles,
    check_address,
)
from wormhole.config.passwords import without_password
from wormhole.model.sharding import Sharding

# --- Kinds of values: what is taken, and the sentence for what is not


@pytest.mark.parametrize("address", ["h:1", "db-1.internal:65535", "127.0.0.1:0", "[::1]:7400"])
def test_addresses(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address", ["", "h", ":1", "h:", "h:x", "h:65536", "::1:7400", "h:-1", "a b:1", "h:1/x", "[x]:1", "h:٣"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        check_address(address)


@pytest.mark.parametrize("named", ["", "db-7", "db-7:7490", "[2001:db8::7]", "[::1]:7490"])
def test_what_may_be_advertised(named: str) -> None:
    assert PublisherConfig(attach_advertise=named).attach_advertise == named


@pytest.mark.parametrize("named", ["db 7", "db-7:", ":7490", "db-7:0", "db-7:65536", "db-7:x", "::1", "[::1", "a:1:2"])
def test_what_may_not_be_advertised(named: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        PublisherConfig(attach_advertise=named)


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


# --- Values of single settings; whole files are in `test_load.py`


def test_a_value_in_an_error_is_not_shown_by_pydantic() -> None:
    with pytest.raises(ValueError) as caught:
        LogConfig(source="rocksdb://u:secret@h/x")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("to", ["/data/archive", "archive", "s3://b/a", "s3://b/a?region=eu-west-1", "hdfs://n:9000/a"])
def test_where_an_archive_may_lie(to: str) -> None:
    assert ArchiveConfig(to=to).to == to


@pytest.mark.parametrize(
    ("to", "complaint"),
    [
        ("", "must be a folder"),
        ("~/archive", "must be a folder"),
        ("/data/a*", "patterns"),
        ("s3://b/a{b}", "patterns"),
        ("s3://key:geheim@b/a", "must not hold a password or key"),
        ("s3://geheim@b/a", "must not hold a password or key"),
        ("s3://b/a?access_key=k&secret_key=geheim", "must not hold a password or key"),
        ("s3://b", "must be a folder, s3"),
        ("s3:///a", "must be a folder, s3"),
        ("s3://b/a#geheim", "must be a folder, s3"),
        ("s3://[b/a", "must be a folder, s3"),
        ("gs://b/a", "must be a folder, s3"),
        ("file:///a", "must be a folder, s3"),
        ("s3://b/a?retry=5", "option retry; S3 has endpoint_override, region, scheme"),
        ("hdfs://n/a?user=x", "option user"),
    ],
)
def test_where_an_archive_cannot_lie(to: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        ArchiveConfig(to=to)
    assert "geheim" not in str(caught.value)


def test_programs_may_make_settings_too() -> None:
    assert CoordinatorConfig(zookeeper="zk1:2181/root/").zookeeper == "zk1:2181/root"
    assert RetryConfig(longest_wait=3.0).longest_wait == 3.0


def test_a_monitor_keeps_its_state_beside_that_of_its_publishers() -> None:
    publisher = PublisherConfig(state_dir=Path("/srv/w"))
    assert Config(version=1, publisher=publisher).monitor_state_dir == Path("/srv/w/monitor")
    assert Config(version=1, monitor=MonitorConfig(state_dir=Path("/m"))).monitor_state_dir == Path("/m")


def test_the_manual_lists_every_key() -> None:
    manual = (ROOT / "docs" / "configuration.md").read_text()
    prefixes: dict[type[BaseModel], str] = {
        ArchiveConfig: "archive.",
        CaravanCaps: "caravans.",
        ExistingRows: "existing_rows.",
        FailoverConfig: "failover.",
        LogConfig: "copies.COPY.logs.LOG.",
        RetryConfig: "retry.",
        RestartConfig: "restart.",
        TlsFiles: "tls.",
        SourceConfig: "sources.NAME.",
    }
    nested = {
        "name",
        "tls",
        "sources",
        "sinks",
        "coordinator",
        "publisher",
        "datasets",
        "applications",
        "caravans",
        "existing_rows",
        "copies",
        "logs",
        "retry",
        "monitor",
        "restart",
        "archive",
        "failover",
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


# --- passwords


@given(st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=8))
def test_no_password_is_shown_however_it_is_written(password: str) -> None:
    for text in (f"mysql://u:{password}@h:3306/?tls=off", f"error in 'mysql://u:{password}@h'"):
        assert password not in without_password(text)


@pytest.mark.parametrize("text", ["mysql://u:123?top secret@h", "mysql://u:1/top secret@h", "mysql://u:1#top secret@h"])
def test_a_password_that_looks_like_another_part_is_not_shown_either(text: str) -> None:
    assert "secret" not in without_password(text)


def test_what_is_shown_of_a_url() -> None:
    assert without_password("mysql://u:p/a@ss@h:1/?tls=off") == "mysql://u:***@h:1/?tls=off"
    assert without_password("mysql://u@h/?password=secret&tls=off") == "mysql://u@h/?password=***&tls=off"
    assert without_password("mysql://u@h:3306") == "mysql://u@h:3306"
