"""What follows from the row of a shard: a table of rows and notices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from subscriber_sdk import EpochRefused, NoticeKind, ShardNotice
from subscriber_sdk.subscriber import KeptMarker
from subscriber_sdk.testing import marker_at
from subscriber_sdk.transactional.marker_row import MarkerRow, after_refusal, row_key, start_of
from wormhole.model.errors import TargetRefused, TargetUnavailable
from wormhole.model.position import LastAck
from wormhole.wire.markers import marker_to_bytes

NOTICE = ShardNotice(
    NoticeKind.ASSIGNED, "s", 5, marker_at(3), application="app", dataset="d", log="l", generation=2, move=1
)
ROW = MarkerRow(4, 7, 1, marker_to_bytes(marker_at(9)), letters=("test:1:0",))


def code(error: Exception | None) -> str:
    assert isinstance(error, TargetRefused)
    return error.code


def test_a_new_flow_begins_at_the_publishers_marker() -> None:
    start = start_of(None, NOTICE)
    assert (start.row, start.have) == (MarkerRow(5, 0, 1, marker_to_bytes(marker_at(3))), None)


def test_the_stored_marker_counts_whatever_the_publisher_has() -> None:
    start = start_of(ROW, NOTICE)
    assert start.have == KeptMarker(marker_at(9), 1)
    assert (start.row.epoch, start.row.version, start.row.letters) == (5, 8, ROW.letters)


def test_a_higher_move_is_adopted_once() -> None:
    moved = replace(NOTICE, move=2, rewound=True)
    first = start_of(ROW, moved)
    assert first.have is None
    assert (first.row.move, first.row.marker, first.row.letters) == (2, marker_to_bytes(marker_at(3)), ())
    after = first.row.advanced(marker_at(4), ())
    assert start_of(after, replace(moved, epoch=6)).have == KeptMarker(marker_at(4), 2)


@pytest.mark.parametrize("rewound", [True, False])
def test_a_move_does_not_pass_over_what_a_target_lost(rewound: bool) -> None:
    moved = replace(NOTICE, marker=marker_at(12), move=2, rewound=rewound)
    assert start_of(ROW, moved, confirmed=(4, 7)).have is None
    for confirmed in ((4, 8), (5, 0)):
        start = start_of(ROW, moved, confirmed=confirmed)
        assert start.have == KeptMarker(marker_at(9), 2)
        assert (start.row.epoch, start.row.version, start.row.move) == (5, 8, 2)
        back = start_of(ROW, replace(moved, marker=marker_at(3)), confirmed=confirmed)
        assert (back.have, back.row.marker) == (None, marker_to_bytes(marker_at(3)))


@pytest.mark.parametrize("rewound", [True, False])
def test_a_target_that_lost_what_was_acknowledged_does_not_adopt_a_move(rewound: bool) -> None:
    moved = replace(NOTICE, marker=marker_at(12), move=3, rewound=rewound)
    for move, place in ((1, 8), (1, 9), (0, 12)):
        start = start_of(ROW, replace(moved, last_ack=LastAck(move, marker_at(place).order)))
        assert (start.have, start.row.move) == (None, 3), "the target has everything that was acknowledged"
    for move, place in ((1, 10), (2, 5), (3, 12)):
        lost = replace(moved, last_ack=LastAck(move, marker_at(place).order))
        start = start_of(ROW, lost)
        assert start.have == KeptMarker(marker_at(9), 3)
        accepted = replace(lost, last_ack=LastAck(3, marker_at(9).order))
        assert start_of(start.row, replace(accepted, epoch=6, move=4)).have is None, "the next move is adopted"
        back = start_of(ROW, replace(lost, marker=marker_at(3)))
        assert (back.have, back.row.marker) == (None, marker_to_bytes(marker_at(3)))


def test_a_publisher_without_moves_sets_back_by_rewound() -> None:
    unnumbered = replace(NOTICE, move=0, rewound=True)
    assert start_of(replace(ROW, move=0), unnumbered).have is None
    assert start_of(replace(ROW, move=0, marker=marker_to_bytes(marker_at(2))), unnumbered).have is not None


def test_a_later_epoch_is_refused() -> None:
    with pytest.raises(EpochRefused) as refused:
        start_of(replace(ROW, epoch=6), NOTICE)
    assert refused.value.held_epoch == 6
    assert start_of(replace(ROW, epoch=5), NOTICE).halt is None


def test_an_empty_target_halts_until_a_backfill_or_a_move() -> None:
    advanced = replace(NOTICE, acknowledged=True)
    empty = start_of(None, advanced)
    assert code(empty.halt) == "target-empty"
    assert code(start_of(empty.row, replace(advanced, epoch=6)).halt) == "target-empty"
    for later in (replace(advanced, generation=3), replace(advanced, move=2)):
        start = start_of(empty.row, later)
        assert (start.halt, start.have, start.row.marker) == (None, None, marker_to_bytes(marker_at(3)))


def test_a_nonce_that_was_committed_halts() -> None:
    assert code(start_of(replace(ROW, open=b"n"), NOTICE).halt) == "transaction-ended"


def test_why_a_statement_did_not_find_the_row() -> None:
    assert code(after_refusal(None, ROW, "app", "s")) == "target-empty"
    assert code(after_refusal(replace(ROW, open=b"n"), ROW, "app", "s")) == "transaction-ended"
    assert after_refusal(ROW, ROW, "app", "s") is None
    for changed in (replace(ROW, epoch=9), replace(ROW, version=8), replace(ROW, epoch=9, open=b"n")):
        assert isinstance(after_refusal(changed, ROW, "app", "s"), TargetUnavailable)


def test_shards_whose_names_are_joined_alike_have_keys_of_their_own() -> None:
    assert row_key(replace(NOTICE, dataset="dl", log="")) != row_key(NOTICE)
    assert row_key(replace(NOTICE, epoch=9, move=9)) == row_key(NOTICE)
    assert row_key(replace(NOTICE, shard="S")) != row_key(NOTICE)


def test_a_row_keeps_the_newest_letters() -> None:
    row = ROW.advanced(marker_at(10), [str(number) for number in range(1000)])
    assert (len(row.letters), row.letters[0], row.version) == (1000, "0", 8)
