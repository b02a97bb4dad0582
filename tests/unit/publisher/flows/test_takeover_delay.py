"""When a candidate tries to own a log that nobody owns."""

from __future__ import annotations

import math
from dataclasses import replace

from publisher.flows.takeover_delay import STEP_S, UNREADY_S, Attempt, attempt, successor
from wormhole.coordination.port import CandidateInfo, LogOwners, MoveRequest, PublisherInfo, Term


def candidate(name: str, rank: int, **more: object) -> CandidateInfo:
    copy, _, host = name.partition("@")
    return replace(CandidateInfo(copy, host, 1, "", 0.0, rank, server="A"), **more)  # type: ignore[arg-type]


A = candidate("main@a", 0)
B = candidate("main@b", 1)
C = candidate("west@c", 2, server="W")
TERM = Term(1, "main", "a", 1, "A", 0.0, "it had no owner")


def owners(*candidates: CandidateInfo, move: str = "", terms: tuple[Term, ...] = (TERM,)) -> LogOwners:
    return LogOwners(None, candidates, terms, MoveRequest(move, "maria", 1.0) if move else None)


def test_the_preferred_candidate_tries_at_once_and_each_other_one_a_step_later() -> None:
    all_three = owners(A, B, C)
    assert [attempt(one, all_three, 30).after_s for one in (A, B, C)] == [0, STEP_S, 2 * STEP_S]


def test_many_candidates_delay_a_takeover_no_more_than_some() -> None:
    ahead = [candidate(f"main@h{number}", 0) for number in range(1000)]
    assert attempt(C, owners(*ahead, C), 30).after_s == 10 * STEP_S


def test_a_candidate_that_is_not_there_or_cannot_serve_is_not_waited_for() -> None:
    assert attempt(C, owners(C), 30) == Attempt(0)
    assert attempt(C, owners(replace(A, ready=False), C), 30) == Attempt(0)


def test_a_candidate_whose_datastore_cannot_be_read_comes_last_and_says_why() -> None:
    """Somebody has to own the log: nobody else can be asked about its flows."""
    unready = replace(B, ready=False, waits="it is a standby", hint="promote it")
    found = attempt(unready, owners(unready), 0)
    assert found.after_s == UNREADY_S
    lacking = replace(C, lacking="uuid:7")
    assert (
        attempt(lacking, owners(unready, lacking), 30).after_s < attempt(unready, owners(unready, lacking), 30).after_s
    )
    assert (found.why.text, found.why.hint) == ("it is a standby", "promote it")
    assert attempt(unready, owners(A, unready), 30).after_s == 30 + UNREADY_S + STEP_S


def test_who_serves_in_place_of_an_owner_that_cannot_read_its_log() -> None:
    unready, behind = replace(B, ready=False), replace(B, lacking="uuid:7")
    assert successor(owners(unready, C)) == "west@c"
    assert successor(owners(behind, C)) == "west@c", "rather one that lacks nothing"
    assert successor(owners(behind)) == "main@b"
    assert successor(owners(unready)) == ""
    assert successor(owners()) == ""


def test_a_log_that_was_moved_is_left_to_the_one_it_was_moved_to() -> None:
    moved = owners(A, B, C, move="west@c")
    assert attempt(C, moved, 30) == Attempt(0)
    assert attempt(A, moved, 30).after_s > STEP_S * 3
    assert attempt(B, moved, 30).after_s > attempt(A, moved, 30).after_s


def test_a_move_to_one_that_is_gone_delays_nobody() -> None:
    assert attempt(A, owners(A, B, move="west@c"), 30) == Attempt(0)


def test_a_copy_that_lacks_what_was_delivered_leaves_the_log_to_others_until_its_patience_ends() -> None:
    found = attempt(replace(C, lacking="uuid:7-9"), owners(C), 12.0)
    assert found.after_s == 12.0
    assert "it lacks uuid:7-9, which was delivered" in found.why.text


def test_a_move_goes_also_to_one_that_lacks_something() -> None:
    """An operator decided: `publishers move` says what it lacks before."""
    behind = replace(C, lacking="uuid:7-9")
    assert attempt(behind, owners(A, behind, move="west@c"), 30) == Attempt(0)


def test_of_two_servers_under_one_copys_name_only_the_one_that_served_is_read() -> None:
    stranger = replace(B, server="B")
    found = attempt(stranger, owners(A, stranger), 30)
    assert found.after_s == math.inf
    assert "main@b reads the server B, and main@a reads A under the same copy main" in found.why.text
    assert attempt(A, owners(A, stranger), 30) == Attempt(0)
    owned = replace(owners(stranger), owner=PublisherInfo("shop", "main", "db1", "a", 1, "", 0.0))
    assert "the owner of the log on a reads A" in attempt(stranger, owned, 30).why.text


def test_a_server_that_was_replaced_is_read_once_no_candidate_has_the_former_one() -> None:
    new = replace(A, server="N"), replace(B, server="N")
    assert attempt(new[0], owners(*new), 30) == Attempt(0)


def test_a_server_that_nobody_can_read_keeps_no_candidate_away() -> None:
    new, stale = replace(B, server="N"), replace(A, ready=False)
    assert attempt(new, owners(stale, new), 30).why == Attempt(0).why
    owned = replace(owners(new), owner=PublisherInfo("shop", "main", "db1", "a", 1, "", 0.0))
    assert attempt(new, owned, 30).after_s == math.inf, "the owner reads it, as far as is known"
    assert successor(owned) == "main@b", "an owner that cannot read it leaves the log"


def test_a_server_that_is_not_known_is_no_other_one() -> None:
    assert attempt(replace(B, server=""), owners(B), 30) == Attempt(0)
    assert attempt(B, owners(A, B, terms=()), 30).after_s == STEP_S
