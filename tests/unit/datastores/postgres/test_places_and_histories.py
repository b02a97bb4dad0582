from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from datastores.common.high_water import HighWater
from datastores.common.kept_state import keep
from datastores.postgres.datastore import DATASTORE
from datastores.postgres.history.incarnations import History, Incarnations
from datastores.postgres.history.timelines import Timelines, parse_history
from datastores.postgres.log import slots
from datastores.postgres.log.opening import Log, Opening
from datastores.postgres.server.lsn import format_delivered, format_lsn, parse_delivered, parse_lsn
from datastores.postgres.server.state import ServerState, Slot, record_end
from wormhole.host.state_file import FolderState
from wormhole.model.errors import Diverged, PositionError, SourceUnavailable, UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.source_state import HISTORIES

STATE = ServerState("7", 1, 500, 500, 150000, "logical", 0, 60.0, True)
SLOT = Slot("s_held", "pgoutput", "shop", False, 0, 90, 100, "reserved", None)


@pytest.mark.parametrize("text", ["0/0", "0/16B3748", "FFFFFFFF/FFFFFFFF", "16/B374D848"])
def test_an_lsn_is_read_back(text: str) -> None:
    assert format_lsn(parse_lsn(text)) == text
    assert DATASTORE.is_place(text)
    assert parse_delivered(format_delivered(3, parse_lsn(text))) == (3, parse_lsn(text))


@pytest.mark.parametrize("text", ["", "x", "1", "1/2/3", "0/123456789", "a:0/1", "1:2", "0/1 ", "-1:0/1"])
def test_what_is_no_lsn(text: str) -> None:
    assert not DATASTORE.is_place(text)
    with pytest.raises(PositionError) as error:
        parse_delivered(text)
    assert error.value.hint


@pytest.mark.parametrize(
    ("inserted", "end"),
    [
        (0x3000028, 0x3000000),  # after the header of a file
        (0x3002018, 0x3002000),  # after that of a page
        (0x3000018, 0x3000018),
        (0x3002028, 0x3002028),
        (0x3001234, 0x3001234),
    ],
)
def test_the_end_of_the_last_record_lies_before_a_header(inserted: int, end: int) -> None:
    assert record_end(inserted, 8192, 16 << 20) == end


def test_the_timeline_of_a_place() -> None:
    lines = Timelines(3, parse_history("1\t0/100\tno recovery target\n# remark\n2\t0/200\treason\n"))
    assert [lines.of(lsn) for lsn in (0xFF, 0x100, 0x101, 0x200, 0x201)] == [1, 1, 2, 2, 3]
    assert lines.holds(1, 0x100)
    assert not lines.holds(1, 0x101), "what the old primary wrote after the failover is not in this log"
    assert lines.holds(3, 0x1000)
    assert not lines.holds(4, 0x10)


def test_another_history_is_another_incarnation(tmp_path: Path) -> None:
    known = Incarnations(FolderState(tmp_path))
    assert known.current is None
    first = known.observe(STATE)
    assert first == History(1, "7", 1)
    assert known.observe(replace(STATE, end=900)) == first
    promoted = known.observe(replace(STATE, timeline=2))
    assert (promoted.number, promoted.timeline) == (2, 2)
    assert "failover" in promoted.why
    other = known.observe(replace(STATE, system="8"))
    assert "another one" in other.why
    lost = known.observe(replace(STATE, system="8"), "the server lost the end of its log")
    assert (lost.number, lost.why) == (4, "the server lost the end of its log")
    again = Incarnations(FolderState(tmp_path))
    assert again.current == lost
    assert again.find(1) == first
    assert again.find(9) is None
    assert known.observe(replace(STATE, system="8")).number == 4


@pytest.mark.parametrize("lost", ["", "the server lost the end of its log"])
def test_how_far_an_incarnation_was_read_is_kept_when_it_ends(tmp_path: Path, lost: str) -> None:
    high_water = HighWater(tmp_path / "read.bin")
    known = Incarnations(FolderState(tmp_path), high_water)
    known.observe(STATE)
    unread = known.observe(replace(STATE, timeline=2))
    assert known.ended_since(1) == [History(1, "7", 1)], "nothing was read of it"
    place = LogPosition(unread.number, 0, 0x300)
    high_water.rise(Datamarker(place, "2:0/300", place))
    known.observe(replace(STATE, timeline=2 if lost else 3), lost)
    ended = replace(unread, read="2:0/300", gone=bool(lost))
    assert Incarnations(FolderState(tmp_path)).ended_since(2) == [ended]
    assert known.ended_since(3) == []


def test_where_a_former_timeline_ends() -> None:
    lines = Timelines(3, ((1, 0x100), (2, 0x200)))
    assert [lines.end_of(timeline) for timeline in (1, 2, 3, 4)] == [0x100, 0x200, None, None]


@pytest.mark.parametrize(
    ("ended", "range_"),
    [
        ({}, None),  # an earlier release kept nothing
        ({"read": "1:0/100"}, None),  # the whole of it is here
        ({"read": "1:0/180"}, ("1:0/100", "1:0/180")),
        ({"read": "1:0/90", "gone": True}, ("1:0/80", "1:0/90")),
        ({"read": "1:0/80", "gone": True}, None),  # nothing was read behind the marker
        ({"read": "1:0/90", "system": "6"}, ("1:0/80", "1:0/90")),
    ],
)
def test_what_was_read_behind_a_marker_has_to_be_there(
    tmp_path: Path, ended: dict[str, object], range_: tuple[str, str] | None
) -> None:
    state = FolderState(tmp_path)
    first = {"number": 1, "system": "7", "timeline": 1, "why": "", **ended}
    keep(state, HISTORIES, {"incarnations": [first, {"number": 2, "system": "7", "timeline": 2, "why": "a failover"}]})
    made = SimpleNamespace(_incarnations=Incarnations(state))
    log = Log(replace(STATE, timeline=2), History(2, "7", 2, "a failover"), Timelines(2, ((1, 0x100),)))
    place = LogPosition(1, 0, 0x80)
    marker = Datamarker(place, "1:0/80", place)
    if range_ is None:
        Opening._check_read(cast("Opening", made), log, marker)
        return
    with pytest.raises(Diverged, match="may have been delivered") as error:
        Opening._check_read(cast("Opening", made), log, marker)
    assert (error.value.first_missing, error.value.last_missing, error.value.resume) == (*range_, "1:0/80")


def test_an_incarnation_that_cannot_be_noted_is_not_used(tmp_path: Path) -> None:
    known = Incarnations(FolderState(tmp_path / "missing"))
    with pytest.raises(SourceUnavailable, match="cannot be written"):
        known.observe(STATE)
    assert known.current is None


@pytest.mark.parametrize(
    ("update", "behind"), [(("7:1", 90), True), (("7:1", 100), False), (("7:2", 1), False), (("7:0", 999), True)]
)
def test_whether_an_update_lies_before_a_marker(update: tuple[str, int], behind: bool) -> None:
    place = LogPosition(1, 0, 100)
    assert DATASTORE.is_behind(*update, Datamarker(place, format_delivered(1, 100), place)) == behind


def test_the_nearest_slot_at_or_before_a_place() -> None:
    lead = replace(SLOT, name="s_lead", confirmed=300)
    assert slots.nearest((SLOT, lead), 99) is None
    assert slots.nearest((SLOT, lead), 299) == SLOT
    assert slots.nearest((SLOT, lead), 300) == lead


def test_slots_that_cannot_be_used_are_named_with_the_statements() -> None:
    lead = replace(SLOT, name="s_lead")
    both = {"s_held": SLOT, "s_lead": lead}
    assert slots.check(replace(STATE, slots=both), "s", "shop") == (SLOT, lead)
    for broken, error, step in (
        ({"s_held": SLOT}, SourceUnavailable, "pg_copy_logical_replication_slot"),
        ({**both, "s_held": replace(SLOT, wal_status="lost")}, SourceUnavailable, "pg_drop_replication_slot"),
        ({**both, "s_lead": replace(lead, restart=0)}, SourceUnavailable, "pg_drop_replication_slot"),
        ({**both, "s_held": replace(SLOT, plugin="wal2json")}, UsageError, "?slot=NAME"),
        ({**both, "s_held": replace(SLOT, database="other")}, UsageError, "?slot=NAME"),
    ):
        with pytest.raises(error) as caught:
            slots.check(replace(STATE, slots=broken), "s", "shop")
        assert step in (caught.value.hint or "")


def test_of_two_slots_the_one_that_is_left_can_be_read_and_makes_the_other() -> None:
    lead = replace(SLOT, name="s_lead", confirmed=200)
    lost = replace(SLOT, wal_status="lost")
    assert slots.usable(replace(STATE, slots={"s_held": SLOT, "s_lead": lead}), "s", "shop") == (SLOT, lead)
    state = replace(STATE, slots={"s_held": lost, "s_lead": lead})
    assert slots.usable(state, "s", "shop") == (lead,)
    with pytest.raises(SourceUnavailable) as caught:
        slots.check(state, "s", "shop")
    _, *statements = (caught.value.hint or "").splitlines()
    assert statements == [
        "SELECT pg_drop_replication_slot('s_held');",
        "SELECT pg_copy_logical_replication_slot('s_lead', 's_held');",
    ]
    with pytest.raises(SourceUnavailable, match="has lost its log"):
        slots.usable(replace(STATE, slots={"s_held": lost, "s_lead": replace(lead, restart=0)}), "s", "shop")
