"""Records in nodes, and which of them were written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.test_coordinator import PLAIN, STATIC, config
from wormhole.coordination.connect import connect, publish_config
from wormhole.coordination.flow_records import WrittenRecords
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.coordination.port import (
    TERMS_KEPT,
    CandidateInfo,
    FlowRecord,
    HistoryEntry,
    HostRequest,
    LogGroup,
    MonitorInfo,
    MoveRequest,
    PublisherInfo,
    SubscriberInfo,
    Term,
)
from wormhole.coordination.records import (
    TermRecord,
    candidate_from_json,
    candidate_to_json,
    flow_from_json,
    flow_to_json,
    history_from_json,
    host_from_json,
    host_to_json,
    monitor_from_json,
    monitor_to_json,
    move_from_json,
    move_to_json,
    owner_from_json,
    owner_to_json,
    publisher_from_json,
    subscriber_from_json,
    term_from_json,
    term_to_json,
)
from wormhole.coordination.static import StaticCoordinator
from wormhole.coordination.zookeeper import ZooKeeperCoordinator
from wormhole.model.errors import ConfigError

# --- The nodes' JSON: there and back, and one clear error that names the node for anything else


SUBSCRIBER = SubscriberInfo("cache", "a", "h:1", 2.0, 3.5, 1000)
PUBLISHER = PublisherInfo("shop", "main", "db1", "host", 7, "", 1.5)
MONITOR = MonitorInfo("host1", 7, "http://127.0.0.1:7480/", 2.5, {"shop/main/db1": "running"})
HISTORY = HistoryEntry(3.5, "eve@host1", "config apply", "applications.cache", "a = 1", "a = 2")
FLOW = FlowRecord("shop/main/db1@host:7", "a", 3, "live")
GROUP = LogGroup("shop", "@failover", "db1")
CANDIDATE = CandidateInfo("west", "h-2.org", 7, "h:1", 1.5, 1, "server", "gtid:1-5", False, "it lags", "wait", 2.5)
TERM = TermRecord(3, "0f" * 16, (Term(2, "main", "h", 7, "server", 1.5, "why"), Term(3, "west", "i", 8, "", 2.5, "")))
MOVE = MoveRequest("west@h-2.org", "eve@host1", 3.5)


def test_an_empty_node_requests_nothing_of_a_host() -> None:
    assert host_from_json(b"", "/n") == HostRequest()


def test_weight_and_start_may_be_left_out() -> None:
    assert subscriber_from_json("cache", "a", b'{"address": "h:1"}', "/n") == SubscriberInfo("cache", "a", "h:1")


READERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "subscriber": (b'{"address": "h:1"}', lambda data: subscriber_from_json("cache", "a", data, "/n")),
    "flow": (flow_to_json(FLOW), lambda data: flow_from_json(data, "/n")),
    "monitor": (monitor_to_json(MONITOR), lambda data: monitor_from_json("host1", data, "/n")),
    "host": (host_to_json(HostRequest()), lambda data: host_from_json(data, "/n")),
    "owner": (owner_to_json(PUBLISHER), lambda data: owner_from_json(GROUP, data, "/n")),
    "candidate": (candidate_to_json(CANDIDATE), lambda data: candidate_from_json("west@h", data, "/n")),
    "term": (term_to_json(TERM), lambda data: term_from_json(data, "/n")),
    "move": (move_to_json(MOVE), lambda data: move_from_json(data, "/n")),
}
WRONG: dict[str, list[dict[str, object]]] = {
    "subscriber": [
        {"address": 1},
        {"address": None},
        {"weight": "x"},
        {"weight": -1},
        {"weight": True},
        # With these every publisher ended: shares are computed by adding weights up and dividing by them.
        {"weight": 0},
        {"weight": 1e308},
        {"weight": 10**39},
        {"started": 10**39},
        {"user": "root"},
        {"user": None},
    ],
    "flow": [{"epoch": "3"}, {"epoch": True}, {"state": None}],
    "monitor": [
        {"publishers": []},
        {"publishers": {"a": 1}},
        {"pid": "7"},
        {"address": None},
        {"address": "127.0.0.1:7400"},
        {"address": "file:///etc/"},
        {"address": "unix:///run/x"},
        {"address": "http:///"},
        {"address": "ftp://h:1/"},
        {"address": "http://h:1/x"},
        {"address": "http://h/"},
    ],
    "host": [{"drained": 1}, {"by": None}, {"at": "now"}],
    "owner": [
        {"copy": None},
        {"copy": "x" * 101},
        {"host": 1},
        {"host": "x" * 10_000},
        {"pid": None},
        {"started": 1e17},
    ],
    "candidate": [
        {"pid": "7"},
        {"started": -1},
        {"rank": 0.5},
        {"rank": -1},
        {"rank": 10**30},
        {"server": None},
        {"lacking": "x" * 20_001},
        {"ready": 1},
        {"waits": None},
        {"waits": "x" * 10_000},
        {"hint": "x" * 2_001},
        {"since": "now"},
        {"since": -1},
    ],
    "term": [
        {"number": "3"},
        {"claim": None},
        {"claim": "x" * 101},
        {"terms": {}},
        {"terms": ["x"]},
        {"terms": [{}] * 1_001},
    ],
    "move": [{"to": None}, {"by": 1}, {"by": "x" * 10_000}, {"at": "now"}],
}


@pytest.mark.parametrize(("kind", "change"), [(kind, change) for kind, some in WRONG.items() for change in some])
def test_a_wrong_record_names_node_and_field(kind: str, change: dict[str, object]) -> None:
    right, parse = READERS[kind]
    parse(right)
    assert refused(parse, json.loads(right) | change).startswith(f"/n: {next(iter(change))}")


@pytest.mark.parametrize(
    "change",
    [{"number": None}, {"pid": True}, {"copy": 1}, {"host": None}, {"server": 7}, {"since": -1}, {"why": None}],
)
def test_a_wrong_term_names_node_and_field(change: dict[str, object]) -> None:
    right, parse = READERS["term"]
    given = json.loads(right)
    given["terms"][1] |= change
    assert refused(parse, given).startswith(f"/n: terms.1.{next(iter(change))} must be")


@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        (
            "monitor",
            {"publishers": {str(n): "" for n in range(10_001)}},
            "publishers must have at most 10000 items, not ",
        ),
        ("term", {"terms": [7]}, "terms.0 must be a valid dictionary, not '7'"),
    ],
)
def test_an_error_says_nothing_of_our_classes(kind: str, change: dict[str, object], text: str) -> None:
    right, parse = READERS[kind]
    assert refused(parse, json.loads(right) | change).startswith(f"/n: {text}")


def test_the_error_of_a_hostile_key_is_one_line() -> None:
    right, parse = READERS["monitor"]
    given = json.loads(right) | {"publishers": {"d/c/l\x1b[2J\nERROR forged": 1}}
    assert refused(parse, given).startswith("/n: publishers.d/c/l\\x1b[2J\\nERROR forged must be ")


def refused(parse: Callable[[bytes], object], given: object) -> str:
    with pytest.raises(ConfigError) as error:
        parse(json.dumps(given).encode())
    assert error.value.code == "record-invalid"
    return str(error.value)


def test_of_more_terms_than_are_kept_the_last_ones_are_read() -> None:
    terms = tuple(replace(TERM.terms[0], number=number) for number in range(TERMS_KEPT + 5))
    assert term_from_json(term_to_json(replace(TERM, terms=terms)), "/n").terms == terms[5:]


@pytest.mark.parametrize("name", ["west", "west-h:1", ""])
def test_a_candidate_is_called_by_copy_and_host(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^/n: a candidate is called COPY@HOST"):
        candidate_from_json(name, candidate_to_json(CANDIDATE), "/n")


def test_what_is_too_long_to_be_read_is_cut_before_it_is_written() -> None:
    long = "\u00fc" * 30_000
    written = candidate_to_json(replace(CANDIDATE, server=long, lacking=long, waits=long, hint=long))
    found = candidate_from_json(CANDIDATE.name, written, "/n")
    texts = (found.server, found.lacking, found.waits, found.hint)
    assert [len(text) for text in texts] == [300, 20_000, 2_000, 2_000]
    assert found.waits == f"{long[:1_997]}..."
    terms = tuple(Term(number, "west", "h", 7, long, 1.5, long) for number in range(TERMS_KEPT))
    read = term_from_json(term_to_json(TermRecord(1, "", terms)), "/n")
    assert {(len(term.server), len(term.why)) for term in read.terms} == {(300, 500)}


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 10**400])
def test_a_number_that_cannot_be_used_names_its_node(weight: float) -> None:
    _, parse = READERS["subscriber"]
    assert refused(parse, {"address": "h:1", "weight": weight}).startswith("/n: no valid JSON: ")


@pytest.mark.parametrize("page", ["", "http://127.0.0.1:7480/", "https://db-7.internal:7480/", "http://[::1]:7480/"])
def test_a_monitor_names_its_status_page(page: str) -> None:
    info = replace(MONITOR, address=page)
    assert monitor_from_json("host1", monitor_to_json(info), "/n") == info


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_give_a_record_or_one_config_error(data: bytes) -> None:
    for parse in (
        lambda: subscriber_from_json("cache", "a", data, "/n"),
        lambda: publisher_from_json("d", "c", "l", data, "/n"),
        lambda: flow_from_json(data, "/n"),
        lambda: monitor_from_json("h", data, "/n"),
        lambda: host_from_json(data, "/n"),
        lambda: history_from_json(data, "/n"),
        lambda: owner_from_json(GROUP, data, "/n"),
        lambda: candidate_from_json("c@h", data, "/n"),
        lambda: term_from_json(data, "/n"),
        lambda: move_from_json(data, "/n"),
    ):
        with pytest.raises(ConfigError, match=r"^/n: "):
            parse()


# --- Which flow records a publisher writes again


LIVE = FlowRecord("me", "one", 1, "live")
FLOWS = {("app", f"db.{number}"): LIVE for number in range(100)}


def report(written: WrittenRecords, records: dict[tuple[str, str], FlowRecord], contact: int) -> list[tuple[str, str]]:
    due = written.due(records, contact)
    for flow in due:
        written.writes(flow)
        written.wrote(flow, records[flow], contact)
    return due


@pytest.fixture
def written() -> WrittenRecords:
    return WrittenRecords()


def test_what_did_not_change_is_written_again_little_by_little(written: WrittenRecords) -> None:
    assert report(written, FLOWS, 1) == list(FLOWS)
    again = [report(written, FLOWS, 1) for _ in range(20)]
    assert all(len(due) == 5 for due in again)
    assert sorted(flow for due in again for flow in due) == sorted(FLOWS)


def test_what_changed_is_written_at_once(written: WrittenRecords) -> None:
    report(written, FLOWS, 1)
    changed = {**FLOWS, ("app", "db.7"): FlowRecord("me", "one", 2, "opening")}
    assert report(written, changed, 1)[0] == ("app", "db.7")


def test_in_another_contact_everything_is_written(written: WrittenRecords) -> None:
    report(written, FLOWS, 1)
    assert report(written, FLOWS, 2) == list(FLOWS)


def test_a_write_that_did_not_end_well_is_repeated(written: WrittenRecords) -> None:
    report(written, FLOWS, 1)
    written.writes(("app", "db.3"))
    assert ("app", "db.3") in written.due(FLOWS, 1)


def test_a_write_that_ended_after_the_contact_did_proves_nothing(written: WrittenRecords) -> None:
    written.due(FLOWS, 1)
    written.due({}, 2)
    written.wrote(("app", "db.3"), LIVE, 1)
    assert written.due(FLOWS, 2) == list(FLOWS)


# --- `connect` and `publish_config`: which coordinator a target names


def test_targets(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(STATIC)
    assert isinstance(connect(path), StaticCoordinator)
    assert isinstance(connect(str(path)), StaticCoordinator)
    assert isinstance(connect(config(STATIC)), StaticCoordinator)
    named = connect("zk1:2181,zk2:2181/root", session_timeout=3.0)
    assert isinstance(named, ZooKeeperCoordinator)
    assert named.lease_s() == 2.0
    from_file = connect(config('version = 1\n[coordinator]\nzookeeper = "zk1:2181"\nsession_timeout = "9s"'))
    assert isinstance(from_file, ZooKeeperCoordinator)
    assert from_file.lease_s() == 6.0


@pytest.mark.parametrize("target", ["", "nonsense", "/etc/wormhole", "zk1", "zk1:x/root"])
def test_what_names_nothing(target: str) -> None:
    with pytest.raises(ConfigError, match=r"^coordinator = .*\[config-invalid\]"):
        connect(target)


def test_a_file_that_names_no_coordinator_is_reported_both_ways() -> None:
    with pytest.raises(ConfigError) as caught:
        connect(config(PLAIN))
    for way in ("zookeeper = ", "subscribers"):
        assert way in str(caught.value)


async def test_publishing_to_memory_and_to_nowhere() -> None:
    memory = MemoryCoordinator()
    await memory.start()
    await publish_config(config(PLAIN), memory)
    assert set(memory.world.applications) == {"cache"}
    with pytest.raises(ConfigError, match="nowhere to publish"):
        await publish_config(config(STATIC))


def test_a_password_that_was_put_into_the_address_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        connect("wormhole:hunter2@zk1:2181/root")
    assert 'coordinator = "wormhole:***@zk1:2181/root"' in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        config('version = 1\n[coordinator]\nzookeeper = "wormhole:hunter2@zk1:2181"')
    assert "hunter2" not in str(caught.value)
