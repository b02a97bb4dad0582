"""What is left of a batch of updates for one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest

from sinks.sql import changes
from sinks.sql.changes import Clear, Move, Moved, Range, Room, Rows, Step, Write
from sinks.sql.failures import RowRefused
from subscriber_sdk import UNAVAILABLE, Op, Subscriber, Update
from subscriber_sdk.testing import Kit, read, update
from subscriber_sdk.testing.changes import Change

T = "shop.orders"


@pytest.fixture
def received(wormhole_kit: Kit) -> Any:
    """The updates of one transaction, as a subscriber gets them."""
    found: list[Update] = []

    class Keeps(Subscriber):
        async def on_updates(self, batch: Sequence[Update]) -> None:
            found.extend(update.detach() for update in batch)

    flow = wormhole_kit.attach(Keeps())

    def of(*changes: Change) -> list[Update]:
        found.clear()
        flow.commit(*changes)
        return list(found)

    return of


def insert(key: int, **after: Any) -> Change:
    return update(T, key=key, after=after)


def change(key: int, after: dict[str, Any], before: int = 0, **more: Any) -> Change:
    image = {name: UNAVAILABLE if after.get(name, UNAVAILABLE) is UNAVAILABLE else before for name in AB}
    return update(T, key=key, before=image, after=after, **more)


def delete(key: int) -> Change:
    return update(T, key=key, before={"a": 0, "b": 0})


AB = ("a", "b")


def steps(updates: list[Update]) -> list[Step]:
    return list(changes.steps(updates, Moved(Room())))


def test_a_row_is_written_once_with_its_last_values(received: Any) -> None:
    (write,) = steps(received(insert(1, a=1, b=1), insert(2, a=2, b=2), change(1, {"a": 3, "b": 3})))
    assert write == Write(upserts={AB: Rows.of([((1,), (3, 3)), ((2,), (2, 2))])})


def test_the_last_of_delete_and_insert_remains(received: Any) -> None:
    (write,) = steps(received(insert(1, a=1, b=1), delete(1), delete(2), insert(2, a=2, b=2)))
    assert write == Write(deletes=[(1,)], upserts={AB: Rows.of([((2,), (2, 2))])})


def test_an_existing_row_replaces(received: Any) -> None:
    (write,) = steps(received(read(T, key=1, after={"a": 1, "b": 1})))
    assert write == Write(upserts={AB: Rows.of([((1,), (1, 1))])})


def test_a_key_change_deletes_the_old_key(received: Any) -> None:
    (write,) = steps(received(change(2, {"a": 1, "b": 1}, old_key=1)))
    assert write == Write(deletes=[(1,)], upserts={AB: Rows.of([((2,), (1, 1))])})


def test_two_rows_swap_their_keys(received: Any) -> None:
    moved = [change(9, {"a": 1, "b": 1}, old_key=1), change(1, {"a": 2, "b": 2}, old_key=2)]
    (write,) = steps(received(*moved, change(2, {"a": 1, "b": 1}, 1, old_key=9)))
    assert write == Write(upserts={AB: Rows.of([((1,), (2, 2)), ((2,), (1, 1))])}, new=False)


def test_rows_swap_their_keys_without_the_values_that_did_not_change(received: Any) -> None:
    """A deferrable key of PostgreSQL, with its REPLICA IDENTITY FULL and values in TOAST."""
    one, other = {"a": 1, "b": 1}, {"a": 2, "b": 2}
    first = update(T, key=2, old_key=1, before=one, after={"a": UNAVAILABLE, "b": 1})
    second = update(T, key=1, old_key=2, before=other, after={"a": UNAVAILABLE, "b": 2})
    (write,) = steps(received(first, second))
    assert write == Write(upserts={AB: Rows.of([((1,), (2, 2)), ((2,), (1, 1))])}, new=False)


def test_a_row_that_came_to_a_key_stays_when_the_row_before_it_leaves(received: Any) -> None:
    """A value that is NaN is the same before and after."""
    nan = float("nan")
    (write,) = steps(
        received(
            change(2, {"a": 1, "b": 1}, old_key=1),
            change(2, {"a": 5, "b": 5}, 7),
            change(3, {"a": 5, "b": 5}, 5, old_key=2),
            change(9, {"a": nan, "b": 1}, old_key=8),
            update(T, key=9, before={"a": nan, "b": 1}),
        )
    )
    rows = Rows.of([((2,), (1, 1)), ((3,), (5, 5))])
    assert write == Write(deletes=[(1,), (8,)], upserts={AB: rows}, new=False)


def shift(moves: Sequence[tuple[int, int]]) -> list[Change]:
    """Rows get other keys, one after the other."""
    return [change(new, {"a": old, "b": old}, old, old_key=old) for old, new in moves]


UP = [(key, key + 1) for key in range(1, 20)]
DOWN = [(key, key - 1) for key in range(20, 0, -1)]


@pytest.mark.parametrize("moves", [UP, UP[::-1], DOWN, DOWN[::-1]])
def test_a_shift_of_keys_remembers_one_key_at_a_time(received: Any, moves: list[tuple[int, int]]) -> None:
    moved = Moved(Room(size=200))
    (write,) = changes.steps(received(*shift(moves)), moved)
    assert not moved.lost
    assert isinstance(write, Write)
    olds, news = ({move[side] for move in moves} for side in (0, 1))
    assert write.deletes == [(key,) for key in olds - news]
    kept = write.upserts[AB]
    assert dict(zip(kept.values[0], kept.keys[0], strict=True)) == dict(moves)


class Deferred:
    """One transaction over a table whose key is checked at its end (``deferred``), or at once."""

    def __init__(self, random: Random, *, deferred: bool) -> None:
        self.begin = {key: random.randrange(2) for key in range(5) if random.random() < 0.6}
        self.rows = [(key, value) for key, value in self.begin.items()]
        self.changes: list[Change] = []
        for _ in range(random.randint(1, 8)):
            self._change(random, deferred=deferred)

    @property
    def keys(self) -> list[int]:
        return sorted(key for key, _ in self.rows)

    @property
    def holds(self) -> bool:
        """Whether every row has a key of its own."""
        return len(set(self.keys)) == len(self.rows)

    def _change(self, random: Random, *, deferred: bool) -> None:
        before, number = list(self.rows), random.randrange(len(self.rows) + 1)
        new, value = random.randrange(5), random.randrange(2)
        if number == len(self.rows):
            made = update(T, key=new, after=_row(value))
            self.rows.append((new, value))
        else:
            old, had = self.rows.pop(number)
            kind = random.choice(("delete", "change", "move", "move", "move"))
            new, value = (old if kind == "change" else new), random.choice((had, had, value))
            moved: Any = {"old_key": old} if new != old else {}
            if kind == "delete":
                made = update(T, key=old, before=_row(had))
            else:
                made = update(T, key=new, before=_row(had), after=_row(value), **moved)
                self.rows.insert(number, (new, value))
        if self.holds or (deferred and number < len(before)):
            self.changes.append(made)
        else:
            self.rows = before


def _row(value: int) -> dict[str, Any]:
    return {"a": value, "b": 7}


def filled(target: dict[Any, Any], found: Iterable[Step]) -> None:
    """Do the steps as the database does."""
    for step in found:
        assert isinstance(step, Write)
        for key in step.deletes:
            target.pop(key[0], None)
        assert not step.patches
        for rows in step.upserts.values():
            target.update(zip(rows.keys[0], rows.values[0], strict=True))


@pytest.mark.parametrize("deferred", [False, True])
def test_whatever_becomes_of_keys_the_rows_are_right_or_reported_as_lost(received: Any, deferred: bool) -> None:
    """Rows may have a key twice, be equal but for the key, and come to keys and leave them, in one batch or several."""
    random = Random(7)
    for _ in range(400):
        story = Deferred(random, deferred=deferred)
        if not (story.holds and story.changes):
            continue
        updates, target, moved = received(*story.changes), dict(story.begin), Moved(Room())
        cut = random.choice((0, random.randrange(len(updates) + 1)))
        for part in filter(None, (updates[:cut], updates[cut:])):
            filled(target, changes.steps(part, moved))
        assert target == dict(story.rows) or moved.lost, (
            story.begin,
            [(one.op, one.old_key, one.key) for one in updates],
        )
        assert deferred or not moved.lost or cut


def test_keys_beyond_the_room_are_lost_and_reported(received: Any) -> None:
    room = Room(size=3 * 200)
    moved = Moved(room)
    list(changes.steps(received(*shift([(key, key + 100) for key in range(3)])), moved))
    assert (room.taken, moved.lost) == (600, False)
    list(changes.steps(received(*shift([(key, key + 100) for key in range(4)])), moved))
    assert (room.taken, moved.lost) == (600, True)
    moved.clear()
    assert room.taken == 0


def test_the_text_of_a_key_takes_room(received: Any) -> None:
    room = Room()
    list(changes.steps(received(update(T, key="k" * 500, old_key="a", before={"a": 1}, after={"a": 1})), Moved(room)))
    assert room.taken == 700


def test_no_key_is_remembered_where_the_log_has_no_image_before(received: Any) -> None:
    """Nothing could be compared with it."""
    room = Room()
    updates = received(
        update(T, key=2, old_key=1, after={"a": 1}),
        update(T, key=4, old_key=3, before={"a": UNAVAILABLE}, after={"a": 1}),
    )
    list(changes.steps(updates, Moved(room)))
    assert room.taken == 0


@pytest.mark.parametrize("again", [insert(2, a=7, b=7), update(T, key=2, before={"a": 7, "b": 7}, after={"a": 7})])
def test_a_key_that_was_left_and_has_a_row_again_is_not_free(received: Any, again: Change) -> None:
    first = change(5, {"a": 2, "b": 2}, 2, old_key=2)
    come, leave = change(2, {"a": 1, "b": 1}, 1, old_key=1), change(3, {"a": 7, "b": 7}, 7, old_key=2)
    *_, write = steps(received(first, again, come, leave))
    assert isinstance(write, Write)
    kept = write.upserts[AB]
    assert dict(zip(kept.keys[0], kept.values[0], strict=True)) == {5: 2, 2: 1, 3: 7}


def test_a_column_that_is_not_in_the_log_is_left_out(received: Any) -> None:
    (write,) = steps(received(change(1, {"a": 1}), change(2, {"a": 2, "b": 2})))
    assert write == Write(upserts={AB: Rows.of([((2,), (2, 2))])}, patches={("a",): Rows.of([((1,), (1,))])})


def test_known_columns_are_put_over_the_row_of_the_batch(received: Any) -> None:
    (write,) = steps(received(insert(1, a=1, b=1), change(1, {"a": 2}), change(2, {"a": 5}), change(2, {"b": 6})))
    assert write == Write(upserts={AB: Rows.of([((1,), (2, 1))])}, patches={AB: Rows.of([((2,), (5, 6))])})


def test_a_row_that_was_deleted_gets_no_columns(received: Any) -> None:
    (write,) = steps(received(delete(1), change(1, {"a": 2})))
    assert write == Write(deletes=[(1,)])


def test_a_new_row_has_nothing_of_a_deleted_one(received: Any) -> None:
    first, second = steps(received(delete(1), update(T, key=1, after={"a": 1, "b": UNAVAILABLE})))
    assert (first, second) == (Write(deletes=[(1,)]), Write(upserts={("a",): Rows.of([((1,), (1,))])}))


def test_a_row_of_unknown_columns_moves(received: Any) -> None:
    first, move, last = steps(received(insert(5, a=5, b=5), change(2, {"a": 1}, old_key=1), insert(6, a=6, b=6)))
    assert first == Write(upserts={AB: Rows.of([((5,), (5, 5))])})
    assert move == Move((1,), (2,), ("a",), (1,))
    assert last == Write(upserts={AB: Rows.of([((6,), (6, 6))])})


def test_a_row_of_the_batch_moves_with_its_columns(received: Any) -> None:
    (write,) = steps(received(insert(1, a=1, b=1), change(2, {"a": 7}, old_key=1)))
    assert write == Write(deletes=[(1,)], upserts={AB: Rows.of([((2,), (7, 1))])})


def test_a_truncate_drops_what_came_before(received: Any) -> None:
    clear, write = steps(received(insert(1, a=1, b=1), update(T, key=(), op=Op.TRUNCATE), insert(2, a=2, b=2)))
    assert (clear, write) == (Clear(), Write(upserts={AB: Rows.of([((2,), (2, 2))])}))


def test_a_range_comes_between(received: Any) -> None:
    found = received(insert(1, a=1, b=1), update(T, key=1, key_end=3, op=Op.DELETE_RANGE), insert(2, a=2, b=2))
    first, between, last = steps(found)
    assert first == Write(upserts={AB: Rows.of([((1,), (1, 1))])})
    assert between == Range((1,), (3,))
    assert last == Write(upserts={AB: Rows.of([((2,), (2, 2))])})


def test_what_the_filter_does_not_select_any_more_is_deleted(received: Any) -> None:
    (write,) = steps(received(change(1, {"a": 1, "b": 1}, left=True), update(T, key=2, left=True)))
    assert write == Write(deletes=[(1,), (2,)])


def test_rows_without_a_key_are_appended(received: Any) -> None:
    (write,) = steps(received(update(T, key=(), after={"a": 1}), update(T, key=(), after={"a": 1})))
    assert write == Write(appends={("a",): Rows.of([((), (1,)), ((), (1,))])})


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (update(T, key=(), before={"a": 1}), "has no key"),
        (update(T, key=1, after={"value": b"+1"}, op=Op.MERGE), "merge operand"),
    ],
)
def test_an_update_that_makes_no_row_is_refused(received: Any, refused: Change, why: str) -> None:
    with pytest.raises(RowRefused, match=why):
        steps(received(refused))


def test_rows_that_were_all_inserted_or_read_are_new(received: Any) -> None:
    (inserted,) = steps(received(insert(1, a=1, b=1), read(T, key=2, after={"a": 1, "b": 1})))
    (changed,) = steps(received(insert(1, a=1, b=1), change(2, {"a": 1, "b": 1})))
    assert (inserted.new, changed.new) == (True, False)  # type: ignore[union-attr]
