"""Where the reader furthest ahead begins."""

from __future__ import annotations

from publisher.relay.lead import common_start
from wormhole.model.position import Datamarker, LogPosition


def at(offset: int, file: int = 7, incarnation: int = 1) -> Datamarker:
    place = LogPosition(incarnation, file, offset)
    return Datamarker(place, "", place)


END = at(100 << 20)


def test_it_begins_at_the_earliest_flow_of_those_that_stopped_together() -> None:
    first, later = at(99 << 20), at((99 << 20) + 1000)
    assert common_start(END, [later, first, END]) == first
    assert common_start(END, [END]) == END


def test_however_much_was_written_since_they_stopped() -> None:
    first, later = at(40 << 20), at((40 << 20) + 1000)
    assert common_start(END, [later, first, at(10 << 20)]) == first


def test_flows_that_are_behind_others_far_behind_ahead_or_elsewhere_do_not_keep_it_from_the_end() -> None:
    assert common_start(END, [END, at(95 << 20)]) == END
    others = [at(30 << 20), at(101 << 20), at(99 << 20, file=6), at(99 << 20, incarnation=2)]
    assert common_start(END, others) == END
    assert common_start(END, []) == END
