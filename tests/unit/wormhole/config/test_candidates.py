"""Several publishers that may serve one log: how they are configured, who is preferred, and what is refused."""

from __future__ import annotations

import pytest

from wormhole.config import (
    FAILOVER,
    Config,
    DatasetConfig,
    LogConfig,
    check_candidates,
    check_together,
    config_to_json,
    dataset_from_json,
    parse,
    parse_json,
    preference,
    to_json,
    to_toml,
)
from wormhole.config.datastores import datastore
from wormhole.model.errors import ConfigError

FLEET = '[coordinator]\nzookeeper = "zk1:2181/wormhole"\n'
MARKERS = '[publisher]\nmarkers = "zookeeper"\n'


def log(copy: str, hosts: str = "", name: str = "db1", kind: str = "mysql") -> str:
    return f'[datasets.shop.copies.{copy}.logs.{name}]\nsource = "{name}"\nkind = "{kind}"\n{hosts}\n'


SEVERAL = 'hosts = ["a", "b"]'
FAILS_OVER = '[datasets.shop.failover]\ncopies = ["west", "main"]\n'
SHOP = FAILS_OVER + log("main", SEVERAL) + log("west", 'host = "c"') + log("east", 'host = "d"')


def config(*parts: str) -> Config:
    return parse("\n".join(["version = 1", *parts]), "site.toml")


def shop(*parts: str) -> DatasetConfig:
    return config(FLEET, *parts).datasets["shop"]


def refused(*parts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(*parts)
    text = str(caught.value)
    assert "\n" not in text, "one clear error"
    return text


# -- the hosts of a log


@pytest.mark.parametrize(
    ("hosts", "candidates"), [("", ()), ('host = "a"', ("a",)), (SEVERAL, ("a", "b")), ("hosts = []", ())]
)
def test_the_candidate_hosts_of_a_log(hosts: str, candidates: tuple[str, ...]) -> None:
    assert shop(log("main", hosts)).copies["main"].logs["db1"].candidates == candidates


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ('hosts = ["a"]', r'db1\.hosts = .*: must list at least two hosts; a log with one host names it as `host`'),
        ('hosts = ["a", "b", "a"]', r"db1\.hosts = .*: must list a once"),
        ('hosts = ["a", ""]', r"db1\.hosts\.1 = .*: must not be empty"),
        ('hosts = ["a", "b c"]', r"db1\.hosts\.1 = .*: must be the name of a host"),
        ('hosts = "a"', r"db1\.hosts = .*: must be a list"),
        ('host = "a"\nhosts = ["a", "b"]', "host and hosts exclude each other"),
    ],
)  # fmt: skip
def test_hosts_that_cannot_be_meant(hosts: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config(FLEET, log("main", hosts))


# -- the copies of a failover


@pytest.mark.parametrize(
    ("failover", "why"),
    [
        ("", r'failover\.copies: is required: at least two copies of the dataset'),
        ('copies = ["main"]', r"failover\.copies = .*: must list at least two copies"),
        ('copies = ["main", "main"]', r"failover\.copies = .*: must list main once"),
        ('copies = ["main", "wets"]', r'failover\.copies lists wets, which is no copy of the dataset; did you mean "west"'),  # noqa: E501
        ('copies = ["main", "odd"]', r"failover\.copies: only one of the copies main and odd has the log db1"),
        ('copies = ["main", "west"]\npatience = 0', r"failover\.patience = 0: must be more than 0"),
        ('copies = ["main", "west"]\npatients = 1', r'failover\.patients: unknown key; did you mean "patience"'),
    ],
)  # fmt: skip
def test_copies_that_cannot_serve_for_each_other(failover: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config(FLEET, f"[datasets.shop.failover]\n{failover}", log("main"), log("west"), log("odd", name="db2"))


def test_the_schemes_of_one_datastore_serve_for_each_other() -> None:
    assert shop(FAILS_OVER, log("main"), log("west", kind="mariadb")).failover is not None
    text = refused(FLEET, FAILS_OVER, log("main"), log("west", kind="postgres"))
    assert "must be of one kind of datastore" in text


def test_who_contends_for_a_log_and_which_applications_its_publishers_serve() -> None:
    found = shop(SHOP)
    assert [found.group(copy) for copy in ("main", "west", "east")] == [FAILOVER, FAILOVER, "east"]
    assert found.failover_of("main") == found.failover
    assert found.failover_of("east") is None
    assert [found.earlier_groups(copy) for copy in ("main", "east")] == [("west", "main"), (FAILOVER,)]
    served = {from_copy: [copy for copy in found.copies if found.serves(copy, from_copy)] for from_copy in ("", "east")}
    assert served == {"": ["main", "west"], "east": ["east"]}
    assert not found.serves("main", "main"), "as it is refused"


def test_without_failover_a_copy_serves_those_that_name_it_and_the_only_one_all() -> None:
    one, two = shop(log("main")), shop(log("main"), log("west"))
    assert (one.serves("main", ""), one.serves("main", "main"), one.group("main")) == (True, True, "main")
    assert (two.serves("main", ""), two.serves("main", "main"), two.serves("main", "west")) == (False, True, False)


def application(copy: str = "") -> str:
    return f'[applications.cache]\ndataset = "shop"\nstart = "latest"\n{copy}'


def test_an_application_leaves_the_choice_to_the_failover_or_names_another_copy() -> None:
    for copy in ("", 'copy = "east"'):
        assert config(FLEET, SHOP, application(copy)).applications
    text = refused(FLEET, SHOP, application('copy = "main"'))
    assert 'applications.cache.copy = "main": is one of the copies that serve one at a time: leave `copy` out' in text


def test_an_application_that_is_stored_is_held_to_a_failover_that_comes() -> None:
    stored = config(FLEET, log("main"), log("west"), application('copy = "main"')).applications
    [problem] = check_together({"shop": shop(SHOP)}, stored)
    assert "leave `copy` out" in problem


# -- preference


def test_copies_count_before_hosts() -> None:
    found = shop(SHOP)
    ranked = [("west", "c"), ("main", "a"), ("main", "b")]
    assert [preference(found, copy, "db1", host) for copy, host in ranked] == [0, 1, 2]
    assert preference(found, "main", "db1", "elsewhere") == 3, "behind all that are configured"
    assert preference(found, "east", "db1", "d") == 0


def test_a_log_that_names_no_host_is_one_candidate_wherever_it_runs() -> None:
    found = shop(FAILS_OVER, log("main"), log("west", 'hosts = ["x", "y"]'))
    assert [preference(found, "west", "db1", host) for host in ("x", "y")] == [0, 1]
    assert preference(found, "main", "db1", "anywhere") == 2
    assert preference(shop(log("main")), "main", "db1", "here") == 0


# -- there and back


def test_hosts_and_failover_survive_json_and_toml() -> None:
    whole = config(FLEET, SHOP.replace("\ncopies", '\npatience = "5s"\ncopies'))
    found = whole.datasets["shop"]
    assert found.failover is not None
    assert found.failover.patience == 5.0
    assert dataset_from_json("shop", to_json(found), "/node") == found
    assert parse_json(config_to_json(whole), "written.json") == whole
    assert parse(to_toml(whole.datasets, {}), "shown.toml").datasets == whole.datasets


def test_programs_may_make_them_too() -> None:
    assert LogConfig(source="db1", named_kind="mysql", hosts=("a", "b")).candidates == ("a", "b")


# -- what a host needs


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (("[coordinator]\nstatic = true\n",), "needs coordinator.zookeeper"),
        (('[monitor]\nhost = "a"\n',), "needs coordinator.zookeeper"),
        ((MARKERS,), "needs coordinator.zookeeper"),
        ((FLEET, '[publisher]\nstate_dir = "state"\n'), 'needs publisher.markers = "zookeeper"'),
        ((FLEET, '[publisher]\nmarkers = "memory"\n'), 'needs publisher.markers = "zookeeper"'),
    ],
)
@pytest.mark.parametrize(
    ("settings", "at"),
    [(SHOP, "datasets.shop.failover: "), (log("main", SEVERAL), "datasets.shop.copies.main.logs.db1.hosts: ")],
)
def test_a_file_that_says_how_its_host_runs_says_what_candidates_need(
    settings: str, at: str, parts: tuple[str, ...], why: str
) -> None:
    assert f"{at}{why}" in refused(*parts, settings)


def test_a_source_in_the_logs_own_table_makes_the_file_one_of_a_host() -> None:
    own = f'[datasets.shop.copies.main.logs.db1]\nsource = "mysql://w@h:1"\n{SEVERAL}'
    assert "hosts: needs coordinator.zookeeper" in refused(own)
    assert config(FLEET, own).datasets


def test_a_file_of_datasets_alone_knows_nothing_of_hosts() -> None:
    assert config(SHOP).datasets
    assert config(FLEET, SHOP).datasets
    assert config(FLEET, MARKERS, SHOP).datasets


def test_one_host_of_one_copy_needs_nothing() -> None:
    alone = log("main", 'host = "a"') + log("west", 'host = "b"')
    for parts in (("[coordinator]\nstatic = true\n",), (FLEET, '[publisher]\nmarkers = "local"\n')):
        found = config(*parts, alone)
        check_candidates(found, "shop", "main", "db1")


@pytest.mark.parametrize(
    ("settings", "copy", "setting"),
    [(SHOP, "main", "failover"), (SHOP, "west", "failover"), (log("main", SEVERAL), "main", "copies.main.logs.db1.hosts")],  # noqa: E501
)  # fmt: skip
def test_a_publisher_without_what_candidates_need_does_not_start(settings: str, copy: str, setting: str) -> None:
    datasets = config(settings).datasets
    for host, why, step in (
        (config(), "needs coordinator.zookeeper", "under [coordinator]"),
        (config(FLEET), 'needs publisher.markers = "zookeeper"', "under [publisher]"),
    ):
        with pytest.raises(ConfigError) as caught:
            check_candidates(host.model_copy(update={"datasets": datasets}), "shop", copy, "db1")
        assert caught.value.message.startswith(f"datasets.shop.{setting} {why}")
        assert step in (caught.value.hint or "")
    check_candidates(config(FLEET, MARKERS, settings), "shop", copy, "db1")


def test_a_copy_outside_of_the_failover_starts_anywhere() -> None:
    check_candidates(config(SHOP), "shop", "east", "db1")
    with pytest.raises(ConfigError, match="no log shop/east/db9 is configured"):
        check_candidates(config(SHOP), "shop", "east", "db9")


def test_copies_of_a_log_of_files_do_not_take_turns() -> None:
    text = refused(FLEET, FAILS_OVER + log("main", kind="rocksdb") + log("west", kind="rocksdb"))
    assert "failover is not for RocksDB: " in text
    assert "list these as `hosts` of one copy" in text


def test_what_is_known_of_a_log_of_files_moves_with_their_disk() -> None:
    moves = log("main", SEVERAL, kind="rocksdb")
    listed = '[sources.db1]\nsource = "rocksdb:///disk/db"\n'
    pins = 'pin_folder = "/disk/pins"\n'
    assert "hosts: needs pin_folder in its source" in refused(FLEET, MARKERS, listed, moves)
    check_candidates(config(FLEET, MARKERS, listed + pins, moves), "shop", "main", "db1")
    own = f'[datasets.shop.copies.main.logs.db1]\nsource = "rocksdb:///disk/db"\n{SEVERAL}\n'
    assert "hosts: needs pin_folder in its source" in refused(FLEET, MARKERS, own)
    assert config(FLEET, MARKERS, own + pins).datasets
    datasets = config(FLEET, moves).datasets
    with pytest.raises(ConfigError, match=r"hosts .*pin_folder .*\[copy-not-ready\]") as caught:
        check_candidates(
            config(FLEET, MARKERS, listed).model_copy(update={"datasets": datasets}), "shop", "main", "db1"
        )
    assert "on the database's disk" in (caught.value.hint or "")
    check_candidates(config(FLEET, MARKERS, listed, log("main", 'host = "a"', kind="rocksdb")), "shop", "main", "db1")


def test_a_datastore_may_have_one_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(datastore("mysql")), "one_host", "its log stays where it is")
    assert "hosts is not for MySQL and MariaDB: its log stays where it is" in refused(FLEET, log("main", SEVERAL))
    assert "failover is not for MySQL and MariaDB: its log stays where it is" in refused(
        FLEET, FAILS_OVER + log("main") + log("west")
    )
