"""Datastores and sources by the schemes that packages bring."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from publisher.sources import open_source
from tests.support.installed_package import put_package
from tests.support.present import present
from wormhole.config import Config, bound, check_formats, listed, parse, published, source_of, sources_to_toml, unlisted
from wormhole.config.datastores import capabilities_of, datastore, forms, is_one_datastore, is_place, schemes
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import ConfigError, UsageError
from wormhole.model.sharding import Sharding

# --- The registry, over packages that are really on the path: what each says that is right, and what one says that is
# wrong


GOOD = """
from wormhole.ports.datastore import Datastore

class Ours(Datastore):
    requirement = "ours"
    def form(self, scheme): return f"{scheme}://anything"
    def check_url(self, url, *, configured=False): pass
    def open(self, url, options): return self
    def examine(self, url, state_dir, login): raise NotImplementedError

DATASTORE = Ours()
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package of one datastore onto the path."""

    def put(package: str, scheme: str, code: str, attribute: str = "DATASTORE") -> None:
        put_package(tmp_path / package, monkeypatch, package, "wormhole.sources", scheme, code, attribute)

    return put


def ours_are_unaffected() -> None:
    assert datastore("rocksdb").capabilities.of_bytes
    assert datastore("mysql") is datastore("mariadb")
    assert "rocksdb:///absolute/path" in forms()


def test_a_package_adds_a_datastore(install: Install) -> None:
    install("store_a", "ours", GOOD)
    assert datastore("ours").form("ours") == "ours://anything"
    assert {"ours", "rocksdb"} <= set(schemes())
    assert "ours://anything" in forms()
    assert capabilities_of("ours") == Capabilities()
    ours_are_unaffected()


def test_two_packages_that_claim_one_scheme(install: Install) -> None:
    install("store_a", "ours", GOOD)
    install("store_b", "ours", GOOD)
    with pytest.raises(
        UsageError, match=r"^2 .*ours://: store_a 1\.2 and store_b 1\.2.*\[entry-point-broken\]"
    ) as caught:
        datastore("ours")
    assert caught.value.hint == "uninstall all of them but one"
    ours_are_unaffected()


def test_a_package_that_claims_one_of_ours_takes_only_that_away(install: Install) -> None:
    install("store_a", "mariadb", GOOD)
    with pytest.raises(UsageError, match="2 packages claim mariadb://"):
        datastore("mariadb")
    assert datastore("mysql").capabilities.databases
    assert not is_one_datastore("mysql", "mariadb")


@pytest.mark.parametrize(
    ("code", "attribute", "problem"),
    [
        ("import no_such_driver", "DATASTORE", "cannot be imported: ModuleNotFoundError: No module named 'no_such_driver'"),  # noqa: E501
        ("1/0", "DATASTORE", "cannot be imported: ZeroDivisionError"),
        (GOOD, "MISSPELT", "cannot be imported: AttributeError"),
        (GOOD.replace("    def open(self, url, options): return self\n", ""), "DATASTORE", "abstract method.* '?open"),
        ("DATASTORE = object()", "DATASTORE", "is no instance of wormhole.ports.datastore.Datastore"),
    ],
    ids=["its driver", "an error", "no such name", "a method of the datastore", "something else"],
)  # fmt: skip
def test_an_entry_point_that_cannot_be_used(install: Install, code: str, attribute: str, problem: str) -> None:
    install(f"store_{abs(hash((code, attribute)))}", "ours", code, attribute)
    with pytest.raises(UsageError, match=rf"^ours:// .*store_\d+ 1\.2.*{problem}.*\[entry-point-broken\]") as caught:
        datastore("ours")
    assert caught.value.hint
    assert capabilities_of("ours") == Capabilities(), "what others wrote into a record does no harm"
    ours_are_unaffected()


def test_a_source_without_a_method_of_the_contract(install: Install, tmp_path: Path) -> None:
    install("store_c", "ours", GOOD + "    \n")
    with pytest.raises(
        UsageError, match=r"ours:// \(store_c\).* start, stop, .*locate_time.*\[entry-point-broken\]"
    ) as caught:
        open_source("ours://x", log="db1", state_dir=tmp_path, sharding=Sharding("log"))
    assert "wormhole.ports.log_source has the contract" in str(caught.value.hint)
    open_source(f"rocksdb://{tmp_path}", log="db1", state_dir=tmp_path / "state", sharding=Sharding("log"))


def test_what_no_package_reads() -> None:
    with pytest.raises(UsageError, match="no installed package reads oracle://") as caught:
        datastore("oracle")
    assert caught.value.hint == f"write {forms()}"
    assert is_one_datastore("oracle", "oracle")
    assert not is_one_datastore("oracle", "mysql")
    assert is_one_datastore("mariadb", "mysql")


def test_places_that_some_datastore_writes() -> None:
    assert is_place("0-1-17")
    assert not is_place("0-1")


def test_nothing_that_tails_is_imported_to_check_a_configuration() -> None:
    code = (
        "import sys\n"
        "from wormhole.config import parse\n"
        "parse('version = 1\\n[datasets.s.copies.m.logs.d]\\nsource = \"mysql://u@h\"', 'x.toml')\n"
        "print(*sorted(m for m in sys.modules if m.startswith(('datastores', 'publisher', 'pymysql'))))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == [
        "datastores",
        "datastores.common",
        "datastores.common.url_parts",
        "datastores.mysql",
        "datastores.mysql.datastore",
        "datastores.mysql.files",
        "datastores.mysql.files.names",
        "datastores.mysql.server",
        "datastores.mysql.server.url",
    ]


# --- What a dataset says can only choose among what the host's file allows


LOG = "[datasets.shop.copies.main.logs.db1]\n"
INLINE = LOG + 'source = "mysql://w@h:1"\npassword_file = "/etc/w"\nserver_ids = "7-9"\n'
NAMED = LOG + 'source = "db1"\nkind = "mysql"\n'
LIST = '[sources.db1]\nsource = "mysql://w@h:2"\npassword_file = "/etc/two"\n'


def config(*texts: str) -> Config:
    return parse("\n".join(["version = 1", *texts]), "host.toml", folder=Path("/srv"))


def read(host: Config, others: Config) -> str:
    return source_of(bound(host, others.datasets), "shop", "main", "db1").source


def test_a_log_of_the_hosts_own_file_is_listed_by_that() -> None:
    host = config(INLINE)
    (name,) = listed(host) or {}
    assert name == "shop/main/db1"
    assert source_of(host, "shop", "main", "db1").password_file == Path("/etc/w")


def test_only_names_are_published() -> None:
    log = published(config(INLINE).datasets)["shop"].copies["main"].logs["db1"]
    assert (log.source, log.kind, log.password_file, log.server_ids) == ("shop/main/db1", "mysql", None, "7-9")
    assert published(config(NAMED, LIST).datasets) == config(NAMED).datasets


def test_what_is_published_names_every_candidate() -> None:
    hosts = config('[coordinator]\nzookeeper = "z:1"', INLINE + 'hosts = ["a", "b"]\n')
    log = published(hosts.datasets)["shop"].copies["main"].logs["db1"]
    assert (log.hosts, log.password_file) == (("a", "b"), None)
    failover = "[datasets.shop.failover]\ncopies = ['main', 'west']\n" + NAMED + NAMED.replace(".main.", ".west.")
    kept = present(published(config(failover).datasets)["shop"].failover)
    assert kept.copies == ("main", "west")


def test_the_hosts_list_counts() -> None:
    others = config(INLINE.replace("h:1", "evil:1").replace("/etc/w", "/etc/shadow"))
    assert read(config(INLINE), others) == "mysql://w@h:1", "what stands in its own file"
    assert read(config(LIST), config(NAMED)) == "mysql://w@h:2"
    assert read(config(LIST), config(NAMED.replace("mysql", "mariadb"))) == "mysql://w@h:2", "the two mean the same"
    assert read(config(LIST.replace("sources.db1", 'sources."shop/main/db1"')), others) == "mysql://w@h:2"


@pytest.mark.parametrize(
    ("host", "others", "why"),
    [
        (LIST, NAMED.replace('"db1"', '"db2"'), "names the source 'db2', which this host does not list"),
        (LIST, INLINE, "names the source 'shop/main/db1', which this host does not list"),
        ("[sources]", INLINE, "does not list"),
        (LIST, NAMED.replace("mysql", "rocksdb"), "names the source 'db1' as rocksdb, and this host lists it as mysql"),
        ("", NAMED, "does not list"),
    ],
)
def test_what_the_host_does_not_list_is_refused(host: str, others: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        read(config(host), config(others))
    assert "this host's monitor" in str(refused.value.hint)


def test_a_host_of_an_earlier_release_takes_what_is_stored() -> None:
    host = config()
    assert listed(host) is None
    assert read(host, config(INLINE)) == "mysql://w@h:1"
    assert [*unlisted(host, config(INLINE).datasets)] == ["shop/main/db1"]
    assert unlisted(config(INLINE), config(INLINE).datasets) == {}


def test_what_is_adopted_is_what_was_stored() -> None:
    stored = config(INLINE)
    host = config(sources_to_toml(unlisted(config(), stored.datasets)))
    assert source_of(bound(host, stored.datasets), "shop", "main", "db1") == source_of(stored, "shop", "main", "db1")
    assert listed(config(sources_to_toml({}))) == {}


def test_descriptor_sets_are_listed_too() -> None:
    rocks = '[sources.db1]\nsource = "rocksdb:///x"\n[publisher]\ndescriptor_sets = ["/a.desc"]\n'
    others = NAMED.replace("mysql", "rocksdb")
    spec = '[datasets.shop]\nvalue_format = { protobuf = { descriptor_set = "%s", message = "a.B" } }\n'
    check_formats(bound(config(rocks), config(others, spec % "/a.desc").datasets), "shop")
    check_formats(config(INLINE), "shop")
    with pytest.raises(ConfigError, match=r"the descriptor set /b\.desc, which this host does not list"):
        check_formats(bound(config(rocks), config(others, spec % "/b.desc").datasets), "shop")
    own = config(INLINE.replace("mysql://w@h:1", "rocksdb:///x").split("password")[0], spec % "/b.desc")
    check_formats(bound(own, own.datasets), "shop")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LOG + 'source = "db1"', r"add \[sources.db1\] here, or say what its host lists"),
        (NAMED + 'password_file = "/etc/w"', r"password_file belongs to the source, in \[sources.db1\] of its host"),
        (LOG + 'source = "mysql://w@h:1"\nkind = "mariadb"', "is another one than that of source"),
        ('[sources."../x"]\nsource = "rocksdb:///x"', "must be a name"),
        ('[sources.x]\nsource = "mysql://w:secret@h:1"', "must not hold a password"),
        ('[sources.x]\nsource = "rocksdb:///x"\npassword_file = "p"', "a RocksDB has no password"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        config(text)
    assert "secret" not in str(refused.value)


def test_a_list_in_the_same_file_gives_the_kind() -> None:
    assert config(LOG + 'source = "db1"', LIST).datasets["shop"].copies["main"].logs["db1"].kind == "mysql"
