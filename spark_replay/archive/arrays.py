"""The values of Arrow columns as plain memory, not copied: what loops over single rows read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["U64", "count_values", "ends_of", "grouped", "joined", "signed", "values_of"]

U64: Final = (1 << 64) - 1
"""What makes a signed number of 64 bits, as Spark has it, unsigned again."""

_WIDTH: Final = {"B": 1, "i": 4, "q": 8}


def values_of(column: pa.Array, code: Literal["B", "i", "q"], width: int = 1) -> memoryview[int]:
    """The values of a column of fixed width without nulls, as the :mod:`array` type ``code``, ``width`` of these for
    each.
    """
    first, count = column.offset * width, len(column) * width
    data = column.buffers()[1]
    if data is None:  # the column has no rows
        return memoryview(b"").cast(code)
    size = _WIDTH[code]
    return memoryview(data).cast("B")[first * size : (first + count) * size].cast(code)


def ends_of(column: pa.Array) -> tuple[memoryview[int], memoryview[int]]:
    """The bytes of a binary column, and where its values end in them; the beginning of the first is in front."""
    _, offsets, data = column.buffers()
    ends = memoryview(offsets).cast("B")[4 * column.offset : 4 * (column.offset + len(column) + 1)].cast("i")
    return memoryview(data if data is not None else b"").cast("B"), ends


def count_values(into: Counter[str], column: pa.Array) -> None:
    """Add how often each value is in the column."""
    for one in pc.value_counts(column).to_pylist():
        into[one["values"]] += one["counts"]


def signed(number: int) -> int:
    """An unsigned number of 64 bits as Spark has it, which knows none."""
    return number - (1 << 64) if number >> 63 else number


def grouped(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """The batches that have rows, in groups of ``size`` bytes at most; a larger one is alone."""
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
    """All of them in one piece. Each file has dictionaries of its own, which become one."""
    (whole,) = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    return whole
