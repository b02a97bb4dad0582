"""What an application sees of a backfill: READ updates, generations, ranges and ends, through failures and crashes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from subscriber_sdk import HandlerFailed, KeyRange, Op, Router, ScanEnd, Subscriber, Update, UsageError
from subscriber_sdk.iteration import WaitingTransactions
from subscriber_sdk.stream.counts import windows_in
from subscriber_sdk.testing import Kit, KitFlow, body_of, frames, read, update
from wormhole.model.reads import is_read_transaction, read_order, read_source
from wormhole.wire.body import parse_body

TABLE = "shop.users"


def row(key: int, name: str = "ada") -> Any:
    return read(TABLE, key=key, after={"name": name})


class Table(Subscriber):
    """A table kept up to date by stamps: what ``docs/testing.md`` shows, and a record of every callback."""

    def __init__(self) -> None:
        self.rows: dict[Any, tuple[int, Any]] = {}
        self.calls: list[Any] = []
        self.running = 0
        self.fails: set[str] = set()

    def _failing(self, name: str) -> None:
        if name in self.fails:
            self.fails.remove(name)
            raise ValueError(f"{name} fails once")

    async def on_update(self, update: Update) -> None:
        self.running += 1
        await asyncio.sleep(0.01)
        self._failing(f"{update.op.value} {update.key[0]!r}")
        self.calls.append((update.op.value, update.key[0]))
        if update.after is None:
            self.rows.pop(update.key, None)
        else:
            self.rows[update.key] = (update.generation, update.after["name"])
        self.running -= 1

    async def on_range(self, keys: KeyRange) -> None:
        assert not self.running
        self._failing("range")
        self.calls.append("range")
        for key in [key for key, (stamp, _) in self.rows.items() if key in keys and stamp < keys.generation]:
            del self.rows[key]

    async def on_scan_end(self, end: ScanEnd) -> None:
        assert not self.running
        self._failing("end")
        self.calls.append("end")
        for key in [key for key, (stamp, _) in self.rows.items() if stamp < end.generation]:
            if key not in end.except_keys:
                del self.rows[key]

    async def on_datamarker(self, marker: Any) -> None:
        self.calls.append("marker")

    async def on_rollback(self, to: Any, cause: Exception) -> None:
        self.running = 0
        self.calls.append("rollback")

    def names(self) -> dict[Any, Any]:
        return {key[0]: name for key, (_, name) in self.rows.items()}


class ByStamp(Table):
    """Takes no ranges."""

    on_range = Subscriber.on_range  # type: ignore[assignment]


def attached(kit: Kit, handler: Subscriber, **options: Any) -> KitFlow:
    return kit.attach(handler, **options)


def test_a_read_is_an_update_that_nobody_committed(wormhole_kit: Kit) -> None:
    seen: list[Update] = []

    class Handler(Subscriber):
        async def on_update(self, update: Update) -> None:
            seen.append(update)

    flow = attached(wormhole_kit, Handler())
    flow.commit(update(TABLE, key=1, after={"name": "ada"}))
    flow.backfill(TABLE, [row(7), row(8)], chunks=2)
    before, first, second = seen
    assert (before.generation, first.generation, second.generation) == (0, 1, 1)
    assert (first.op, first.key, first.before, first.after) == (Op.READ, (7,), None, {"name": "ada"})
    assert (first.id, second.id) == ("read:1:1:0", "read:1:2:0")
    assert (first.committed_at, first.transaction.committed_at, first.changed) == (None, None, None)
    assert first.ends_transaction
    assert not first.entered
    assert not first.left
    assert not first.replayed
    kept = first.detach()
    assert (kept.id, kept.generation, kept.key) == ("read:1:1:0", 1, (7,))


def test_deletes_converge_by_ranges(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, table := Table())
    flow.commit(*(update(TABLE, key=number, after={"name": "old"}) for number in range(1, 7)))
    flow.begin_backfill()
    flow.chunk(TABLE, row(1), row(3), until=3)
    assert table.names() == {1: "ada", 3: "ada", 4: "old", 5: "old", 6: "old"}
    flow.commit(update(TABLE, key=5, before={"name": "old"}, after={"name": "new"}))
    flow.chunk(TABLE, row(6), after=3, except_keys=[5])
    assert table.names() == {1: "ada", 3: "ada", 5: "new", 6: "ada"}
    assert "end" not in table.calls
    flow.end_scan(TABLE)
    assert table.calls[-2:] == ["end", "marker"]


def test_deletes_converge_by_generation_for_any_key(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, table := ByStamp())
    flow.commit(*(update(TABLE, key=name, after={"name": "old"}) for name in ("a", "b", "c")))
    flow.begin_backfill()
    flow.chunk(TABLE, read(TABLE, key="a", after={"name": "new"}))
    flow.commit(update(TABLE, key="c", after={"name": "newer"}))
    flow.end_scan(TABLE)
    assert table.names() == {"a": "new", "c": "newer"}


def test_no_range_comes_where_only_the_database_knows_the_order(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, table := Table())
    flow.backfill(TABLE, [read(TABLE, key="ada", after={"name": "x"})])
    assert "range" not in table.calls
    assert "end" in table.calls
    flow.begin_backfill()
    flow.chunk(TABLE, narrowed=True)
    assert "range" not in table.calls
    flow.chunk(TABLE, keys=["ada"])
    assert table.calls[-2:] == ["range", "marker"]
    assert table.names() == {}


@pytest.mark.parametrize("concurrency", [1, 8])
def test_an_end_waits_for_every_callback_before_it_and_is_acknowledged_after(
    wormhole_kit: Kit, concurrency: int
) -> None:
    """Table asserts that nothing runs beside either."""
    flow = attached(wormhole_kit, table := Table(), concurrency=concurrency)
    flow.backfill(TABLE, [row(number) for number in range(20)], chunks=2)
    order = [call if isinstance(call, str) else "read" for call in table.calls]
    chunk = [*["read"] * 10, "range", "marker"]
    assert order == [*chunk, *chunk, "end", "marker"]
    assert flow.datamarker == flow.end


def test_what_arrives_at_once_is_reported_in_order(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, Table())
    flow.backfill(TABLE, [row(number) for number in range(4)], chunks=2)
    flow.crash_and_redeliver(3, subscriber=(table := Table()))
    order = [call if isinstance(call, str) else "read" for call in table.calls]
    assert order == [*["read", "read", "range", "marker"] * 2, "end", "marker"]


@pytest.mark.parametrize("fails", ["read 3", "range", "end"])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_what_fails_is_tried_again_with_the_rows_before_it(wormhole_kit: Kit, fails: str, concurrency: int) -> None:
    flow = attached(wormhole_kit, table := Table(), concurrency=concurrency)
    flow.commit(update(TABLE, key=5, after={"name": "old"}))
    table.fails = {fails}
    flow.backfill(TABLE, [row(2), row(3)])
    assert "rollback" in table.calls
    assert table.calls[-2:] == ["end", "marker"]
    assert table.names() == {2: "ada", 3: "ada"}
    assert flow.datamarker == flow.end


@pytest.mark.parametrize("name", ["range", "end"])
def test_an_end_that_keeps_failing_halts_the_flow_before_its_datamarker(wormhole_kit: Kit, name: str) -> None:
    class Broken(Table):
        def _failing(self, at: str) -> None:
            if at == name:
                raise ValueError("no")

    flow = attached(wormhole_kit, Broken(), retry=2)
    flow.begin_backfill()
    place = flow.datamarker
    with pytest.raises(HandlerFailed, match="after 2 attempts"):
        if name == "range":
            flow.chunk(TABLE, row(1))
        else:
            flow.end_scan(TABLE)
    assert flow.datamarker == place
    assert flow.halted is not None
    assert flow.halted.update_id == ""


def test_a_datamarker_is_not_settled_behind_an_end_that_failed_as_the_flow_went(wormhole_kit: Kit) -> None:
    """The flow is revoked while ``on_range`` runs, which then fails: the rows behind it are not acknowledged."""

    class Slow(Table):
        flow: KitFlow

        async def on_range(self, keys: KeyRange) -> None:
            assert self.flow._publisher is not None
            self.flow._publisher.send(frames.revoke(self.flow._flow, self.flow.epoch, "moved"))
            raise ValueError("interrupted")

    table = Slow()
    table.flow = flow = attached(wormhole_kit, table)
    flow.begin_backfill()
    place = flow.datamarker
    flow.chunk(TABLE, row(1))
    assert flow.datamarker == place


def test_a_crash_in_the_middle_repeats_what_was_not_acknowledged(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, Table())
    flow.commit(*(update(TABLE, key=number, after={"name": "old"}) for number in (1, 2, 3)))
    flow.begin_backfill()
    flow.chunk(TABLE, row(1), until=1)
    flow.commit(update(TABLE, key=1, before={"name": "ada"}, after={"name": "new"}))
    table = Table()
    table.rows = {(number,): (0, "old") for number in (1, 2, 3)}
    flow.crash_and_redeliver(2, subscriber=table)
    assert table.names() == {1: "new", 2: "old", 3: "old"}
    assert [call for call in table.calls if call != "marker"] == [("read", 1), "range", ("update", 1)]
    flow.chunk(TABLE, row(3), after=1)
    flow.end_scan(TABLE)
    assert table.names() == {1: "new", 3: "ada"}


def test_rows_of_a_backfill_are_in_no_delivery_count() -> None:
    reads = body_of([row(1), row(2)], source=read_source(4), number=2)
    assert windows_in(parse_body(reads)) == {}
    changes = body_of([row(1)], source="read", number=2, committed_at_us=700_000_000)
    assert windows_in(parse_body(changes)) == {1: 1}, "a log may have that name"
    mixed = parse_body(reads)
    mixed.sources, mixed.tx_source = [*mixed.sources, "log"], [0, 1]
    mixed.tx_number, mixed.tx_end = [1, 2], [1, 2]
    assert windows_in(mixed) == {0: 1}
    assert windows_in(mixed, 1) == {}


def test_ids_of_rows_that_were_read() -> None:
    assert [read_order(id_) for id_ in ("read:4:12", "db1:42", "read:42", "", "read:x:1")] == [(4, 12), *[(0, 0)] * 4]
    assert is_read_transaction("read:4:12")
    assert not is_read_transaction("read:42")


class Picky(Table):
    picky = True

    async def on_update(self, update: Update) -> None:
        if self.picky and update.key == (2,) and update.after is not None and update.after["name"] == "bad":
            raise ValueError("bad name")
        await super().on_update(update)


def test_a_row_that_is_parked_is_not_deleted_at_the_end(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, table := Picky(), on_failure="park", retry=1)
    flow.commit(update(TABLE, key=2, after={"name": "old"}), update(TABLE, key=3, after={"name": "old"}))
    flow.backfill(TABLE, [row(1), row(2, "bad")])
    assert flow.parked == ["read:1:1:1"]
    assert table.names() == {1: "ada", 2: "old"}
    flow.commit(update(TABLE, key=2, before={"name": "bad"}, after={"name": "good"}))
    assert len(flow.parked) == 2
    flow.discard(f"{TABLE}:2")
    flow.commit(update(TABLE, key=2, before={"name": "good"}, after={"name": "better"}))
    assert table.names() == {1: "ada", 2: "better"}


def test_a_parked_row_is_delivered_again(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, table := Picky(), on_failure="park", retry=1)
    flow.backfill(TABLE, [row(1), row(2, "bad")])
    table.picky = False
    flow.retry()
    assert flow.parked == []
    assert table.names() == {1: "ada", 2: "bad"}


def test_nothing_is_deleted_while_the_whole_table_is_parked(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    class NoTruncate(Table):
        async def on_update(self, update: Update) -> None:
            if update.op is Op.TRUNCATE:
                raise ValueError("not that")
            await super().on_update(update)

    flow = attached(wormhole_kit, table := NoTruncate(), on_failure="park", retry=1)
    flow.commit(update(TABLE, key=1, after={"name": "old"}))
    flow.commit(update(TABLE, key=(), op=Op.TRUNCATE))
    flow.backfill(TABLE, [row(2)])
    assert len(flow.parked) == 2
    assert table.names() == {1: "old"}
    assert f"on_range is not called for table {TABLE}" in caplog.text
    assert f"on_scan_end is not called for table {TABLE}" in caplog.text


def test_a_row_is_skipped_by_its_id(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, table := Table())
    flow.skip("read:1:1:0")
    flow.backfill(TABLE, [row(1), row(2)])
    assert table.names() == {2: "ada"}


def test_a_router_takes_reads_by_table_and_may_take_ends(wormhole_kit: Kit) -> None:
    ends: list[ScanEnd] = []

    class Ends(Router):
        def on_scan_end(self, end: ScanEnd) -> None:
            ends.append(end)

    router, keys = Ends(), []

    @router.on(TABLE)
    def changed(update: Update) -> None:
        keys.append((update.op, update.key))

    flow = attached(wormhole_kit, router)
    flow.backfill(TABLE, [row(1)])
    assert keys == [(Op.READ, (1,))]
    assert ends == [ScanEnd(TABLE, "shop", 2, 1, frozenset(), 1)]


def test_only_rows_that_read_built_are_existing_rows(wormhole_kit: Kit) -> None:
    flow = attached(wormhole_kit, Table())
    with pytest.raises(UsageError, match=r"^insert of shop.users: .*\[wrong-request\]"):
        flow.backfill(TABLE, [update(TABLE, key=1, after={"name": "x"})])


def test_a_chunk_is_a_transaction_for_a_loop(wormhole_kit: Kit) -> None:
    taken: list[list[str]] = []
    over = WaitingTransactions(1 << 20, 1 << 20)

    async def take() -> None:
        async for updates in over.items():
            assert {one.transaction.committed_at for one in updates} == {None}
            assert updates[-1].ends_transaction
            taken.append([one.id for one in updates])

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(take())

    task = wormhole_kit.run(begin())
    flow = attached(wormhole_kit, over)
    flow.backfill(TABLE, [row(1), row(2), row(3)], chunks=2)
    assert taken == [["read:1:1:0", "read:1:1:1"], ["read:1:2:0"]]
    assert flow.datamarker == flow.end
    task.cancel()
    wormhole_kit.run(asyncio.sleep(0))
