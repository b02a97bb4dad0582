"""What a part of the publisher reports of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from wormhole.metrics import Histogram, Metric
from wormhole.model.problem import Problem
from wormhole.wire.v1 import admin_pb2

__all__ = ["Described", "Measured", "Row", "warn"]

Row = (
    tuple[Metric, float | None]
    | tuple[Metric, float | None, str]
    | tuple[Metric, float | None, str, str]
    | tuple[Metric, float | None, str, str, str]
    | tuple[Histogram]
    | tuple[Histogram, str]
)
"""A metric, its value (``None``: not known now), and the values of its labels behind those of the log."""


class Described(Protocol):
    """A part of which operators see the state. Called on the event loop."""

    def describe(self, message: admin_pb2.PublisherStatus) -> None:
        """Add what the part is like now."""


class Measured(Protocol):
    """A part that has metrics. Called on the event loop."""

    def samples(self) -> Iterator[Row]:
        """What they are now."""


def warn(message: admin_pb2.PublisherStatus, problem: Problem) -> None:
    """Add a problem."""
    message.problems.append(str(problem))
    message.warnings.add(text=problem.text, hint=problem.hint, code=problem.code)
