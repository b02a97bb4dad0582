"""Nodes as values: what is missing reads as nothing, and a watch of it fires when it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from kazoo.security import make_acl

from tests.support.eventually import patience
from wormhole.coordination import nodes as module
from wormhole.coordination.kazoo_session import ZooKeeperSession
from wormhole.coordination.nodes import LARGEST_NODE, Nodes, Watcher
from wormhole.model.errors import ConfigError, CoordinationLost


@pytest.fixture
async def made(session: ZooKeeperSession) -> Nodes:
    return Nodes(session)


@pytest.fixture
def root(zookeeper: str) -> str:
    return f"/{zookeeper.partition('/')[2]}"


async def test_what_is_missing_is_nothing(made: Nodes, root: str) -> None:
    assert (await made.get(f"{root}/x"), await made.children(root), await made.version(root)) == (None, [], 0)


async def test_each_write_raises_the_version(made: Nodes, root: str) -> None:
    await made.put(f"{root}/x/y", b"one")
    assert await made.version(f"{root}/x/y") == 0
    await made.put(f"{root}/x/y", b"two")
    assert await made.version(f"{root}/x/y") == 1
    assert (await made.get(f"{root}/x/y"), await made.get(f"{root}/x")) == (b"two", b"")
    assert await made.children(f"{root}/x") == ["y"]


async def test_a_watch_sees_what_was_missing_come_change_and_go(made: Nodes, root: str) -> None:
    stopped = False

    async def read(changed: Watcher) -> tuple[bytes | None, list[str]]:
        return await made.get(f"{root}/x", changed), await made.children(f"{root}/list", changed)

    async with patience():
        watch = made.watch(read, lambda: stopped)
        assert await anext(watch) == (None, [])
        await made.put(f"{root}/x", b"one")
        assert await anext(watch) == (b"one", [])
        await made.put(f"{root}/x", b"two")
        assert await anext(watch) == (b"two", [])
        await made.ensure(f"{root}/list/a")
        while await anext(watch) != (b"two", ["a"]):  # the parent may be seen first
            pass
        stopped = True
        await made.put(f"{root}/x", b"three")
        assert [state async for state in watch] == []


async def test_of_many_questions_one_error_comes_out(made: Nodes) -> None:
    async def ask(number: int) -> int | None:
        if number == 3:
            raise ConfigError("three")
        return number or None

    assert await made.each(range(3), ask) == [1, 2]
    with pytest.raises(ConfigError, match="three"):
        await made.each(range(5), ask)


async def test_a_node_too_large_is_refused_here(made: Nodes, root: str) -> None:
    with pytest.raises(ConfigError, match="too large"):
        await made.put(f"{root}/x", b"x" * (LARGEST_NODE + 1))
    assert await made.get(f"{root}/x") is None


async def test_many_nodes_are_written_in_a_few_requests_and_read_at_once(
    made: Nodes, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"{root}/flows{number % 2}/{number:03}" for number in range(250)]
    await made.put(paths[7], b"was there")
    asked: list[str] = []
    call_together = made.session.call_together

    async def counted(what: str, asks: Sequence[Callable[[Any], Any]]) -> list[Any]:
        asked.extend(what for _ in asks)
        return await call_together(what, asks)

    monkeypatch.setattr(made.session, "call_together", counted)
    await made.put_all({path: path.encode() for path in paths})
    assert asked.count("write nodes") == 6, "two attempts for each hundred"
    assert len(asked) == 6 + 3 * 4, "between them both folders are made and listed"
    asked.clear()
    await made.put_all(dict.fromkeys(paths, b"again"))
    assert asked == ["write nodes"] * 3
    assert await made.get_all([*paths, f"{root}/none"]) == [b"again"] * 250 + [None]


async def test_a_node_that_another_client_makes_meanwhile_is_written_too(made: Nodes, root: str) -> None:
    class Raced(Nodes):
        async def _lacking(self, nodes: Mapping[str, bytes]) -> set[str]:
            found = await super()._lacking(nodes)
            await made.put(f"{root}/a", b"theirs")
            return found

    await Raced(made.session).put_all({f"{root}/a": b"one", f"{root}/b": b"two"})
    assert await made.get_all([f"{root}/a", f"{root}/b"]) == [b"one", b"two"]


async def test_a_large_node_among_many_is_refused_by_itself(made: Nodes, root: str) -> None:
    with pytest.raises(ConfigError, match=f"{root}/b: .* too large"):
        await made.put_all({f"{root}/a": b"one", f"{root}/b": bytes(LARGEST_NODE + 1)})
    assert await made.get(f"{root}/a") == b"one"


@pytest.mark.parametrize("count", [1, 3, 250])
async def test_without_its_fence_nothing_is_written(made: Nodes, root: str, count: int) -> None:
    fence, paths = f"{root}/claims/one", [f"{root}/flows/{number:03}" for number in range(count)]
    await made.put(fence, b"")
    await made.put_all(dict.fromkeys(paths, b"one"), fence)
    await made.put_all(dict.fromkeys(paths, b"two"), fence)
    assert await made.get_all(paths) == [b"two"] * count
    await made.session.call("delete", lambda client: client.delete_async(fence))
    for some in (paths, [f"{root}/new/{number}" for number in range(count)]):
        with pytest.raises(CoordinationLost, match=f"does not own the log any more.*writing {some[0]} was refused"):
            await made.put_all(dict.fromkeys(some, b"late"), fence)
    assert await made.get_all(paths) == [b"two"] * count
    assert await made.children(f"{root}/new") == []


@pytest.mark.parametrize("fenced", [True, False])
async def test_nodes_that_another_client_makes_meanwhile_are_written_as_long_as_the_fence_is_there(
    made: Nodes, root: str, fenced: bool
) -> None:
    fence, looks = f"{root}/fence", 0
    await made.put(fence, b"")

    class Raced(Nodes):
        async def _lacking(self, nodes: Mapping[str, bytes]) -> set[str]:
            nonlocal looks
            found = await super()._lacking(nodes)
            looks += 1
            if looks == 1:  # both are missing
                await made.put(f"{root}/a", b"theirs")
            elif looks == 2:  # "b" was there, and is removed
                return set()
            elif looks == 4 and not fenced:
                await made.session.call("delete", lambda client: client.delete_async(fence))
            return found

    writing = Raced(made.session).put_all({f"{root}/b": b"two", f"{root}/a": b"one"}, fence)
    if fenced:
        await writing
        assert await made.get_all([f"{root}/a", f"{root}/b"]) == [b"one", b"two"]
    else:
        with pytest.raises(CoordinationLost, match=f"writing {root}/a was refused"):
            await writing
        assert await made.get_all([f"{root}/a", f"{root}/b"]) == [b"theirs", b"two"]


async def test_what_is_refused_beside_a_fence_says_why(made: Nodes, root: str) -> None:
    await made.put(f"{root}/fence", b"")
    with pytest.raises(ConfigError, match=f"{root}/b: .* too large"):
        await made.put_all({f"{root}/b": bytes(LARGEST_NODE + 1)}, f"{root}/fence")
    nobody = [make_acl("digest", "nobody:x", all=True)]
    await made.session.call("close", lambda client: client.create_async(f"{root}/closed", b"", acl=nobody))
    with pytest.raises(ConfigError, match=f"refuses to write {root}/closed: NoAuthError"):
        await made.put_all({f"{root}/closed": b"one"}, f"{root}/fence")


async def test_what_is_below_a_node_is_removed_so_many_at_one_time(
    made: Nodes, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CHILDREN", 2)
    for path in ("a/b/c/d", "a/b/e", "f/g", "h/i/j", "k"):
        await made.ensure(f"{root}/x/{path}")
    await made.remove_below(f"{root}/x")
    assert await made.children(f"{root}/x"), "what was not found yet"
    for _ in range(9):  # each removes something
        await made.remove_below(f"{root}/x")
    assert await made.children(f"{root}/x") == []
    await made.remove_below(f"{root}/missing")


async def test_a_node_that_its_maker_closed_is_left_out_and_others_are_removed_by_those_who_may(
    made: Nodes,
    root: str,
) -> None:
    nobody = [make_acl("digest", "nobody:x", all=True)]
    path = f"{root}/x/closed"
    await made.ensure(f"{root}/x")
    await made.session.call("close", lambda client: client.create_async(path, b"", acl=nobody))
    assert await made.record(path, len, "ask its maker") is None
    assert await made.live_record(path, len, None, "ask its maker", "delete it") is None
    found = made.problems[path]
    assert (found.text, found.hint) == (f"{path}: may not be read by us, as its maker decided", "ask its maker")
    assert found.code == "coordination-refused"
    await made.put(f"{root}/open", b"x" * 7)
    assert await made.record(f"{root}/open", len) == 7
    made.forget_below(f"{root}/x", ["closed"])
    assert list(made.problems) == [path]
    made.forget_below(f"{root}/x", [])
    assert made.problems == {}
    with pytest.raises(ConfigError, match=r"refuses to list .*closed: NoAuthError"):
        await made.remove_below(f"{root}/x")
