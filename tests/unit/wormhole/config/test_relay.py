"""Which relay a log has: as configured, by default, and what is refused."""

from __future__ import annotations

import pytest

from wormhole.config import Config, config_to_json, parse, parse_json, relay_of, source_of, what_is_recorded
from wormhole.config.one_log import of_one_log
from wormhole.model.errors import ConfigError

FLEET = '[coordinator]\nzookeeper = "zk1:2181"\n'
UP = '[coordinator]\nzookeeper = "127.0.0.1:2181"\nsame_user = true\nauth_file = "auth"\n'
STATIC = "[coordinator]\nstatic = true\n"
POSTGRES, MYSQL = "postgres://w@db/shop", "mysql://w@db"


def config(head: str, source: str, *settings: str, at: str = "datasets.shop.copies.main.logs.db1") -> Config:
    return parse("\n".join(["version = 1", head, f"[{at}]", f'source = "{source}"', *settings]), "site.toml")


def mode(head: str, source: str, *settings: str) -> str:
    return relay_of(config(head, source, *settings), "shop", "main", "db1")


@pytest.mark.parametrize(
    ("head", "source", "settings", "expected"),
    [
        (STATIC, POSTGRES, [], "hold"),
        (UP, POSTGRES, [], "hold"),
        ("", POSTGRES, [], "hold"),
        (FLEET, POSTGRES, [], "off"),
        (FLEET, POSTGRES, ['host = "db-7"'], "hold"),
        (FLEET, POSTGRES, ['relay = "cache"'], "cache"),
        (STATIC, POSTGRES, ['relay = "off"'], "off"),
        (FLEET, POSTGRES, ['host = "db-7"', 'slot_budget = "2GiB"', 'on_relay_full = "keep_slot"'], "hold"),
        (STATIC, MYSQL, [], "off"),
        (FLEET, MYSQL, ['relay = "cache"'], "cache"),
        (STATIC, "rocksdb:///x", [], "off"),
    ],
)
def test_the_mode_of_a_log(head: str, source: str, settings: list[str], expected: str) -> None:
    assert mode(head, source, *settings) == expected


@pytest.mark.parametrize(
    ("head", "source", "settings", "why"),
    [
        (FLEET, POSTGRES, ['relay = "hold"'], 'logs.db1: relay = "hold" needs one host that publishes the log'),
        (FLEET, POSTGRES, ['slot_budget = "2GiB"'], "by default it holds where the log's table names its `host`"),
        (STATIC, POSTGRES, ['relay = "cache"', 'slot_budget = "2GiB"'], 'slot_budget is for relay = "hold" only'),
        (STATIC, POSTGRES, ['relay = "off"', 'on_relay_full = "lose"'], 'on_relay_full is for relay = "hold" only'),
        (STATIC, MYSQL, ['slot_budget = "2GiB"'], 'slot_budget is for relay = "hold" only'),
        (STATIC, MYSQL, ['relay = "hold"'], 'relay = "hold" is not for MySQL and MariaDB: no log is kept there'),
        (STATIC, "rocksdb:///x", ['relay = "hold"'], 'relay = "hold" is not for RocksDB'),
        (STATIC, MYSQL, ['relay = "cache"', 'relay_budget = "65535KiB"'], "relay_budget = .*: must be at least 64MiB"),
        (STATIC, MYSQL, ['relay = "full"'], "relay = .*: must be 'off', 'cache' or 'hold'"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_error(head: str, source: str, settings: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        config(head, source, *settings)
    assert "\n" not in str(refused.value)


HOSTS = 'hosts = ["db-7", "db-8"]'
WEST = '[datasets.shop.copies.west.logs.db1]\nsource = "postgres://w@west/shop"\nhost = "db-9"\n'
FAILOVER = f'[datasets.shop.failover]\ncopies = ["main", "west"]\n{WEST}'


@pytest.mark.parametrize("head", [FLEET, UP])
@pytest.mark.parametrize(("more", "hosts"), [("", HOSTS), (FAILOVER, 'host = "db-7"')])
def test_a_log_with_several_candidates_never_holds(head: str, more: str, hosts: str) -> None:
    assert mode(f"{head}{more}", POSTGRES, hosts) == "off"
    assert mode(f"{head}{more}", POSTGRES, hosts, 'relay = "cache"') == "cache"
    way_out = "take main out of failover.copies" if more else "name it as `host` in place of `hosts`"
    with pytest.raises(ConfigError, match=f"logs.db1: relay = .* needs one host .*: {way_out}"):
        mode(f"{head}{more}", POSTGRES, hosts, 'relay = "hold"')
    default = "with failover it does not hold" if more else "with `hosts` it does not hold"
    with pytest.raises(ConfigError, match=default):
        mode(f"{head}{more}", POSTGRES, hosts, 'slot_budget = "2GiB"')


def test_a_copy_outside_of_the_failover_may_hold() -> None:
    east = '[datasets.shop.copies.east.logs.db1]\nsource = "postgres://w@east/shop"\nhost = "db-9"\nrelay = "hold"\n'
    whole = config(f"{FLEET}{FAILOVER}{east}", POSTGRES)
    assert relay_of(whole, "shop", "east", "db1") == "hold"
    assert relay_of(of_one_log(whole, "shop", "main", "db1"), "shop", "main", "db1") == "off"


def test_a_source_that_a_host_lists_has_the_settings_and_no_log_that_names_it() -> None:
    named = '[datasets.shop.copies.main.logs.db1]\nsource = "db1"\nkind = "postgres"\n'
    listed = [f"{FLEET}{named}", POSTGRES, 'relay = "hold"']
    with pytest.raises(ConfigError, match=r"datasets\.shop\.copies\.main\.logs\.db1: relay .*\[config-invalid\]"):
        config(*listed, at="sources.db1")
    listed[0] += 'host = "db-7"\n'
    assert relay_of(config(*listed, at="sources.db1"), "shop", "main", "db1") == "hold"
    with pytest.raises(ConfigError, match=r"relay .*\[sources\.db1\].*\[config-invalid\]"):
        config(f"{FLEET}{named}relay = 'cache'\n", POSTGRES, at="sources.db1")
    # A host that does not list it checks nothing of it, and is told when it is to read it.
    with pytest.raises(ConfigError, match="does not list"):
        relay_of(config(f"{FLEET}{named}", MYSQL, at="sources.other"), "shop", "main", "db1")


def test_a_host_with_several_candidates_is_refused_when_a_dataset_arrives() -> None:
    host = config(f"{FLEET}", POSTGRES, 'relay = "hold"', at="sources.db1")
    others = config(FLEET, "db1", 'kind = "postgres"')
    with pytest.raises(ConfigError, match="needs one host") as refused:
        relay_of(host.model_copy(update={"datasets": others.datasets}), "shop", "main", "db1")
    assert refused.value.hint == "docs/relay.md explains the modes"


def test_a_publisher_of_one_log_has_the_same_mode_and_settings() -> None:
    whole = config(UP, POSTGRES, 'relay_budget = "20GiB"', 'relay_compression = "none"', 'relay_folder = "r"')
    narrow = parse_json(config_to_json(of_one_log(whole, "shop", "main", "db1")), "running.json")
    place = source_of(narrow, "shop", "main", "db1")
    assert (relay_of(narrow, "shop", "main", "db1"), place.relay_budget) == ("hold", 20 << 30)
    assert (place.relay_compression, place.relay_folder and place.relay_folder.is_absolute()) == ("none", True)


def test_what_is_recorded_is_the_same_for_schemes_of_one_datastore() -> None:
    def recorded(source: str, *settings: str, head: str = "") -> tuple[str, str, str]:
        shop = config(head, source, *settings).datasets["shop"]
        return what_is_recorded(shop, shop.copies["main"].logs["db1"])

    assert recorded("mysql://w@db") == recorded("mariadb://w@other") == ("mariadb", "log", "")
    assert recorded(MYSQL, head="[datasets.shop]\nshard_by = { hash = 4 }")[1] == "hash = 4"
    assert recorded(MYSQL, 'skip_tables = ["b.x", "a.x"]')[2] == "skip_tables = a.x, b.x"
    both = recorded(MYSQL, 'skip_tables = ["a.x"]', 'history_tables = ["a.h"]')[2]
    assert both == "skip_tables = a.x; history_tables = a.h"
