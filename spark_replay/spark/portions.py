"""Distributes a list to tasks, so that each task receives only its own portion.

Objects that a function refers to are sent to every task that runs it, and an archive's list of 600,000 files has
180 MB. So each portion is the content of one partition instead.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["portions", "read_portions", "taken"]


def portions(spark: SparkSession, given: Sequence[object]) -> DataFrame:
    """A DataFrame with one task for each portion. The portions are pickled.

    A function for ``mapInArrow`` reads them by :func:`taken`.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.types import BinaryType, StructField, StructType

    context = spark.sparkContext
    rows: Any = context.parallelize([(pickle.dumps(one),) for one in given], len(given))
    jvm: Any = context._jvm
    # Spark makes a DataFrame from an RDD in the same way, but with a Python worker that only copies the rows.
    java = jvm.SerDeUtil.toJavaArray(jvm.SerDeUtil.pythonToJava(rows._jrdd, True))
    shape = StructType([StructField("portion", BinaryType(), False)])
    session: Any = spark
    return DataFrame(session._jsparkSession.applySchemaToPythonRDD(java.rdd(), shape.json()), session)


def taken(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """The portions of a task."""
    for batch in batches:
        for portion in batch.column(0).to_pylist():
            yield pickle.loads(portion)  # noqa: S301 - what our own driver wrote


def read_portions(
    spark: SparkSession, given: Sequence[object], read: Callable[[Any], Iterable[pa.RecordBatch]], shape: str
) -> DataFrame:
    """The rows that ``read`` returns for each portion, in no order; one task for each. ``shape``: their columns.

    ``read`` is sent to every task, with all objects that it refers to.
    """
    if not given:
        return spark.createDataFrame([], shape)
    return portions(spark, given).mapInArrow(partial(_read, read), shape)


def _read(
    read: Callable[[Any], Iterable[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(map(read, taken(batches)))
