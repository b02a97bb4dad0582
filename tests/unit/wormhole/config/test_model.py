"""Values of single settings; whole files are in `test_load.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
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
)


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
