from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from spark_replay.replay.jobs import Jobs
from tests.support.archives import marker_at
from wormhole.errors import ReplayError


class Context:
    """A Spark that gives up."""

    defaultParallelism = 3  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.cancelled = 0

    def setJobGroup(self, *_: object, **__: object) -> None:
        pass

    def parallelize(self, *_: object) -> object:
        raise Py4JError("a stack\nJob aborted: Task 0 failed 4 times, most recent failure: worker exited\n at java")

    def cancelAllJobs(self) -> None:
        self.cancelled += 1


def test_a_task_that_spark_gave_up_is_told_in_one_line() -> None:
    context = Context()
    jobs = Jobs(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
    task = SimpleNamespace(flow="cache/a", replay="r", begin=marker_at(0))
    with pytest.raises(ReplayError, match="most recent failure: worker exited") as caught:
        jobs.log(task)  # type: ignore[arg-type]
    assert caught.value.hint
    jobs.stop()
    assert (jobs.slots, context.cancelled) == (3, 1)
