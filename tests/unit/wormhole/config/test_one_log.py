"""What of a configuration concerns one publisher, and which change of it takes a restart."""

from __future__ import annotations

import pytest

from wormhole.config import Config, CoordinatorForm, config_to_json, one_log, parse, parse_json, preference
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


# -- several candidates

COPIES = """
version = 1
[coordinator]
zookeeper = "zk1:2181/wormhole"
[monitor]
host = "a"
[publisher]
markers = "zookeeper"
[datasets.shop.failover]
copies = ["main", "west"]
[datasets.shop.copies.main.logs.db1]
source = "db1"
kind = "mysql"
hosts = ["a", "b"]
[datasets.shop.copies.main.logs.db2]
source = "db2"
kind = "mysql"
[datasets.shop.copies.west.logs.db1]
source = "west1"
kind = "mysql"
host = "c"
[datasets.shop.copies.west.logs.db2]
source = "west2"
kind = "mysql"
host = "d"
[datasets.shop.copies.east.logs.other]
source = "east"
kind = "mysql"
host = "e"
"""


def of_copy(copy: str, log: str, *changes: tuple[str, str]) -> str:
    text = COPIES
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return digest(parse(text, "test"), "shop", copy, log)


@pytest.mark.parametrize(
    "change",
    [
        ('"main", "west"]', '"west", "main"]'),
        ('"main", "west"]', '"main", "west"]\npatience = "5s"'),
        ('["a", "b"]', '["b", "a"]'),
        ('["a", "b"]', '["a", "b", "x"]'),
        ('host = "c"', 'host = "x"'),
        ('[datasets.shop.failover]\ncopies = ["main", "west"]\n', ""),
    ],
)
def test_who_else_may_serve_the_log_takes_a_restart(change: tuple[str, str]) -> None:
    for copy in ("main", "west"):
        assert of_copy(copy, "db1", change) != of_copy(copy, "db1")
    assert of_copy("east", "other", change) == of_copy("east", "other"), "which is of no failover"


@pytest.mark.parametrize(
    ("change", "concerned"),
    [
        (('"west1"', '"west-1"'), ("west", "db1")),
        (('"west1"', '"west1"\nserver_ids = "7-9"'), ("west", "db1")),
        (('host = "d"', 'host = "x"'), ("west", "db2")),
        (('host = "e"', 'host = "x"'), ("east", "other")),
        (('[monitor]\nhost = "a"', '[monitor]\nhost = "b"'), None),
    ],
)
def test_how_another_copy_is_read_does_not(change: tuple[str, str], concerned: tuple[str, str] | None) -> None:
    assert of_copy("main", "db1", change) == of_copy("main", "db1")
    if concerned is not None:
        assert of_copy(*concerned, change) != of_copy(*concerned)


@pytest.mark.parametrize(("copy", "log"), [("main", "db1"), ("west", "db2"), ("east", "other")])
def test_a_publisher_is_given_who_else_may_serve_its_log(copy: str, log: str) -> None:
    whole = parse(COPIES, "test")
    given = of_one_log(whole, "shop", copy, log)
    assert parse_json(config_to_json(given), "running") == given
    assert digest(given, "shop", copy, log) == digest(whole, "shop", copy, log)
    shop, before = given.datasets["shop"], whole.datasets["shop"]
    assert shop.copies[copy].logs == {log: before.copies[copy].logs[log]}
    assert shop.group(copy) == before.group(copy)
    assert [shop.serves(copy, name) for name in ("", "main", "east")] == [
        before.serves(copy, name) for name in ("", "main", "east")
    ]
    assert given.monitor.host_name == "a", "what the order of preference is about"
    for host in ("a", "b", "c", "d", "e"):
        assert preference(shop, copy, log, host) == preference(before, copy, log, host)


def test_of_other_copies_it_is_given_no_source() -> None:
    one = COPIES.replace('"west1"\nkind = "mysql"', '"mysql://w@west"\npassword_file = "/etc/west"')
    west = narrow(one, "shop", "main", "db1").datasets["shop"].copies["west"]
    assert west.logs.keys() == {"db1"}
    assert (west.logs["db1"].source, west.logs["db1"].candidates) == ("shop/west/db1", ("c",))


def test_a_publisher_knows_that_it_is_not_the_only_copy() -> None:
    """Before and after a failover is configured, until it is restarted: nobody serves what the failover is to serve."""
    several = COPIES.replace('[datasets.shop.failover]\ncopies = ["main", "west"]\n', "")
    for copy in ("main", "west"):
        shop = narrow(several, "shop", copy, "db1").datasets["shop"]
        assert (shop.serves(copy, ""), shop.serves(copy, copy)) == (False, True)
    alone = narrow(FLEET, "shop", "main", "db1").datasets["shop"]
    assert alone.serves("main", "")
