"""The base class does nothing by itself; what it is told with reads well."""

from __future__ import annotations

import pytest

from subscriber_sdk import AckLater, FlowHalted
from subscriber_sdk.testing import marker_at


def test_a_halted_flow_says_what_to_do() -> None:
    text = str(FlowHalted("s", 1, "db:5:0", 8, marker_at(4), ValueError("no")))
    assert "shard s is halted at update db:5:0 after 8 attempts: ValueError('no')" in text
    assert "Next: mend the handler" in text
    assert "1/1/4" in text


def test_what_a_publisher_gets_of_a_halted_flow_has_no_next_step() -> None:
    """The publisher's observers have one of their own; two would contradict each other."""
    halted = FlowHalted("s", 1, "db:5:0", 8, marker_at(4), ValueError("no"))
    assert halted.reason == "shard s is halted at update db:5:0 after 8 attempts: ValueError('no')"
    assert str(halted).startswith(f"{halted.reason}. Next: ")


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_later_is_a_time_that_comes(seconds: float) -> None:
    with pytest.raises(ValueError, match="a positive number of seconds is needed"):
        AckLater(seconds)
