"""Epochs end where stores of signed numbers do."""

from __future__ import annotations

from wormhole.push.epochs import FIRST_NO_EPOCH, may_be_exceeded


def test_the_last_epoch_has_no_successor() -> None:
    assert may_be_exceeded(0)
    assert may_be_exceeded(FIRST_NO_EPOCH - 2)
    assert not may_be_exceeded(FIRST_NO_EPOCH - 1)
    assert not may_be_exceeded(2**64 - 1)
