"""The contract of :mod:`sinks.port` as tests that run over any kind.

A test module of a kind defines a harness of it, a fixture ``harness`` and a subclass of :class:`RecordSinkContract` or
:class:`RowSinkContract` (docs/write-a-sink.md).
"""

from __future__ import annotations

import pytest

from sinks.port import Guarantee
from sinks.testing.harness import TABLES, RecordHarness, RowHarness, SinkHarness
from sinks.testing.story import (
    ORDERS,
    Story,
    deleted,
    existing,
    inserted,
    moved,
    truncated,
    updated,
)
from subscriber_sdk.testing import Kit, marker_at
from wormhole.model.errors import TargetUnavailable
from wormhole.model.findings import Severity
from wormhole.model.reads import read_source

__all__ = ["RecordSinkContract", "RowSinkContract", "SinkContract"]


class SinkContract:
    """What every sink does."""

    def test_updates_arrive_in_the_order_of_the_log(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"), inserted(2, text="b"), inserted(1, TABLES[1], text="c"))
        story.commit(updated(1, {"text": "a"}, {"text": "d"}))
        story.commit(deleted(2, {"text": "b"}), inserted(2, text="e"), updated(2, {"text": "e"}, {"text": "f"}))
        story.commit(moved(2, 3, {"text": "f"}), inserted(2, text="g"))
        story.commit(deleted(3, {"text": "f"}), moved(2, 4, {"text": "g"}))
        story.check()

    def test_a_transaction_in_pieces_arrives(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(*(inserted(key, text="é" * 100) for key in range(1, 10)), pieces=3)
        story.commit(*(updated(key, {"text": "é" * 100}, {"text": "x"}) for key in range(1, 10)), pieces=9)
        story.check()

    def test_a_truncate_arrives(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"), inserted(1, TABLES[1], text="b"))
        story.commit(inserted(2, text="c"), truncated(), inserted(3, text="d"))
        story.check()

    def test_nothing_is_missing_after_a_crash(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        for key in range(1, 6):
            story.commit(inserted(key, text="a"))
        story.commit(deleted(1, {"text": "a"}))
        story.crash(3)
        story.check()
        story.commit(inserted(1, text="b"))
        story.crash(0)
        story.commit(updated(1, {"text": "b"}, {"text": "c"}))
        story.check()

    def test_nothing_is_missing_after_the_connection_of_the_publisher_broke(
        self, wormhole_kit: Kit, harness: SinkHarness
    ) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"))
        story.flow.cut()
        story.commit(updated(1, {"text": "a"}, {"text": "b"}))
        story.flow.assign()
        story.flow.revoke()
        story.flow.assign()
        story.commit(inserted(2, text="c"))
        story.check()

    def test_a_store_that_is_away_is_waited_for(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        """It cannot be examined meanwhile."""
        story, examined = Story(wormhole_kit, harness), harness.open()
        story.commit(inserted(1, text="a"))
        with story.away():
            story.commit_in_vain(updated(1, {"text": "a"}, {"text": "b"}), inserted(2, text="c"))
            with pytest.raises(TargetUnavailable):
                wormhole_kit.run(examined.examine())
        wormhole_kit.run(examined.close())
        story.commit(updated(2, {"text": "c"}, {"text": "d"}))
        story.check()

    def test_shards_do_not_hinder_each_other(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        first, second = Story(wormhole_kit, harness), Story(wormhole_kit, harness, shard="other")
        first.commit(inserted(1, text="a"))
        second.commit(inserted(2, TABLES[1], text="b"))
        first.flow.revoke()
        second.commit(updated(2, {"text": "b"}, {"text": "c"}, TABLES[1]))
        assert (first.flow.datamarker, second.flow.datamarker) == (first.flow.end, second.flow.end)

    def test_the_update_that_is_refused_is_parked(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        if (refused := harness.refused) is None:
            return  # its store takes everything
        story = Story(wormhole_kit, harness, parks=True)
        story.commit(inserted(1, text="a"))
        story.flow.commit(inserted(2, text="b").change, refused, inserted(3, text="c").change)
        assert story.flow.parked == ["test:2:1"]
        story.ids += ["test:2:0", "test:2:2"]
        story.rows[ORDERS] |= {2: {"text": "b"}, 3: {"text": "c"}}
        story.commit(updated(3, {"text": "c"}, {"text": "d"}))
        story.check()

    def test_an_examination_changes_nothing(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        sink = harness.open()
        first = wormhole_kit.run(sink.examine())
        assert first.severity is not Severity.PROBLEM, f"{first}"
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"))
        wormhole_kit.run(sink.examine())
        wormhole_kit.run(sink.close())
        story.commit(inserted(2, text="b"))
        story.check()

    def test_a_process_that_was_replaced_harms_nothing(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        """It wakes up, and writes what the process in its place has written long ago."""
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"))
        replaced = story.flow.hand_over((second := harness.open()).subscriber)
        story.sink = second
        later = updated(1, {"text": "a"}, {"text": "b"})
        story.commit(later)
        story.commit(updated(1, {"text": "b"}, {"text": "c"}))
        replaced.commit(later.change)
        assert replaced.fenced or harness.kind.guarantee is Guarantee.AT_LEAST_ONCE
        story.commit(inserted(2, text="d"))
        story.check()


class RecordSinkContract(SinkContract):
    """What a sink does whose store keeps records."""

    def test_existing_rows_are_records(self, wormhole_kit: Kit, harness: RecordHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"))
        story.flow.backfill(ORDERS, existing({1: {"text": "a"}, 2: {"text": "b"}}))
        story.ids += [f"{read_source(1)}:1:0", f"{read_source(1)}:1:1"]
        story.commit(inserted(3, text="c"))
        story.check()

    def test_two_sinks_of_a_store_are_no_repetition_of_each_other(
        self, wormhole_kit: Kit, harness: RecordHarness
    ) -> None:
        one, other = (Story(wormhole_kit, harness, application=name) for name in ("one", "other"))
        for story in (one, other, other, one):
            story.commit(inserted(1, text="a"))
            assert story.flow.datamarker == story.flow.end
        assert sorted(harness.ids()) == ["test:1:0", "test:1:0", "test:2:0", "test:2:0"]

    def test_a_move_back_repeats_the_records(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        for key in range(1, 4):
            story.commit(inserted(key, text="a"))
        story.flow.move(marker_at(1))
        if harness.kind.guarantee is Guarantee.EXACTLY_ONCE:
            story.ids += story.ids[1:3]
        story.check()


class RowSinkContract(SinkContract):
    """What a sink does whose store keeps rows."""

    def test_a_value_that_the_log_lacks_is_left(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a", note="long"))
        story.commit(updated(1, {"text": "a", "note": "long"}, {"text": "b"}))
        assert story.rows[ORDERS] == {1: {"text": "b", "note": "long"}}
        story.check()

    def test_a_new_column_arrives(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"))
        story.commit(inserted(2, text="b", more=7))
        story.commit(updated(1, {"text": "a"}, {"text": "c", "more": 8}))
        story.check()

    def test_a_move_back_ends_with_the_last_state(self, wormhole_kit: Kit, harness: SinkHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"))
        story.commit(updated(1, {"text": "a"}, {"text": "b"}), inserted(2, text="c"))
        story.commit(deleted(2, {"text": "c"}), inserted(3, text="d"))
        story.flow.move(marker_at(0))
        story.check()

    def test_a_backfill_leaves_the_rows_that_exist(self, wormhole_kit: Kit, harness: RowHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(inserted(1, text="a"), inserted(9, text="of an earlier life"), inserted(1, TABLES[1], text="b"))
        rows = {1: {"text": "c"}, 2: {"text": "d"}}
        story.flow.backfill(ORDERS, existing(rows), chunks=2)
        story.rows[ORDERS] = dict(rows)
        story.commit(inserted(3, text="e"))
        story.check()

    def test_a_row_that_was_removed_is_found_and_repaired(self, wormhole_kit: Kit, harness: RowHarness) -> None:
        story = Story(wormhole_kit, harness)
        story.commit(*(inserted(key, text="a") for key in (1, 2, 3)))
        rows = existing(story.rows[ORDERS])
        assert story.flow.verify(ORDERS, rows).equal
        harness.remove(ORDERS, 2)
        assert not story.flow.verify(ORDERS, rows).equal
        story.flow.verify(ORDERS, rows, repair=True)
        assert story.flow.verify(ORDERS, rows).equal
        story.check()
