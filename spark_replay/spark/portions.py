"""Work for tasks: each receives its own portion of a list and nothing of the others'.

What a function refers to goes to every task that runs it: an archive's list of 600,000 files is 180 MB. Here a portion
is the content of one partition.
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
    """A task for each of these, which are pickled; for a function of ``mapInArrow`` that takes :func:`taken`."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import BinaryType, StructField, StructType

    context = spark.sparkContext
    rows: Any = context.parallelize([(pickle.dumps(one),) for one in given], len(given))
    jvm: Any = context._jvm
    # As Spark makes a DataFrame of an RDD, without a Python worker that does nothing to the rows.
    java = jvm.SerDeUtil.toJavaArray(jvm.SerDeUtil.pythonToJava(rows._jrdd, True))
    shape = StructType([StructField("portion", BinaryType(), False)])
    session: Any = spark
    return DataFrame(session._jsparkSession.applySchemaToPythonRDD(java.rdd(), shape.json()), session)


def taken(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """What a task was given."""
    for batch in batches:
        for portion in batch.column(0).to_pylist():
            yield pickle.loads(portion)  # noqa: S301 - what our own driver wrote


def read_portions(
    spark: SparkSession, given: Sequence[object], read: Callable[[Any], Iterable[pa.RecordBatch]], shape: str
) -> DataFrame:
    """The rows, of this ``shape``, that ``read`` finds for each of these: a task for each, in no order. It goes to
    every task, with what it refers to.
    """
    if not given:
        return spark.createDataFrame([], shape)
    return portions(spark, given).mapInArrow(partial(_read, read), shape)


def _read(
    read: Callable[[Any], Iterable[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(map(read, taken(batches)))
