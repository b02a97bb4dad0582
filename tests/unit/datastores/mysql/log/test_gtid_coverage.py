from __future__ import annotations

from typing import Any, cast

import pytest

from datastores.mysql.log.gtid_coverage import GtidCoverage, all_lacking
from datastores.mysql.server.state import ServerState, StateQueries
from wormhole.model.errors import Diverged, PositionPurged
from wormhole.model.position import Datamarker, LogPosition

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
PLACE = LogPosition(1, 2, 300)


class Begin:
    """Stands for the queries of a MariaDB whose oldest file begins at a position."""

    def __init__(self, position: str) -> None:
        self.mariadb = True
        self._position = position

    def position_before(self, connection: object, view: ServerState, number: int) -> str:
        assert view.name(number) == "binlog.000007"
        return self._position


def mysql(executed: str, purged: str = "") -> GtidCoverage:
    view = ServerState("u", 1, "binlog", ((7, 100),), (7, 100), executed, purged)
    return GtidCoverage(StateQueries(mariadb=False, version=(8, 4, 0)), cast(Any, None), view)


def mariadb(position: str, state: str, begin: str = "", begun_with: str = "") -> GtidCoverage:
    view = ServerState("1", 1, "binlog", ((7, 100),), (7, 100), position, state=state)
    return GtidCoverage(cast(StateQueries, Begin(begin)), cast(Any, None), view, {1: "", 2: begun_with}.__getitem__)


def marker(delivered: str) -> Datamarker:
    return Datamarker(PLACE, delivered, PLACE)


def test_mysql_goes_on_when_all_that_was_delivered_is_executed_and_the_rest_is_there() -> None:
    reach = mysql(f"{A}:1-9", f"{A}:1-5")
    reach.check(marker(f"{A}:1-5"))
    reach.check(marker(f"{A}:1-9"))
    assert reach.is_all(f"{A}:1-9")
    assert not reach.is_all(f"{A}:1-8")


def test_mysql_lacks_what_was_delivered() -> None:
    with pytest.raises(Diverged, match=f"{A}:10") as error:
        mysql(f"{A}:1-9").check(marker(f"{A}:1-10"))
    assert error.value.position == str(PLACE)
    assert error.value.hint
    assert error.value.text.count(str(PLACE)) == 1


def test_mysql_purged_what_was_not_delivered() -> None:
    with pytest.raises(PositionPurged) as error:
        mysql(f"{A}:1-9,{B}:1-3", f"{A}:1-7,{B}:1-2").check(marker(f"{A}:1-5"))
    assert error.value.first_missing == error.value.last_missing == f"{A}:6-7,{B}:1-2"
    assert error.value.hint


def test_mariadb_goes_on_when_the_domains_are_there() -> None:
    reach = mariadb("0-2-9,1-1-4", "0-1-7,0-2-9,1-1-4", "0-1-5")
    reach.check(marker("0-1-7,1-1-2"))
    reach.check(marker("0-1-5"))
    assert reach.is_all("0-2-9,1-1-4")
    assert not reach.is_all("0-2-9")


def test_mariadb_lacks_a_transaction_also_when_its_number_was_given_by_another_server() -> None:
    with pytest.raises(Diverged, match="0-1-8"):
        mariadb("0-2-9", "0-1-7,0-2-9").check(marker("0-1-8"))
    with pytest.raises(Diverged, match="5-1-1"):
        mariadb("0-1-9", "0-1-9").check(marker("0-1-9,5-1-1"))


def test_mariadb_purged_what_was_not_delivered() -> None:
    with pytest.raises(PositionPurged) as error:
        mariadb("0-1-20,1-1-4", "0-1-20,1-1-4", "0-1-12,1-1-2").check(marker("0-1-9"))
    assert (error.value.first_missing, error.value.last_missing) == ("0-1-10,1-1-1", "0-1-12,1-1-2")


def test_without_gtids_a_purged_file_is_a_loss_reported_by_places() -> None:
    with pytest.raises(PositionPurged) as error:
        mysql("").check(marker(""))
    assert (error.value.first_missing, error.value.last_missing) == ("1/2/300", "1/7/4")
    assert "at 1/7/4 (binlog.000007:4) and no longer holds what follows 1/2/300 (binlog.000002:300)" in str(error.value)


def test_what_was_read_elsewhere_and_is_in_no_log_any_more() -> None:
    mysql(f"{A}:1-9,{B}:1-2").check_read(marker(f"{A}:1-7"), 2, f"{A}:1-7,{B}:1-2")
    with pytest.raises(Diverged, match=f"{B}:1-2 was read behind 1/2/300 in incarnation 2") as error:
        mysql(f"{A}:1-9").check_read(marker(f"{A}:1-7"), 2, f"{A}:1-7,{B}:1-2")
    assert (error.value.first_missing, error.value.last_missing) == (f"{B}:1-2", f"{B}:1-2")
    assert error.value.resume == f"{A}:1-7"
    assert "accept-loss" in str(error.value.hint)


def test_the_same_on_mariadb_with_what_follows_the_datamarker() -> None:
    mariadb("0-1-9", "0-2-8,0-1-9").check_read(marker("0-1-6"), 2, "0-2-8")
    with pytest.raises(Diverged) as error:
        mariadb("0-1-9", "0-1-9").check_read(marker("0-1-6"), 2, "0-2-8,5-1-3")
    assert (error.value.first_missing, error.value.last_missing) == ("0-2-7,5-1-1", "0-2-8,5-1-3")


def test_mariadb_names_the_first_that_is_missing_behind_what_the_server_executed() -> None:
    with pytest.raises(Diverged) as error:
        mariadb("0-2-9", "0-1-7,0-2-9,1-1-4").check(marker("0-2-13,1-1-6"))
    assert (error.value.first_missing, error.value.last_missing) == ("0-2-10,1-1-5", "0-2-13,1-1-6")
    with pytest.raises(Diverged) as error:
        mariadb("0-1-74", "0-1-74").check_read(marker("0-1-53"), 1, "0-1-80")
    assert (error.value.first_missing, error.value.last_missing) == ("0-1-75", "0-1-80")


@pytest.mark.parametrize(
    ("state", "begun_with", "first"),
    [
        # The copy that was read last had replicated up to 9, and wrote the rest itself.
        ("0-1-9", "0-1-9", "0-2-10"),
        ("0-1-9", "0-1-7", "0-2-8"),
        ("0-1-7", "0-1-9", "0-2-8"),
        # What the server wrote since, and others, is of another history: it lies nowhere in front of what is missing.
        ("0-1-12", "0-1-9", "0-2-10"),
        ("0-1-9,0-3-12", "0-1-9", "0-2-10"),
        ("0-1-99", "0-1-9", "0-2-10"),
        ("0-1-9,0-2-11", "0-1-9", "0-2-12"),
        ("0-1-9", "", "0-2-1"),
        ("", "0-1-9", "0-2-1"),
        ("1-1-12", "1-1-12", "0-2-1"),
    ],
)
def test_mariadb_never_names_less_than_what_is_missing(state: str, begun_with: str, first: str) -> None:
    place = LogPosition(2, 2, 300)
    with pytest.raises(Diverged) as error:
        mariadb("0-1-9", state, begun_with=begun_with).check(Datamarker(place, "0-2-13", place))
    assert (error.value.first_missing, error.value.last_missing) == (first, "0-2-13")


def test_what_is_lacking_of_several_positions() -> None:
    view = ServerState("u", 1, "binlog", ((7, 100),), (7, 100), f"{A}:1-9", state="0-1-9,0-2-4")
    assert all_lacking(view, [f"{A}:1-10", f"{A}:8-12", "", "0-1-1"], mariadb=False) == f"{A}:10-12,0-1-1"
    assert all_lacking(view, ["0-1-10", "0-1-12", "0-2-4", "0-3-1", f"{A}:1"], mariadb=True) == f"0-1-12,0-3-1,{A}:1"
    assert all_lacking(view, (), mariadb=True) == ""
