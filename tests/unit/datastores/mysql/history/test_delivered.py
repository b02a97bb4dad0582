from __future__ import annotations

import pytest

from datastores.mysql.decode.gtid import GtidSet
from datastores.mysql.history.delivered import MariaDelivered, MySqlDelivered, delivered_of
from wormhole.model.errors import PositionError

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_a_set_grows_with_what_ends() -> None:
    delivered = MySqlDelivered(f"{A}:1-5")
    assert str(delivered) == f"{A}:1-5"
    delivered.add((A, B), (0, 0, 1, 0), (6, 7, 3, 8))
    assert str(delivered) == f"{A}:1-8,{B}:3"
    delivered.add((A, B), (), ())
    assert str(delivered) == f"{A}:1-8,{B}:3"


def test_numbers_that_leave_one_out_or_come_in_another_order() -> None:
    delivered = MySqlDelivered("")
    delivered.add((A,), (0, 0, 0, 0), (5, 7, 8, 2))
    assert str(delivered) == f"{A}:2:5:7-8"


def test_neighbouring_numbers_of_two_sources_are_two_runs() -> None:
    delivered = MySqlDelivered("")
    delivered.add((A, B, f"{A}:tag"), (0, 1, 2), (1, 2, 3))
    assert str(delivered) == f"{A}:1:tag:3,{B}:2"


def test_anonymous_transactions_leave_no_trace() -> None:
    delivered = MySqlDelivered("")
    delivered.add((f"{A}/12", A), (0, 1, 0), (157, 4, 400))
    assert str(delivered) == f"{A}:4"


def test_what_a_file_says_was_before_it() -> None:
    delivered = MySqlDelivered(f"{A}:1-5")
    assert str(delivered) == f"{A}:1-5"
    delivered.include(GtidSet.parse(f"{A}:4-9,{B}:1"))
    assert str(delivered) == f"{A}:1-9,{B}:1"


def test_a_position_is_the_last_of_each_domain() -> None:
    delivered = MariaDelivered("0-1-17,2-1-4")
    delivered.add(("0-1", "1-2"), (0, 0), (18, 19))
    assert str(delivered) == "0-1-19,2-1-4"
    delivered.add(("0-1", "1-2", "0-7"), (0, 1, 2, 1), (20, 5, 21, 6))
    assert str(delivered) == "0-7-21,1-2-6,2-1-4"
    delivered.add(("0-1", "0-7"), (0, 1, 0), (22, 23, 24))
    assert str(delivered) == "0-1-24,1-2-6,2-1-4"
    delivered.add(("0-1",), (), ())
    assert str(delivered) == "0-1-24,1-2-6,2-1-4"


@pytest.mark.parametrize("mariadb", [False, True])
def test_whose_words_a_stored_position_is_in(mariadb: bool) -> None:
    texts = {False: f"{A}:1-5", True: "0-1-17"}
    assert str(delivered_of(texts[mariadb], mariadb=mariadb)) == texts[mariadb]
    assert str(delivered_of("", mariadb=mariadb)) == ""
    with pytest.raises(PositionError):
        delivered_of(texts[not mariadb], mariadb=mariadb)
