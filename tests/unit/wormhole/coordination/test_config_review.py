"""What breaks is refused, what may not be meant is told, and what is all right is not talked about."""

from __future__ import annotations

import pytest

from wormhole.config import Config, CoordinatorConfig, parse, published
from wormhole.coordination.config_review import Fleet, check_possible, warnings
from wormhole.coordination.differences import differences
from wormhole.coordination.port import StoredConfig
from wormhole.model.errors import ConfigError

HERE = Fleet(served={"cache"}, connected={"cache"}, hosts={"db-7"})
BASE = {
    "shop": '[datasets.shop]\n[datasets.shop.copies.main.logs.db1]\nsource = "mysql://w@h:1"\nhost = "db-7"\n',
    "cache": '[applications.cache]\ndataset = "shop"\nstart = "latest"\n',
}
ANOTHER = BASE["shop"].replace('"mysql://w@h:1"', '"other"\nkind = "mysql"')


def config(**tables: str) -> Config:
    return parse("\n".join(["version = 1", '[coordinator]\nzookeeper = "zk1:2181"', *tables.values()]), "site.toml")


def told(wanted: Config, fleet: Fleet = HERE, *, prune: bool = False) -> tuple[str, ...]:
    base = config(**BASE)
    stored = StoredConfig(published(base.datasets), base.applications, 3)
    found = differences(stored, wanted, prune=prune)
    check_possible(stored, found, fleet)
    return warnings(stored, found, wanted, fleet)


def test_nothing_is_said_of_what_is_all_right() -> None:
    assert told(config(**BASE)) == ()
    assert told(config(**BASE, more='[applications.more]\ndataset = "shop"\nstart = "earliest"')) == ()
    assert told(config(**BASE | {"cache": BASE["cache"] + "where = 'op == \"delete\"'"})) == ()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"shop": BASE["shop"].replace("[datasets.shop]\n", '[datasets.shop]\nshard_by = "table"\n')}, "each new shard begins at"),  # noqa: E501
        ({"shop": ANOTHER}, "copies.main.logs.db1.source changes"),
        ({"cache": BASE["cache"].replace("latest", "earliest")}, "applications.cache.start changes nothing"),
        ({"shop": BASE["shop"].replace('host = "db-7"', "")}, "no `host`: shop/main/db1"),
        ({"shop": BASE["shop"].replace("db-7", "db-8")}, "host db-8, which should run shop/main/db1; hosts with a monitor: db-7"),  # noqa: E501
    ],
)  # fmt: skip
def test_each_slip_is_reported_once(changed: dict[str, str], expected: str) -> None:
    (warning,) = told(config(**BASE | changed))
    assert expected in warning


def test_hosts_with_files_of_their_own_get_what_to_list() -> None:
    (warning,) = told(config(**BASE, more=BASE["shop"].replace("datasets.shop", "datasets.two")))
    assert '[sources."two/main/db1"]' in warning
    named = BASE["shop"].replace("datasets.shop", "datasets.two").replace('"mysql://w@h:1"', '"db1"\nkind = "mysql"')
    assert told(config(**BASE, more=named)) == ()


def test_what_up_runs_needs_no_host() -> None:
    wanted = config(**BASE | {"shop": BASE["shop"].replace('host = "db-7"', "")})
    assert told(wanted.model_copy(update={"coordinator": CoordinatorConfig()})) == ()


def test_what_no_application_was_served_with_may_change() -> None:
    nobody = Fleet(hosts={"db-7"})
    shop = ANOTHER.replace("[datasets.shop]\n", '[datasets.shop]\nshard_by = "table"\n')
    assert told(config(shop=shop, cache=BASE["cache"].replace("latest", "earliest")), nobody) == ()


def test_pruning_says_who_is_let_go() -> None:
    (warning,) = told(config(shop=BASE["shop"]), prune=True)
    assert "applications.cache is removed while subscribers are connected" in warning
    assert told(config(shop=BASE["shop"])) == ()
    removed, _ = told(config(), prune=True)
    assert removed == "datasets.shop is removed: no publisher reads it for cache any more"


def test_processes_of_the_release_that_stored_whole_sources_cannot_read_a_name() -> None:
    base = config(**BASE)
    stored = StoredConfig(base.datasets, base.applications, 3)
    (first, listing) = warnings(stored, differences(stored, base, prune=False), base, HERE)
    assert "the whole source of shop/main/db1" in first
    assert first.endswith("run `wormholectl hosts adopt` on their hosts")
    assert "shop/main/db1 stays in this file" in listing


def test_datamarkers_are_of_one_dataset() -> None:
    other = BASE["shop"].replace("datasets.shop", "datasets.users")
    wanted = config(**BASE | {"users": other, "cache": BASE["cache"].replace('"shop"', '"users"')})
    with pytest.raises(ConfigError, match=r"applications\.cache\.dataset: .* shop, .*\[config-changed\]"):
        told(wanted)
    (listing,) = told(wanted, Fleet(hosts={"db-7"}))
    assert "users/main/db1 stays in this file" in listing


def test_what_stays_must_fit_what_is_new() -> None:
    with pytest.raises(ConfigError, match=r"applications\.cache\.copy: is required") as caught:
        told(config(shop=BASE["shop"] + BASE["shop"].replace("[datasets.shop]\n", "").replace(".main.", ".second.")))
    assert "nothing was written" in str(caught.value)


@pytest.mark.parametrize(
    ("relay", "expected"),
    [
        ('relay = "hold"', "its publisher does not start with them"),
        ('relay = "cache"', "they are removed"),
        ('relay = "off"', ""),
    ],
)
def test_records_of_a_relay_do_not_outlive_the_shards_and_tables_they_were_made_with(relay: str, expected: str) -> None:
    bare = BASE["shop"].replace("mysql://w@h:1", "postgres://w@h/shop") + relay
    log = bare + '\nskip_tables = ["a.b"]'
    base = config(shop=log)
    stored = StoredConfig(published(base.datasets), {}, 3)

    def told_of(shop: str) -> list[str]:
        wanted = config(shop=shop)
        found = warnings(stored, differences(stored, wanted), wanted, HERE)
        return [one for one in found if "relay" in one]

    assert told_of(log) == []
    for changed in (
        log.replace("[datasets.shop]\n", '[datasets.shop]\nshard_by = "table"\n'),
        bare,
    ):
        lines = told_of(changed)
        assert [expected in one for one in lines] == ([True] if expected else [])
    assert told_of(log.replace('"a.b"', '"a.b", "a.c"')) == []  # what was recorded may be read on
    # The source is on the host's list only: its publisher says the same.
    elsewhere = bare.replace('"postgres://w@h/shop"', '"x"\nkind = "postgres"').replace(relay, "")
    assert told_of(elsewhere) == []


SEVERAL = BASE["shop"].replace('host = "db-7"', 'hosts = ["db-7", "db-8"]')


def test_every_candidate_host_needs_a_monitor_and_the_source() -> None:
    missing, listing = told(config(**BASE | {"shop": SEVERAL}))
    assert "host db-8, which should run shop/main/db1; hosts with a monitor: db-7" in missing
    assert "where the monitor of db-8 reads another file" in listing, "db-7 lists it already"
    assert '[sources."shop/main/db1"]' in listing
    both = Fleet(served={"cache"}, connected={"cache"}, hosts={"db-7", "db-8"})
    new = SEVERAL.replace("datasets.shop", "datasets.two")
    (listing,) = told(config(**BASE, more=new), both)
    assert "where the monitor of db-7 or db-8 reads another file" in listing
