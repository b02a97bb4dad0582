"""The decisions every store shares, and the record kept in ZooKeeper."""

from __future__ import annotations

import json

import pytest

from publisher.stores.markers.rules import (
    accepts,
    control_from_text,
    control_to_text,
    flow_from_json,
    flow_to_json,
    written,
)
from tests.support.markers import CACHE, marker, write
from wormhole.model.errors import MarkerStoreError
from wormhole.model.verification import VerifyMode
from wormhole.ports.marker_store import BackfillControl, FlowControl, MarkerWrite, ReplayControl, StoredFlow

ASKED = FlowControl("maria since noon", ("db:7:0",))
STORED = StoredFlow(marker(10), 3, "latest", "f", ASKED)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (write(10, epoch=3), True),
        (write(11, epoch=3), True),
        (write(9, epoch=3), False),
        (write(11, epoch=2), False),
        (write(11, epoch=4), False),
        (MarkerWrite(CACHE, 3, marker(0, incarnation=2)), True),
        (MarkerWrite(CACHE, 3, marker(99, incarnation=0)), False),
    ],
)
def test_same_epoch_and_never_back(given: MarkerWrite, expected: bool) -> None:
    assert accepts(STORED, given) is expected


def test_a_write_changes_marker_and_filter_only() -> None:
    assert written(STORED, write(11, epoch=3, filter_hash="g")) == StoredFlow(marker(11), 3, "latest", "g", ASKED)


def test_a_record_of_an_earlier_release_asks_for_nothing() -> None:
    old = json.loads(flow_to_json(STORED))
    del old["control"]
    assert flow_from_json(CACHE, json.dumps(old).encode(), "/node").control == FlowControl()


def test_what_an_earlier_release_was_asked_for_reads_back() -> None:
    assert control_from_text('{"paused": "maria since noon", "skip": ["db:7:0"]}') == ASKED
    assert "replay" not in control_to_text(ASKED)


@pytest.mark.parametrize(
    "damage", [{"state": "?"}, {"id": 7}, {"until": "not base64"}, {"until": "AAAA"}, {"attempts": None}]
)
def test_a_replay_that_cannot_be_read_is_an_error(damage: dict[str, object]) -> None:
    given = json.loads(control_to_text(FlowControl(replay=ReplayControl("r1", "maria", "log", 1.5, 30.0, "0123"))))
    given["replay"] |= damage
    with pytest.raises(ValueError, match="replay"):
        control_from_text(json.dumps(given))


BACKFILL = FlowControl(backfill=BackfillControl(2, "maria", 1.5, ("shop.users",), 'op == "insert"', "f", 5.0, "eve"))


@pytest.mark.parametrize(
    "damage",
    [
        {"generation": "2"},
        {"generation": 0},
        {"generation": True},
        {"generation": 1 << 64},
        {"tables": "users"},
        {"tables": [1]},
        {"rate": None},
        {"rate": -1},
        {"started_s": "1"},
        {"ended": "?"},
        {"paused": 1},
    ],
)
def test_a_backfill_that_cannot_be_read_is_an_error(damage: dict[str, object]) -> None:
    given = json.loads(control_to_text(BACKFILL))
    given["backfill"] |= damage
    with pytest.raises(ValueError, match="backfill"):
        control_from_text(json.dumps(given))


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[]",
        "{}",
        '{"paused": 1, "skip": []}',
        '{"paused": "", "skip": [1]}',
        '{"paused": "", "skip": [], "missing_hint": 1}',
    ],
)
def test_what_was_asked_and_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        control_from_text(text)


@pytest.mark.parametrize(
    "change",
    [
        {"marker": "no base64!"},
        {"marker": "CgA="},
        {"epoch": "3"},
        {"epoch": True},
        {"epoch": -3},
        {"epoch": (1 << 63) - 1},
        {"epoch": 1 << 64},
        {"start": 1},
        {"marker": 7},
        {"control": 7},
        {"control": "{"},
    ],
)
def test_a_damaged_record_is_named(change: dict[str, object]) -> None:
    data = json.dumps(json.loads(flow_to_json(STORED)) | change).encode()
    if change == {"marker": "CgA="}:  # an empty place is a valid message: all its numbers are 0
        assert flow_from_json(CACHE, data, "/node").marker.order.offset == 0
        return
    with pytest.raises(MarkerStoreError, match=r"^/node holds no valid datamarker"):
        flow_from_json(CACHE, data, "/node")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_anything_else_is_named_too(data: bytes) -> None:
    with pytest.raises(MarkerStoreError, match=r"^/node holds no valid datamarker"):
        flow_from_json(CACHE, data, "/node")


@pytest.mark.parametrize("mode", list(VerifyMode))
def test_a_verification_reads_back_and_a_backfill_is_written_as_by_earlier_releases(mode: VerifyMode) -> None:
    asked = FlowControl(backfill=BackfillControl(3, "maria", 1.5, ("t",), rate=2.0, verify=mode))
    text = control_to_text(asked)
    assert control_from_text(text) == asked
    assert ("verify" in text) == (mode is not VerifyMode.NONE)


@pytest.mark.parametrize("rows", ["7", -1, True, 1.5, None, 1 << 64])
def test_a_count_of_rows_that_is_none_is_an_error(rows: object) -> None:
    given = json.loads(control_to_text(FlowControl(backfill=BackfillControl(3, "maria", 1.5))))
    given["backfill"]["rows"] = rows
    with pytest.raises(ValueError, match="the backfill of the flow is not readable"):
        control_from_text(json.dumps(given))


@pytest.mark.parametrize("verify", ["?", 7, None, ["compare"]])
def test_a_verification_of_an_unknown_kind_is_an_error(verify: object) -> None:
    given = json.loads(control_to_text(FlowControl(backfill=BackfillControl(3, "maria", 1.5))))
    given["backfill"]["verify"] = verify
    with pytest.raises(ValueError, match="the backfill of the flow is not readable"):
        control_from_text(json.dumps(given))
