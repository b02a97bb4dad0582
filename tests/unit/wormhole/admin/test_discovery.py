from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.present import present
from wormhole.admin import discovery
from wormhole.admin.admin_service import ask, find, owner_of
from wormhole.admin.discovery import Drained, Found, Unowned, configured, publishers, with_coordinator
from wormhole.config import parse
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import CandidateInfo, Coordinator, HostRequest, LogGroup, PublisherInfo
from wormhole.host.ready_file import ReadyFile, process_started, ready_path, write_ready
from wormhole.model.errors import ConfigError, Retryable, StreamBroken, UsageError
from wormholectl.shared.options import Where


def info(log: str, address: str) -> PublisherInfo:
    return PublisherInfo("shop", "main", log, "host", 1, address, 0.0)


SHOP = """
version = 1
[datasets.shop.copies.main.logs]
db1 = { source = "rocksdb:///1", host = "alpha" }
db2 = { source = "rocksdb:///2", host = "beta" }
[datasets.audit.copies.main.logs.db3]
source = "rocksdb:///3"
host = "beta"
[applications]
cache = { dataset = "shop", start = "latest" }
books = { dataset = "audit", start = "latest" }
"""


def knows(
    monkeypatch: pytest.MonkeyPatch,
    *infos: PublisherInfo,
    drained: str | tuple[str, ...] = (),
    text: str = SHOP,
    standby: str = "",
    owner: str = "",
) -> Where:
    """A coordinator with these publishers, of which hosts may be drained.

    ``standby``: a log of shop for which one waits that lacks something; ``owner``: the address of the one that owns db2
    and has not registered yet.
    """

    def ask(where: Where, use: Callable[[Coordinator], Awaitable[Found]]) -> Found:
        async def asked() -> Found:
            world = MemoryWorld(parse(text, "test"))
            for host in (drained,) if isinstance(drained, str) else drained:
                world.hosts[host] = HostRequest(True, "ann@ops", 1.0)
            coordinator = MemoryCoordinator(world)
            await coordinator.start()
            try:
                for one in infos:
                    await coordinator.register_publisher(one)
                if standby:
                    waits = CandidateInfo("main", "gamma", 2, "gamma:7", 1.0, 1, lacking="U:5-9")
                    await coordinator.register_candidate(LogGroup("shop", "main", standby), waits)
                if owner:
                    await coordinator.own_log(LogGroup("shop", "main", "db2"), info("db2", owner), server="", why="")
                return await use(coordinator)
            finally:
                await coordinator.stop()

        return asyncio.run(asked())

    monkeypatch.setattr(discovery, "with_coordinator", ask)
    return Where(coordinator="zk:2181")


def test_the_logs_of_a_drained_host_are_reported_with_their_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    beta = Drained("beta", "ann@ops", ("audit/main/db3", "shop/main/db2"), frozenset({"cache", "books"}))
    found = publishers(knows(monkeypatch, info("db1", "h:1"), drained="beta"), None)
    assert (list(found.addresses), list(found.drained)) == (["h:1"], [beta])
    assert publishers(knows(monkeypatch, info("db1", "h:1"), drained="alpha"), None).drained == [], "it still serves"
    assert publishers(knows(monkeypatch, info("db1", "h:1")), None).drained == []
    with pytest.raises(Retryable, match=r"beta is drained by ann@ops: audit/main/db3, .*drain beta --undo -c zk:2181`"):
        ask(knows(monkeypatch, drained="beta"))


COPIES = """
version = 1
[datasets.shop.failover]
copies = ["main", "west"]
[datasets.shop.copies]
main = { logs = { db1 = { source = "db1", kind = "mysql", hosts = ["alpha", "beta"] } } }
west = { logs = { db1 = { source = "db1", kind = "mysql", host = "gamma" } } }
[applications]
cache = { dataset = "shop", start = "latest" }
"""


@pytest.mark.parametrize(
    ("serving", "drained", "logs"),
    [
        ("", ("alpha",), {}),
        ("", ("alpha", "gamma"), {}),
        ("", ("alpha", "beta", "gamma"), {"alpha": "shop/main/db1", "beta": "shop/main/db1", "gamma": "shop/west/db1"}),
        ("west", ("alpha", "beta"), {}),
        ("main", ("alpha", "gamma"), {}),
    ],
)
def test_a_drained_host_is_why_a_log_is_not_served_when_no_other_candidate_is_to_serve_it(
    serving: str, drained: tuple[str, ...], logs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [PublisherInfo("shop", serving, "db1", "host", 1, "h:1", 0.0)] if serving else []
    where = knows(monkeypatch, *infos, drained=drained, text=COPIES)
    if serving or logs:
        found = publishers(where, None)
        assert {one.host: ", ".join(one.logs) for one in found.drained} == logs
    else:
        with pytest.raises(Retryable, match="no publisher is registered"):
            publishers(where, None)


def test_a_log_without_an_owner_is_reported_with_who_stands_by_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    found = publishers(knows(monkeypatch, info("db1", "h:1"), standby="db2"), None)
    [unowned] = found.unowned
    assert (list(found.addresses), unowned.applications) == (["h:1"], frozenset({"cache"}))
    said = "main@gamma stands by: it lacks U:5-9, which was delivered"
    assert str(unowned) == f"no publisher owns the log shop/main/db2, and the flows there are not known: {said}"
    with pytest.raises(Retryable, match=r" shop/main/db2, .*\[log-unowned\]"):
        ask(knows(monkeypatch, standby="db2"))
    well = Unowned(LogGroup("shop", "main", "db2"), (CandidateInfo("main", "a", 1, "", 1.0, 0),), frozenset())
    assert str(well).endswith("main@a stands by and is about to take over")
    assert "wormholectl publishers" in well.hint


def test_who_could_have_a_flow_of_a_log_without_an_owner_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    [answer] = [one for one in find(knows(monkeypatch, info("db1", "h:1"), standby="db2")) if one.unowned is not None]
    assert answer.silent
    assert (answer.may_have("cache"), answer.may_have("books")) == (True, False)
    with pytest.raises(StreamBroken, match=r"main@gamma stands by.*let its replication catch up"):
        owner_of([answer], "cache/db2")
    with pytest.raises(UsageError, match="there is no flow"):
        owner_of([answer], "books/db3")


def test_one_that_owns_its_log_and_has_not_registered_yet_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = publishers(knows(monkeypatch, info("db1", "h:1"), standby="db2", owner="h:2"), None)
    assert (sorted(found.addresses), list(found.unowned)) == (["h:1", "h:2"], [])


def test_of_a_log_that_is_owned_elsewhere_a_drained_host_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = publishers(knows(monkeypatch, info("db1", "h:1"), owner="h:2", drained="beta"), None)
    assert [one.logs for one in found.drained] == [("audit/main/db3",)]


@pytest.mark.parametrize(
    ("infos", "problem"), [((), "no publisher is registered"), ((info("db1", ""),), "no admin service")]
)
def test_no_publisher_to_ask(infos: tuple[PublisherInfo, ...], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Retryable, match=problem):
        ask(knows(monkeypatch, *infos))


def test_nothing_says_where() -> None:
    with pytest.raises(UsageError, match="--publisher HOST:PORT"):
        ask(Where())

    async def nobody(coordinator: Coordinator) -> None:
        raise AssertionError

    with pytest.raises(UsageError, match=r"needs a coordinator.*-c FILE.toml"):
        with_coordinator(Where("h:1"), nobody)


def test_a_coordinator_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^coordinator = .*\[config-invalid\]"):
        ask(Where(coordinator="what is this"))
    with pytest.raises(ConfigError, match="no such configuration file"):
        ask(Where(coordinator=str(tmp_path / "no.toml")))


def static(folder: Path, listen: str) -> Where:
    path = folder / "shop.toml"
    path.write_text(
        f'version = 1\n[coordinator]\nstatic = true\n[publisher]\nadmin_listen = "{listen}"\nstate_dir = "state"\n'
        "[datasets.shop.copies.main.logs.db1]\nsource = 'rocksdb:///store'\n"
    )
    return Where(coordinator=str(path))


def found(where: Where) -> list[str]:
    return list(publishers(where, configured(where)).addresses)


def test_in_the_static_form_the_ready_files_say_where_publishers_listen(tmp_path: Path) -> None:

    where = static(tmp_path, "127.0.0.1:7401")
    assert found(where) == ["127.0.0.1:7401"]
    path = ready_path(tmp_path / "state", "shop", "main", "db1")
    path.parent.mkdir(parents=True)
    started = present(process_started(os.getpid()))
    write_ready(path, ReadyFile(os.getpid(), started, "127.0.0.1:99", "", "0.1.0", ""))
    assert found(where) == ["127.0.0.1:99"]
    assert found(Where("h:1", where.coordinator)) == ["h:1"]


def test_in_the_static_form_without_a_ready_file_no_publisher_runs(tmp_path: Path) -> None:
    with pytest.raises(Retryable, match=r"runs on this host.*wormholectl up"):
        found(static(tmp_path, "127.0.0.1:0"))


def test_what_up_runs_is_found_in_its_data_folder(tmp_path: Path) -> None:
    where = static(tmp_path, "127.0.0.1:0")
    path = tmp_path / "shop.toml"
    path.write_text(path.read_text().replace('state_dir = "state"', ""))
    folder = tmp_path / ".wormhole" / "shop"
    folder.mkdir(parents=True)
    before = configured(where)
    (folder / "up.json").write_text("{}")
    after = configured(where)
    assert before is not None
    assert after is not None
    assert before.publisher.state_dir != folder / "state"
    assert after.publisher.state_dir == folder / "state"
