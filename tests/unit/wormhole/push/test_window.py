"""Credit: what may be in flight."""

from __future__ import annotations

import pytest

from wormhole.model.errors import ProtocolError
from wormhole.push.window import MOST_BATCHES, MOST_CREDIT, Window


@pytest.fixture
def window() -> Window:
    return Window(100)


def test_a_body_fits_while_the_credit_lasts(window: Window) -> None:
    assert window.admits(100)
    assert window.sent(60) == 1
    assert window.admits(40)
    assert not window.admits(41)
    assert window.sent(40) == 2
    assert not window.admits(1)


def test_progress_covers_every_batch_up_to_its_own(window: Window) -> None:
    for size in (10, 20, 30):
        window.sent(size)
    window.returned(2)
    assert window.in_flight == 30
    window.returned(2)
    window.returned(1)
    assert window.in_flight == 30
    window.returned(3)
    assert window.in_flight == 0


def test_a_body_larger_than_the_credit_goes_alone(window: Window) -> None:
    window.sent(1)
    assert not window.admits(101)
    window.returned(1)
    assert window.admits(101)
    window.sent(101)
    assert not window.admits(1)


def test_an_unsent_batch_cannot_have_been_processed(window: Window) -> None:
    with pytest.raises(ProtocolError, match="batch 1 was never sent; the last one is 0"):
        window.returned(1)


def test_credit_and_the_number_of_batches_have_bounds() -> None:
    window = Window(1 << 63)
    assert window.credit == MOST_CREDIT
    for _ in range(MOST_BATCHES):
        assert window.admits(1)
        window.sent(1)
    assert not window.admits(1)
    assert not window.half_free
    window.returned(MOST_BATCHES // 2)
    assert window.admits(1)
    assert window.half_free
