"""Whether an application stored its datamarker before or after its flow was moved."""

from __future__ import annotations

import pytest

from wormhole.push.moves import is_from_before, refuses_later


@pytest.mark.parametrize(("move", "known", "before"), [(0, 0, False), (4, 0, True), (4, 3, True), (4, 4, False)])
def test_a_datamarker_of_a_lower_number_is_from_before(move: int, known: int, before: bool) -> None:
    assert is_from_before(move, known=known) is before


def test_a_number_of_a_record_that_was_lost_since_is_not_from_before() -> None:
    assert not is_from_before(0, known=7)
    assert not is_from_before(3, known=7)


@pytest.mark.parametrize(
    ("move", "rewound", "known", "refused"),
    [
        (0, False, 0, False),
        (4, False, 0, False),  # moved forwards, or something was acknowledged since: as before there were numbers
        (4, True, 0, True),  # it stores none
        (4, True, 3, True),
        (4, True, 4, False),  # the publisher died before it stored what was acknowledged
        (4, True, 5, False),
        (0, True, 0, True),  # a publisher of an earlier release set it back
        (0, True, 4, True),
    ],
)
def test_a_later_datamarker_of_a_flow_that_was_set_back(move: int, rewound: bool, known: int, refused: bool) -> None:
    assert refuses_later(move, rewound=rewound, known=known) is refused
