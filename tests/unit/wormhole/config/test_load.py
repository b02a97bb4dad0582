"""A whole file: what is read, every complaint in one report, and JSON there and back."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.support.present import present
from wormhole.config import (
    CoordinatorForm,
    application_from_json,
    config_to_json,
    dataset_from_json,
    find_application,
    find_log,
    load,
    parse,
    parse_json,
    source_of,
    to_json,
    to_json_file,
    unknown_application_hint,
)
from wormhole.config.datastores import datastore
from wormhole.model.errors import ConfigError, UnknownApplication
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Datastore

FULL = """
version = 1
insecure = true
[tls]
cert = "tls/host.crt"
key = "/etc/host.key"
ca = "ca.pem"
[coordinator]
zookeeper = "zk1:2181,zk2:2181/wormhole"
session_timeout = "6s"
[publisher]
memory_budget = "512MiB"
markers = "zookeeper"
state_dir = "state"
[datasets.shop]
shard_by = { hash = 16 }
caravans = { max = 4, max_read_rate = "40MiB/s", max_total_read_rate = "80MiB/s" }
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///var/lib/shop%20one"
host = "db1.internal"
[applications.cache]
dataset = "shop"
tables = ["users", "orders"]
where = 'op == "delete"'
start = "1/42/32768"
allow = ["cache-a", "cache-b"]
pin = { "db1.3of16" = "cache-a" }
retry = { attempts = 8, longest_wait = "1m" }
on_failure = "halt"
"""


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, "site.toml")
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, tomllib.TOMLDecodeError)
    return str(caught.value)


def application(extra: str, heading: str = "[applications.cache]") -> str:
    return f'version = 1\n[datasets.shop.copies.main.logs.db1]\nsource = "rocksdb:///x"\n{heading}\n{extra}'


def test_a_full_file(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(FULL)
    config = load(path)
    assert config.form is CoordinatorForm.ZOOKEEPER
    assert config.tls is not None
    assert (config.tls.cert, config.tls.key) == (tmp_path / "tls/host.crt", Path("/etc/host.key"))
    assert config.publisher.state_dir == tmp_path / "state", "relative to the file, not to the working folder"
    shop, cache = config.datasets["shop"], config.applications["cache"]
    assert shop.shard_by == Sharding("hash", 16)
    assert (shop.caravans.max, shop.caravans.max_read_rate) == (4, 40 << 20)
    assert find_log(config, "shop", "main", "db1").source == "rocksdb:///var/lib/shop%20one"
    assert (cache.tables, cache.start, cache.retry.longest_wait) == (("users", "orders"), "1/42/32768", 60.0)
    assert cache.allows("cache-a")
    assert not cache.allows("stranger")
    with pytest.raises(ValueError, match="frozen"):
        cache.start = "latest"


def test_the_defaults_fit_together() -> None:
    config = parse("version = 1", "site.toml")
    assert config.form is CoordinatorForm.EMBEDDED
    assert (config.publisher.memory_budget, config.publisher.markers) == (256 << 20, "local")


def test_every_problem_is_in_one_report() -> None:
    text = problems("""
bogus = 3
[coordinator]
zookeper = "zk1:2181"
[datasets.shop]
shard_by = "databse"
caravans = { max = 0 }
[datasets.shop.copies.main.logs.db1]
source = "mysql://u:secret@db:3306"
[applications.cache]
dataset = "shop"
on_failure = "stop"
retry = { attempts = "many", longest_wait = "1y" }
[applications.search]
dataset = "shopp"
start = "latest"
tables = "x"
""")
    assert text.startswith("site.toml: 12 problems\n")
    for line in (
        "bogus: unknown key",
        'coordinator.zookeper: unknown key; did you mean "zookeeper"?',
        'datasets.shop.shard_by = "databse": must be "log", "database", "table" or { hash = N }',
        "datasets.shop.caravans.max = 0: must be greater than or equal to 1",
        "datasets.shop.copies.main.logs.db1.source = \"mysql://u:***@db:3306\": must not hold a password",
        "applications.cache.start: is required: \"latest\", \"existing\", \"earliest\", a time or a place",
        'applications.cache.on_failure = "stop": must be',
        'applications.cache.retry.attempts = "many": must be a whole number',
        'applications.cache.retry.longest_wait = "1y": must be a duration',
        'applications.search.dataset = "shopp": there is no such dataset; did you mean "shop"?',
        'applications.search.tables = "x": must be a list',
        "version: is required: version = 1",
    ):  # fmt: skip
        assert line in text
    assert "secret" not in text


def test_tables_that_are_skipped_are_named_whole() -> None:
    text = 'version = 1\n[datasets.shop.copies.main.logs.db1]\nsource = "{}"\nskip_tables = [{}]'
    log = (
        parse(text.format("mysql://w@db:3306", '"shop.audit"'), "site.toml").datasets["shop"].copies["main"].logs["db1"]
    )
    assert log.skip_tables == ("shop.audit",)
    parse(text.format("mysql://w@db:3306", '"shop.*"'), "site.toml")
    parse(text.format("postgres://w@db/shop", '"@message"'), "site.toml")
    assert "'audit' must be \"database.table\"" in problems(text.format("mysql://w@db:3306", '"shop.audit", "audit"'))
    assert "skip_tables is not for RocksDB: a RocksDB has column families" in problems(
        text.format("rocksdb:///x", '"shop.audit"')
    )
    text = text.replace("skip_tables", "history_tables")
    assert "'audit' must be \"database.table\"" in problems(text.format("mariadb://w@db:3306", '"audit"'))
    assert "history_tables is not for RocksDB: a RocksDB has no system-versioned tables" in problems(
        text.format("rocksdb:///x", '"shop.audit"')
    )


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("rocksdb://user:pw@host/x", "must not hold a password"),
        ("rocksdb://:pw@/x", "must not hold a password"),
        (
            "oracle://wormhole@db:1521",
            "rocksdb:///absolute/path or sqlite:///absolute/path.db: no installed package reads oracle://",
        ),
        ("postgresql://wormhole@db:5432", "must be postgresql://user@host:5432/database, with one database behind"),
        ("mysql://wormhole:pw@db:3306", "must not hold a password"),
        ("mariadb://wormhole:pw/pw@db:3306", "the host or the port is none"),
        ("mysql://db:3306", "must name the account: mysql://user@host:3306"),
        ("mysql://wormhole@db:3306/shop", "a server has one log for all its databases"),
        ("mysql://wormhole@db?tls=yes", "must have one of off, prefer, require, verify-ca, verify as tls"),
        ("mysql://wormhole@db?password=pw@", "an unknown option; known are socket"),
        ("rocksdb:/x?y=1", "nothing behind the path"),
        ("rocksdb://host/x", "three slashes"),
        ("rocksdb:x", "three slashes"),
        ("/var/lib/x", "or sqlite:///absolute/path.db: it has no scheme"),
        ("rocksdb://[x", "must be a URL"),
    ],
)
def test_sources(source: str, complaint: str) -> None:
    text = problems(f'version = 1\n[datasets.shop.copies.main.logs.db1]\nsource = "{source}"')
    assert f"site.toml: datasets.shop.copies.main.logs.db1.source = " in text  # noqa: F541 - reads like the lines above
    assert complaint in text
    assert "pw@" not in text


SERVER = (
    'version = 1\n[datasets.shop]\nshard_by = "database"\n[datasets.shop.copies.main.logs.db1]\nsource = '
    '"mysql://wormhole@db1:3306/?tls=verify"\n'
)


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LOG = "version = 1\n[datasets.shop.copies.main.logs.db1]\nsource = "
WRONG = {
    'version = 1\n[datasets.shop]\ncaravans = { %s }\ncopies.main.logs.db1.source = "rocksdb:///x"': [
        (
            'max_read_rate = "9MiB/s", max_total_read_rate = "8MiB/s"',
            "max_read_rate (9MiB/s) is more than max_total_read_rate",
        ),
        ("max_read_rate = 0", "caravans.max_read_rate = 0: must be more than 0"),
        ('max_total_read_rate = "0MiB/s"', "must be more than 0"),
        ('max_read_rate = "8KiB/s"', "max_read_rate is 8KiB/s; below 64KiB/s a log is not followed but lost"),
        ("max_total_read_rate = 40", "max_total_read_rate is 40B/s; below 64KiB/s"),
        ("max_read_rate = -1", "max_read_rate = -1"),
        ("max = -1", "caravans.max = -1"),
        ("max = true", "caravans.max = true: must be a whole number"),
    ],
    application("%s"): [
        ('dataset = "shopp"\nstart = "latest"', 'dataset = "shopp": there is no such dataset; did you mean "shop"?'),
        ('dataset = "shop"\nstart = "now"', 'start = "now": must be "latest", "existing", "earliest", a time such as'),
        ('dataset = "shop"\nstart = "0-1-17"', 'start = "0-1-17": is no place in the log of RocksDB'),
        ('dataset = "shop"\nstart = 1', "start = 1: must be a text in quotes"),
        ('dataset = "shop"\nstart = "2026-05-01T12:00:00"', 'must say its zone: "2026-05-01T12:00:00Z" is UTC'),
        ('dataset = "shop"\nstart = "2026-05-01 12:00Z"', 'must be a time such as "2026-05-01T12:00:00Z"'),
        ('dataset = "shop"\nstart = "2026-02-30T12:00:00Z"', "is no time that exists: day is out of range"),
        ('dataset = "shop"\nstart = 2026-05-01T12:00:00Z', "must be a text in quotes"),
        *(
            (f'dataset = "shop"\nstart = "latest"\nmarker_interval = "{interval}"', "must be from 1ms to 1s")
            for interval in ("999us", "0s", "1001ms", "2s")
        ),
        ('dataset = "shop"\nstart = "latest"\ncopy = "mian"', 'has no such copy; did you mean "main"?'),
        ('dataset = "shop"\nstart = "latest"\nstat = 1', 'stat: unknown key; did you mean "start"?'),
        ('dataset = "shop"\nstart = "latest"\nname = "x"', "name: unknown key"),
        ('dataset = "shop"\nstart = "latest"\nfilter = "x"', 'filter: unknown key; did you mean "where"?'),
        ('dataset = "shop"\nstart = "latest"\ntables = [""]', "tables.0"),
        ('dataset = "shop"\nstart = "latest"\nallow = ["a/b"]', "allow.0"),
        ('dataset = "shop"\nstart = "latest"\nallow = ["a"]\nsubscribers = { b = "h:1" }', "allow does not list b"),
        ('dataset = "shop"\nstart = "latest"\nsubscribers = { a = "h" }', 'subscribers.a = "h": must be an address'),
        ('dataset = "shop"\nstart = "latest"\nretry.first_wait = "2m"', "longer than longest_wait"),
    ],
    SERVER + "%s": [
        ('pin_folder = "x"', "logs.db1: pin_folder is not for MySQL and MariaDB: a server keeps its log itself"),
        ('[datasets.shop.values]\nx = "json"', "datasets.shop: value_format and values are for stores of bytes"),
        (
            '[datasets.shop.copies.other.logs.db1]\nsource = "rocksdb:///x"',
            "datasets.shop: the copies of a dataset must be of one kind of datastore, not mysql, rocksdb",
        ),
        *(
            (f'[applications.a]\ndataset = "shop"\nstart = "{start}"', "as its datastore writes it")
            for start in ("0-1", "3e11fa47:1-5", "0-1-17;drop", "binlog:4711", "binlog.000012:", UUID)
        ),
    ],
    "version = 1\n%s": [
        ('[publisher]\nmemory_budget = "100MiB"', "together must fit memory_budget (100MiB)"),
        ('[publisher]\nmemory_budget = "1MiB"\nchange_buffer = 1\nmax_update_bytes = 1', "at least 64MiB"),
        ('[publisher]\nmax_frame = "1KiB"', "allowed is 64KiB to 64MiB"),
        ('[publisher]\nmarkers = "redis"', "publisher.markers"),
        ('[publisher]\nstate_dir = ""', "must be a path"),
        ('[publisher]\nadmin_listen = "7400"', "must be an address"),
        ('[coordinator]\nzookeeper = "zk1"', 'must be "host:port,host:port/root"'),
        ('[coordinator]\nzookeeper = "zk1:0"', "must be"),
        ('[coordinator]\nzookeeper = "zk1:1"\nstatic = true', "exclude each other"),
        ('[coordinator]\nstatic = true\n[publisher]\nmarkers = "zookeeper"', "needs coordinator.zookeeper"),
        ('[tls]\ncert = "c"', "tls.key: is required"),
        ("applications = 1", "applications = 1: must hold tables"),
        ("applications.cache = 1", "applications.cache = 1: must be a table"),
        ("[datasets.shop]\ncopies = {}", "datasets.shop.copies"),
        # A dot ends the log's name in a shard's.
        ('[datasets.shop.copies.main.logs."db.1"]\nsource = "rocksdb:///x"', "db.1"),
        (
            '[datasets.shop]\nshard_by = "database"\ncopies.main.logs.db1.source = "rocksdb:///x"',
            'split by "table"',
        ),
    ],
    application('dataset = "shop"\nstart = "latest"', "[applications.%s]"): [
        ('"a/b"', 'applications.a/b.name = "a/b"')
    ],
    LOG + "%s\n": [
        *((source, "datasets.shop.copies.main.logs.db1.source") for source in ("[]", "{}", "7", "[[]]")),
        ('"rocksdb:///x"\npassword_file = "p"', "password_file is not for RocksDB: a RocksDB has no password"),
    ],
    LOG + '"rocksdb:///x"\n[datasets.shop.existing_rows]\n%s': [
        ('rate = "0"', "existing_rows.rate"),
        ('rate = "-1MiB/s"', "existing_rows.rate"),
        ('memory = "1MiB"', 'existing_rows.memory = "1MiB": must be at least 4MiB: a chunk of rows takes so much'),
        ('speed = "1MiB/s"', "existing_rows.speed: unknown key"),
    ],
}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [(around.replace("%s", extra), complaint) for around, some in WRONG.items() for extra, complaint in some],
)
def test_a_setting_that_cannot_be_is_named(text: str, complaint: str) -> None:
    assert complaint in problems(text)


def test_a_server_is_a_source() -> None:
    config = parse(f'{SERVER}password_file = "db1.password"\n', "site.toml", folder=Path("/etc/wormhole"))
    log = find_log(config, "shop", "main", "db1")
    assert (log.kind, log.password_file) == ("mysql", Path("/etc/wormhole/db1.password"))


def test_a_folder_of_binlog_files_belongs_to_a_mysql_server() -> None:
    config = parse(f'{SERVER}binlog_folder = "binlogs"\n', "site.toml", folder=Path("/etc/wormhole"))
    assert source_of(config, "shop", "main", "db1").binlog_folder == Path("/etc/wormhole/binlogs")
    postgres = SERVER.replace("mysql://wormhole@db1:3306/?tls=verify", "postgres://wormhole@db1:5432/shop")
    for text in (postgres, postgres.replace("postgres://wormhole@db1:5432/shop", "rocksdb:///x")):
        assert "binlog_folder is not for" in problems(f'{text}binlog_folder = "binlogs"\n')
    named = SERVER.replace("mysql://wormhole@db1:3306/?tls=verify", "there")
    assert "binlog_folder belongs to the source" in problems(f'{named}binlog_folder = "binlogs"\n')


@pytest.mark.parametrize(
    "start",
    [
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
        "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:11,\\n4e11fa47-71ca-11e1-9e33-c80aa9429562:tag_1:1-3",
        "0-1-17",
        "0-1-17,1-2-5",
        "db.log-bin.000012:4711",
    ],
)
def test_what_a_dump_records_is_a_start(start: str) -> None:
    config = parse(f'{SERVER}[applications.a]\ndataset = "shop"\nstart = "{start}"', "site.toml")
    assert config.applications["a"].starts_at_logical_position


def test_several_copies_and_logs_need_a_choice() -> None:
    text = 'version = 1\n[applications.cache]\ndataset = "shop"\nstart = "1/2/3"\n'
    text += "".join(f'[datasets.shop.copies.{copy}.logs.{copy}1]\nsource = "rocksdb:///x"\n' for copy in ("eu", "us"))
    assert "applications.cache.copy: is required, as the dataset has several: eu, us" in problems(text)
    assert "a place belongs to one log" in problems(text)


ARCHIVED = """version = 1
[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///x"
[datasets.shop.archive]
to = "archive"
keep = "30d"
[datasets.bank.copies.main.logs.db2]
source = "rocksdb:///y"
[applications.archive]
"""


def test_an_archive(tmp_path: Path) -> None:
    config = parse(ARCHIVED + 'dataset = "shop"\nstart = "earliest"', "site.toml", folder=tmp_path)
    kept = present(config.datasets["shop"].archive)
    assert (kept.to, kept.application, kept.keep) == (f"{tmp_path}/archive", "archive", 30 * 86400)
    assert dataset_from_json("shop", to_json(config.datasets["shop"]), "/node") == config.datasets["shop"]


@pytest.mark.parametrize(
    ("application", "complaint"),
    [
        ('dataset = "bank"\nstart = "latest"', "is an application of dataset bank"),
        ('dataset = "shop"\nstart = "latest"\ntables = ["t"]', "take tables out of [applications.archive]"),
        ("dataset = 'shop'\nstart = 'latest'\nwhere = 'op == \"delete\"'", "take where out of [applications.archive]"),
        ('dataset = "shop"\nstart = "latest"\ncolumns = ["a"]', "take columns out of [applications.archive]"),
        ('dataset = "shop"\nstart = "latest"\nmask = { a = "null" }', "take mask out of [applications.archive]"),
        ('dataset = "shop"\nstart = "latest"\non_failure = "park"', "must not go on without an update"),
    ],
)
def test_who_may_archive(application: str, complaint: str) -> None:
    assert complaint in problems(ARCHIVED + application)
    plain = json.dumps(tomllib.loads(ARCHIVED + application))
    with pytest.raises(ConfigError) as caught:
        parse_json(plain, "site.json")
    assert complaint in str(caught.value)


def test_an_archive_needs_its_application_and_a_place_of_its_own() -> None:
    named = ARCHIVED.replace("[applications.archive]", "[applications.cache]") + 'dataset = "shop"\nstart = "latest"'
    assert """archive.application = "archive": there is no such application; the archiver""" in problems(named)
    mistyped = named.replace('to = "archive"', 'to = "archive"\napplication = "cash"')
    assert """archive.application = "cash": there is no such application; did you mean "cache"?""" in problems(mistyped)
    # One complaint about what is wrong is enough.
    assert "archive.application" not in problems(ARCHIVED + 'dataset = "shop"\nstart = "tomorrow"')
    twice = ARCHIVED.replace(
        "[applications", "[datasets.bank.archive]\nto = 'archive/'\napplication = 'b'\n[applications"
    )
    assert "datasets.bank.archive.to: is the archive of dataset shop too" in problems(
        twice + 'dataset = "shop"\nstart = "latest"'
    )


def test_existing_rows_need_a_datastore_whose_tables_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = application('dataset = "shop"\nstart = "existing"')
    kind = type(datastore("rocksdb"))
    monkeypatch.setattr(kind, "open_tables", lambda *arguments: None, raising=False)
    assert parse(wanted, "site.toml").applications["cache"].start == "existing"
    monkeypatch.setattr(kind, "open_tables", Datastore.open_tables)
    assert 'start = "existing": existing rows of RocksDB cannot be read; "latest" is' in problems(wanted)


def test_addresses_in_the_file_and_zookeeper_exclude_each_other() -> None:
    listed = application('dataset = "shop"\nstart = "latest"\nsubscribers = { a = "h:1" }')
    assert parse(listed, "site.toml").form is CoordinatorForm.STATIC
    assert "exclude coordinator.zookeeper" in problems(listed + '\n[coordinator]\nzookeeper = "zk:1"')


def test_another_version_and_no_toml() -> None:
    assert "version = 2: must be 1" in problems("version = 2")
    assert "no valid TOML: Invalid value (at end of document) [config-invalid]. Next: correct it there; " in problems(
        "version = "
    )


@pytest.mark.parametrize(
    "value", ["9" * 5000, "9" * 400, "0x" + "f" * 5000, "[" * 2000, "{a=" * 2000, "[" * 500 + "]" * 500]
)
@pytest.mark.parametrize("key", ["insecure", "coordinator.session_timeout", "monitor.restart.crashes"])
def test_a_hostile_value_is_one_short_message(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse(f"version = 1\n{key} = {value}\n", "site.toml")
    assert str(told.value).startswith("site.toml: no valid TOML: ")
    assert len(str(told.value)) < 200


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no text in UTF-8"):
        load(tmp_path / "binary.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_settings_survive_json() -> None:
    config = parse(FULL, "site.toml", folder=Path("/etc/wormhole"))
    cache, shop = config.applications["cache"], config.datasets["shop"]
    assert application_from_json("cache", to_json(cache), "/node") == cache
    assert dataset_from_json("shop", to_json(shop), "/node") == shop
    assert "name" not in json.loads(to_json(cache))


@pytest.mark.parametrize("text", ["", "[]", "null", '{"dataset": "shop"}', '{"start": 3}', "[" * 100_000])
def test_json_that_is_wrong_names_its_node(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^/applications/cache"):
        application_from_json("cache", text, "/applications/cache")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_any_json_gives_settings_or_one_config_error(value: object) -> None:
    text = json.dumps(
        {"dataset": "shop", "start": "latest", "retry": value, "pin": value, "tables": value, "allow": value}
    )
    with contextlib.suppress(ConfigError):
        application_from_json("cache", text, "/node")


def test_finding_a_log_or_an_application_that_is_not_there() -> None:
    config = parse(FULL, "site.toml")
    with pytest.raises(ConfigError, match="choose one of: shop/main/db1"):
        find_log(config, "shop", "main", "db2")
    assert find_application(config.applications, "cache").name == "cache"
    with pytest.raises(UnknownApplication, match='did you mean "cache"'):
        find_application(config.applications, "cash")


@pytest.mark.parametrize("name", ["cash", "a.b", 'quo"te', ""])
def test_the_hint_is_toml_that_can_be_pasted(name: str) -> None:
    heading = unknown_application_hint(name).partition("\n")[2]
    assert tomllib.loads(heading)["applications"][name]["start"] == "latest"


# --- a whole configuration as JSON -----------------------------------------------------------------------------------

_names = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
_paths = st.from_regex(r"/?[a-z][a-z0-9 ]{0,8}", fullmatch=True)
_seconds = st.one_of(st.floats(0.001, 1e6), st.integers(1, 10**6), st.sampled_from(["250ms", "1m", "2.5h"]))
_logs = st.fixed_dictionaries(
    {"source": st.sampled_from(["rocksdb:///var/lib/shop", "rocksdb:///x%20y"])},
    optional={"host": st.sampled_from(["", "db-7", "db.example.org"]), "pin_folder": _paths, "pin_budget": st.integers(1, 1 << 40)},  # noqa: E501
)  # fmt: skip
_datasets = st.fixed_dictionaries(
    {"copies": st.dictionaries(_names, st.fixed_dictionaries({"logs": st.dictionaries(_names, _logs, min_size=1)}), min_size=1, max_size=1)},  # noqa: E501
    optional={
        "shard_by": st.one_of(st.sampled_from(["log", "table"]), st.fixed_dictionaries({"hash": st.integers(1, 65536)})),  # noqa: E501
        "value_format": st.sampled_from(["json", {"protobuf": {"descriptor_set": "a.desc", "message": "a.B"}}]),
        "caravans": st.fixed_dictionaries({}, optional={"max": st.integers(1, 9), "max_read_rate": st.just("40MiB/s")}),
    },
)  # fmt: skip
_applications = st.fixed_dictionaries(
    {"dataset": st.just("shop"), "start": st.sampled_from(["latest", "earliest"])},
    optional={
        "where": st.just('op == "delete"'),
        "tables": st.lists(_names, max_size=2),
        "pin": st.dictionaries(_names, _names, max_size=2),
        "retry": st.fixed_dictionaries({}, optional={"attempts": st.integers(1, 9), "longest_wait": _seconds}),
        "on_bad_value": st.sampled_from(["deliver", "halt"]),
    },
)
FILES = st.fixed_dictionaries(
    {"version": st.just(1), "datasets": st.fixed_dictionaries({"shop": _datasets})},
    optional={
        "insecure": st.booleans(),
        "tls": st.fixed_dictionaries({"cert": _paths, "key": _paths, "ca": _paths}),
        "coordinator": st.fixed_dictionaries({}, optional={"session_timeout": _seconds, "auth_file": _paths}),
        "publisher": st.fixed_dictionaries({}, optional={"state_dir": _paths, "heartbeat": _seconds, "admins": st.lists(_names)}),  # noqa: E501
        "monitor": st.fixed_dictionaries({}, optional={"state_dir": _paths, "stop_timeout": _seconds, "host": st.just("db-7")}),  # noqa: E501
        "applications": st.dictionaries(_names, _applications, max_size=2),
    },
)  # fmt: skip


@given(plain=FILES)
def test_a_configuration_is_the_same_from_its_json_in_any_folder(plain: dict[str, object]) -> None:
    try:
        config = parse_json(json.dumps(plain), "given.json", folder=Path("/etc/wormhole"))
    except ConfigError:
        reject()
    assert parse_json(config_to_json(config), "written.json", folder=Path("/elsewhere")) == config


def test_a_configuration_goes_through_a_json_file(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(FULL)
    config = load(tmp_path / "site.toml")
    written = tmp_path / "running" / "shop.json"
    written.parent.mkdir()
    written.write_text("what was there before")
    to_json_file(config, written)
    assert load(written) == config
    assert [file.name for file in written.parent.iterdir()] == ["shop.json"]


def test_a_json_file_that_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    written = tmp_path / "shop.json"
    written.write_text("before")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        to_json_file(parse(FULL, "site.toml"), written)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("shop.json", "before")]


@pytest.mark.parametrize(("text", "told"), [("{", "no valid JSON"), ("[]", "must hold a JSON object")])
def test_a_json_file_that_is_wrong_names_itself(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "site.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"site\.json: {told}"):
        load(path)


def test_two_tables_of_one_name_are_refused() -> None:
    copy = '[datasets.shop.copies.main.logs.db1]\nsource = "rocksdb:///x"\n'
    assert "no valid TOML" in problems(f"version = 1\n{copy}{copy}")
