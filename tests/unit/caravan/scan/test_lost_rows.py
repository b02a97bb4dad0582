"""Rows that changed in lost log: only these are read again, each once, and rows of them that are gone are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caravan.backfill import progress as progress_module
from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import MOST_BYTES, BackfillRequest, FlowBackfill
from caravan.scan.rounds import NextRows, Taker, next_work
from tests.support.present import present
from tests.support.rows_received import Receiver
from tests.unit.caravan.backfill.test_progress import boundaries, chunk, offered
from tests.unit.caravan.scan.test_scanner import World, running, times
from wormhole.filters import Filter
from wormhole.model.lost_keys import LostKeys, TableKeys
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import ChunkRange
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_key

ID = (Column("key", "int"),)
PLACES = tuple(LogPosition(1, 1, offset) for offset in range(9))


def lost(**tables: frozenset[bytes] | set[bytes] | str) -> BackfillRequest:
    found = {
        name: TableKeys(whole=keys) if isinstance(keys, str) else TableKeys(ID, frozenset(keys))
        for name, keys in tables.items()
    }
    return BackfillRequest(1, keys=LostKeys(found), lost=((PLACES[1], PLACES[4]),))


def renews(backfill: FlowBackfill) -> bool:
    return backfill.renewal is not None


def keys_of(backfill: FlowBackfill, table: str = "t") -> list[bytes]:
    return list(backfill.lost(table)[1])


def alone(*keys: bytes, again: tuple[bytes, ...] = ()) -> ChunkRange:
    return replace(chunk(START, START, alone=keys, again=again), schema=Schema("t", ID, ()))


def resumed(backfill: FlowBackfill, list_id: int = 7) -> FlowBackfill:
    found = FlowBackfill.resume(backfill.request, backfill.to_bytes(), "f")
    found.offer((table, boundaries((10, b"10"), (20, b"20"), list_id=list_id)) for table in ("s", "t"))
    return found


def test_only_these_keys_are_needed_and_the_table_does_not_end() -> None:
    request = lost(t={b"b", b"a", b"c"}, u="it was emptied")
    wanted = request.wanted(Filter.parse(None))
    assert [table for table in ("s", "t", "u") if wanted(table)] == ["t", "u"]
    found = offered("t", "u", request=request)
    assert found.ranges("t") == []
    assert found.ranges("u") == [(START, END)]
    assert keys_of(found) == [b"a", b"b", b"c"]
    assert not found.needs(chunk(START, 10))
    assert not found.needs(alone(b"x"))
    first = alone(b"a", b"b", b"x", again=(b"b", b"x"))
    assert found.needs(first)
    assert found.finishes(first, 1) == ()
    found.took(first, 1)
    assert keys_of(found) == [b"c"]
    assert list(found.again("t")) == [b"b"], "another flow asked for x"
    for last in (alone(b"c"), alone(b"b")):
        assert found.finishes(last, 1) == ()
        found.took(last, 1)
    assert found.tables == ["u"]
    [end] = found.finishes(chunk(START, END, "u"), 4)
    found.took(chunk(START, END, "u"), 4)
    assert (end.table, found.finished, found.rows) == ("u", True, 7)


def test_what_is_through_stays_so_and_keys_of_a_table_under_way_are_read_again() -> None:
    found = offered("s", "t", request=lost(t={b"a", b"b"}, s={b"a"}))
    found.took(alone(b"a", again=(b"a",)), 0)
    found.took(replace(alone(b"a"), table="s"), 1)
    found.read_again("t", b"moved")
    again = resumed(found)
    assert again.tables == ["t"]
    assert keys_of(again) == [b"a", b"b"]
    assert list(again.again("t")) == [b"a", b"moved"]
    assert resumed(found, list_id=8).ranges("t") == [(START, END)], "numbers of another list are worth nothing"


def test_a_row_that_moved_before_the_tables_are_known_costs_the_shortcut() -> None:
    found = FlowBackfill(lost(t={b"a"}), "f")
    found.read_again("u", b"b")
    assert not renews(found)
    found.read_again("t", b"b")
    assert renews(found)


def test_too_many_keys_to_read_again_become_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_MOST_AGAIN", 3)
    found = offered(request=lost(t={b"a", b"b", b"c", b"d"}))
    found.took(alone(b"a", b"b", b"c", b"d", again=(b"a", b"b", b"c", b"d")), 0)
    assert found.ranges("t") == [(START, END)]
    assert keys_of(found) == []


def test_what_does_not_fit_a_datamarker_is_read_as_whole_tables() -> None:
    found = offered(request=lost(t={b"a"}))
    for number in range(20):
        found.read_again("t", b"%d" % number * 1_000)
    assert len(found.to_bytes()) <= MOST_BYTES
    assert resumed(found).ranges("t") == [(START, END)]
    names = [f"{number}" * 100 for number in range(900)]
    many = offered(*names, request=lost(**{name: {b"a"} for name in names}))
    for name in names:
        many.read_again(name, b"moved")
    assert len(many.to_bytes()) <= MOST_BYTES
    assert resumed(many).renewal is not None


def test_more_lost_log_is_known_before_rows_were_sent_or_costs_the_shortcut() -> None:
    found = offered(request=lost(t={b"a"}))
    before = found.begun
    found.pass_loss(PLACES[2], PLACES[4])
    assert not renews(found)
    more = LostKeys({"t": TableKeys(ID, frozenset((b"a", b"b")))})
    found.extend(more, ((PLACES[1], PLACES[6]),))
    assert not found.finished
    found.offer([("t", boundaries())])
    assert keys_of(found) == [b"a", b"b"]
    found.pass_loss(PLACES[2], PLACES[6])
    assert not renews(found)
    found.took(alone(b"a", again=(b"a",)), 0)
    assert (before, found.begun) == (False, True)
    found.pass_loss(PLACES[6], PLACES[7])
    assert renews(found)


def test_what_the_log_does_to_whole_tables_does_not_concern_single_keys() -> None:
    found = offered("t", "u", request=lost(t={b"a"}, u="it was emptied"))
    found.took(chunk(START, 10, "u"), 1)
    for table in ("t", "u"):
        found.begin_again(table)
    assert keys_of(found) == [b"a"]
    assert found.ranges("u") == [(START, END)]
    assert [found.request.sends_all(table) for table in ("s", "t", "u")] == [False, False, True]
    found.took(alone(b"a"), 1)
    found.begin_again("t")
    assert found.tables == ["u"]
    found.need_whole("u")
    assert found.ranges("u") == [(START, END)]


def test_keys_of_lost_log_are_read_behind_those_to_read_again() -> None:
    other = lost(t={b"z"})
    assert other.keys is not None
    other = replace(other, keys=LostKeys({"t": TableKeys((Column("key", "text"),), frozenset((b"z",)))}))
    one, two = (offered(request=request) for request in (lost(t={b"b", b"c"}), other))
    lists = {"t": Boundaries(7, "")}
    takers = [Taker(one), Taker(two)]
    one.read_again("t", b"a")
    assert next_work(takers, lists, "t", START) == NextRows("t", alone=(b"a",))
    one.took(alone(b"a"), 1)
    assert next_work(takers, lists, "t", START) == NextRows("t", alone=(b"b", b"c"), columns=ID)
    coming = [Taker(one, (alone(b"b", b"c"),)), Taker(two)]
    assert present(next_work(coming, lists, "t", START)).alone == (b"z",)
    assert next_work(coming[:1], lists, "t", START) is None


# -- with the reader of rows


class LosingWorld(World):
    """A log of which a copy missed everything behind its first rows."""

    def missed(self, **tables: set[int] | str) -> Receiver:
        found = {
            name: TableKeys(whole=keys)
            if isinstance(keys, str)
            else TableKeys(ID, frozenset(encode_key((key,)) for key in keys))
            for name, keys in tables.items()
        }
        return Receiver(
            "log",
            self.source.latest(),
            lambda key: key,
            Filter.parse(None),
            BackfillRequest(1, keys=LostKeys(found), lost=((PLACES[0], self.source.latest().order),)),
        )


@pytest.fixture
def world() -> LosingWorld:
    return LosingWorld()


async def test_a_copy_equals_the_tables_again(world: LosingWorld) -> None:
    world.put(*range(1_200))
    world.put(*range(1_200), table="u")
    rows = {(table, key): (dict(row), 0) for table, of in world.tables.all_rows().items() for key, row in of.items()}
    world.put(*range(0, 1_200, 2), op=Op.UPDATE)
    world.source.commit([(Op.DELETE, "t", 7), (Op.DELETE, "u", 9), (Op.INSERT, "u", 5_000, {"v": 1})])
    async with running(world):
        receiver = world.missed(t={*range(0, 1_200, 2), 7}, u={9, 5_000})
        receiver.copy.rows = rows
        world.add(receiver)
        await world.finished()
    assert world.matches(receiver)
    assert len(receiver.copy.reads) == 601
    assert receiver.copy.finished == []


@pytest.mark.parametrize("columns", [1, 2])
async def test_keys_of_former_columns_cost_the_shortcut_of_their_table_only(columns: int, world: LosingWorld) -> None:
    world.put(*range(5))
    world.put(*range(5), table="u")
    receiver = world.missed(t={1}, u={2})
    assert receiver.request.keys is not None
    former = TableKeys(
        (Column("key", "text"), Column("more", "text"))[:columns], frozenset([encode_key(("x", "y")[:columns])])
    )
    request = replace(receiver.request, keys=LostKeys({**receiver.request.keys.tables, "t": former}))
    receiver = Receiver("log", world.source.latest(), lambda key: key, Filter.parse(None), request)
    async with running(world):
        world.add(receiver)
        await world.finished()
    assert receiver.copy.finished == ["t"]
    assert sorted(receiver.copy.reads) == [*(("t", (key,)) for key in range(5)), ("u", (2,))]


async def test_another_spelling_of_a_key_costs_the_shortcut(world: LosingWorld) -> None:
    world.put(*range(5))
    world.tables.changes = lambda chunk: replace(chunk, unclear=[encode_key((99,))])
    async with running(world):
        receiver = world.missed(t={1, 99})
        world.add(receiver)
        await world.finished()
    assert receiver.copy.finished == ["t"]
    assert len(receiver.copy.reads) == 5


async def test_a_row_that_changes_or_moves_meanwhile_is_right(world: LosingWorld) -> None:
    world.put(*range(4), more=1)
    changes = [
        [(Op.MERGE, "t", 1, {"v": 91})],
        [(Op.UPDATE, "t", 1, {"v": 90, "more": UNAVAILABLE}), (Op.DELETE, "t", 2)],
    ]
    world.tables.on_snapshot = times(2, lambda: world.source.commit(changes.pop()))  # type: ignore[arg-type]
    async with running(world):
        receiver = world.missed(t={1, 2})
        for key in range(4):
            receiver.copy.rows["t", (key,)] = {"v": 1, "more": 1}, 0
        world.add(receiver)
        await world.finished()
        assert world.matches(receiver)
