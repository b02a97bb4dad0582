"""The kit's own promises: its clock, changes, letters and plugin."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from subscriber_sdk import UNAVAILABLE, NoticeKind, Op, ShardNotice, Subscriber, Update
from subscriber_sdk.testing import Change, Kit, body_of, update
from subscriber_sdk.testing import kit as kit_module
from subscriber_sdk.testing.clock import FakeTimeLoop, InlineExecutor
from subscriber_sdk.testing.letters import KitLetters
from tests.support.letters import letter
from wormhole.model.errors import EpochRefused, HandlerFailed, TargetUnavailable, UsageError
from wormhole.model.values import Value
from wormhole.ports.dead_letters import place_to_message
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch
from wormhole.wire.v1 import push_pb2

# --- kit ---


class Noting(Subscriber):
    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, int]] = []
        self.notices: list[NoticeKind] = []
        self.assigned: list[ShardNotice] = []

    async def on_update(self, update: Update) -> None:
        self.seen.append((update.id, update.replayed, update.epoch))

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        self.notices.append(notice.kind)
        if notice.kind is NoticeKind.ASSIGNED:
            self.assigned.append(notice)


def test_a_crash_redelivers_the_last_transactions(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Noting())
    for key in (1, 2, 3):
        flow.commit(update("t", key=key))
    subscriber.seen.clear()
    flow.crash_and_redeliver(transactions=2)
    assert subscriber.seen == [("test:2:0", True, 2), ("test:3:0", True, 2)]
    # A process that dies is not told that it loses its shards.
    assert subscriber.notices == [NoticeKind.ASSIGNED, NoticeKind.ASSIGNED]


class Away(Subscriber):
    """Its database is away for so many calls: at ASSIGNED or at an update."""

    def __init__(self, calls: int, at: str) -> None:
        self.left = calls
        self.at = at
        self.seen: list[str] = []

    def call(self, at: str) -> None:
        if at == self.at and self.left:
            self.left -= 1
            raise TargetUnavailable("the database is away")

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        self.call("assigned")

    async def on_update(self, update: Update) -> None:
        self.call("update")
        self.seen.append(update.id)


@pytest.fixture(autouse=True)
def _few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the kit tries a target that stays away a hundred times."""
    monkeypatch.setattr(kit_module, "_AWAY", 10)


@pytest.mark.parametrize("at", ["assigned", "update"])
def test_a_target_that_comes_back_is_waited_for(wormhole_kit: Kit, at: str) -> None:
    flow = wormhole_kit.attach(subscriber := Away(9, at))
    flow.commit(update("t", key=1))
    assert subscriber.seen == ["test:1:0"]


@pytest.mark.parametrize("at", ["assigned", "update"])
def test_a_target_that_stays_away_ends_the_test(wormhole_kit: Kit, at: str) -> None:
    with pytest.raises(HandlerFailed, match=r"still unavailable after 1\d tries: .*the database is away") as failed:
        wormhole_kit.attach(Away(1000, at)).commit(update("t", key=1))
    assert isinstance(failed.value.__cause__, TargetUnavailable)


def test_the_kit_continues_after_it_gave_up(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Away(0, "update"))
    subscriber.left = 10_000
    with pytest.raises(HandlerFailed):
        flow.commit(update("t", key=1))
    subscriber.left = 0
    flow.assign()
    assert flow.datamarker == flow.end


def test_a_process_that_was_replaced_learns_it_from_the_epoch_alone(wormhole_kit: Kit) -> None:
    class Fenced(Noting):
        latest = 0

        async def on_shard_notice(self, notice: ShardNotice) -> None:
            await super().on_shard_notice(notice)
            if notice.kind is NoticeKind.ASSIGNED and notice.epoch < Fenced.latest:
                raise EpochRefused("a later epoch has begun", held_epoch=Fenced.latest)
            Fenced.latest = max(Fenced.latest, notice.epoch)

    first = wormhole_kit.attach(old := Fenced())
    first.commit(update("t", key=1))
    replaced = first.hand_over(new := Fenced())
    first.commit(update("t", key=2))
    replaced.commit(update("t", key=2))
    assert (len(old.seen), len(new.seen)) == (2, 1)
    assert not replaced.fenced
    replaced.assign()
    replaced.commit(update("t", key=3))
    assert (replaced.fenced, len(old.seen)) == (True, 2)


def test_a_cut_connection_is_dialled_again_where_it_stood(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Noting())
    flow.commit(update("t", key=1))
    flow.cut()
    flow.commit(update("t", key=2))
    assert len(subscriber.seen) == 1
    flow.assign()
    assert subscriber.seen[1:] == [("test:2:0", True, 2)]
    assert subscriber.notices == [NoticeKind.ASSIGNED, NoticeKind.REVOKED, NoticeKind.ASSIGNED]


def test_a_move_back_is_reported_until_something_behind_it_is_acknowledged(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Noting())
    places = [flow.datamarker]
    for key in (1, 2, 3):
        flow.commit(update("t", key=key))
        places.append(flow.datamarker)
    subscriber.seen.clear()
    flow.move(places[1])
    assert subscriber.seen == [("test:2:0", True, 2), ("test:3:0", True, 2)]
    assert flow.datamarker == flow.end
    flow.crash_and_redeliver(transactions=3)  # the move itself is stored
    flow.crash_and_redeliver(transactions=1)
    reported = [(notice.marker, notice.rewound, notice.move, notice.acknowledged) for notice in subscriber.assigned]
    assert reported == [
        (places[0], False, 0, False),
        (places[1], True, 2, True),
        (places[1], True, 2, True),
        (places[2], False, 2, True),
    ]


def test_a_move_forwards_leaves_out_what_is_before_it(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Noting())
    flow.cut()
    for key in (1, 2):
        flow.commit(update("t", key=key))
    flow.move(flow.end)
    flow.crash_and_redeliver(transactions=2)
    assert subscriber.seen == []
    assert [(notice.marker, notice.rewound, notice.move) for notice in subscriber.assigned[1:]] == [
        (flow.end, False, 2),
        (flow.end, False, 2),
    ]


def test_two_shards_are_independent(wormhole_kit: Kit) -> None:
    one, two = Noting(), Noting()
    first, second = wormhole_kit.attach(one, shard="a"), wormhole_kit.attach(two, shard="b")
    first.commit(update("t", key=1))
    assert (first.updates, second.updates) == (1, 0)
    assert "1/1/1" in repr(first)


async def test_inside_a_running_loop_it_says_what_to_do(wormhole_kit: Kit) -> None:
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="plain def"):
        wormhole_kit.attach(Noting())


def test_a_shard_that_is_away_cannot_be_revoked(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Noting())
    flow.revoke()
    with pytest.raises(UsageError, match="assign"):
        flow.revoke()


def test_closing_twice_is_fine() -> None:
    kit = Kit()
    kit.attach(Noting())
    kit.close()
    kit.close()


# --- letters: the kit's store of parked updates keeps the rules of the publisher's ---


def park(number: int, key: int = 1, *, more: bool = False, body: bytes | None = None) -> push_pb2.Park:
    told, parcel = letter(number, key)
    return push_pb2.Park(
        update_id=told.id,
        body=parcel.body if body is None else body,
        schema=parcel.schema,
        place=place_to_message(told.place),
        more=more,
        error="no",
    )


def test_letters_are_kept_in_order_up_to_the_limit() -> None:
    letters = KitLetters(2)
    assert [letters.park(park(n)) for n in (3, 2, 2)] == ["", "", ""]
    refused = letters.park(park(9))
    assert refused is not None
    assert "2 updates are parked" in refused
    assert [one.id for one in letters.all()] == ["test:2:0", "test:3:0"]


def test_a_letter_in_pieces() -> None:
    letters, body = KitLetters(9), letter(1)[1].body
    assert letters.park(park(1, more=True, body=body[:5])) is None
    assert letters.park(park(1, body=body[5:])) == ""
    assert len(letters.all()) == 1


def test_delivered_again_it_is_gone_unless_it_was_parked_again() -> None:
    letters = KitLetters(9)
    letters.park(park(1))
    letters.park(park(2))
    letters.retry("users:1")
    assert dict(letters.rows()) == {}
    first = letters.next()
    assert first is not None
    letters.delivered(first[0])
    second = letters.next()
    assert second is not None
    letters.park(park(2))
    letters.delivered(second[0])
    assert [one.id for one in letters.all()] == ["test:2:0"]
    assert letters.next() is None


def test_what_is_not_parked_cannot_be_named() -> None:
    letters = KitLetters(9)
    letters.park(park(1))
    with pytest.raises(UsageError, match="parked are: users:1"):
        letters.discard("users:2")
    letters.discard("")
    with pytest.raises(UsageError, match="no update of any row is parked"):
        letters.retry("")


# --- changes: the builder says what a log would say ---


def read(*changes: Change) -> list[Update]:
    schemas = {change.schema.id: change.schema for change in changes}
    return Batch(parse_body(body_of(changes, number=9)), "s", 1, False, schemas.__getitem__).updates()


@pytest.mark.parametrize(
    ("sides", "op"),
    [
        ({"before": {"a": 1}, "after": {"a": 2}}, Op.UPDATE),
        ({"after": {"a": 2}}, Op.INSERT),
        ({"before": {"a": 1}}, Op.DELETE),
        ({}, Op.DELETE),
        ({"after": {"a": 2}, "op": Op.UPSERT}, Op.UPSERT),
    ],
)
def test_the_operation_follows_from_what_is_given(sides: dict[str, object], op: Op) -> None:
    (change,) = read(update("t", key=1, **sides))  # type: ignore[arg-type]
    assert change.op is op


def test_values_come_back_by_name() -> None:
    named: dict[str, Value] = {"tenant": "x", "id": 3}
    (change,) = read(update("t", key=named, before={"a": 1, "b": None}, after={"a": 2, "c": b"z"}))
    assert change.key == ("x", 3)
    assert change.before is not None
    assert change.after is not None
    assert dict(change.after) == {"a": 2, "b": UNAVAILABLE, "c": b"z"}
    assert dict(change.before) == {"a": 1, "b": None, "c": UNAVAILABLE}
    assert (change.id, change.ends_transaction) == ("test:9:0", True)


def test_several_tables_share_a_transaction() -> None:
    one, two = read(update("a", key=1, after={"x": 1}), update("b", key=(1, 2), after={"y": "t"}))
    assert (one.table, two.table) == ("a", "b")
    assert one.transaction == two.transaction


def test_key_changes_and_ranges() -> None:
    moved, swept = read(
        update("t", key=2, old_key=1, before={"a": 1}, after={"a": 1}),
        update("t", key=b"a", key_end=b"m", op=Op.DELETE_RANGE),
    )
    assert (moved.key, moved.old_key) == ((2,), (1,))
    assert (swept.key, swept.key_end) == ((b"a",), (b"m",))


# --- clock: waiting moves the clock and takes no time, unless something outside is waited for ---


@pytest.fixture
def loop() -> Iterator[FakeTimeLoop]:
    loop = FakeTimeLoop()
    yield loop
    loop.close()


def test_hours_take_no_time_and_timers_fire_in_order(loop: FakeTimeLoop) -> None:
    heard: list[float] = []

    async def main() -> None:
        await asyncio.gather(*(note(seconds) for seconds in (3600.0, 1.0, 2.0)))

    async def note(seconds: float) -> None:
        await asyncio.sleep(seconds)
        heard.append(loop.time())

    loop.run_until_complete(main())
    assert heard == pytest.approx([1.0, 2.0, 3600.0])


def test_a_pipe_of_the_outside_is_waited_for_in_real_time(loop: FakeTimeLoop) -> None:
    read, write = os.pipe()
    ready = asyncio.Event()

    async def main() -> None:
        loop.add_reader(read, ready.set)
        await asyncio.sleep(0.05)  # the pipe may be written meanwhile, so this takes its time
        threading.Thread(target=os.write, args=(write, b"x")).start()
        async with asyncio.timeout(3600):
            await ready.wait()
        loop.remove_reader(read)

    began = time.monotonic()
    loop.run_until_complete(main())
    assert 0.049 < loop.time() <= time.monotonic() - began
    os.close(read)
    os.close(write)


def test_executors_run_in_place(loop: FakeTimeLoop) -> None:
    async def main() -> int:
        return await asyncio.to_thread(threading.get_ident)

    assert loop.run_until_complete(main()) == threading.get_ident()


def test_the_inline_executor_hands_on_errors() -> None:
    assert InlineExecutor().submit(int, "7").result() == 7
    assert isinstance(InlineExecutor().submit(int, "x").exception(), ValueError)


# --- plugin: the plugin in a pytest of its own: the examples of docs/testing.md, as they stand there ---


ROOT = Path(__file__).parents[4]


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 6
    for number, block in enumerate(blocks):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "subscriber_sdk.testing.plugin", str(tmp_path)],
        cwd=tmp_path,
        # No other plugin: the page needs none, and ours must not be loaded twice where it is installed.
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "6 passed" in result.stdout
