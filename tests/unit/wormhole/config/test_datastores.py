"""The registry, over packages that are really on the path: what each says that is right, and what one says that is
wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from publisher.sources import open_source
from tests.support.installed_package import put_package
from wormhole.config.datastores import capabilities_of, datastore, forms, is_one_datastore, is_place, schemes
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import UsageError
from wormhole.model.sharding import Sharding

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
    with pytest.raises(UsageError, match=r"^2 packages claim ours://: store_a 1\.2 and store_b 1\.2") as caught:
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
    with pytest.raises(UsageError, match=rf"^ours:// belongs to store_\d+ 1\.2, which .*{problem}") as caught:
        datastore("ours")
    assert caught.value.hint
    assert capabilities_of("ours") == Capabilities(), "what others wrote into a record does no harm"
    ours_are_unaffected()


def test_a_source_without_a_method_of_the_contract(install: Install, tmp_path: Path) -> None:
    install("store_c", "ours", GOOD + "    \n")
    with pytest.raises(
        UsageError, match=r"the source of ours:// \(store_c\) lacks start, stop, .*locate_time"
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
