"""Any sequence of failing rows, crashes, moves, retries and discards: every update is handled in the order of its
row, or parked, or discarded."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from subscriber_sdk import Datamarker, RetryPolicy, ShardNotice, Subscriber, Update
from subscriber_sdk.testing import Change, Kit, KitFlow, update
from tests.support.present import present
from tests.support.seed import examples
from wormhole.model.values import Op
from wormhole.ports.dead_letters import row_text

KEYS = ["1", "2"]


class Table:
    """What outlives a subscriber's process: rows in a database that commits at datamarkers, and which rows it
    refuses just now."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.committed: dict[str, list[int]] = {}
        """By row: numbers of the updates that were handled, in the order in which they were committed."""


class Handler(Subscriber):
    def __init__(self, table: Table) -> None:
        self.table = table
        self.open: list[tuple[str, int]] = []

    def take(self, one: Update) -> None:
        after = present(one.after)
        number = after["n"]
        assert isinstance(number, int)
        rows = [str(one.key[0]), *([str(one.old_key[0])] if one.old_key else [])]
        for row in rows:
            if row in self.table.refused:
                raise ValueError(row)
        self.open += [(row, number) for row in rows]

    async def on_update(self, update: Update) -> None:
        self.take(update)

    async def on_datamarker(self, marker: Datamarker) -> None:
        for row, number in self.open:
            self.table.committed.setdefault(row, []).append(number)
        self.open.clear()

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        self.open.clear()

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        self.open.clear()


class Batches(Subscriber):
    def __init__(self, table: Table) -> None:
        self.inner = Handler(table)

    async def on_updates(self, batch: Sequence[Update]) -> None:
        for one in batch:
            self.inner.take(one)

    async def on_datamarker(self, marker: Datamarker) -> None:
        await self.inner.on_datamarker(marker)

    async def on_rollback(self, to: Datamarker, cause: Exception) -> None:
        await self.inner.on_rollback(to, cause)

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        await self.inner.on_shard_notice(notice)


ROWS = st.sampled_from(KEYS)
STEPS = st.one_of(
    st.tuples(st.just("commit"), st.lists(st.tuples(ROWS, st.one_of(st.none(), ROWS)), min_size=1, max_size=5)),
    st.tuples(st.just("refuse"), ROWS),
    st.tuples(st.just("accept"), ROWS),
    st.tuples(st.just("crash"), st.integers(0, 3)),
    st.tuples(st.just("move"), st.none()),
    st.tuples(st.just("retry"), st.one_of(st.just(""), ROWS)),
    st.tuples(st.just("discard"), ROWS),
    st.tuples(st.just("cut"), st.none()),
)


class Model:
    """``kind``: how many handlers side by side, 0: by batches."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.kit = Kit()
        self.table = Table()
        self.written: dict[str, list[int]] = {}
        self.ids: dict[str, int] = {}
        self.discarded: set[int] = set()
        self.number = 0
        self.transactions = 0
        retry, concurrency = RetryPolicy(attempts=2), max(1, kind)
        self.flow: KitFlow = self.kit.attach(self.process(), on_failure="park", retry=retry, concurrency=concurrency)

    def process(self) -> Subscriber:
        return Handler(self.table) if self.kind else Batches(self.table)

    def change(self, row: str, before: str | None, index: int) -> Change:
        self.number += 1
        self.ids[f"test:{self.transactions}:{index}"] = self.number
        moved = before if before not in (None, row) else None
        for touched in dict.fromkeys([row, *([moved] if moved else [])]):
            self.written.setdefault(touched, []).append(self.number)
        after = {"n": self.number}
        if moved:
            return update("t", key=row, old_key=moved, before={"n": 0}, after=after, op=Op.UPDATE)
        return update("t", key=row, after=after)

    def step(self, what: str, with_: object) -> None:
        flow = self.flow
        match what:
            case "commit":
                assert isinstance(with_, list)
                self.transactions += 1
                flow.commit(*(self.change(row, before, i) for i, (row, before) in enumerate(with_)), pieces=2)
            case "refuse":
                self.table.refused.add(str(with_))
            case "accept":
                self.table.refused.discard(str(with_))
            case "crash":
                assert isinstance(with_, int)
                flow.crash_and_redeliver(with_, subscriber=self.process())
            case "move":
                flow.revoke()
                flow.assign()
            case "cut":
                flow.cut()
                flow.assign()
            case "retry" | "discard":
                key = f"t:{with_}" if with_ else ""
                parked = set(flow.parked)
                if not parked or (key and not any(key in texts for texts in self.parked_rows())):
                    return
                if what == "retry":
                    flow.retry(key)
                else:
                    gone = [one.id for one in flow._letters.all() if key in _texts(one.rows)]
                    self.discarded.update(self.ids[id_] for id_ in gone)
                    flow.discard(key)

    def parked_rows(self) -> list[list[str]]:
        return [_texts(letter.rows) for letter in self.flow._letters.all()]

    def check(self) -> None:
        parked = [self.ids[id_] for id_ in self.flow.parked]
        assert parked == sorted(parked), "parked updates are kept in the order of the log"
        assert self.flow.datamarker == self.flow.end, "the flow never stands"
        for row, numbers in self.written.items():
            committed = self.table.committed.get(row, [])
            for number in numbers:
                assert number in committed or number in parked or number in self.discarded, f"update {number} is lost"
            # What was discarded may come again after a crash, behind what followed it.
            kept = [number for number in numbers if number not in self.discarded]
            done = [number for number in kept if number in committed]
            assert sorted(done, key=committed.index) == done, f"row {row} was handled in another order: {committed}"
            for held in kept:
                if held in parked and held not in done:
                    assert done[-1:] < [held], f"row {row}: {done[-1]} was handled, {held} before it is parked"
            if not self.discarded & set(numbers) and not set(parked) & set(numbers):
                assert committed[-1] == numbers[-1], f"row {row}: an older update was handled last: {committed}"


def _texts(rows: Sequence[bytes]) -> list[str]:
    return list(map(row_text, rows))


@examples(150)
@given(st.sampled_from([0, 1, 3]), st.lists(STEPS, min_size=4, max_size=16))
def test_nothing_is_lost_and_no_row_is_reordered(kind: int, steps: list[tuple[str, object]]) -> None:
    model = Model(kind)
    try:
        for what, with_ in steps:
            model.step(what, with_)
            model.check()
        model.table.refused.clear()
        if model.flow.parked:
            model.flow.retry()
        model.check()
        assert model.flow.parked == [], "with a mended handler a retry empties the store"
    finally:
        model.kit.close()
