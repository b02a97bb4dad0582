"""What a source knows of its servers is found by the next host that owns the log."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from datastores.common.high_water import HighWater
from datastores.mysql.history.incarnations import Incarnations
from datastores.mysql.server.state import ServerState
from publisher.stores import source_state
from publisher.stores.markers import ZooKeeperMarkerStore
from publisher.stores.source_state import GroupState, InheritedState, ZooKeeperSourceState, copies_of
from tests.support.hosts_state import HostsState
from tests.support.markers import opened
from wormhole.config import CoordinatorConfig
from wormhole.config.model import FAILOVER
from wormhole.coordination.port import LogGroup
from wormhole.model.errors import ConfigError, CoordinationLost, MarkerStoreError
from wormhole.model.position import Datamarker, LogPosition

GROUP = LogGroup("shop", "@failover", "db1")
CONTENT = {"histories": [{"server": "3E11FA47", "number": 2}], "texts": "größer"}


def store_at(zookeeper: str) -> ZooKeeperMarkerStore:
    return ZooKeeperMarkerStore(CoordinatorConfig(zookeeper=zookeeper, session_timeout=20.0), "db1")


@pytest.fixture
def store(zookeeper: str) -> Iterator[ZooKeeperMarkerStore]:
    with opened(store_at(zookeeper)) as store:
        yield store


@pytest.fixture
def state(store: ZooKeeperMarkerStore) -> ZooKeeperSourceState:
    return store.source_state(GROUP)


def test_another_host_finds_what_was_written_last(state: ZooKeeperSourceState, zookeeper: str) -> None:
    assert state.read("histories") == {}
    state.write("histories", {"first": 1})
    state.write("histories", CONTENT)
    state.write("read", {"end": 5})
    with opened(store_at(zookeeper)) as other:
        assert other.source_state(GROUP).read("histories") == CONTENT
        assert other.source_state(GROUP).read("read") == {"end": 5}
        assert other.source_state(LogGroup("shop", "main", "db1")).read("histories") == {}, "another group's"


DAMAGED = {
    "no compressed text": b"histories",
    "cut off": zlib.compress(json.dumps(CONTENT).encode())[:-5],
    "something behind it": zlib.compress(b"{}") + b"x",
    "no object": zlib.compress(b"[1]"),
    "no JSON": zlib.compress(b"{"),
    "no text": zlib.compress(b"\xff"),
    "empty": b"",
    "larger than memory": zlib.compress(b'{"x": "' + b"a" * (17 << 20) + b'"}'),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_node_is_named(state: ZooKeeperSourceState, store: ZooKeeperMarkerStore, damage: str) -> None:
    state.write("histories", CONTENT)
    path = store._paths.log_state(GROUP, "histories")
    store._client.kazoo.set(path, DAMAGED[damage])
    with pytest.raises(MarkerStoreError, match=f"{path} holds nothing that a publisher wrote") as caught:
        state.read("histories")
    assert "restore ZooKeeper from a backup, or delete the node" in str(caught.value.hint)
    state.write("histories", CONTENT)
    assert state.read("histories") == CONTENT, "written anew"


def noise(size: int) -> dict[str, str]:
    """It cannot be compressed."""
    return {"noise": base64.b64encode(random.Random(1).randbytes(size)).decode()}


def test_what_fits_into_a_node_is_stored(state: ZooKeeperSourceState) -> None:
    content = noise(850_000)
    state.write("histories", content)
    assert state.read("histories") == content


def test_what_does_not_fit_is_refused_before_it_is_sent(state: ZooKeeperSourceState) -> None:
    for content, told in (
        (noise(950_000), r"state/histories: what the source knows .* takes 9\d\d,\d\d\d bytes"),
        ({"x": "a" * (17 << 20)}, r"17,825,80\d before it is compressed"),
    ):
        with pytest.raises(ConfigError, match=told):
            state.write("histories", content)
    assert state.read("histories") == {}


def test_the_bound_itself_fits(state: ZooKeeperSourceState, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(source_state._packed("x", CONTENT))
    monkeypatch.setattr(source_state, "_MOST_STORED", size)
    state.write("histories", CONTENT)
    monkeypatch.setattr(source_state, "_MOST_STORED", size - 1)
    with pytest.raises(ConfigError):
        state.write("histories", CONTENT)


def test_a_node_that_appears_meanwhile_is_replaced(
    state: ZooKeeperSourceState, store: ZooKeeperMarkerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store._paths.log_state(GROUP, "histories")
    monkeypatch.setattr(
        store._client, "make", lambda folders: store._client.kazoo.create(path, b"somebody else's", makepath=True)
    )
    state.write("histories", CONTENT)
    assert state.read("histories") == CONTENT


def test_without_an_open_store_nothing_is_asked(zookeeper: str) -> None:
    closed = store_at(zookeeper).source_state(GROUP)
    with pytest.raises(MarkerStoreError, match="not open"):
        closed.read("histories")
    with pytest.raises(MarkerStoreError, match="not open"):
        closed.write("histories", CONTENT)


# --- a log whose group is another one than before


def view(server: str, file: int) -> ServerState:
    return ServerState(server, 1, "binlog", ((file, 1000),), (file, 500), "")


def placed(incarnation: int) -> Datamarker:
    place = LogPosition(incarnation, 3, 4)
    return Datamarker(place, "", place)


def known(server: str, number: int) -> dict[str, Any]:
    """Histories that end with incarnation ``number``, of ``server``."""
    before = [{"number": n, "server": f"before {server}"} for n in range(1, number)]
    return {"incarnations": [*before, {"number": number, "server": server}]}


class Groups:
    """The groups of a log of the copies main and west, and their publishers."""

    def __init__(self, made: Callable[[str], GroupState] = lambda name: HostsState()) -> None:
        self.at = {name: made(name) for name in ("main", "west", FAILOVER)}

    def owned(self, group: str, *, applications: Sequence[str] = ("cache",)) -> InheritedState:
        """What an owner of the log finds that is one of ``group``."""
        both = ("main", "west")
        earlier, copies = (both, both) if group == FAILOVER else ((FAILOVER,), (group,))
        return InheritedState(
            self.at[group], [self.at[name] for name in earlier], copies, lambda: bool(tuple(applications))
        )

    def turns(self) -> dict[str, int]:
        return {name: state.read("turn").get("number", 0) for name, state in self.at.items()}


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_a_failover_begins_with_what_the_copy_before_knew(groups: Groups) -> None:
    groups.at["main"].write("histories", known("A", 2))
    groups.at["main"].write("read", {"id": "f00d", "order": "2/7/400"})
    state = groups.owned(FAILOVER)
    assert state.read("histories") == known("A", 2)
    assert state.read("read") == {"id": "f00d", "order": "2/7/400"}, "the host that served it has more of the same"
    state.write("histories", known("B", 3))
    assert groups.owned(FAILOVER).read("histories") == known("B", 3), "what another owner finds"
    assert groups.at["main"].read("histories") == known("A", 2), "an earlier group's is left alone"


def test_without_turns_the_histories_with_the_highest_incarnation_count(groups: Groups) -> None:
    groups.at["main"].write("histories", known("A", 2))
    groups.at["west"].write("histories", known("B", 3))
    groups.at[FAILOVER].write("histories", known("C", 3))
    assert groups.owned(FAILOVER).read("histories") == known("C", 3), "of two that reach as far the present one's"
    groups.at["west"].write("histories", known("B", 4))
    groups.at[FAILOVER].write("turn", {})
    assert groups.owned(FAILOVER).read("histories") == known("B", 4)


def test_all_documents_are_those_of_one_group(groups: Groups) -> None:
    groups.at["main"].write("histories", known("A", 2))
    groups.at["main"].write("scan", {"number": 9})
    groups.at[FAILOVER].write("histories", known("B", 1))
    groups.at[FAILOVER].write("publication", {"oid": 5})
    state = groups.owned(FAILOVER)
    assert state.read("publication") == {}, "of other histories"
    assert (state.read("histories"), state.read("scan")) == (known("A", 2), {"number": 9})


def test_a_failover_that_is_removed_and_configured_again(groups: Groups) -> None:
    """Each time the histories are those of the group that served last, whatever the numbers are."""
    groups.at["main"].write("histories", known("A", 1))
    groups.owned(FAILOVER).write("histories", known("B", 3))
    alone = groups.owned("main")
    assert alone.read("histories") == known("B", 3)
    alone.write("histories", known("A", 5))
    assert groups.owned("main").read("histories") == known("A", 5)
    again = groups.owned(FAILOVER)
    assert again.read("histories") == known("A", 5)
    again.write("read", {"id": "f00d", "order": "5/9/400"})
    assert groups.owned("main").read("read")["order"] == "5/9/400", "as far as it was read, in the same incarnation"
    assert groups.turns() == {"main": 4, "west": 0, FAILOVER: 3}


def test_a_copy_that_nobody_used_has_no_say(groups: Groups) -> None:
    """Its publisher reads its log all the same, and sees servers that no datamarker is of."""
    groups.owned(FAILOVER).write("histories", known("A", 3))
    used = groups.owned("main")
    used.write("read", {"id": "f00d", "order": "3/99/400"})
    for number in (4, 5):
        idle = groups.owned("west", applications=())
        assert len(idle.read("histories")["incarnations"]) == number - 1
        idle.write("histories", known("W", number))
    assert groups.owned(FAILOVER).read("read")["order"] == "3/99/400"


def test_a_copy_is_used_as_soon_as_it_has_an_application(groups: Groups) -> None:
    applications: list[str] = []
    groups.owned(FAILOVER).write("histories", known("A", 3))
    west = groups.owned("west", applications=applications)
    west.write("histories", known("W", 4))
    assert groups.turns() == {"main": 0, "west": 1, FAILOVER: 1}
    applications.append("cache")
    west.write("read", {"order": "4/1/4"})
    assert groups.turns() == {"main": 0, "west": 2, FAILOVER: 1}
    groups.at["main"].write("histories", known("A", 7))
    assert groups.owned(FAILOVER).read("histories") == known("W", 4)


def test_a_copy_that_never_took_turns_keeps_its_own(groups: Groups) -> None:
    groups.owned(FAILOVER).write("histories", known("A", 3))
    lab = HostsState()
    lab.write("histories", known("L", 1))
    state = InheritedState(lab, [groups.at[FAILOVER]], ["lab"])
    assert state.read("histories") == known("L", 1)
    assert [copies_of(one) == {"main", "west"} for one in (groups.at[FAILOVER], lab)] == [True, False]


def test_the_copies_of_a_failover_go_on_as_two_histories(groups: Groups) -> None:
    """What a host noted for itself while it read one of them says nothing of the other."""
    groups.owned(FAILOVER).write("histories", known("A", 3))
    groups.owned(FAILOVER).write("read", {"id": "f00d", "order": "3/9/400"})
    main, west = (groups.owned(copy).read("read") for copy in ("main", "west"))
    assert len({main["id"], west["id"], "f00d"}) == 3
    assert main["order"] == west["order"] == "3/9/400"
    groups.at["main"].write("histories", {})
    groups.at["main"].write("turn", {})
    assert groups.owned("main").read("read") == main, "also after an earlier state was restored"
    groups.at[FAILOVER].write("read", {"order": "3/9/400"})
    groups.at[FAILOVER].write("turn", {"number": 9, "copies": ["main", "west"]})
    assert groups.owned("main").read("read") == {"order": "3/9/400"}, "as an earlier release wrote it"


@pytest.mark.parametrize("failing", ["publication", "read", "scan", "histories", "turn"])
def test_what_ends_on_the_way_is_done_again(groups: Groups, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    groups.owned("main").write("histories", known("A", 2))
    for name in ("publication", "read", "scan"):
        groups.at["main"].write(name, {"order": "2/7/400"})
        groups.at[FAILOVER].write(name, {"order": "1/1/1"})
    groups.at[FAILOVER].write("histories", known("B", 1))
    write = groups.at[FAILOVER].write

    def ends(name: str, content: dict[str, Any]) -> None:
        if name == failing:
            raise CoordinationLost("the process is killed")
        write(name, content)

    with monkeypatch.context() as context:
        context.setattr(groups.at[FAILOVER], "write", ends)
        state = groups.owned(FAILOVER)
        for _ in range(2):
            with pytest.raises(CoordinationLost):
                state.read("histories")
    for later in (state, groups.owned(FAILOVER)):
        assert later.read("histories") == known("A", 2)
        assert [later.read(name)["order"] for name in ("publication", "read", "scan")] == ["2/7/400"] * 3
    assert groups.turns()[FAILOVER] == 2


def test_a_former_owner_takes_nothing_over(store: ZooKeeperMarkerStore) -> None:
    groups = Groups(lambda name: store.source_state(LogGroup("shop", name, "db1")))
    groups.at["main"].write("histories", known("A", 2))
    store.guard(lambda: f"{store._paths.log(GROUP)}/claims/gone")
    with pytest.raises(CoordinationLost, match="claim on the log is gone"):
        groups.owned(FAILOVER).read("histories")
    assert groups.at[FAILOVER].names() == []


def test_it_is_decided_once_also_for_threads_that_read_at_the_same_time(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups.at["main"].write("histories", known("A", 2))
    read, asked = groups.at["main"].read, []

    def counting(name: str) -> dict[str, Any]:
        asked.append(name)
        return read(name)

    monkeypatch.setattr(groups.at["main"], "read", counting)
    state = groups.owned(FAILOVER)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(state.read, ["histories"] * 8)) == [known("A", 2)] * 8
    assert sorted(asked) == ["histories", "turn"]


def test_a_note_that_is_no_turn_is_none(groups: Groups) -> None:
    groups.at["main"].write("histories", known("A", 2))
    groups.at["main"].write("turn", {"number": "9", "copies": "west"})
    groups.at["west"].write("histories", {"incarnations": ["?", {"number": "9"}]})
    groups.at[FAILOVER].write("histories", {"incarnations": 9})
    assert groups.owned(FAILOVER).read("histories") == known("A", 2)


def test_the_documents_are_called_as_the_sources_call_them(tmp_path: Path) -> None:
    shared = HostsState()
    HighWater(tmp_path / "read.bin", shared)
    assert shared.documents.keys() == {source_state._READ}


def test_datamarkers_of_each_group_are_known_to_the_next(groups: Groups) -> None:
    """With what MySQL's source keeps: markers of incarnations of the other group."""
    Incarnations(groups.owned("main")).observe(view("a", 3))
    failover = Incarnations(groups.owned(FAILOVER))
    assert [failover.observe(view(server, 9)) for server in "ba"] == [2, 3]
    main = Incarnations(groups.owned("main"))
    main.check_way(placed(3))
    assert main.observe(view("a", 10)) == 3
    assert [main.observe(view(server, 11)) for server in "ca"] == [4, 5]
    idle = Incarnations(groups.owned("west", applications=()))
    assert [idle.observe(view(server, 11)) for server in "bdbdb"] == [4, 5, 6, 7, 8]
    again = Incarnations(groups.owned(FAILOVER))
    for number in range(1, 6):
        again.check_way(placed(number))
    assert again.observe(view("b", 12)) == 6
