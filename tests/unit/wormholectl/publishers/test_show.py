"""Owners of logs: who they are, which log an operator means, and how that is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.publisher_status import attach, status
from wormhole.admin.admin_service import Answer
from wormhole.config import parse
from wormhole.coordination.port import CandidateInfo, LogGroup, LogOwners, MoveRequest, PublisherInfo, Term
from wormhole.model.errors import Fatal, UsageError, WormholeError
from wormholectl.publishers.log_moves import expected_candidates, planned_move, refusal
from wormholectl.publishers.show import CARAVANS, PUBLISHERS, SHARDS, SUBSCRIBERS
from wormholectl.publishers.show_owners import log_object, show_log_owners
from wormholectl.show.lists import Listing, show

# --- log moves: which log and whom an operator means, and what is refused ---


SHOP = LogGroup("shop", "@failover", "db1")
EAST, WEST = LogGroup("audit", "east", "log"), LogGroup("audit", "west", "log")
OWNER = PublisherInfo("shop", "main", "db1", "alpha", 1, "alpha:7000", 1.0)
BETA = CandidateInfo("main", "beta", 2, "beta:7000", 2.0, 1, server="M")
GAMMA = CandidateInfo("west", "gamma", 3, "gamma:7000", 3.0, 2, server="W", lacking="M:5-9")
DELTA = CandidateInfo("west", "delta", 4, "", 4.0, 3, ready=False, waits="nobody listens", hint="start the server")
EPSILON = CandidateInfo("west", "beta", 5, "", 5.0, 4, server="W")
TERMS = (Term(1, "main", "alpha", 1, "M", 10.0, "it had no owner"),)
OWNERS = LogOwners(OWNER, (BETA, GAMMA, DELTA, EPSILON), TERMS, None)
KNOWN = {SHOP: OWNERS, EAST: LogOwners(None, (), (), None), WEST: LogOwners(None, (BETA,), (), None)}

LOG = '[datasets.{0}.copies.{1}.logs.{2}]\nsource = "mysql://w@{1}:3306"\n'
DATASETS = parse(
    'version = 1\n[coordinator]\nzookeeper = "zk1:2181/wormhole"\n'
    + LOG.format("shop", "main", "db1")
    + LOG.format("shop", "west", "db1")
    + '[datasets.shop.failover]\ncopies = ["main", "west"]\n'
    + LOG.format("audit", "east", "log")
    + LOG.format("audit", "west", "log"),
    "test",
).datasets


@pytest.mark.parametrize(
    ("log", "to", "group", "name"),
    [
        ("shop/db1", "main@beta", SHOP, "main@beta"),
        ("shop/main/db1", "main@beta", SHOP, "main@beta"),
        ("shop/west/db1", "gamma", SHOP, "west@gamma"),
        ("shop/@failover/db1", "main@beta", SHOP, "main@beta"),
        ("audit/west/log", "beta", WEST, "main@beta"),
    ],
)
def test_a_log_and_a_candidate_by_what_is_unique(log: str, to: str, group: LogGroup, name: str) -> None:
    planned = planned_move(log, to, KNOWN, DATASETS)
    assert (planned.group, planned.candidate.name) == (group, name)


@pytest.mark.parametrize(
    ("log", "to", "kind", "said", "next_step"),
    [
        ("shop/db2", "beta", UsageError, "no log 'shop/db2'", "did you mean shop/db1"),
        ("shop/main/db2", "beta", UsageError, "no log 'shop/main/db2'", "wormholectl publishers"),
        ("audit/log", "beta", UsageError, "several copies", "audit/east/log or audit/west/log"),
        ("audit/east/log", "beta", UsageError, "no publisher stands by for audit/east/log", "`hosts`"),
        ("shop/db1", "betta", UsageError, "betta does not stand by", "wormholectl publishers"),
        ("shop/db1", "main@betta", UsageError, "main@betta does not stand by", "did you mean main@beta"),
        ("shop/db1", "beta", UsageError, "several publishers", "main@beta or west@beta"),
        ("shop/db1", "main@alpha", UsageError, "main@alpha owns shop/@failover/db1 already", "wormholectl publishers"),
        ("shop/db1", "alpha", UsageError, "owns shop/@failover/db1 already", "wormholectl publishers"),
        ("shop/db1", "delta", Fatal, "west@delta cannot take shop/@failover/db1 over: nobody", "start the server"),
    ],
)
def test_what_is_refused_and_how_to_go_on(
    log: str, to: str, kind: type[WormholeError], said: str, next_step: str
) -> None:
    with pytest.raises(kind) as caught:
        planned_move(log, to, KNOWN, DATASETS)
    assert said in caught.value.message
    assert next_step in (caught.value.hint or "")


def test_without_candidates_anywhere_the_setting_is_named() -> None:
    with pytest.raises(UsageError, match='markers = "zookeeper"'):
        planned_move("shop/db1", "beta", {}, DATASETS)


def test_a_candidate_that_lacks_something_is_no_error_and_a_warning() -> None:
    assert planned_move("shop/db1", "main@beta", KNOWN, DATASETS).warnings == ()
    [warning] = planned_move("shop/db1", "gamma", KNOWN, DATASETS).warnings
    assert warning.startswith("west@gamma lacks M:5-9, which was delivered: ")


def test_a_candidate_of_another_server_than_its_copy_is_refused() -> None:
    other = replace(BETA, server="X")
    assert "reads the server X" in refusal(other, OWNERS).text
    assert not refusal(BETA, OWNERS)
    assert not refusal(GAMMA, OWNERS), "what it lacks is not for ever"


@pytest.mark.parametrize("to", ["gamma", "east@gamma"])
def test_a_host_that_is_in_the_configuration_and_down_is_not_to_be_named_there(to: str) -> None:
    datasets = parse(
        'version = 1\n[coordinator]\nzookeeper = "zk1:2181/wormhole"\n'
        + LOG.format("audit", "east", "log")
        + 'hosts = ["alpha", "gamma"]\n',
        "test",
    ).datasets
    assert expected_candidates(EAST, datasets) == ["east@alpha", "east@gamma"]
    for owners in (KNOWN[EAST], LogOwners(OWNER, (BETA,), TERMS, None)):
        with pytest.raises(UsageError, match=r"^east@gamma .*audit/east/log.*\[wrong-request\]") as refused:
            planned_move("audit/east/log", to, {EAST: owners}, datasets)
        assert "`wormholectl monitor run` on gamma" in (refused.value.hint or "")
    with pytest.raises(UsageError, match=r" audit/east/log \[no-publisher\]") as refused:
        planned_move("audit/east/log", "delta", {EAST: LogOwners(OWNER, (), TERMS, None)}, datasets)
    assert "start `wormholectl monitor run` on " in (refused.value.hint or ""), "a second host is named already"


# --- show owners: who owns each log, who stands by, and which publisher took over from which ---


def term(number: int, host: str, why: str = "the last owner is gone") -> Term:
    return Term(number, "main", host, number, "M", 1_700_000_000.0 + number, why)


def rows(capsys: pytest.CaptureFixture[str], owners: LogOwners) -> list[list[str]]:
    show_log_owners({SHOP: owners})
    return [line.split(maxsplit=4) for line in capsys.readouterr().out.splitlines()]


def test_each_standby_and_whether_it_takes_over(capsys: pytest.CaptureFixture[str]) -> None:
    asked = replace(OWNERS, candidates=(BETA, GAMMA, DELTA), move=MoveRequest("main@beta", "ann@ops", 1.0))
    title, head, *found = rows(capsys, asked)
    assert (title, head) == (["standbys"], ["LOG", "OWNER", "STANDBY", "SINCE", "TAKES OVER"])
    assert {tuple(row[:2]) for row in found} == {("shop/@failover/db1", "main@alpha")}
    assert [(row[2], row[4]) for row in found] == [
        ("main@beta", "yes; asked to by ann@ops"),
        ("west@gamma", "after its patience: it lacks M:5-9, which was delivered"),
        ("west@delta", "no: nobody listens"),
    ]


def test_takeovers_are_those_by_another_one_the_last_first(capsys: pytest.CaptureFixture[str]) -> None:
    terms = (
        *(term(number, "alpha" if number % 2 else "beta") for number in range(1, 9)),
        term(9, "beta"),  # it was restarted
        term(10, "alpha", "moved by ann@ops"),
    )
    show_log_owners(
        {SHOP: LogOwners(None, (), terms, None), LogGroup("shop", "main", "x"): LogOwners(None, (), (), None)}
    )
    title, _, *found = capsys.readouterr().out.splitlines()
    assert title == "the last takeovers"
    assert [line.split()[1] for line in found] == ["10", "8", "7", "6", "5"]
    assert found[0].endswith("main@beta   main@alpha  moved by ann@ops")


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("main@gone", ", which does not stand by: the log moves there as soon as it does"),
        ("main@alpha", "; it owns the log already, and the request goes when the log is taken next"),
    ],
)
def test_a_move_that_nobody_follows_is_named(capsys: pytest.CaptureFixture[str], to: str, said: str) -> None:
    """Red before: it showed nowhere, and the log moved when that candidate came, however much later."""
    show_log_owners({SHOP: replace(OWNERS, candidates=(BETA,), move=MoveRequest(to, "ann\x1b[2J@ops", 1.0))})
    shown = capsys.readouterr().out.splitlines()
    note = next(line for line in shown if line.startswith("note:"))
    assert note.startswith(f"note: shop/@failover/db1 was moved to {to} by ann\\x1b[2J@ops at ")
    assert note.endswith(said)
    assert any(line.startswith("next: ") for line in shown) == (to == "main@gone")


def test_where_nobody_stands_by_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show_log_owners({SHOP: replace(OWNERS, candidates=())})
    assert capsys.readouterr().out == ""


def test_the_same_for_programs() -> None:
    told = log_object(SHOP, replace(OWNERS, candidates=(replace(BETA, since=60.0), GAMMA)))
    assert told["log"] == "shop/@failover/db1"
    assert told["owner"] == {"name": "main@alpha", "copy": "main", "host": "alpha", "pid": 1}
    beta, gamma = told["standbys"]
    assert (beta["takes_over"], beta["waits"], beta["since"], beta["server"]) == (
        True,
        None,
        "1970-01-01T00:01:00Z",
        "M",
    )
    assert (gamma["takes_over"], gamma["lacking"], gamma["next_step"]) == (
        False,
        "M:5-9",
        "let its replication catch up",
    )
    assert [one["number"] for one in told["terms"]] == [1]


# --- show ---


ONE = [Answer("h:7", status("db1"))]


def test_caravans_and_subscribers_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(CARAVANS, ONE, as_json=False)
    _, row, limits, *events = capsys.readouterr().out.splitlines()
    assert row == "1 (lead)  1/2/30  2.0 KiB/s  4.0 KiB/s  77 B     5 B  cache/db1"
    assert limits == "at most 4 caravans, each 8.0 MiB/s, together -; change buffers 5 B of 64.0 MiB"
    assert [event.split("  ", 1)[1] for event in events] == [
        "caravan 1: starts at 1/2/0",
        "caravan 2: ends at 1/2/9: merged into caravan 1",
    ]
    show(SUBSCRIBERS, ONE, as_json=False)
    assert "cache/c1    h:1      connected  1m 5s      1" in capsys.readouterr().out


def test_publishers_and_shards_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(PUBLISHERS, ONE, as_json=False)
    assert capsys.readouterr().out.splitlines()[1].split() == [
        *("shop/main/db1", "db-host", "77", "0.1.0", "2.5s", "connected", "1/2/30", "-", "2", "1", "1", "-")
    ]
    waits = status("db1")
    waits.owner = "main@alpha"
    waits.standby.text = "stands by: main@alpha owns the log"
    show(PUBLISHERS, [Answer("h:7", waits)], as_json=False)
    assert capsys.readouterr().out.splitlines()[1].endswith("-     stands by: main@alpha owns the log [stands-by]")
    dialled = status("db1")
    dialled.attach.MergeFrom(attach())
    show(PUBLISHERS, [Answer("h:7", dialled)], as_json=False)
    assert capsys.readouterr().out.splitlines()[2] == (
        "shop/main/db1: subscribers dial db1:7490: 3 connected; 2 refused (not-permitted); 4 without a welcome"
    )
    show(SHARDS, ONE, as_json=False)
    assert capsys.readouterr().out.splitlines()[1] == (
        "db1    shop/main/db1      2  1m 15s / 20 B / 1,500 tx  cache, mail; last is cache/db1"
    )


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (
            CARAVANS,
            {
                "caravan": 1,
                "lead": True,
                "place": "1/2/30",
                "native_place": None,
                "bytes_per_s": 2048.0,
                "target_bytes_per_s": 4096.0,
                "read_bytes": 77,
                "buffered_bytes": 5,
                "flows": ["cache/db1"],
                "cause": "",
                "events": [{"at": "1970-01-01T00:00:01Z", "what": "starts at 1/2/0"}],
            },
        ),
        (
            SUBSCRIBERS,
            {
                "application": "cache",
                "subscriber": "c1",
                "address": "h:1",
                "state": "connected",
                "connected_s": 65.0,
                "flows": 1,
                "cause": "",
            },
        ),
        (SHARDS, {"shard": "db1", "flows": ["cache/db1", "mail/db1"], "lag_s": 75.0, "lag_bytes": 20}),
    ],
    ids=lambda value: value.name if isinstance(value, Listing) else "",
)
def test_for_programs(listing: Listing[Any], expected: dict[str, object]) -> None:
    assert list(listing.objects(status("db1"))) == [expected]
