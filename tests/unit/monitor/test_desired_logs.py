"""Which logs are this host's: those that name it; those that name none only where nobody else could run them too."""

from __future__ import annotations

import pytest

from monitor.desired_logs import DIGEST_LENGTH, desired_logs
from wormhole.config import Config, parse
from wormhole.config.one_log import digest

LOGS = """
version = 1
[monitor]
host = "h1"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///data/db1"
host = "h1"
[datasets.shop.copies.main.logs.db2]
source = "rocksdb:///data/db2"
host = "h2"
[datasets.other.copies.main.logs.db1]
source = "rocksdb:///data/other"
"""
FLEET = LOGS + '[coordinator]\nzookeeper = "zk:2181/wormhole"\n'
STATIC = LOGS + "[coordinator]\nstatic = true\n"


def names(config: Config, everything: tuple[str, ...] | None = None) -> list[str]:
    return [str(key) for key in desired_logs(config, config.datasets, everything=everything)]


@pytest.mark.parametrize(
    ("text", "everything", "ours"),
    [
        (FLEET, None, ["shop/main/db1"]),
        (STATIC, None, ["shop/main/db1", "other/main/db1"]),
        (FLEET, ("shop", "other"), ["shop/main/db1", "shop/main/db2", "other/main/db1"]),
        (FLEET, ("other",), ["other/main/db1"]),
    ],
)
def test_a_log_is_for_the_host_that_it_names(text: str, everything: tuple[str, ...] | None, ours: list[str]) -> None:
    assert names(parse(text, "test"), everything) == ours


SEVERAL = """
version = 1
[coordinator]
zookeeper = "zk:2181/wormhole"
[monitor]
host = "{host}"
[datasets.shop.failover]
copies = ["main", "west"]
[datasets.shop.copies.main.logs.db1]
source = "db1"
kind = "mysql"
hosts = ["h1", "h2"]
[datasets.shop.copies.west.logs.db1]
source = "db1"
kind = "mysql"
host = "h3"
"""


@pytest.mark.parametrize(
    ("host", "ours"),
    [("h1", ["shop/main/db1"]), ("h2", ["shop/main/db1"]), ("h3", ["shop/west/db1"]), ("h4", [])],
)
def test_each_candidate_host_runs_a_publisher(host: str, ours: list[str]) -> None:
    config = parse(SEVERAL.format(host=host), "test")
    assert names(config) == ours
    for log in ours:
        [(key, wanted)] = desired_logs(config, config.datasets).items()
        assert str(key) == log
        assert wanted.config.monitor.host_name == host
        assert digest(wanted.config, *log.split("/")).startswith(wanted.digest), "as the publisher will compute it"


def test_what_counts_are_the_given_datasets_with_the_settings_of_this_host() -> None:
    local = parse(
        'version = 1\n[monitor]\nhost = "h2"\n[publisher]\nheartbeat = "9s"\n[coordinator]\nzookeeper="z:1/w"', "x"
    )
    [(key, wanted)] = desired_logs(local, parse(FLEET, "fleet").datasets).items()
    assert str(key) == "shop/main/db2"
    assert wanted.config.publisher.heartbeat == 9.0
    assert wanted.config.datasets["shop"].copies["main"].logs["db2"].source == "rocksdb:///data/db2"
    assert digest(wanted.config, "shop", "main", "db2").startswith(wanted.digest), "as the publisher will compute it"
    assert len(wanted.digest) == DIGEST_LENGTH
