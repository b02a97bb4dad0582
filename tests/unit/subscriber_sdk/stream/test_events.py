from __future__ import annotations

from typing import get_args

from subscriber_sdk.stream import events
from subscriber_sdk.testing import marker_at


def test_the_union_has_every_event() -> None:
    named = {getattr(events, name) for name in events.__all__ if name not in ("Event", "FlowEvent")}
    assert set(get_args(events.Event)) == named


def test_the_memory_that_an_assignment_takes_makes_it_no_other_one() -> None:
    one = events.Assigned(1, 2, "shop", marker_at(1), replayed=False, size=10)
    assert one == events.Assigned(1, 2, "shop", marker_at(1), replayed=False, size=20)
