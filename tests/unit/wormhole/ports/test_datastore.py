from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.model.findings import Report
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import Datastore, Login, SourceOptions, Standing, number_is_behind
from wormhole.ports.log_source import LogSource


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
