from __future__ import annotations

from dataclasses import replace

import pytest

from wormhole.model.errors import ProtocolError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op
from wormhole.wire.body import ParsedBody, parse_body
from wormhole.wire.endings import Endings
from wormhole.wire.rows import encode_row, entry
from wormhole.wire.update import Batch, Update

SCHEMA = Schema("t", (Column("id", "int"),), (Column("id", "int"),))


def body(*parts: tuple[int, tuple[int, ...]], unfinished: bool = False, first: int = 0, marks: bool = False) -> bytes:
    """Transactions ``(number, keys)``; the first one's updates are counted from ``first``."""
    updates, ends, index = [], [], []
    for place, (_, keys) in enumerate(parts):
        for i, key in enumerate(keys):
            updates.append(encode_row(Op.INSERT, (key,), after=(key,)))
            index.append(i + (first if place == 0 else 0))
        ends.append(len(updates))
    return ParsedBody(
        updates, (SCHEMA.id,), (), index, 0, ("s",), (), [number for number, _ in parts], 1, [3] * len(parts),
        [100 * number for number, _ in parts], [number for number, _ in parts], ends[:-1] if unfinished else ends,
        [n % 3 for n in range(len(updates))] if marks else (),
    ).to_bytes()  # fmt: skip


def told(data: bytes) -> list[tuple[str, object, bool]]:
    def schema(_: int) -> Schema:
        return SCHEMA

    found: list[Update] = Batch(parse_body(data), "x", 1, False, schema).updates()
    return [(one.id, one.key[0], one.ends_transaction) for one in found]


def test_a_whole_transaction_passes_untouched() -> None:
    data = body((1, (1, 2)))
    assert Endings().pass_on(data, unfinished=False) is data


@pytest.fixture
def endings() -> Endings:
    return Endings()


def test_the_last_update_of_a_piece_comes_with_the_next_one(endings: Endings) -> None:
    first = endings.pass_on(body((1, (1,)), (2, (2, 3)), unfinished=True), unfinished=True)
    assert told(first) == [("s:1:0", 1, True), ("s:2:0", 2, False)]
    second = endings.pass_on(body((2, (4,)), unfinished=True, first=2), unfinished=True)
    assert told(second) == [("s:2:1", 3, False)]
    last = endings.pass_on(body((2, (5,)), (3, (6,)), first=3), unfinished=False)
    assert told(last) == [("s:2:2", 4, False), ("s:2:3", 5, True), ("s:3:0", 6, True)]
    assert endings.release() is None


def test_an_end_without_an_update_is_the_end_of_the_one_before(endings: Endings) -> None:
    first = endings.pass_on(body((2, (7,)), unfinished=True), unfinished=True)
    assert told(first) == []
    assert told(endings.pass_on(body((2, ())), unfinished=False)) == [("s:2:0", 7, True)]


def test_pieces_that_need_no_column_for_each_update_get_none(endings: Endings) -> None:
    for first in (0, 3, 6):
        piece = replace(parse_body(body((2, (1, 2, 3)), unfinished=True)), update_index=(), first_index=first, window=7)
        passed = parse_body(endings.pass_on(piece.to_bytes(), unfinished=True))
        assert not passed.update_index
        assert not passed.schema_index
        assert list(passed.schema_ids) == [SCHEMA.id]
        assert passed.window == 7
        assert [passed.index_of(i) for i in range(len(passed.updates))] == list(range(max(0, first - 1), first + 2))
    end = parse_body(endings.pass_on(body((2, ()), (3, (4, 5))), unfinished=False))
    assert [end.index_of(i) for i in range(3)] == [8, 0, 1]


def test_an_end_behind_the_only_update_that_was_held_back(endings: Endings) -> None:
    endings.pass_on(body((2, (7,)), unfinished=True), unfinished=True)
    assert told(endings.pass_on(body((2, ()), unfinished=True), unfinished=True)) == []
    assert told(endings.pass_on(body((2, (8,)), first=1), unfinished=False)) == [
        ("s:2:0", 7, False),
        ("s:2:1", 8, True),
    ]


def test_a_piece_whose_fields_stand_in_another_order() -> None:
    piece = body((2, (1, 2, 3)), unfinished=True)
    entries = b"".join(entry(update) for update in parse_body(piece).updates)
    columns = piece.removeprefix(entries)
    assert len(columns) == len(piece) - len(entries)
    mixed = columns + entries
    assert told(Endings().pass_on(mixed, unfinished=True)) == told(Endings().pass_on(piece, unfinished=True))


def test_marks_go_with_their_updates(endings: Endings) -> None:
    first = endings.pass_on(body((2, (1, 2, 3)), unfinished=True, marks=True), unfinished=True)
    last = parse_body(endings.pass_on(body((2, (4,)), first=3), unfinished=False))
    assert [parse_body(first).mark_of(i) for i in (0, 1)] == [0, 1]
    assert [last.mark_of(i) for i in (0, 1)] == [2, 0]


def test_what_is_held_back_when_nothing_of_its_transaction_follows(endings: Endings) -> None:
    endings.pass_on(body((2, (1, 2)), unfinished=True), unfinished=True)
    assert told(endings.pass_on(body((3, (4,))), unfinished=False)) == [("s:2:1", 2, True), ("s:3:0", 4, True)]
    endings.pass_on(body((4, (1,)), unfinished=True), unfinished=True)
    released = endings.release()
    assert released is not None
    assert told(released) == [("s:4:0", 1, True)]


def test_bytes_that_are_no_body() -> None:
    with pytest.raises(ProtocolError):
        Endings().pass_on(b"\xff", unfinished=True)
