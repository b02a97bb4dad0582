"""Which flow records a publisher writes again."""

from __future__ import annotations

import pytest

from wormhole.coordination.flow_records import WrittenRecords
from wormhole.coordination.port import FlowRecord

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
