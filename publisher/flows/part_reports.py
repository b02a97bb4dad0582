"""The interfaces through which each part of the publisher adds its state to status messages and metrics."""

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
"""A metric, its value (``None``: not known now), and its label values after the labels of the log."""


class Described(Protocol):
    """A part whose state operators see. Called on the event loop."""

    def describe(self, message: admin_pb2.PublisherStatus) -> None:
        """Add the part's present state."""


class Measured(Protocol):
    """A part that has metrics. Called on the event loop."""

    def samples(self) -> Iterator[Row]:
        """The present values."""


def warn(message: admin_pb2.PublisherStatus, problem: Problem) -> None:
    """Add a problem."""
    message.problems.append(str(problem))
    message.warnings.add(text=problem.text, hint=problem.hint, code=problem.code)
