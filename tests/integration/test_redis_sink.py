"""The sink of Redis with a real server: keys of changed rows are removed, whatever fails."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from sinks.redis.failures import target_error
from sinks.redis.kind import KIND
from sinks.redis.settings import RedisSettings
from sinks.redis.store import Store
from subscriber_sdk import HandlerFailed, Op
from subscriber_sdk.testing import read, update
from subscriber_sdk.testing.changes import Change
from tests.support.certificates import Authority
from tests.support.eventually import patience
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.redis_world import NewWorld, World
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.model.findings import Report, Severity

# The client looks up addresses, which the kit's loop does in place.
pytestmark = pytest.mark.allow_blocking

TABLE = "shop.orders"


def row(key: Any, **more: Any) -> Change:
    return update(TABLE, key=key, after={"text": "a"}, **more)


def test_the_keys_of_changed_rows_are_removed(redis_world: World) -> None:
    flow = redis_world.attach()
    redis_world.fill(*(f"{TABLE}:{key}" for key in range(6)), "shop.users:1")
    flow.commit(row(1), update(TABLE, key=2, before={"text": "a"}), row(3, op=Op.UPSERT, left=True))
    flow.commit(row(4, old_key=5))
    assert redis_world.left == [f"{TABLE}:0", "shop.users:1"]
    assert flow.datamarker == flow.end


def test_nothing_is_removed_before_the_transaction_is_complete(redis_world: World) -> None:
    """Its rows are not visible before, so that the old ones would be cached again."""
    flow = redis_world.attach()
    redis_world.fill(f"{TABLE}:1")
    writes: list[list[str]] = []
    send = redis_world.sinks[0]._store.send  # type: ignore[attr-defined]

    async def counting(packed: Any, names: Any) -> Any:
        writes.append(list(names))
        return await send(packed, names)

    redis_world.sinks[0]._store.send = counting  # type: ignore[attr-defined]
    flow.commit(*(row(key) for key in range(6)), pieces=3)
    assert [names for names in writes if "UNLINK" in names] == [["UNLINK", "EVAL"]]
    assert redis_world.left == []


@pytest.mark.parametrize(
    "change",
    [
        update(TABLE, key=(), op=Op.TRUNCATE),
        update(TABLE, key=b"a", key_end=b"b", op=Op.DELETE_RANGE),
    ],
    ids=["truncate", "range"],
)
def test_every_key_of_a_table_is_removed(redis_world: World, change: Change) -> None:
    flow = redis_world.attach()
    redis_world.fill(*(f"{TABLE}:{key}" for key in range(10_000)), "shop.orders2:1", "shop_orders:1", "shop.orders")
    flow.commit(change)
    assert redis_world.left == ["shop.orders", "shop.orders2:1", "shop_orders:1"]


def test_a_pattern_in_a_name_is_text(new_redis_world: NewWorld, redis_url: str) -> None:
    world = new_redis_world(redis_url, keys={"a": "[*]?\\{table}:{key}"})
    flow = world.attach()
    world.fill("[*]?\\a:1", "*ab\\a:1")
    flow.commit(update("a", key=(), op=Op.TRUNCATE))
    assert world.left == ["*ab\\a:1"]


def test_the_end_of_existing_rows_removes_what_no_row_has(redis_world: World) -> None:
    """After a gap in the log a deleted row may still be cached."""
    flow = redis_world.attach()
    redis_world.fill(f"{TABLE}:1", f"{TABLE}:2", "shop.users:1")
    flow.backfill(TABLE, [read(TABLE, key=1, after={"text": "a"})])
    assert redis_world.left == ["shop.users:1"]


def test_a_table_without_a_key_halts_its_flow_or_is_parked(redis_world: World) -> None:
    parking = redis_world.attach(on_failure="park")
    redis_world.fill("shop.users:1")
    parking.commit(update(TABLE, key=(), after={"text": "geheim"}), update("shop.users", key=1, after={"a": 1}))
    assert (parking.parked, redis_world.left) == (["test:1:0"], [])
    with pytest.raises(HandlerFailed, match="no key") as halted:
        redis_world.attach(shard="other").commit(update(TABLE, key=(), after={"text": "geheim"}))
    assert "geheim" not in str(halted.value)


def test_delivery_goes_on_from_the_datamarker_that_the_server_has(redis_world: World) -> None:
    flow = redis_world.attach()
    flow.commit(row(1))
    flow.commit(row(2))
    redis_world.fill(f"{TABLE}:1", f"{TABLE}:2")
    flow.crash_and_redeliver(subscriber=redis_world.sink().subscriber)
    assert flow.datamarker == flow.end
    assert redis_world.left == [f"{TABLE}:1", f"{TABLE}:2"]  # they were removed, and are of no account now


def test_a_server_that_was_set_back_gets_the_lost_removals_again(
    new_redis_world: NewWorld, own_redis: RedisServer
) -> None:
    """Its copy still has the keys that were removed after it was taken."""
    world = new_redis_world(own_redis.url())
    flow = world.attach()
    world.fill(f"{TABLE}:1", f"{TABLE}:2")
    flow.commit(row(1))
    (record,) = world.client.keys("wormhole:flow:*")
    older: Any = world.client.hgetall(record)
    flow.commit(row(2))
    world.fill(f"{TABLE}:2")
    world.client.hset(record, mapping=older)
    flow.commit(row(3))
    assert (world.left, flow.datamarker) == ([], flow.end)


def test_a_server_that_is_killed_and_restarted(new_redis_world: NewWorld, own_redis: RedisServer) -> None:
    world = new_redis_world(own_redis.url())
    flow = world.attach()
    flow.commit(row(1))
    own_redis.kill()
    with pytest.raises(HandlerFailed) as away:
        flow.commit(row(2))
    assert isinstance(away.value.__cause__, TargetUnavailable)
    own_redis.start()
    world.fill(f"{TABLE}:1", f"{TABLE}:2")
    flow.cut()
    flow.assign()
    assert (world.left, flow.datamarker) == ([f"{TABLE}:1"], flow.end)


def test_an_emptied_server_is_an_empty_cache(redis_world: World) -> None:
    flow = redis_world.attach()
    flow.commit(row(1))
    redis_world.client.flushdb()
    flow.commit(row(2))
    assert flow.datamarker == flow.end


def test_a_process_that_lost_the_shard_stores_no_datamarker(redis_world: World) -> None:
    zombie = redis_world.attach()
    zombie.commit(row(1))
    owner = redis_world.attach()
    while owner.epoch <= zombie.epoch:
        owner.crash_and_redeliver()
    owner.commit(row(1))
    owner.commit(row(2))
    (record,) = redis_world.client.keys("wormhole:flow:*")
    before: Any = redis_world.client.hgetall(record)
    stale = zombie.epoch
    zombie.commit(row(3))
    assert zombie.epoch > stale  # refused, and assigned anew
    assert int(before[b"epoch"]) == owner.epoch


def test_a_record_that_was_changed_by_hand_halts(redis_world: World) -> None:
    flow = redis_world.attach()
    flow.commit(row(1))
    (record,) = redis_world.client.keys("wormhole:flow:*")
    redis_world.client.hset(record, "marker", "geheim")
    flow.cut()
    with pytest.raises(HandlerFailed, match="changed by hand") as halted:
        flow.assign()
    assert isinstance(halted.value.__cause__, TargetRefused)
    assert "geheim" not in str(halted.value)


@pytest.mark.parametrize(
    ("said", "kind", "code", "words"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), TargetUnavailable, "target-unavailable", "no memory left"),
        (("REPLICAOF", "127.0.0.1", "1"), TargetUnavailable, "target-unavailable", "is a replica"),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), TargetUnavailable, "target-unavailable", "too few replicas"),
        (("CONFIG", "SET", "requirepass", "geheim"), TargetRefused, "login-refused", "refuses the login"),
        (("ACL", "SETUSER", "default", "-eval"), TargetRefused, "account-lacks-rights", "refuses a command"),
        (("ACL", "SETUSER", "default", "-hset"), TargetRefused, "account-lacks-rights", "refuses a command"),
        (("ACL", "SETUSER", "default", "resetkeys"), TargetRefused, "account-lacks-rights", "refuses a command"),
        (("SET", "geheim", "text"), TargetRefused, "target-refused", "a value of another type"),
    ],
    ids=lambda value: "-".join(value[-2:]) if isinstance(value, tuple) else "",
)
async def test_what_an_answer_means(
    own_redis: RedisServer, said: tuple[str, ...], kind: type[Exception], code: str, words: str
) -> None:
    with admin(own_redis) as client:
        client.execute_command(*said)
    with pytest.raises(kind, match=words) as failed:
        await ran(own_redis.url(), ("EVAL", "return redis.call('HSET', KEYS[1], 'a', 'b')", 1, "geheim"))
    assert getattr(failed.value, "code", "") == code
    assert "geheim" not in str(failed.value)


def test_a_right_that_a_script_of_valkey_lacks() -> None:
    said = "ACL failure in script: User default has no permissions to run the 'hset' command script: on @user_script:1."
    found = target_error("server", ResponseError(said))
    assert (type(found), getattr(found, "code", "")) == (TargetRefused, "account-lacks-rights")


async def test_what_is_no_server_and_what_is_not_the_sink_s_server(own_redis: RedisServer) -> None:
    with pytest.raises(TargetUnavailable, match=r"127\.0\.0\.1:1 cannot be used"):
        await ran("redis://127.0.0.1:1", ("PING",))
    with pytest.raises(TargetRefused, match="does not have this database"):
        await ran(f"{own_redis.url()[:-1]}9999", ("PING",))
    with pytest.raises(TargetRefused, match="lacks a command") as lacks:
        await ran(own_redis.url(), ("NOSUCH", "geheim"))
    assert "geheim" not in str(lacks.value)


async def test_a_server_that_is_busy_with_a_script_is_waited_for() -> None:
    with RedisServer(options={"busy-reply-threshold": "1"}) as server, admin(server) as other:
        connection = other.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", "0")
        async with patience():
            with pytest.raises(TargetUnavailable, match="busy with a script"):
                while await ran(server.url(), ("GET", "a")):  # until the script has begun
                    pass
        other.script_kill()
        other.connection_pool.release(connection)


def admin(server: RedisServer) -> contextlib.closing[Any]:
    return contextlib.closing(server.client())


async def ran(url: str, command: tuple[str | int, ...]) -> list[Any]:
    store = Store(RedisSettings.model_validate({"url": url}))
    try:
        return await store.run(command)
    finally:
        await store.close()


# --- what `sink check` reports ---


async def examined(url: str, **settings: Any) -> Report:
    sink = KIND.open("cache", RedisSettings.model_validate({"url": url, **settings}))
    try:
        return await sink.examine()
    finally:
        await sink.close()


def problems(report: Report) -> set[tuple[str, str]]:
    return {(found.check, found.known_code) for found in report.findings if found.severity is not Severity.OK}


async def test_a_server_as_it_should_be(own_redis: RedisServer, tmp_path: Path) -> None:
    with admin(own_redis) as client:
        report = await examined(own_redis.url())
        assert (client.dbsize(), problems(report)) == (0, set())
        client.execute_command("CONFIG", "SET", "requirepass", "geheim")
        assert problems(await examined(own_redis.url())) == {("target_server", "login-refused")}
        sink = KIND.open(
            "cache", RedisSettings.model_validate({"url": own_redis.url(), "password_file": str(tmp_path / "p")})
        )
        assert problems(await sink.examine()) == {("target_server", "login-refused")}
        (tmp_path / "p").write_text("geheim\n")  # read again for every connection
        assert problems(await sink.examine()) == set()
        await sink.close()
    assert "Redis 7" in str(report.facts["server"])


async def test_what_an_account_may_not_is_found_without_a_write(own_redis: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("geheim")
    with admin(own_redis) as client:
        account = ("ACL", "SETUSER", "sink", "on", ">geheim", "+@all", "-scan", "~wormhole:*", "~shop.*")
        client.execute_command(*account)
        url, settings = own_redis.url().replace("//", "//sink@"), {"password_file": str(tmp_path / "password")}
        report = await examined(url, key="other:{key}", **settings)
        assert problems(report) == {("target_rights", "account-lacks-rights")}
        assert "may not run SCAN 0, UNLINK other:1" in report.findings[-1].what
        client.execute_command("ACL", "SETUSER", "sink", "+scan", "~other:*")
        assert problems(await examined(url, key="other:{key}", **settings)) == set()


async def test_a_replica_and_a_cluster_are_problems(own_redis: RedisServer) -> None:
    with admin(own_redis) as client:
        client.replicaof("127.0.0.1", "1")
    assert ("target_server", "target-refused") in problems(await examined(own_redis.url()))
    with RedisServer(options={"cluster-enabled": "yes", "cluster-port": str(free_port()), "databases": "1"}) as cluster:
        assert ("target_server", "target-refused") in problems(await examined(cluster.url()))


async def test_a_server_that_is_away_is_no_report() -> None:
    with pytest.raises(TargetUnavailable):
        await examined("redis://127.0.0.1:1")


async def test_tls_with_an_authority_of_its_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.issue("redis"), authority.issue("sink")
    options = {"tls-port": str(free_port()), "tls-cert-file": str(server.cert), "tls-key-file": str(server.key)}
    with RedisServer(options={**options, "tls-ca-cert-file": str(authority.ca)}):
        url = f"rediss://127.0.0.1:{options['tls-port']}"
        files = {"tls_ca": str(authority.ca), "tls_cert": str(client.cert), "tls_key": str(client.key)}
        assert problems(await examined(url, **files)) == set()
        with pytest.raises(TargetUnavailable, match="certificate"):
            await examined(url)
