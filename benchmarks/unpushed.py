"""Runs a replay's Spark tasks without the push: the same jobs read and fold the same files, make the same bodies, and
drop them.

A Spark worker that unpickles an :class:`Unpushed` imports this module, which replaces the push in that worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_replay.replay import task as tasks
from spark_replay.replay.pieces import Selector
from spark_replay.replay.task import Ended, Task, TaskOutcome
from wormhole.host.clock import Clock
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["Unpushed"]


@dataclass(frozen=True, slots=True)
class Unpushed(Task):
    """A task whose flow no publisher has: no publisher is asked, and no subscriber dialled."""


def _run(task: Task, source: tasks._Sources, clock: Clock) -> TaskOutcome:
    opened = admin_pb2.OpenedReplay(epoch=1, marker=marker_to_message(task.begin))
    found = source(opened, Selector("", task.where, task.formats.open()))
    updates = size = 0
    for piece in found.pieces(task.begin):
        if piece.body is not None:
            updates += piece.body.updates
            size += piece.body.size
        if piece.offer is not None:
            found.stored(piece.offer)
    return TaskOutcome(Ended.DONE, 1, task.until, updates, size)


tasks._run = _run
