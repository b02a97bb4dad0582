from __future__ import annotations

from wormhole.coordination.port import CandidateInfo, LogOwners, PublisherInfo
from wormhole.coordination.standbys import candidate_of, owner_name, why_not

B = CandidateInfo("main", "beta", 2, "beta:7000", 1.0, 1)
OWNERS = LogOwners(PublisherInfo("shop", "main", "db1", "alpha", 1, "alpha:7000", 1.0), (B,), (), None)


def test_the_owner_is_called_as_a_candidate_is() -> None:
    assert owner_name(OWNERS) == "main@alpha"
    assert owner_name(LogOwners(None, (B,), (), None)) == owner_name(None) == ""


def test_a_candidate_is_found_by_its_name() -> None:
    assert candidate_of(OWNERS, "main@beta") is B
    assert candidate_of(OWNERS, "main@alpha") is candidate_of(None, "main@beta") is None


def test_what_a_candidate_reports_against_itself() -> None:
    def candidate(*, ready: bool = True, lacking: str = "", waits: str = "", hint: str = "") -> CandidateInfo:
        return CandidateInfo("main", "beta", 2, "", 1.0, 1, lacking=lacking, ready=ready, waits=waits, hint=hint)

    assert not why_not(candidate())
    told = why_not(candidate(ready=False, waits="nobody listens", hint="start it", lacking="U:5"))
    assert (told.text, told.hint) == ("nobody listens", "start it")
    assert why_not(candidate(ready=False)).text == "it has not asked its datastore yet"
    assert why_not(candidate(lacking="U:5-9")).text == "it lacks U:5-9, which was delivered"
