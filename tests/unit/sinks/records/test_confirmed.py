"""Records that come again are left out if they are the same ones, in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sinks.records import Record
from sinks.records.confirmed import Confirmed


def records(ids: str) -> list[Record]:
    return [Record(id_, id_, "t", b"", b"") for id_ in ids]


@pytest.fixture
def confirmed() -> Confirmed:
    """Three records were confirmed, in two writes, and all come again."""
    made = Confirmed()
    made.add(records("ab"))
    made.add(records("c"))
    made.begin_again()
    return made


@pytest.mark.parametrize("writes", [["abcd"], ["a", "bcd"], ["abc", "d"]])
def test_the_same_records_are_left_out(confirmed: Confirmed, writes: Sequence[str]) -> None:
    rest = [confirmed.rest(records(ids)) for ids in writes]
    assert [record.id for part in rest for record in part or ()] == ["d"]
    assert not confirmed.passing


@pytest.mark.parametrize("ids", ["abxd", "bcd", "acbd"])
def test_other_records_are_noticed(confirmed: Confirmed, ids: str) -> None:
    assert confirmed.rest(records(ids)) is None


def test_fewer_records_are_still_expected(confirmed: Confirmed) -> None:
    assert confirmed.rest(records("ab")) == []
    assert confirmed.passing


def test_what_is_confirmed_after_them_is_left_out_too(confirmed: Confirmed) -> None:
    confirmed.rest(records("abc"))
    confirmed.add(records("d"))
    confirmed.begin_again()
    rest = confirmed.rest(records("abcde"))
    assert rest is not None
    assert [record.id for record in rest] == ["e"]


def test_nothing_is_left_out_after_a_datamarker(confirmed: Confirmed) -> None:
    confirmed.clear()
    confirmed.begin_again()
    assert not confirmed.passing
