"""Which log and whom an operator means, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wormhole.config import parse
from wormhole.coordination.port import CandidateInfo, LogGroup, LogOwners, PublisherInfo, Term
from wormhole.model.errors import Fatal, UsageError, WormholeError
from wormholectl.publishers.log_moves import expected_candidates, planned_move, refusal

SHOP = LogGroup("shop", "@failover", "db1")
EAST, WEST = LogGroup("audit", "east", "log"), LogGroup("audit", "west", "log")
OWNER = PublisherInfo("shop", "main", "db1", "alpha", 1, "alpha:7000", 1.0)
BETA = CandidateInfo("main", "beta", 2, "beta:7000", 2.0, 1, server="M")
GAMMA = CandidateInfo("west", "gamma", 3, "gamma:7000", 3.0, 2, server="W", lacking="M:5-9")
DELTA = CandidateInfo("west", "delta", 4, "", 4.0, 3, ready=False, waits="nobody listens", hint="start the server")
EPSILON = CandidateInfo("west", "beta", 5, "", 5.0, 4, server="W")
TERMS = (Term(1, "main", "alpha", 1, "M", 10.0, "nobody owned it"),)
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
        with pytest.raises(UsageError, match="east@gamma is in the configuration of audit/east/log") as refused:
            planned_move("audit/east/log", to, {EAST: owners}, datasets)
        assert "`wormholectl monitor run` on gamma" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="no publisher stands by for audit/east/log") as refused:
        planned_move("audit/east/log", "delta", {EAST: LogOwners(OWNER, (), TERMS, None)}, datasets)
    assert "start `wormholectl monitor run` on " in (refused.value.hint or ""), "a second host is named already"
