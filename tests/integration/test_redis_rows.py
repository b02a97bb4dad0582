"""The sink of Redis with whole rows: what arrives in a real server, and that no older value replaces a newer one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scripts.prepare import ROOT
from sinks.redis import invalidate as invalidate_module
from sinks.redis import rows as rows_module
from sinks.redis import sweeps as sweeps_module
from sinks.redis.changes import RowEnvelope
from sinks.redis.keys import Keys
from sinks.redis.settings import RedisSettings
from sinks.redis.store import Sent
from sinks.redis.sweeps import Sweeps
from sinks.redis.versions import CHANGE, READ, UNFINISHED, digits, place
from subscriber_sdk import UNAVAILABLE, HandlerFailed, LogPosition, NoticeKind, Op, ShardNotice, Value
from subscriber_sdk.testing import KitFlow, body_of, marker_at, read, update
from subscriber_sdk.testing.changes import Change
from tests.support.eventually import until
from tests.support.redis_server import RedisServer
from tests.support.redis_world import NewWorld, World
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.model.findings import Severity
from wormhole.wire.body import parse_body
from wormhole.wire.markers import marker_to_bytes
from wormhole.wire.update import Batch

# The client looks up addresses, which the kit's loop does in place.
pytestmark = pytest.mark.allow_blocking

TABLE = "shop.orders"
PLACES = [
    LogPosition(1, 1, 9),
    LogPosition(1, 1, 10),
    LogPosition(1, 2, 3),
    LogPosition(2, 1, 1),
    LogPosition(10, 1, 1),
]


@pytest.fixture
def world(new_redis_world: NewWorld, redis_url: str) -> World:
    return new_redis_world(redis_url, mode="set")


def put(key: Any, text: str, **more: Any) -> Change:
    return update(TABLE, key=key, after={"text": text}, **more)


def gone(key: Any) -> Change:
    return update(TABLE, key=key, before={"text": "a"})


def deleted_all() -> Change:
    return update(TABLE, key=(), op=Op.TRUNCATE)


def partly(key: Any, **known: Any) -> Change:
    """An update without the value of ``text``."""
    return update(TABLE, key=key, after={"text": UNAVAILABLE, **known}, op=Op.UPDATE)


def failed(flow: KitFlow, act: Any) -> Any:
    """Why the flow halted."""
    with pytest.raises(HandlerFailed) as found:
        act()
    return found.value.__cause__


# --- what arrives ---


def test_a_row_is_a_document_with_its_key_and_all_columns(world: World) -> None:
    flow = world.attach()
    row: dict[str, Value] = {
        "text": "é",
        "bytes": b"a",
        "raw": b"\xff",
        "price": Decimal("12.50"),
        "rate": 0.5,
        "no": None,
        "big": 2**63,
    }
    key: dict[str, Value] = {"shop": "a:b", "id": 7}
    flow.commit(update(TABLE, key=key, after=row))
    assert world.rows == {
        f"{TABLE}:a%3Ab:7": {
            "shop": "a:b",
            "id": 7,
            "text": "é",
            "bytes": "a",
            "raw": {"b64": "/w=="},
            "price": {"decimal": "12.50"},
            "rate": 0.5,
            "no": None,
            "big": 2**63,
        }
    }
    assert flow.verify(TABLE, [read(TABLE, key=key, after=row)]).equal


def test_columns_that_the_log_lacks_are_those_of_the_row_before(world: World) -> None:
    flow = world.attach()
    flow.commit(update(TABLE, key=1, after={"text": "long", "n": 1}), update(TABLE, key=3, after={"text": "c", "n": 1}))
    flow.commit(partly(1, n=2))
    flow.commit(partly(1, n=3), update(TABLE, key=2, old_key=1, after={"text": UNAVAILABLE, "n": 4}, op=Op.UPDATE))
    assert world.rows == {f"{TABLE}:2": {"id": 2, "text": "long", "n": 4}, f"{TABLE}:3": {"id": 3, "text": "c", "n": 1}}
    flow.move(marker_at(1))
    assert world.rows[f"{TABLE}:2"] == {"id": 2, "text": "long", "n": 4}


def test_a_repeated_key_change_and_a_new_change_behind_it_in_one_write(world: World) -> None:
    flow = world.attach()
    flow.commit(update(TABLE, key=1, after={"text": "long", "n": 1}))
    writer: Any = world.sinks[0].subscriber._writer  # type: ignore[attr-defined]
    moved = update(TABLE, key=2, old_key=1, after={"text": UNAVAILABLE, "n": 2}, op=Op.UPDATE)
    body = parse_body(body_of([moved, partly(2, n=3)], number=2))
    envelope = RowEnvelope(Keys("{table}:{key}", {}))
    updates = Batch(body, "shop", 1, False, lambda _: moved.schema).updates()
    records = [record for update in updates for record in envelope.records(update)]
    world.kit.run(writer.write("shop", records[:2]))
    world.kit.run(writer.write("shop", records))
    world.kit.run(writer._flows.confirmed("shop"))
    assert world.rows == {f"{TABLE}:2": {"id": 2, "text": "long", "n": 3}}


def test_a_row_of_which_only_a_part_is_known_is_not_written(world: World) -> None:
    flow = world.attach()
    flow.commit(partly(1, n=2), put(2, "a"))
    flow.commit(deleted_all(), partly(2, n=3))
    assert world.rows == {}
    result = flow.verify(TABLE, [read(TABLE, key=1, after={"text": "a", "n": 2})], repair=True)
    assert (result.missing, world.rows) == (1, {f"{TABLE}:1": {"id": 1, "text": "a", "n": 2}})


def test_a_truncate_in_a_transaction_leaves_what_comes_behind_it(world: World) -> None:
    flow = world.attach()
    flow.commit(*(put(key, "a") for key in range(3000)))
    flow.commit(put(1, "b"), deleted_all(), put(2, "c"), update("shop.users", key=1, after={"a": 1}))
    assert sorted(world.rows) == [f"{TABLE}:2", "shop.users:1"]
    assert world.client.hlen(f"wormhole:rows:shop:{TABLE}") == 2  # the row, and the place of the TRUNCATE


def test_a_range_of_keys_is_removed(world: World) -> None:
    flow = world.attach()
    flow.commit(*(put(key, "a") for key in (b"a", b"b", b"b:", b"c", b"d")))
    flow.commit(update(TABLE, key=b"b", key_end=b"d", op=Op.DELETE_RANGE))
    assert sorted(world.rows) == [f"{TABLE}:a", f"{TABLE}:d"]


def test_parked_updates_of_a_transaction_are_written_in_its_order(world: World) -> None:
    flow = world.attach(on_failure="park")
    merge = update(TABLE, key=1, after={"text": "a"}, op=Op.MERGE)
    flow.commit(merge, put(2, "a", old_key=1), put(2, "b"), put(2, "c"))
    assert len(flow.parked) == 4
    flow.discard(f"{TABLE}:1")
    flow.retry()
    assert (flow.parked, world.rows[f"{TABLE}:2"]["text"]) == ([], "c")


@pytest.mark.parametrize("change", [update(TABLE, key=1, after={"a": 1}, op=Op.MERGE), update(TABLE, key=(), after={})])
def test_an_update_without_a_row_is_parked(world: World, change: Change) -> None:
    flow = world.attach(on_failure="park")
    flow.commit(change)
    assert (flow.parked, world.rows) == (["test:1:0"], {})


def test_the_end_of_existing_rows_removes_those_of_this_shard_that_are_older(world: World) -> None:
    other = world.attach(shard="db1.1of2")
    other.commit(put(11, "of the other shard"))
    flow = world.attach(shard="db1.0of2", on_failure="park")
    flow.commit(put(1, "a"), put(2, "b"), put(4, "of a parked row"), put(5, "deleted without the log"))
    flow.commit(update(TABLE, key=4, after={"text": "x"}, op=Op.MERGE))
    flow.begin_backfill()
    flow.chunk(TABLE, read(TABLE, key=1, after={"text": "A"}), until=1)
    flow.commit(put(3, "new"))
    flow.chunk(TABLE, read(TABLE, key=2, after={"text": "B"}), after=1)
    flow.end_scan(TABLE)
    texts = {key.rpartition(":")[2]: row["text"] for key, row in world.rows.items()}
    assert texts == {"1": "A", "2": "B", "3": "new", "4": "of a parked row", "11": "of the other shard"}


def test_differences_of_every_kind_are_found_and_repaired(world: World) -> None:
    flow = world.attach()
    row: dict[str, Value] = {"text": "a", "raw": b"b", "price": Decimal("1.5")}
    rows = [read(TABLE, key=key, after=row) for key in range(1, 8)]
    flow.commit(*(update(TABLE, key=key, after=row) for key in range(1, 9)))
    good = world.rows[f"{TABLE}:1"]
    world.client.set(f"{TABLE}:1", "no document")
    world.client.set(f"{TABLE}:2", json.dumps({**good, "text": "b"}))
    world.client.set(f"{TABLE}:3", json.dumps({**good, "price": {"decimal": "x"}}))
    world.client.set(f"{TABLE}:4", json.dumps({**good, "raw": {"b64": 1}}))
    world.client.set(f"{TABLE}:5", json.dumps({"id": 5}))
    world.client.delete(f"{TABLE}:6")
    found = flow.verify(TABLE, rows)
    assert (found.missing, found.differs, found.extra, found.trouble) == (2, 4, 1, "")
    flow.verify(TABLE, rows, repair=True)
    assert flow.verify(TABLE, rows).equal
    assert sorted(world.rows) == [f"{TABLE}:{key}" for key in range(1, 8)]


# --- an older value never replaces a newer one ---


def test_a_row_that_another_shard_has_changed_since_is_left(world: World) -> None:
    """Rows change their shards when the map of shards does, and an owner of the former map may wake up."""
    former, new = world.attach(shard="db1.0of2"), world.attach(shard="db1.0of4")
    for flow in (former, new):
        flow.commit(put(1, "a"), put(2, "b"), put(3, "c"))
    new.commit(put(4, "d"))
    new.commit(put(1, "newer"), gone(2))
    former.commit(put(1, "older"), put(2, "older"), gone(3))
    texts = {key.rpartition(":")[2]: row["text"] for key, row in world.rows.items()}
    assert texts == {"1": "newer", "4": "d"}


def test_no_row_comes_back_behind_a_truncate_of_another_shard(world: World) -> None:
    former, new = world.attach(shard="db1.0of2"), world.attach(shard="db1.0of4")
    new.commit(put(1, "a"))
    new.commit(deleted_all())
    former.commit(put(1, "older"), put(2, "older"))
    assert world.rows == {}
    former.commit()
    former.commit(put(3, "newer"))
    assert list(world.rows) == [f"{TABLE}:3"]


def test_a_move_back_and_repetitions_write_nothing_older(world: World) -> None:
    flow = world.attach()
    flow.commit(put(1, "a"), put(2, "a"))
    flow.commit(put(1, "b"), gone(2))
    flow.commit(put(3, "c"))
    seen = watched(world)
    flow.move(marker_at(0))
    flow.move(marker_at(2))
    flow.replay(2)
    assert set(seen) == {(("1", "b"), ("3", "c"))}
    world.client.delete(f"{TABLE}:1", f"{TABLE}:3")  # by hand; a repetition of the newest value repairs it
    flow.move(marker_at(0))
    assert seen[-1] == (("1", "b"), ("3", "c"))


@pytest.mark.parametrize("before", [(), (put(4, "x"),)])
def test_a_transaction_has_one_place_whether_its_pieces_come_together_or_not(world: World, before: Any) -> None:
    """A TRUNCATE that comes again in other pieces removes no row that its transaction wrote behind it."""
    former, new = world.attach(shard="db1.0of2"), world.attach(shard="db1.0of4")
    changes = (deleted_all(), put(1, "a"), put(2, "b"))
    former.revoke()
    for _ in range(2):
        former.commit(*before)
        former.commit(*changes, pieces=3)
    former.assign()  # all of it waits, and is handed over in one call
    for _ in range(2):
        seen = watched(world)
        new.commit(*before)
        new.commit(*changes, pieces=3)
        assert set(seen) == {(("1", "a"), ("2", "b"))}


def watched(world: World, process: int = -1) -> list[tuple[tuple[str, str], ...]]:
    """The rows after each use of the server by a process, as they come."""
    seen: list[tuple[tuple[str, str], ...]] = []
    store = world.sinks[process]._store  # type: ignore[attr-defined]
    receive = store.receive

    async def watching(sent: Any) -> Any:
        answer = await receive(sent)
        seen.append(tuple((key.rpartition(":")[2], row["text"]) for key, row in world.rows.items()))
        return answer

    store.receive = watching
    return seen


def test_a_tombstone_is_forgotten_after_its_time(new_redis_world: NewWorld, redis_url: str) -> None:
    world = new_redis_world(redis_url, mode="set", remember_deleted=0.001)
    flow = world.attach()
    flow.commit(put(1, "a"), gone(1))
    index, gone_keys = f"wormhole:rows:shop:{TABLE}", f"wormhole:gone:shop:{TABLE}"
    assert (world.client.hlen(index), world.client.zcard(gone_keys)) == (1, 1)
    flow.commit(put(2, "b"))
    flow.commit(put(2, "c"))
    assert (world.client.hkeys(index), world.client.zcard(gone_keys)) == ([f"{TABLE}:2".encode()], 0)


def test_a_row_that_is_there_again_has_no_tombstone(world: World) -> None:
    flow = world.attach()
    flow.commit(put(1, "a"))
    flow.commit(gone(1))
    flow.commit(put(1, "b"))
    assert (list(world.rows), world.client.zcard(f"wormhole:gone:shop:{TABLE}")) == ([f"{TABLE}:1"], 0)


def test_versions_are_in_the_order_of_the_log() -> None:
    made = [
        place(at, kind) + digits(index) for at in PLACES for kind in (CHANGE, READ, UNFINISHED) for index in (0, 9, 10)
    ]
    assert made == sorted(made)
    assert all(version.isdecimal() for version in made)


def test_the_server_s_language_does_not_change_the_order(new_redis_world: NewWorld, tmp_path: Path) -> None:
    """Scripts compare texts by its rules. In Danish `aa` is behind `z`."""
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales/da_DK").exists():
        pytest.skip("no other language can be made here")
    subprocess.run(["localedef", "-i", "da_DK", "-f", "UTF-8", tmp_path / "da_DK.UTF-8"], check=True)

    class Danish(RedisServer):
        def process_options(self) -> dict[str, Any]:
            return {"env": {**self.environment(), "LC_ALL": "da_DK.UTF-8", "LOCPATH": os.fspath(tmp_path)}}

    random = Random(7)
    pairs = [place(LogPosition(1, random.randrange(20), random.randrange(2**40)), 0) for _ in range(2000)]
    script = "local found = {} for i = 2, #ARGV do found[i - 1] = ARGV[i - 1] < ARGV[i] and 1 or 0 end return found"
    with Danish() as server:
        world = new_redis_world(server.url())
        assert world.client.eval("return 'aa' < 'z'", 0) is None
        wanted = [int(pairs[at] < pairs[at + 1]) for at in range(len(pairs) - 1)]
        assert world.client.eval(script, 0, *pairs) == wanted


# --- what the sink refuses, and where it goes on ---


def test_a_server_that_evicts_is_refused(new_redis_world: NewWorld) -> None:
    with RedisServer(options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        world = new_redis_world(server.url(), mode="set")
        with pytest.raises(HandlerFailed, match="allkeys-lru") as refused:
            world.attach()
        assert isinstance(refused.value.__cause__, TargetRefused)
        report = world.kit.run(world.sinks[0].examine())
        assert [found.check for found in report.findings if found.severity is Severity.PROBLEM] == ["target_memory"]
        new_redis_world(server.url()).attach()  # which removes keys only


def test_an_emptied_server_is_filled_by_a_backfill(world: World) -> None:
    flow = world.attach()
    flow.commit(put(1, "a"))
    world.client.flushdb()
    cause = failed(flow, lambda: flow.commit(put(2, "b")))
    assert cause.code == "target-empty"
    flow.backfill(TABLE, [read(TABLE, key=1, after={"text": "a"}), read(TABLE, key=2, after={"text": "b"})])
    assert (sorted(world.rows), flow.datamarker) == ([f"{TABLE}:1", f"{TABLE}:2"], flow.end)


def test_other_templates_need_a_backfill_which_removes_the_former_keys(world: World) -> None:
    flow = world.attach()
    flow.commit(put(1, "a"))
    world.settings["key"] = "{log}/{table}:{key}"
    cause = failed(flow, lambda: flow.crash_and_redeliver(0, subscriber=world.sink().subscriber))
    assert (cause.code, "other templates" in cause.message) == ("target-empty", True)
    flow.backfill(TABLE, [read(TABLE, key=1, after={"text": "a"})])
    assert list(world.rows) == [f"shop/{TABLE}:1"]


def test_a_server_that_was_set_back_goes_on_from_its_own_datamarker(new_redis_world: NewWorld) -> None:
    with RedisServer(options={"appendonly": "no"}) as server:
        world = new_redis_world(server.url(), mode="set")
        flow = world.attach()
        flow.commit(put(1, "a"), put(2, "a"))
        world.client.save()
        flow.commit(put(1, "b"), gone(2))
        flow.commit(put(3, "c"))
        server.kill()  # what came behind the copy is lost
        server.start()
        flow.cut()
        flow.assign()
        assert {key[-1]: row["text"] for key, row in world.rows.items()} == {"1": "b", "3": "c"}
        assert flow.datamarker == flow.end


def test_two_tables_whose_rows_could_have_the_same_key(new_redis_world: NewWorld, redis_url: str) -> None:
    world = new_redis_world(redis_url, mode="set", keys={"a": "row:{key}", "b": "row:1:{key}"})
    world.attach(shard="db1").commit(update("a", key=(1, 2), after={"text": "a"}))
    flow = world.attach(shard="db1.b")
    cause = failed(flow, lambda: flow.commit(update("b", key=2, after={"text": "b"})))
    assert isinstance(cause, TargetRefused)
    assert "row:1:" in cause.message
    another = world.attach(shard="db2")
    assert "db1/a" in failed(another, lambda: another.commit(update("a", key=1, after={"text": "c"}))).message


def test_a_log_whose_histories_were_lost_is_not_taken_for_an_old_one(world: World) -> None:
    """Its publisher counts them from one again, and every version would be older than those that are stored."""
    flow = world.attach()
    flow.commit(put(1, "a"))
    (record,) = world.client.keys("wormhole:flow:*")
    index = f"wormhole:rows:shop:{TABLE}"
    entry: Any = world.client.hget(index, f"{TABLE}:1")
    assert entry.startswith(b"010011")  # era 0, incarnation 1
    world.client.hset(index, f"{TABLE}:1", entry.replace(b"010011", b"010019", 1).decode())
    world.client.hset(record, mapping={"incarnation": "9", "marker": marker_to_bytes(marker_at(1, 9))})
    flow.cut()
    flow.assign()
    flow.commit(put(1, "b"))
    assert (world.rows[f"{TABLE}:1"]["text"], flow.datamarker) == ("b", flow.end)
    assert world.client.hget(record, "era") == b"1"


def test_a_woken_process_writes_nothing(world: World) -> None:
    flow = world.attach()
    flow.commit(put(1, "a"))
    replaced = flow.hand_over(world.sink().subscriber)
    flow.commit(put(1, "b"))
    seen = watched(world, 0)
    replaced.commit(put(1, "of the zombie"))
    assert (replaced.fenced, set(seen)) == (True, {(("1", "b"),)})


@pytest.mark.parametrize("mode", ["delete", "set"])
def test_the_rights_of_the_page_are_enough(
    new_redis_world: NewWorld, own_redis: RedisServer, tmp_path: Path, mode: str
) -> None:
    page = (ROOT / "docs" / "sink-redis.md").read_text().partition("in Redis's own words")[2]
    both, rows, *_ = re.findall(r"^`(\+[a-z +]+)`", page, re.MULTILINE)
    with contextlib.closing(own_redis.client()) as admin:
        rights = [*both.split(), *(rows.split() if mode == "set" else ())]
        admin.execute_command(  # type: ignore[no-untyped-call]
            "ACL", "SETUSER", "sink", "on", ">geheim", "~wormhole:*", f"~{TABLE}:*", *rights
        )
    (tmp_path / "password").write_text("geheim")
    settings = {"mode": mode, "password_file": str(tmp_path / "password")}
    world = new_redis_world(own_redis.url(), **settings)
    world.settings["url"] = own_redis.url().replace("//", "//sink@")
    flow = world.attach()
    assert world.kit.run(world.sinks[0].examine()).severity is Severity.OK
    flow.commit(put(1, "a"), put(2, "a"), gone(2))
    flow.commit(partly(1, n=2), deleted_all(), put(1, "b"))
    flow.backfill(TABLE, [read(TABLE, key=1, after={"text": "b"})])
    if mode == "set":
        assert flow.verify(TABLE, [read(TABLE, key=1, after={"text": "b"})], repair=True).equal
    assert flow.datamarker == flow.end


def test_settings_of_one_mode() -> None:
    settings = RedisSettings.model_validate({"url": "redis://host", "mode": "set", "remember_deleted": "2h"})
    assert settings.remember_deleted == 7200


def test_rows_with_and_without_records_have_the_same_documents(world: World) -> None:
    """An update with a part of a row needs records, and so do those beside it."""
    flow = world.attach()
    names: dict[str, Value] = {"100%s": 1, 'say "hi"': '\u2028"\\\n', "b": True, "f": 0.1, "no": None, "big": -(2**63)}
    names |= {"price": Decimal("1.50"), "raw": b"\xff", "nan": float("nan"), "id": 7, "e": {b"a": b"b"}}
    row, part = update(TABLE, key=7, after=names), partly(9, n=1)
    flow.commit(row)
    packed = world.client.get(f"{TABLE}:7")
    flow.commit(row, part)
    assert world.client.get(f"{TABLE}:7") == packed
    assert flow.verify(TABLE, [read(TABLE, key=7, after=names)]).equal


def test_keys_of_several_types_in_a_batch(world: World) -> None:
    flow = world.attach()
    flow.commit(put(1, "a"), put("1", "b"), put("x:y", "c"), put(2, "d"), gone(2), put(True, "e"))
    assert {key: row["text"] for key, row in world.rows.items()} == {
        f"{TABLE}:1": "b",
        f"{TABLE}:x%3Ay": "c",
        f"{TABLE}:true": "e",
    }


def test_what_was_sent_is_confirmed_before_the_datamarker(world: World) -> None:
    """The server's answer to a write may be read after the callback has returned."""
    flow = world.attach()
    flow.commit(put(1, "a"))
    store = world.sinks[0]._store  # type: ignore[attr-defined]
    receive, failures = store.receive, [TargetUnavailable("the answer is lost")]
    first: Any = None

    async def losing(sent: Any) -> Any:
        answers = await receive(sent)
        if failures and sent is first:
            raise failures.pop()
        return answers

    subscriber: Any = world.sinks[0].subscriber
    write = subscriber._writer.write_packed

    async def writing(shard: str, packed: Any) -> None:
        nonlocal first
        await write(shard, packed)
        first = first or subscriber._writer._flows._sent[shard]

    subscriber._writer.write_packed = writing
    store.receive = losing
    flow.commit(put(1, "b"), put(2, "b"))
    assert (failures, flow.datamarker, len(world.rows)) == ([], flow.end, 2)


def test_rows_are_read_behind_what_was_sent_before(world: World) -> None:
    """The server executes what was sent on one connection when it likes, also after what was sent on another."""
    flow = world.attach()
    flow.commit(put(0, "a"))
    store = world.sinks[0]._store  # type: ignore[attr-defined]
    send, receive = store.send, store.receive

    async def kept(packed: Any, names: Any) -> Sent:
        return Sent(packed, names)

    async def executed(sent: Sent) -> Any:
        return await receive(await send(sent.connection, sent.names))

    store.send, store.receive = kept, executed
    flow.commit(*(put(key, "a") for key in range(1000)), partly(1, n=2))
    assert world.rows[f"{TABLE}:1"] == {"id": 1, "text": "a", "n": 2}


# --- a server that removes keys, and one with many ---


def test_a_server_that_evicts_while_the_sink_runs(
    new_redis_world: NewWorld, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_LOOK_S", 0.0)
    world = new_redis_world(own_redis.url(), mode="set")
    flow = world.attach()
    flow.commit(*(put(key, "x" * 1000) for key in range(2000)))
    client = world.client
    client.config_set("maxmemory", "1gb")
    for policy in ("allkeys-lru", "volatile-ttl"):
        client.config_set("maxmemory-policy", policy)
        assert policy in failed(flow, partial(flow.commit, put(1, policy))).message
        client.config_set("maxmemory-policy", "noeviction")
        flow.cut()
        flow.assign()  # nothing was removed yet, so that it continues
        assert (world.rows[f"{TABLE}:1"]["text"], flow.datamarker) == (policy, flow.end)
    client.config_set("maxmemory-policy", "allkeys-random")
    client.config_set("maxmemory", str(client.info("memory")["used_memory"] - 500_000))
    client.ping()
    while not client.info("stats")["evicted_keys"]:
        client.set("more", "x")
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "0")
    assert failed(flow, lambda: flow.commit(put(2, "b"))).code == "target-empty"
    flow.cut()
    assert failed(flow, flow.assign).code == "target-empty"
    flow.cut()
    client.flushdb()  # the record of all rows may be among the removed keys
    assert failed(flow, flow.assign).code == "target-empty"
    flow.backfill(TABLE, [read(TABLE, key=key, after={"text": "a"}) for key in (1, 2)])
    flow.commit(put(3, "c"))
    assert (sorted(world.rows), flow.datamarker) == ([f"{TABLE}:{key}" for key in (1, 2, 3)], flow.end)


@pytest.mark.parametrize("mode", ["delete", "set"])
@pytest.mark.parametrize("sweep", ["truncate", "scan end"])
def test_a_sweep_of_any_size_ends(
    new_redis_world: NewWorld, redis_url: str, monkeypatch: pytest.MonkeyPatch, mode: str, sweep: str
) -> None:
    """Each callback looks at one portion."""
    monkeypatch.setattr(sweeps_module, "_TURN_S", 0.0)
    monkeypatch.setattr(rows_module, "_SCANNED", 100)
    monkeypatch.setattr(invalidate_module, "_SCANNED", 100)
    world = new_redis_world(redis_url, mode=mode)
    flow = world.attach()
    flow.commit(*(put(key, "a") for key in range(400)), update("shop.users", key=1, after={"a": 1}))
    world.fill(*(f"{TABLE}:{key}" for key in range(400) if mode == "delete"), "other")
    if sweep == "truncate":
        flow.commit(deleted_all())
    else:
        flow.backfill(TABLE, [])
    left = [key for key in world.left if key != "other"]
    assert (left, flow.datamarker) == (["shop.users:1"] if mode == "set" else [], flow.end)


def test_a_sweep_is_repeated_behind_another_owner_and_in_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps_module, "_TURN_S", 0.0)

    class Server:
        where, run_id = "server", "one"

        async def run(self, *commands: Any) -> list[Any]:
            return [{"run_id": self.run_id}]

    async def scan(command: Any) -> list[Any]:
        (cursor,) = command
        cursors.append(cursor)
        return [(cursor + 1, [])]

    async def turn(what: str) -> list[int]:
        with pytest.raises(TargetUnavailable):
            async for _ in sweeps.portions("db1", what, lambda cursor: (cursor,), scan):
                pass
        return [cursors.pop() for _ in range(2)][::-1]

    cursors: list[Any] = []
    server = Server()
    sweeps = Sweeps(server)  # type: ignore[arg-type]

    def begins(epoch: int, move: int = 0) -> None:
        notice = ShardNotice(NoticeKind.ASSIGNED, "db1", epoch, marker_at(0), move=move)
        sweeps.assigned(notice)

    async def story() -> None:
        begins(1)
        assert await turn("a") == [0, 1]
        begins(2)
        assert await turn("a") == [1, 2]
        begins(4)  # epoch 3 was of another process
        assert await turn("a") == [0, 1]
        begins(5, move=1)
        assert await turn("a") == [0, 1]
        begins(6, move=1)
        assert await turn("b") == [0, 1]
        server.run_id = "two"
        begins(7, move=1)
        assert await turn("b") == [0, 1]

    asyncio.run(story())


# --- other sinks on the same keys, and servers that were set back ---


@pytest.mark.parametrize("change", [gone(1), deleted_all()], ids=["row", "table"])
def test_a_sink_that_removes_keys_of_rows_that_another_keeps(
    new_redis_world: NewWorld, redis_url: str, change: Change
) -> None:
    rows, cache = new_redis_world(redis_url, mode="set"), new_redis_world(redis_url, key="{table}:{key}")
    rows.attach().commit(put(1, "a"))
    flow = cache.attach(shard="other")
    cause = failed(flow, lambda: flow.commit(change))
    assert (isinstance(cause, TargetRefused), list(rows.rows)) == (True, [f"{TABLE}:1"])
    cache.client.hdel("wormhole:owners", f"{TABLE}:")
    flow.cut()
    flow.assign()
    assert (rows.rows, flow.datamarker) == ({}, flow.end)


@pytest.mark.parametrize("mode", ["delete", "set"])
def test_a_server_that_was_set_back_while_nothing_changes(new_redis_world: NewWorld, redis_url: str, mode: str) -> None:
    world = new_redis_world(redis_url, mode=mode)
    flow = world.attach()
    flow.commit(put(1, "a"))
    copy: Any = {key: world.client.dump(key) for key in world.client.scan_iter()}
    if mode == "delete":
        world.fill(f"{TABLE}:2")
        copy[f"{TABLE}:2"] = world.client.dump(f"{TABLE}:2")
    flow.commit(put(1, "b"), gone(2))
    world.client.flushdb()
    for key, value in copy.items():
        world.client.restore(key, 0, value)
    again: Any = world.sinks[0].subscriber
    with pytest.raises(TargetUnavailable):
        world.kit.run(again.on_datamarker(replace(flow.datamarker, shard="shop")))  # as an idle flow does
    flow.commit()  # its datamarker alone
    assert flow.datamarker == flow.end
    assert [row["text"] for row in world.rows.values()] == (["b"] if mode == "set" else [])


@pytest.mark.parametrize(
    ("to", "before", "restarted"), [(1, True, False), (2, True, True), (1, False, True), (4, False, False)]
)
@pytest.mark.parametrize("mode", ["delete", "set"])
def test_a_server_that_was_set_back_behind_a_move_of_the_datamarker(
    new_redis_world: NewWorld, redis_url: str, mode: str, to: int, before: bool, restarted: bool
) -> None:
    """``before``: the move is before the server is set back. ``restarted``: another process goes on."""
    world = new_redis_world(redis_url, mode=mode)
    flow = world.attach()
    flow.commit(put(1, "a"))
    flow.commit(put(1, "b"), put(2, "b"))
    if mode == "delete":
        world.fill(f"{TABLE}:3")
    copy: Any = {key: world.client.dump(key) for key in world.client.scan_iter()}
    flow.commit(put(3, "c"))
    flow.commit(put(4, "d"))
    if before:
        flow.move(marker_at(to))
        flow.commit(put(4, "e"))
    world.client.flushdb()
    for key, value in copy.items():
        world.client.restore(key, 0, value)
    if restarted:
        flow.crash_and_redeliver(0, subscriber=world.sink().subscriber)
    if not before:
        flow.move(marker_at(to))
    flow.commit(put(1, "f"))
    found = {key[-1]: row["text"] for key, row in world.rows.items()} if mode == "set" else world.left
    assert found == ({"1": "f", "2": "b", "3": "c", "4": "e" if before else "d"} if mode == "set" else [])
    assert flow.datamarker == flow.end


@pytest.mark.parametrize(
    ("refusing", "taking"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    ],
    ids=["full", "read-only"],
)
@pytest.mark.parametrize("mode", ["delete", "set"])
def test_a_server_that_takes_no_writes_is_waited_for(
    new_redis_world: NewWorld, own_redis: RedisServer, mode: str, refusing: tuple[str, ...], taking: tuple[str, ...]
) -> None:
    world = new_redis_world(own_redis.url(), mode=mode)
    flow = world.attach()
    flow.commit(put(1, "a"))
    client: Any = world.client
    client.execute_command(*refusing)
    cause = failed(flow, lambda: flow.commit(put(1, "b"), put(2, "b")))
    assert isinstance(cause, TargetUnavailable)
    assert cause.code == "target-unavailable"
    client.execute_command(*taking)
    flow.cut()
    flow.assign()
    assert flow.datamarker == flow.end
    assert [row["text"] for row in world.rows.values()] == (["b", "b"] if mode == "set" else [])


def test_a_replica_that_was_behind_takes_over(new_redis_world: NewWorld) -> None:
    """The sink's connections stay, and its server goes on as a replica of nothing that it knew."""
    at_once = {"repl-diskless-sync-delay": "0"}
    with RedisServer(options=at_once) as primary, RedisServer(options=at_once) as replica:
        with contextlib.closing(replica.client()) as other:
            world = new_redis_world(primary.url(), mode="set")
            flow = world.attach()
            flow.commit(put(1, "a"), put(2, "a"))
            other.replicaof(primary.host, primary.port)
            until(lambda: other.info("replication")["master_link_status"] == "up", "the replica is in sync")
            until(lambda: other.dbsize() == world.client.dbsize(), "the replica has everything")
            other.replicaof("NO", "ONE")  # it is promoted, and what follows is lost
            flow.commit(put(1, "b"), gone(2), put(3, "b"))
            world.client.replicaof(replica.host, replica.port)
            until(lambda: world.client.info("replication")["master_link_status"] == "up", "the former primary follows")
            assert isinstance(failed(flow, lambda: flow.commit(put(4, "c"))), TargetUnavailable)
            world.client.replicaof("NO", "ONE")  # it is the primary again, with the other's rows
            flow.cut()
            flow.assign()
            texts = {key[-1]: row["text"] for key, row in world.rows.items()}
            assert (texts, flow.datamarker) == ({"1": "b", "3": "b", "4": "c"}, flow.end)
