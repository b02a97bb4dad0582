"""What the processes of a host are configured with, and where they listen."""

from __future__ import annotations

import socket

import pytest

from wormhole.config import MonitorConfig, RestartConfig, parse
from wormhole.model.errors import ConfigError

# --- What a host's processes are told


def test_a_monitor_speaks_for_the_machine_it_is_on() -> None:
    assert MonitorConfig().host_name == socket.gethostname()
    assert MonitorConfig(host="db-7").host_name == "db-7"


def test_restarts_wait_longer_and_longer() -> None:
    with pytest.raises(ValueError, match="longer than longest_wait"):
        RestartConfig(first_wait=3.0, longest_wait=1.0)


# --- Two listeners of one host on the same port are found before either of them starts


ONE_LOG = """
version = 1
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///x"
"""


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "site.toml")
    return str(caught.value)


def two_logs(first: str, second: str, publisher: str) -> str:
    return f"""{ONE_LOG}
host = "{first}"
[datasets.shop.copies.main.logs.db2]
source = "rocksdb:///y"
host = "{second}"
[publisher]
{publisher}
"""


@pytest.mark.parametrize(
    ("admin", "http"),
    [("127.0.0.1:7400", "127.0.0.1:7400"), ("0.0.0.0:7400", "127.0.0.1:7400"), ("127.0.0.1:7400", "[::]:7400")],
)
def test_two_listeners_of_a_publisher(admin: str, http: str) -> None:
    text = problems(f'{ONE_LOG}[publisher]\nadmin_listen = "{admin}"\nhttp_listen = "{http}"')
    assert f'publisher.http_listen = "{http}": conflicts with publisher.admin_listen' in text


def test_an_advertised_port_needs_one_that_is_fixed() -> None:
    text = problems(f'{ONE_LOG}[publisher]\nattach_advertise = "db-1:7490"')
    assert 'publisher.attach_advertise = "db-1:7490": names a port' in text


def test_the_monitor_and_its_publisher() -> None:
    text = problems(f'{ONE_LOG}[publisher]\nadmin_listen = "127.0.0.1:7480"')
    assert 'publisher.admin_listen = "127.0.0.1:7480": conflicts with monitor.listen' in text


@pytest.mark.parametrize("host", ["", "db-7"])
@pytest.mark.parametrize("name", ["admin_listen", "http_listen"])
def test_several_publishers_of_one_host(host: str, name: str) -> None:
    text = problems(two_logs(host, host, f'{name} = "127.0.0.1:7400"'))
    assert f'publisher.{name} = "127.0.0.1:7400": is taken by the first of 2 publishers' in text
    assert (host or "one machine") in text


def test_each_candidate_host_has_a_publisher_of_its_own() -> None:
    log = '[datasets.shop.copies.main.logs.{}]\nsource = "mysql://w@{}"\nhosts = ["{}", "{}"]\n'
    head = 'version = 1\n[coordinator]\nzookeeper = "zk1:2181"\n[publisher]\nmarkers = "zookeeper"\n'
    head += 'admin_listen = "127.0.0.1:7400"\n'
    assert parse(head + log.format("x", "x", "db-7", "db-8"), "site.toml")
    text = problems(head + log.format("x", "x", "db-7", "db-8") + log.format("y", "y", "db-9", "db-8"))
    assert "is taken by the first of 2 publishers on host db-8" in text


def test_what_does_not_conflict() -> None:
    parse(two_logs("db-7", "db-8", 'admin_listen = "127.0.0.1:7400"'), "site.toml")
    parse(two_logs("", "", 'admin_listen = "127.0.0.1:0"\nhttp_listen = "127.0.0.1:0"'), "site.toml")
    parse(f'{ONE_LOG}[publisher]\nadmin_listen = "10.0.0.1:7400"\nhttp_listen = "10.0.0.2:7400"', "site.toml")


def test_subscribers_of_one_application() -> None:
    application = '[applications.cache]\ndataset = "shop"\nstart = "latest"\n[applications.cache.subscribers]\n'
    text = problems(f'{ONE_LOG}{application}a = "h:7500"\nb = "h:7500"')
    assert 'applications.cache.subscribers.b = "h:7500": conflicts with subscriber a' in text
