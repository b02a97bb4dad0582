"""Two logs that would share what each publisher needs for itself are found before either of them starts."""

from __future__ import annotations

import pytest

from datastores.postgres.datastore import PostgresDatastore
from wormhole.config import parse
from wormhole.config.datastores import datastore
from wormhole.model.errors import ConfigError, UsageError

SERVER = "postgres://wormhole@db1:5432"


def text(first: str, second: str, more: str = "") -> str:
    return f"version = 1\n[datasets.shop.copies.main.logs.{first}\n[datasets.crm.copies.main.logs.{second}\n{more}"


def log(name: str, source: str, host: str = "") -> str:
    return f'{name}]\nsource = "{source}"\nhost = "{host}"'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (log("db1", f"{SERVER}/shop"), log("db1", f"{SERVER}/shop")),
        (log("db-1", f"{SERVER}/shop"), log("DB_1", f"{SERVER}/shop")),
        (log("db1", f"{SERVER}/shop"), log("db1", f"{SERVER}/crm")),  # slots are the server's
        (log("a", f"{SERVER}/shop?slot=s"), log("b", f"{SERVER}/shop?slot=s&publication=b")),
    ],
)
def test_two_logs_with_the_same_names_on_the_server(first: str, second: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text(first, second), "site.toml")
    name = second.partition("]")[0]
    assert f"datasets.crm.copies.main.logs.{name}: needs the replication slots" in str(error.value)
    assert f"which shop/main/{first.partition(']')[0]} has" in str(error.value)
    assert "give one of the logs another name" in str(error.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (log("db1", f"{SERVER}/shop"), log("db2", f"{SERVER}/shop")),
        (log("db1", f"{SERVER}/shop"), log("db1", "postgres://wormhole@db2/shop")),
        (log("db1", f"{SERVER}/shop?slot=a"), log("db1", f"{SERVER}/shop?slot=b")),
        (log("db1", "postgres://w@localhost/shop", "one"), log("db1", "postgres://w@localhost/shop", "two")),
        (log("db1", "rocksdb:///store"), log("db1", "rocksdb:///store")),
    ],
)
def test_logs_that_do_not_meet(first: str, second: str) -> None:
    assert len(parse(text(first, second), "site.toml").datasets) == 2


def test_sources_of_a_list_count_too() -> None:
    named = '{}]\nsource = "{}"\nkind = "postgres"'
    listed = "".join(f'[sources.{name}]\nsource = "{SERVER}/shop"\n' for name in ("one", "two"))
    with pytest.raises(ConfigError, match="needs the replication slots wormhole_db1_"):
        parse(text(named.format("db1", "one"), named.format("db1", "two"), listed), "site.toml")
    assert parse(text(named.format("db1", "one"), named.format("db1", "three"), listed), "site.toml")


FLEET = '[coordinator]\nzookeeper = "zk1:2181"\n'


def at_hosts(name: str, hosts: str) -> str:
    return f'{name}]\nsource = "{SERVER}/shop"\nhosts = {hosts}'


def test_the_candidates_of_one_log_share_what_it_needs_and_another_log_may_not_have_it_on_any_host() -> None:
    both = at_hosts("db1", '["one", "two"]')
    assert parse(text(both, log("db1", f"{SERVER}/shop", "three"), FLEET), "site.toml")
    for other in (log("db1", f"{SERVER}/shop", "two"), at_hosts("db1", '["three", "one"]')):
        with pytest.raises(ConfigError, match="which shop/main/db1 has: updates would be lost"):
            parse(text(both, other, FLEET), "site.toml")


def test_two_copies_that_read_one_server_are_refused_with_the_way_to_several_hosts() -> None:
    copies = "".join(
        f'[datasets.shop.copies.{copy}.logs.db1]\nsource = "{SERVER}/shop"\nhost = "one"\n' for copy in ("main", "west")
    )
    failover = '[datasets.shop.failover]\ncopies = ["main", "west"]\n'
    with pytest.raises(ConfigError, match="`hosts` lists the hosts that read one server"):
        parse(f"version = 1\n{FLEET}{failover}{copies}", "site.toml")
    with pytest.raises(ConfigError, match="give one of the logs another name"):
        parse(f"version = 1\n{FLEET}{copies}", "site.toml")


def test_a_datastore_that_is_not_installed_here_reserves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(scheme: str) -> PostgresDatastore:
        raise UsageError(f"no installed package reads {scheme}://")

    both = text(log("db1", f"{SERVER}/shop"), log("db1", f"{SERVER}/shop"))
    assert isinstance(datastore("postgres"), PostgresDatastore)
    monkeypatch.setattr("wormhole.config.reserved.datastore", gone)
    assert len(parse(both, "site.toml").datasets) == 2
