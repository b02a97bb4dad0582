"""The range of epochs, the numbers by which the owners of a flow follow each other. Both ends of a stream enforce it.

An epoch is a 64-bit number on the wire, and stores keep it as a signed one. A peer that names an epoch without a
successor would keep every honest publisher away from a shard for ever.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FIRST_NO_EPOCH", "may_be_exceeded"]

FIRST_NO_EPOCH: Final = 1 << 63
"""Epochs are below this number. Marker stores count up by one, so no flow reaches it."""


def may_be_exceeded(epoch: int) -> bool:
    """Whether there is an epoch above ``epoch``."""
    return epoch + 1 < FIRST_NO_EPOCH
