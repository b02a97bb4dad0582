"""Ports of datastores, and the entry points by which packages bring them."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.support.installed_package import put_package
from wormhole.model.findings import Report
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Datastore, Login, SourceOptions, Standing, number_is_behind
from wormhole.ports.entry_points import CHECKOUT, claims, declared, merged
from wormhole.ports.log_source import LogSource
from wormhole.ports.log_times import begins_later, time_text

# --- datastore


class Least(Datastore):
    """What a datastore has to say; the rest has an answer."""

    def form(self, scheme: str) -> str:
        return f"{scheme}://x"

    def check_url(self, url: str, *, configured: bool = False) -> None:
        pass

    def open(self, url: str, options: SourceOptions) -> LogSource:
        raise NotImplementedError

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        return Report(url)


def at(delivered: str) -> Datamarker:
    place = LogPosition(1, 1, 0)
    return Datamarker(place, delivered, place)


@pytest.mark.parametrize(("delivered", "behind"), [("6", False), ("7", True), ("8", True), ("", False), ("a", False)])
def test_a_log_that_numbers_its_transactions(delivered: str, behind: bool) -> None:
    assert number_is_behind(7, at(delivered)) is behind
    assert Least().is_behind("db", 7, at(delivered)) is behind


def test_the_defaults_of_a_datastore() -> None:
    least, url = Least(), "x://y"
    assert least.split_database(url) == (url, "")
    assert least.configured_url(url, Login()) == url
    assert not least.url_comments(url)
    assert least.local_path(url) is None
    assert not least.is_place("7")
    assert not least.refuses
    assert least.table_words == ("table", "tables")
    assert not least.one_host
    assert least.standing(url, Login(), ["7"], failover=True) == Standing("")


def test_a_source_shares_nothing_and_owns_its_log_unless_it_is_given_more(tmp_path: Path) -> None:
    options = SourceOptions("log", tmp_path, Sharding("log"), 1, 1)
    assert options.state is None
    assert options.may_act()


# --- entry points


GROUP = "wormhole.sources"
OURS = {"hdfs", "mariadb", "mysql", "postgres", "postgresql", "postgresql+capture", "rocksdb", "sqlite"}


def test_ours_are_found_without_installed_metadata() -> None:
    assert set(merged((), declared(CHECKOUT, GROUP))) == OURS


def test_what_was_installed_of_an_earlier_commit_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_package(tmp_path / "1", monkeypatch, "wormhole-pubsub", GROUP, "mysql", "", "MOVED_SINCE", "0.0.1")
    put_package(tmp_path / "2", monkeypatch, "another", GROUP, "rocksdb", "", "OTHER")
    assert [claim.attr for claim in claims(GROUP)["mysql"]] == ["DATASTORE"]
    assert len(claims(GROUP)["rocksdb"]) == 2


@pytest.mark.parametrize(
    "text", [None, "no TOML [", '[project]\nname = "other"\nentry-points."wormhole.sources".x = "a:b"\n']
)
def test_a_folder_beside_that_is_no_checkout_of_ours(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    if text is not None:
        file.write_text(text)
    installed = EntryPoint("x", "a:b", GROUP)
    assert merged([installed], declared(file, GROUP)) == {"x": (installed,)}


# --- What sources say of times


PLACE = LogPosition(1, 7, 4)


def test_times_are_shown_in_utc() -> None:
    assert time_text(1_000_000_000_999_999) == "2001-09-09 01:46:40 UTC"


def test_it_says_where_the_log_begins_and_when_that_was() -> None:
    error = begins_later(Datamarker(PLACE, "41", PLACE), 1_000_000_000_000_000)
    assert error.message == "the log begins at 1/7/4 (41), about 2001-09-09 01:46:40 UTC"
    assert error.last_missing == "41"
    assert "not known" in begins_later(Datamarker(PLACE, "41", PLACE), 0).message
