"""Who owns each log, who stands by, and who took over from whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.wormholectl.publishers.test_log_moves import BETA, DELTA, GAMMA, OWNERS, SHOP
from wormhole.coordination.port import LogGroup, LogOwners, MoveRequest, Term
from wormholectl.publishers.show_owners import log_object, show_log_owners


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
