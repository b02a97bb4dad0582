"""The rules of parking: places, rows, what binds letters together, what travels."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subscriber_sdk.testing import Change, body_of, update
from tests.support.letters import letter, parcel_of, place
from wormhole.model.errors import ProtocolError
from wormhole.model.values import Op
from wormhole.ports.dead_letters import (
    Parcel,
    ParkedRows,
    bound_together,
    for_receiver,
    in_order,
    open_parcel,
    parked_rows,
    place_from_message,
    place_of,
    place_to_message,
    row_text,
    with_letter,
    wrap,
)
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch, Update
from wormhole.wire.v1 import update_pb2


def of(change: Change, number: int = 1) -> Update:
    return open_parcel(parcel_of(change, number))


def row(key: int, table: str = "t", old: int | None = None) -> Update:
    return of(update(table, key=key, old_key=() if old is None else old, before={"v": 1}, after={"v": 2}))


TRUNCATE = of(update("t", key=(), op=Op.TRUNCATE))


# --- places


def test_places_within_one_transaction_go_by_index_however_it_was_cut() -> None:
    """Sent in pieces an update stands where its transaction begins, sent whole behind it: the same update, two
    positions."""
    begun, whole = place(10, 3, inside=True, transaction="test:20"), place(20, 2, transaction="test:20")
    assert whole.before(begun)
    assert not begun.before(whole)


def test_places_of_several_transactions() -> None:
    in_log_order = [
        place(10, 7),
        place(10, 0, transaction="read:2:9"),  # rows that were read behind the transaction that ends there
        place(10, 5, transaction="read:2:9"),
        place(10, 0, transaction="read:2:10"),
        place(10, 0, transaction="read:11:1"),
        place(10, 0, inside=True, transaction="test:20"),  # it is in the transaction that ends at 20
        place(20, 5),
        place(20, 0, inside=True, transaction="test:30"),
        place(30, 9, transaction="test:30"),
    ]
    for first, second in itertools.combinations(in_log_order, 2):
        assert first.before(second)
        assert not second.before(first)
    assert not in_log_order[0].before(in_log_order[0])


def test_an_updates_place_is_that_of_its_batch() -> None:
    change = update("t", key=1)
    for ends, inside, offset in ((True, False, 9), (False, True, 8)):
        body = parse_body(body_of([change], number=9, first_index=4, ends=ends))
        (one,) = Batch(body, "s", 1, False, lambda _: change.schema).updates()
        assert place_of(one) == place(offset, 4, inside=inside, transaction="test:9")
        assert place_from_message(place_to_message(place_of(one))) == place_of(one)


def test_letters_are_put_into_the_order_of_the_log() -> None:
    letters = [letter(number, index=index)[0] for number, index in ((1, 0), (5, 0), (5, 2), (9, 1))]
    for mixed in itertools.permutations(letters):
        assert in_order(mixed) == tuple(letters)


# --- rows


def test_rows_are_one_two_or_the_table() -> None:
    assert [row_text(one) for one in row(7).rows()] == ["t:7"]
    assert [row_text(one) for one in row(7, old=8).rows()] == ["t:7", "t:8"]
    assert [row_text(one) for one in row(7, old=7).rows()] == ["t:7"]
    assert [row_text(one) for one in TRUNCATE.rows()] == ["t:*"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"\x00k1", "default:0x006b31"),
        ("ada lovelace", "default:ada lovelace"),
        ("a,b/c%", "default:a%2Cb%2Fc%25"),
        ((1, "x"), "default:1,x"),
        (-5, "default:-5"),
        (True, "default:True"),
        ((None, 2.5), "default:null,2.5"),
    ],
)
def test_a_row_as_text(key: object, text: str) -> None:
    assert [row_text(one) for one in of(update("default", key=key)).rows()] == [text]  # type: ignore[arg-type]


def test_a_table_as_text_cannot_be_taken_for_a_row() -> None:
    assert [row_text(one) for one in of(update("a:b,*", key="*")).rows()] == ["a%3Ab%2C%2A:%2A"]


def test_a_row_holds_what_is_behind_its_first_parked_update() -> None:
    rows = ParkedRows()
    assert not rows
    rows.add(row(1).rows(), place(20))
    rows.add(row(1).rows(), place(10))
    rows.add(row(1).rows(), place(30))
    assert rows.tables == {"t"}
    assert [rows.hold(row(1).rows(), place(at)) for at in (9, 10, 11)] == [False, True, True]
    assert not rows.hold(row(2).rows(), place(40))
    assert not rows.hold(row(1, "other").rows(), place(40))
    assert rows.hold(row(2, old=1).rows(), place(40))
    assert dict(rows.items()) == {row(1).rows()[0]: place(10)}


def test_a_truncate_waits_for_any_row_of_its_table_and_every_row_for_it() -> None:
    rows = ParkedRows([(row(1).rows()[0], place(10))])
    assert [rows.hold(TRUNCATE.rows(), place(at)) for at in (9, 11)] == [False, True]
    rows.add(TRUNCATE.rows(), place(20))
    assert [rows.hold(row(2).rows(), place(at)) for at in (15, 21)] == [False, True]


def test_an_update_without_a_key_is_of_its_whole_table() -> None:
    keyless, keyed = of(update("t", key=(), after={"v": 1})), row(1)
    assert keyless.rows() == TRUNCATE.rows()
    for parked, later in ((keyless, keyless), (keyless, keyed), (keyed, keyless), (keyless, TRUNCATE)):
        rows = ParkedRows([(one, place(5)) for one in parked.rows()])
        assert rows.hold(later.rows(), place(6))
        assert not rows.hold(later.rows(), place(4))
    assert not ParkedRows([(keyless.rows()[0], place(5))]).hold(row(1, "u").rows(), place(6))


def test_an_update_without_a_key_waits_for_one_that_an_earlier_release_parked() -> None:
    keyless = of(update("t", key=(), after={"v": 1}))
    before = ParkedRows([(update_pb2.RowKey(table="t").SerializeToString(), place(5))])
    assert before.hold(keyless.rows(), place(6))


def test_letters_that_are_retried_hold_no_row() -> None:
    (first, _), (second, _) = letter(1, 1, retrying=True), letter(2, 2)
    assert dict(parked_rows([first, second]).items()) == {second.rows[0]: second.place}


def test_letters_are_bound_by_the_rows_that_they_share() -> None:
    def parked(number: int, one: Update) -> object:
        return letter(number)[0].__class__(
            str(number), place(number), one.rows(), one.op.value, 0.0, "", retrying=False, size=1
        )

    letters = [
        parked(1, row(1)),
        parked(2, row(2, old=1)),
        parked(3, row(2)),
        parked(4, row(4)),
        parked(5, row(4, "other")),
    ]
    assert bound_together(letters, ["3"]) == ("1", "2", "3")  # type: ignore[arg-type]
    assert bound_together(letters, ["4"]) == ("4",)  # type: ignore[arg-type]
    assert bound_together(letters, []) == ()  # type: ignore[arg-type]
    with_truncate = [*letters, parked(6, TRUNCATE)]
    assert bound_together(with_truncate, ["4"]) == ("1", "2", "3", "4", "6")  # type: ignore[arg-type]
    assert bound_together(with_truncate, ["6"]) == ("1", "2", "3", "4", "6")  # type: ignore[arg-type]
    assert bound_together(with_truncate, ["5"]) == ("5",)  # type: ignore[arg-type]


# --- parcels


@given(st.integers(0, 4), st.booleans())
def test_a_parcel_delivers_the_same_update_again(which: int, ends: bool) -> None:
    changes = [update("t", key=n, before={"v": n}, after={"v": n + 1}, entered=n == 2) for n in range(5)]
    body = parse_body(body_of(changes, number=9, first_index=3, ends=ends, committed_at_us=5))
    one = Batch(body, "s", 1, False, lambda _: changes[0].schema).updates()[which]
    again = open_parcel(wrap(one), "s", 2)
    for name in ("id", "index", "op", "table", "key", "before", "after", "position", "committed_at", "entered"):
        assert getattr(again, name) == getattr(one, name)
    assert again.rows() == one.rows()
    assert (again.epoch, again.replayed) == (2, True)


def test_a_parcel_holds_one_update_of_its_schema() -> None:
    change = update("t", key=1)
    good = parcel_of(change)
    for bad in (
        Parcel(update("other", key=1).schema.canonical, good.body),
        Parcel(good.schema, body_of([change, change])),
        Parcel(good.schema, b""),
    ):
        with pytest.raises(ProtocolError, match=r"park\.body: . updates"):
            open_parcel(bad)
    with pytest.raises(ProtocolError, match="no valid Schema"):
        open_parcel(Parcel(b"\xff", good.body))


def test_what_another_one_parked_is_held_with_what_is_bound_to_it() -> None:
    mine, theirs, later, other = (
        replace(letter(1, 1, retrying=True)[0], parked_by="me"),
        replace(letter(2, 2, retrying=True)[0], parked_by="them"),
        replace(letter(3, 2, retrying=True)[0], parked_by="me"),  # the same row, behind it
        letter(4, 3, retrying=True)[0],  # anyone's
    )
    letters = (mine, theirs, later, other)
    assert [told.retrying for told in for_receiver(letters, "me")] == [True, False, False, True]
    assert [told.retrying for told in for_receiver(letters, "them")] == [False, False, False, True]
    assert for_receiver((mine, other), "me") == (mine, other)


def test_a_letter_takes_its_place_among_the_others() -> None:
    first, second, third = (letter(number)[0] for number in (1, 2, 3))
    for letters, one in (((first, second), third), ((first, third), second), ((second, third), first), ((), first)):
        assert with_letter(letters, one) == in_order((*letters, one))
