"""What of a configuration concerns one publisher, and which change of it takes a restart."""

from __future__ import annotations

import pytest

from wormhole.config import Config, CoordinatorForm, config_to_json, one_log, parse, parse_json
from wormhole.config.one_log import digest, of_one_log
from wormhole.model.errors import ConfigError

FLEET = """
version = 1
[coordinator]
zookeeper = "zk1:2181/wormhole"
[datasets.shop]
caravans = { max = 4 }
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///data/db1"
[datasets.shop.copies.main.logs.db2]
source = "rocksdb:///data/db2"
[datasets.other.copies.main.logs.db1]
source = "rocksdb:///data/other"
[applications.cache]
dataset = "shop"
start = "latest"
"""
STATIC = FLEET.replace('zookeeper = "zk1:2181/wormhole"', "") + 'subscribers = { s1 = "127.0.0.1:9" }\n'


def of(text: str, *changes: tuple[str, str], log: str = "db1") -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return digest(parse(text, "test"), "shop", "main", log)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max = 4", "max = 2"),
        ('start = "latest"', 'start = "latest"\nwhere = \'op == "delete"\''),
        ("/data/other", "/data/else"),
        ("/data/db2", "/data/db3"),
        ("version = 1", 'version = 1\n[monitor]\nhost = "h1"'),
    ],
)
def test_with_zookeeper_caps_filters_and_what_concerns_others_take_no_restart(old: str, new: str) -> None:
    assert of(FLEET, (old, new)) == of(FLEET)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/data/db1", "/data/moved"),
        ("caravans", 'shard_by = "table"\ncaravans'),
        ("version = 1", 'version = 1\n[publisher]\nheartbeat = "5s"'),
        ("zk1:2181", "zk2:2181"),
    ],
)
def test_everything_else_does(old: str, new: str) -> None:
    assert of(FLEET, (old, new)) != of(FLEET)
    assert of(FLEET) != of(FLEET, log="db2")


@pytest.mark.parametrize(("old", "new"), [("max = 4", "max = 2"), ('start = "latest"', 'start = "earliest"')])
def test_in_the_static_form_nothing_is_followed(old: str, new: str) -> None:
    assert of(STATIC, (old, new)) != of(STATIC)


def test_another_release_takes_its_publishers_along(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of(FLEET)
    monkeypatch.setattr(one_log, "__version__", "9.9")
    assert of(FLEET) != before


@pytest.mark.parametrize("text", [FLEET, STATIC])
def test_the_publisher_computes_the_same_from_what_it_was_given(text: str) -> None:
    config = parse(text, "test")
    assert digest(of_one_log(config, "shop", "main", "db1"), "shop", "main", "db1") == of(text)


def narrow(text: str, *log: str) -> Config:
    return of_one_log(parse(text, "test"), *log)


def test_applications_are_included_only_for_the_static_form() -> None:
    assert not narrow(FLEET, "shop", "main", "db1").applications
    assert list(narrow(STATIC, "shop", "main", "db1").applications) == ["cache"]
    alone = narrow(STATIC, "other", "main", "db1")
    assert not alone.applications
    assert alone.form is CoordinatorForm.STATIC, "as the whole file says, though no application shows it"


def test_an_unknown_log_is_refused() -> None:
    with pytest.raises(ConfigError, match="no log shop/main/db9"):
        narrow(FLEET, "shop", "main", "db9")


ARCHIVED = """
[datasets.shop.archive]
to = "/srv/archive/shop"
[applications.archive]
dataset = "shop"
start = "earliest"
"""


@pytest.mark.parametrize("text", [FLEET, STATIC])
def test_a_publisher_of_an_archived_dataset_can_read_what_it_is_given(text: str) -> None:
    given = narrow(text + ARCHIVED, "shop", "main", "db1")
    assert parse_json(config_to_json(given), "running") == given


@pytest.mark.parametrize("text", [FLEET, STATIC])
def test_where_it_is_archived_takes_no_restart(text: str) -> None:
    assert of(text + ARCHIVED, ("/srv/archive", "/mnt/archive")) == of(text + ARCHIVED)
