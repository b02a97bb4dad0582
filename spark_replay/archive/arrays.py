"""Reads the values of Arrow columns as plain memory, without a copy, for loops over single rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["U64", "count_values", "ends_of", "grouped", "joined", "signed", "values_of"]

U64: Final = (1 << 64) - 1
"""The mask that makes a signed number of 64 bits, as Spark has it, unsigned again."""

_WIDTH: Final = {"B": 1, "i": 4, "q": 8}


def values_of(column: pa.Array, code: Literal["B", "i", "q"], width: int = 1) -> memoryview[int]:
    """The values of a column of fixed width without nulls, as elements of the :mod:`array` type ``code``.

    Each value has ``width`` elements.
    """
    first, count = column.offset * width, len(column) * width
    data = column.buffers()[1]
    if data is None:  # the column has no rows
        return memoryview(b"").cast(code)
    size = _WIDTH[code]
    return memoryview(data).cast("B")[first * size : (first + count) * size].cast(code)


def ends_of(column: pa.Array) -> tuple[memoryview[int], memoryview[int]]:
    """The bytes of a binary column, and its offsets: where the first value begins, and where each value ends."""
    _, offsets, data = column.buffers()
    ends = memoryview(offsets).cast("B")[4 * column.offset : 4 * (column.offset + len(column) + 1)].cast("i")
    return memoryview(data if data is not None else b"").cast("B"), ends


def count_values(into: Counter[str], column: pa.Array) -> None:
    """Add to ``into`` how often each value is in the column."""
    for one in pc.value_counts(column).to_pylist():
        into[one["values"]] += one["counts"]


def signed(number: int) -> int:
    """An unsigned number of 64 bits in two's complement, because Spark has no unsigned numbers."""
    return number - (1 << 64) if number >> 63 else number


def grouped(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches that have rows, in groups of at most ``size`` bytes; a larger batch is a group of its own."""
    held: list[pa.RecordBatch] = []
    room = size
    for batch in batches:
        if held and batch.nbytes > room:
            yield held
            held, room = [], size
        if batch.num_rows:
            held.append(batch)
            room -= batch.nbytes
    if held:
        yield held


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches as one batch. The dictionaries of different files are unified."""
    (whole,) = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    return whole
