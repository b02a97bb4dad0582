"""Where the reader furthest ahead begins."""

from __future__ import annotations

import pytest

from publisher.relay.lead import common_start
from wormhole.model.position import Datamarker, LogPosition


def at(offset: int, file: int = 7, incarnation: int = 1) -> Datamarker:
    place = LogPosition(incarnation, file, offset)
    return Datamarker(place, "", place)


END = at(100 << 20)


@pytest.mark.parametrize(
    ("flows", "start"),
    [
        ([at((99 << 20) + 1000), at(99 << 20), END], at(99 << 20)),
        ([END], END),
        ([at((40 << 20) + 1000), at(40 << 20), at(10 << 20)], at(40 << 20)),
        ([END, at(95 << 20)], END),
        ([at(30 << 20), at(101 << 20), at(99 << 20, file=6), at(99 << 20, incarnation=2)], END),
        ([], END),
    ],
    ids=["stopped together", "at the end", "long ago", "behind others", "far behind, ahead or elsewhere", "none"],
)
def test_it_begins_at_the_earliest_flow_of_those_that_stopped_together(
    flows: list[Datamarker], start: Datamarker
) -> None:
    assert common_start(END, flows) == start
