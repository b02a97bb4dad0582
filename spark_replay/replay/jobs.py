"""The tasks of a replay on Spark: one job per flow, so that a failure of one flow does not end the others."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from spark_replay.frames import ShardFiles, reading, schemas_of
from spark_replay.replay.keyed import LastChanges, parts
from spark_replay.replay.shuffled import Piece, in_order, shuffled
from spark_replay.replay.task import Task, TaskOutcome, push_latest, push_log
from spark_replay.spark.executors import checked, executor_fault
from spark_replay.tables.start import Start
from wormhole.host.compiled import warn_interpreted
from wormhole.model.errors import ReplayError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Jobs"]

_LONGEST: Final = 400


class Jobs:
    """The jobs of one driver. Methods block; each flow calls them in a thread of its own.

    They raise :class:`~wormhole.model.errors.ReplayError` when Spark gives a task up, and
    :class:`~wormhole.model.errors.ArchiveError` for a file that the driver, or Spark's own reader, cannot read.
    """

    def __init__(self, spark: SparkSession, start: Start | None = None) -> None:
        """``start``: a snapshot whose rows come first."""
        self._spark = spark
        self._start = start
        self._pools: dict[str, str] = {}
        self._numbers = count()

    def warm(self) -> None:
        """Start Spark's executors and Python workers, with all imports of the tasks.

        This takes seconds, and on a cluster most of a minute, so it is done before any flow is held.
        """
        slots, before = self.slots, 0
        while slots > before:  # their number rises as executors start
            with _giving_up():
                self._spark.sparkContext.parallelize(range(slots), slots).map(checked(_ready)).collect()
            slots, before = self.slots, slots

    @property
    def slots(self) -> int:
        """How many tasks can run at one time now. It changes as executors start and end."""
        return max(1, int(self._spark.sparkContext.defaultParallelism))

    @property
    def executors(self) -> int | None:
        """The present number of executors; ``None``: the driver runs the tasks, or Spark has ended."""
        from py4j.protocol import Py4JError

        with suppress(Py4JError):
            context: Any = self._spark.sparkContext._jsc
            if not context.sc().isLocal():
                return len(context.sc().statusTracker().getExecutorInfos()) - 1  # the driver is one of them
        return None

    def log(self, task: Task) -> TaskOutcome:
        """Push every change of the range."""
        self._describe(task)
        with _giving_up(task.flow):
            return self._one(task, push_log)

    def latest(self, task: Task, chosen: ShardFiles, *, by_values: bool) -> TaskOutcome:
        """Push the last change of each key of the range. A resumed task continues where it ended.

        Raises :class:`~wormhole.model.errors.ArchiveUnavailable` if a file is gone that may have been merged meanwhile.
        """
        count = parts(chosen.files)
        schemas = schemas_of(task.store, [chosen])  # read now, as a second attempt may find the files gone
        task = replace(task, schemas=schemas, by_values=by_values)
        self._describe(task)
        with _giving_up(task.flow):
            if count == 1:
                return self._one(task, partial(push_latest, batches=LastChanges(task.store, chosen, by_values)))
            with reading():
                pieces = shuffled(self._spark.sparkContext, task.store, chosen, schemas, count, by_values=by_values)
                outcome: TaskOutcome = pieces.mapPartitions(checked(partial(_push_pieces, task))).collect()[0]
            return outcome

    def snapshot(self, task: Task) -> TaskOutcome:
        """Push the shard's rows of the snapshot. A resumed task continues where it ended."""
        start = self._start
        assert start is not None
        task = replace(task, schemas=dict(start.schemas))
        return self._pass(task, lambda: start.of(task.shard))

    def snapshot_rows(self) -> dict[str, int]:
        """How many rows of the snapshot each shard has."""
        if self._start is None:
            return {}
        with _giving_up():
            return {one["shard"]: one["count"] for one in self._start.of("").groupBy("shard").count().collect()}

    def _pass(self, task: Task, rows: Callable[[], DataFrame]) -> TaskOutcome:
        def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            outcome = push_latest(task, batches)
            yield pyarrow.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

        self._describe(task)
        with _giving_up(task.flow), reading():
            ordered = rows().repartition(1).sortWithinPartitions("place")
            collected: Any = ordered.mapInArrow(checked(push), "outcome binary").collect()
            # Spark runs nothing if it knows that there are no rows. The end of the range has to be acknowledged anyway.
            if not collected:
                return self._one(task, partial(push_latest, batches=()))
        outcome: TaskOutcome = pickle.loads(bytes(collected[0]["outcome"]))  # noqa: S301 - what our own task wrote a few lines above
        return outcome

    def _one(self, task: Task, does: Callable[[Task], TaskOutcome]) -> TaskOutcome:
        alone = checked(partial(_alone, does, task))
        outcome: TaskOutcome = self._spark.sparkContext.parallelize([0], 1).map(alone).collect()[0]
        return outcome

    def stop(self) -> None:
        """End all jobs."""
        self._spark.sparkContext.cancelAllJobs()

    def withdraw(self, task: Task) -> None:
        """End the task's job, from another thread. Later jobs of its flow are not affected."""
        self._spark.sparkContext.cancelJobGroup(task.name)

    def _describe(self, task: Task) -> None:
        """Give the task's job a name and its flow's pool.

        Spark serves idle pools in the order of their names. The first flow gets the first name.
        """
        context = self._spark.sparkContext
        context.setJobGroup(task.name, f"replay {task.replay} of {task.flow}", interruptOnCancel=True)
        pool = self._pools.setdefault(task.flow, f"flow {next(self._numbers):06}")
        context.setLocalProperty("spark.scheduler.pool", pool)


def _alone(does: Callable[[Task], TaskOutcome], task: Task, slot: int) -> TaskOutcome:
    return does(task)


def _push_pieces(task: Task, pieces: Iterable[Piece]) -> Iterator[TaskOutcome]:
    yield push_latest(task, in_order(pieces))


def _ready(slot: int) -> int:
    import pandas  # noqa: F401 - pyarrow imports it with the first value that it converts, which takes half a second

    warn_interpreted("spark_replay")  # in the executor's log
    return slot  # the executor imported this module to run it, and so all that a task needs


@contextmanager
def _giving_up(flow: str | None = None) -> Iterator[None]:
    """Turn the error with which Spark ends a job into one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first = lines[0] if lines else ""
        ours = next((line.partition(": ")[2] for line in lines if line.startswith("wormhole.model.errors.")), "")
        if ours:
            raise ReplayError(f"Spark gave the task up: {ours[:_LONGEST]}", flow=flow) from error
        if fault := executor_fault(error):
            raise ReplayError(fault[0][:_LONGEST], flow=flow, hint=fault[1]) from error
        why = next((line for line in lines if "most recent failure" in line or "Exception: " in line), first)
        raise ReplayError(
            f"Spark gave the task up: {why[:_LONGEST]}",
            flow=flow,
            hint=(
                "the executors' logs say more; out of memory: fewer tasks at a time (--master 'local[1]') or more "
                "memory per worker"
            ),
        ) from error
