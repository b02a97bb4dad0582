"""What sources say of times."""

from __future__ import annotations

from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.log_times import begins_later, time_text

PLACE = LogPosition(1, 7, 4)


def test_times_are_shown_in_utc() -> None:
    assert time_text(1_000_000_000_999_999) == "2001-09-09 01:46:40 UTC"


def test_it_says_where_the_log_begins_and_when_that_was() -> None:
    error = begins_later(Datamarker(PLACE, "41", PLACE), 1_000_000_000_000_000)
    assert error.message == "the log begins at 1/7/4 (41), about 2001-09-09 01:46:40 UTC"
    assert error.last_missing == "41"
    assert "not known" in begins_later(Datamarker(PLACE, "41", PLACE), 0).message
