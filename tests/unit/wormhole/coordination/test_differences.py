"""What a file would change of what is stored."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wormhole.config import Config, parse, published
from wormhole.coordination.differences import SettingDifference, changed, differences
from wormhole.coordination.port import StoredConfig

DATASET = '[datasets.shop.copies.main.logs.db1]\nsource = "rocksdb:///x"\n'


def config(*applications: str, dataset: str = DATASET) -> Config:
    return parse("\n".join(["version = 1", dataset, *applications]), "test.toml")


def application(name: str, extra: str = "") -> str:
    return f'[applications.{name}]\ndataset = "shop"\nstart = "latest"\n{extra}'


def stored(config: Config, version: int = 7) -> StoredConfig:
    return StoredConfig(published(config.datasets), config.applications, version)


def test_nothing_to_do() -> None:
    found = differences(stored(config(application("cache"))), config(application("cache")))
    assert found.empty
    assert (found.settings, found.kept, found.target, found.before, found.after) == ((), (), "", "", "")


def test_each_setting_that_differs_is_named() -> None:
    before = config(application("cache", 'tables = ["a"]\nwhere = "op == \'delete\'"'), application("old"))
    after = config(application("cache", 'tables = ["a", "b"]\nretry = { attempts = 3 }'), application("new"))
    found = differences(stored(before), after)
    assert found.settings == (
        SettingDifference("applications.cache.retry.attempts", "8", "3"),
        SettingDifference("applications.cache.tables", '["a"]', '["a", "b"]'),
        SettingDifference("applications.cache.where", "\"op == 'delete'\"", ""),
        SettingDifference("applications.new.dataset", "", '"shop"'),
        SettingDifference("applications.new.start", "", '"latest"'),
    )
    assert [one.kind for one in found.settings[:3]] == ["changed", "changed", "removed"]
    assert found.kept == ("applications.old",)
    assert (found.change.seen, set(found.change.applications), found.change.datasets) == (7, {"cache", "new"}, {})
    assert found.target == "applications.cache, applications.new"
    assert found.before.splitlines() == [
        "applications.cache.retry.attempts = 8",
        'applications.cache.tables = ["a"]',
        "applications.cache.where = \"op == 'delete'\"",
    ]
    assert 'applications.new.start = "latest"' in found.after


def test_pruning_removes_what_the_file_lacks() -> None:
    more = '[datasets.log.copies.main.logs.db2]\nsource = "rocksdb:///y"\n'
    before = config(application("cache"), application("old"), dataset=DATASET + more)
    found = differences(stored(before), config(application("cache")), prune=True)
    assert found.change.applications == {"old": None}
    assert found.change.datasets == {"log": None}
    assert found.kept == ()
    assert SettingDifference("datasets.log.copies.main.logs.db2.source", '"log/main/db2"', "") in found.settings


def test_of_sources_only_names_are_published() -> None:
    dataset = (
        '[datasets.shop.copies.main.logs.db1]\nsource = "mysql://w@h:1"\npassword_file = "/etc/p"\nhost = "db-7"\n'
    )
    whole = config(application("cache"), dataset=dataset)
    found = differences(StoredConfig(whole.datasets, whole.applications, 7), whole)  # as an earlier release stored it
    assert found.settings == (
        SettingDifference("datasets.shop.copies.main.logs.db1.kind", "", '"mysql"'),
        SettingDifference("datasets.shop.copies.main.logs.db1.password_file", '"/etc/p"', ""),
        SettingDifference("datasets.shop.copies.main.logs.db1.source", '"mysql://w@h:1"', '"shop/main/db1"'),
    )


NAMES = st.sets(st.sampled_from("abcd"))


@given(old=NAMES, new=NAMES, prune=st.booleans())
def test_what_is_published_makes_the_file_true(old: set[str], new: set[str], prune: bool) -> None:
    before, after = config(*map(application, old)), config(*(application(name, 'tables = ["t"]') for name in new))
    found = differences(stored(before), after, prune=prune)
    present = changed(before.applications, found.change.applications)
    assert {name: present[name] for name in new} == after.applications
    assert set(present) - new == (set() if prune else old - new)
    again = differences(StoredConfig(published(before.datasets), present, 8), after, prune=prune)
    assert again.empty
