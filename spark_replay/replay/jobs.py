"""Tasks of a replay on Spark: one job per flow, so that what one flow dies of does not end the others."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from spark_replay.frames import ShardFiles, reading
from spark_replay.replay.latest import latest_rows
from spark_replay.replay.task import Outcome, Task, push_latest, push_log
from wormhole.errors import ReplayError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Jobs"]

_LONGEST: Final = 400


class Jobs:
    """The jobs of one driver. Methods block, each in a thread of its own, and raise :class:`~wormhole.errors.ReplayError` when Spark gave a
    task up, and :class:`~wormhole.errors.ArchiveError` for a file that Spark cannot read."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def slots(self) -> int:
        """How many tasks run at one time."""
        return max(1, int(self._spark.sparkContext.defaultParallelism))

    def log(self, task: Task) -> Outcome:
        """Push every change of the range."""
        context = self._spark.sparkContext
        self._describe(task)
        try:
            outcome: Outcome = context.parallelize([task], 1).map(push_log).collect()[0]
        except Exception as error:
            raise _given_up(error, task) from error
        return outcome

    def latest(self, task: Task, chosen: ShardFiles, *, by_values: bool) -> Outcome:
        """Push the last change of each key of the range: where it was left when it is taken up again."""

        def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            outcome = push_latest(task, iter(batches))
            yield pyarrow.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

        self._describe(task)
        try:
            with reading():
                rows = latest_rows(self._spark, task.store, chosen, by_values=by_values)
                ordered = rows.repartition(1).sortWithinPartitions("place")
                told: Any = ordered.mapInArrow(push, "outcome binary").collect()
            outcome: Outcome = pickle.loads(bytes(told[0]["outcome"]))  # noqa: S301 - what our own task wrote a line above
        except Exception as error:
            raise _given_up(error, task) from error
        return outcome

    def stop(self) -> None:
        """End everything that runs."""
        self._spark.sparkContext.cancelAllJobs()

    def _describe(self, task: Task) -> None:
        self._spark.sparkContext.setJobGroup(task.flow, f"replay {task.replay} of {task.flow}", interruptOnCancel=True)


def _given_up(error: Exception, task: Task) -> Exception:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, (Py4JError, PySparkException)):
        return error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next(
        (line for line in lines if "most recent failure" in line or "Exception: " in line), lines[0] if lines else ""
    )
    return ReplayError(
        f"Spark gave the task up: {why[:_LONGEST]}",
        flow=task.flow,
        hint="the executors' logs say more; out of memory: fewer tasks at a time (--master 'local[1]') or more memory per worker",
    )
