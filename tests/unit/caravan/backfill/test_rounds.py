"""Which rows are read next."""

from __future__ import annotations

from caravan.backfill.boundaries import END, START, Boundaries
from caravan.backfill.progress import BackfillRequest, FlowBackfill
from caravan.backfill.rounds import Taker, Work, next_work


def test_a_number_of_a_list_that_was_replaced_is_not_read_from() -> None:
    """The key of a table changed, and its list was begun anew, while the scan was in the middle of it."""
    lists = {"t": Boundaries(2, "other")}
    backfill = FlowBackfill(BackfillRequest(1), "f")
    backfill.offer(lists.items())
    assert next_work([Taker(backfill)], lists, "t", 7 << 64) == Work("t", START, END)
