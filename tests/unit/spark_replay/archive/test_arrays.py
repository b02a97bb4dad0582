"""Columns as memory, sliced ones and empty ones too."""

from __future__ import annotations

import itertools

import pyarrow as pa

from spark_replay.archive.arrays import ends_of, values_of


def test_values_of_a_slice() -> None:
    assert list(values_of(pa.array([1, 2, 3, 4], pa.int64()).slice(1, 2), "q")) == [2, 3]
    assert bytes(values_of(pa.array([b"aa", b"bb", b"cc"], pa.binary(2)).slice(1), "B", 2)) == b"bbcc"


def test_no_values() -> None:
    assert list(values_of(pa.array([], pa.int32()), "i")) == []
    data, ends = ends_of(pa.array([b""], pa.binary()))
    assert (bytes(data), list(ends)) == (b"", [0, 0])


def test_ends_of_a_slice_count_from_the_beginning() -> None:
    data, ends = ends_of(pa.array([b"a", b"bc", b"", b"d"], pa.binary()).slice(1, 2))
    assert bytes(data)[ends[0] : ends[-1]] == b"bc"
    assert [b - a for a, b in itertools.pairwise(ends)] == [2, 0]
