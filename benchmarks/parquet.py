"""The reference for a replay: one process that only reads the archive's Parquet files with pyarrow.

Run as ``python -m benchmarks.parquet FILE ...``. Prints one line of JSON: the seconds to read the columns that a replay
needs as Arrow columns, and the seconds to read them as Python objects, row by row.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["read"]

_COLUMNS = ["place", "tx_source", "tx_number", "tx_index", "committed_at", "table", "key", "schema_id", "update"]


def read(files: list[str], *, objects: bool) -> tuple[int, float]:
    """Rows, and the seconds that they took."""
    rows, began = 0, time.monotonic()
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=_COLUMNS):
                if objects:
                    # Times as numbers: pyarrow takes longer for each one as an object than for all the rest of its row.
                    times = batch.schema.get_field_index("committed_at")
                    batch = batch.set_column(times, "committed_at", batch.column(times).cast(pa.int64()))
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        rows += len(row[-1]) > 0
                else:
                    rows += batch.num_rows
    return rows, time.monotonic() - began


def main() -> None:
    """See the module."""
    files = sys.argv[1:]
    (rows, arrow_s), (_, objects_s) = read(files, objects=False), read(files, objects=True)
    print(json.dumps({"rows": rows, "arrow_s": arrow_s, "objects_s": objects_s}), flush=True)


if __name__ == "__main__":
    main()
