"""Decides for each flow of a plan between every change and the last of each key, and makes the necessary counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_replay.frames import schemas_of
from spark_replay.replay.estimate import Estimate, estimate, is_small
from spark_replay.replay.flow_plans import Filters, FlowPlan
from spark_replay.replay.jobs import Jobs
from spark_replay.replay.mode import choose
from spark_replay.replay.request import ReplayRequest, ReplaySettings
from wormhole.model.errors import ReplayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["count_snapshot", "decide", "needs_no_spark"]


def count_snapshot(jobs: Jobs, plans: Sequence[FlowPlan]) -> None:
    """Fill in the number of snapshot rows that come first."""
    if any(plan.first is not None for plan in plans):
        rows = jobs.snapshot_rows()
        for plan in plans:
            plan.snapshot_rows = rows.get(plan.shard, 0) if plan.first is not None else 0


def needs_no_spark(plans: Sequence[FlowPlan]) -> bool:
    """Whether one process counts the updates and keys of the plans in less time than Spark needs to start."""
    return is_small([plan.chosen for plan in plans])


def decide(
    spark: SparkSession | None,
    request: ReplayRequest,
    settings: ReplaySettings,
    filters: Filters,
    plans: Sequence[FlowPlan],
    *,
    counts: bool,
) -> dict[str, Estimate]:
    """Fill in the mode of each plan with its reason. Returns the counts by shard.

    ``counts``: count always, else only if the choice needs it. ``spark``: ``None`` counts in this process. Raises
    :class:`~wormhole.model.errors.ReplayError` if the last of each key was requested and is not possible.
    """
    chosen = [plan.chosen for plan in plans]
    schemas = schemas_of(settings.store, chosen)
    fresh = [plan for plan in plans if not plan.begun]
    estimates = estimate(spark, settings.store, chosen) if counts or (request.mode == "auto" and fresh) else {}
    application = [] if filters.application.matches_all else [filters.application]
    for plan in plans:
        if plan.lacks and request.mode == "latest":
            raise ReplayError(
                f"the last change of each key cannot stand for all of them: {plan.shard}: {plan.lacks}",
                hint="take --mode auto, which replays every change where it must, or --mode log",
            )
        wanted = plan.mode if plan.begun else "log" if plan.lacks else request.mode
        try:
            choice = choose(
                wanted,  # type: ignore[arg-type]  # one of the three
                [plan.chosen],
                filters=application,
                where=filters.where,
                schemas=schemas,
                estimates=estimates,
            )[plan.shard]
        except ReplayError as error:
            if not plan.begun:
                raise
            hint = (
                f"it goes on as it was begun or not at all: `wormholectl replay --cancel {request.id}`, "
                "then replay anew"
            )
            raise ReplayError(error.message, flow=plan.flow, hint=hint) from error
        plan.mode, plan.by_values = choice.mode, choice.by_values
        plan.reason = (
            "as it was begun" if plan.begun else f"every change: {plan.lacks}" if plan.lacks else choice.reason
        )
    return estimates
