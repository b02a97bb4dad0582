"""Absent is not null, and nobody may test it for truth by accident."""

from __future__ import annotations

import copy
import pickle

import pytest

from wormhole.model.values import UNAVAILABLE, Op


def test_unavailable_has_no_truth() -> None:
    with pytest.raises(TypeError, match="is UNAVAILABLE"):
        bool(UNAVAILABLE)
    assert repr(UNAVAILABLE) == "UNAVAILABLE"


def test_unavailable_stays_the_one_object() -> None:
    assert copy.deepcopy(UNAVAILABLE) is UNAVAILABLE
    assert pickle.loads(pickle.dumps(UNAVAILABLE)) is UNAVAILABLE


def test_operations_are_written_as_in_filters() -> None:
    assert all(op.value == op.name.lower() for op in Op)
