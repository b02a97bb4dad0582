"""The share of keys; what Spark counts is tested with the frames (``test_frames``)."""

from __future__ import annotations

import pytest

from spark_replay.replay.estimate import Estimate


@pytest.mark.parametrize(("updates", "keys", "share"), [(100, 25, 0.25), (7, 7, 1.0), (100, 102, 1.0), (0, 0, 1.0)])
def test_keys_per_update_are_never_more_than_one(updates: int, keys: int, share: float) -> None:
    assert Estimate("a", updates, 0, keys).distinct == share
