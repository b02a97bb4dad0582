"""The decisions every store shares, and the record kept in ZooKeeper."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from publisher.stores.markers.rules import (
    control_from_text,
    control_to_text,
    flow_from_json,
    flow_to_json,
)
from tests.support.markers import CACHE, marker
from wormhole.model.errors import MarkerStoreError
from wormhole.model.position import LastAck, LogPosition
from wormhole.model.verification import VerifyMode
from wormhole.ports.marker_store import BackfillControl, FlowControl, ReplayControl, StoredFlow

ASKED = FlowControl("maria since noon", ("db:7:0",))
STORED = StoredFlow(marker(10), 3, "latest", "f", ASKED)


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
        *({"rows": rows} for rows in ("7", -1, True, 1.5, None, 1 << 64)),
        *({"verify": verify} for verify in ("?", 7, None, ["compare"])),
    ],
)
def test_a_backfill_that_cannot_be_read_is_an_error(damage: dict[str, object]) -> None:
    given = json.loads(control_to_text(BACKFILL))
    given["backfill"] |= damage
    with pytest.raises(ValueError, match="the backfill of the flow is not readable"):
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


@pytest.mark.parametrize("move", [0, 2])
def test_a_move_reads_back_and_a_record_without_one_is_written_as_by_earlier_releases(move: int) -> None:
    stored = replace(STORED, move=move)
    assert flow_from_json(CACHE, flow_to_json(stored), "/node") == stored
    assert (b"move" in flow_to_json(stored)) == bool(move)


@pytest.mark.parametrize("acked", [None, LastAck(0, LogPosition(0, 0, 0)), LastAck(2, LogPosition(1, 42, 32768))])
def test_an_acknowledgement_reads_back_and_a_record_without_one_is_written_as_before(acked: LastAck | None) -> None:
    stored = replace(STORED, last_ack=acked)
    assert flow_from_json(CACHE, flow_to_json(stored), "/node") == stored
    assert (b"last_ack" in flow_to_json(stored)) == (acked is not None)


def damaged(**change: object) -> bytes:
    return json.dumps(json.loads(flow_to_json(STORED)) | change).encode()


@pytest.mark.parametrize(
    "data",
    [
        *(damaged(marker=marker) for marker in ("no base64!", 7)),
        *(damaged(epoch=epoch) for epoch in ("3", True, -3, (1 << 63) - 1, 1 << 64)),
        *(damaged(move=move) for move in ("3", True, -1, 4)),
        *(damaged(last_ack=acked) for acked in (2, "2", "x 1/2/3", "2 1/2", "2 1/2/-3")),
        damaged(start=1),
        *(damaged(control=control) for control in (7, "{")),
        *(b"", b"[]", b"{}", b"\xff", b"[" * 100_000),
    ],
)
def test_a_damaged_record_is_named(data: bytes) -> None:
    with pytest.raises(MarkerStoreError, match=r"^/node holds no valid datamarker") as caught:
        flow_from_json(CACHE, data, "/node")
    assert caught.value.code == "marker-damaged"


def test_an_empty_place_is_a_valid_one() -> None:
    """All its numbers are 0."""
    assert flow_from_json(CACHE, damaged(marker="CgA="), "/node").marker.order.offset == 0


@pytest.mark.parametrize("mode", list(VerifyMode))
def test_a_verification_reads_back_and_a_backfill_is_written_as_by_earlier_releases(mode: VerifyMode) -> None:
    asked = FlowControl(backfill=BackfillControl(3, "maria", 1.5, ("t",), rate=2.0, verify=mode))
    text = control_to_text(asked)
    assert control_from_text(text) == asked
    assert ("verify" in text) == (mode is not VerifyMode.NONE)
