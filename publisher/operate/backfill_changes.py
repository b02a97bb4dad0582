"""The operators' changes of backfills: start, pause, resume and cancel."""

from __future__ import annotations

from typing import Final

import grpc

from publisher.flows.assigner import Assigner
from publisher.flows.backfill_rules import does_not_verify
from publisher.flows.backfills import BackfillPlan, Backfills
from publisher.flows.refused_error import RefusedError
from publisher.operate.flow_reports import FlowReports
from publisher.operate.operators import not_now, paused_by
from publisher.operate.planned_change import PlannedChange
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from wormhole.host.clock import Clock
from wormhole.model.verification import VerifyMode
from wormhole.wire.v1 import admin_pb2
from wormhole.wire.verification import mode_of

__all__ = ["BackfillChanges"]


class BackfillChanges:
    """Implements :class:`~publisher.operate.planned_change.Changes`."""

    verbs: Final = ("backfill_start", "backfill_pause", "backfill_resume", "backfill_cancel")

    def __init__(self, backfills: Backfills, assigner: Assigner, reports: FlowReports, clock: Clock) -> None:
        self._backfills = backfills
        self._assigner = assigner
        self._reports = reports
        self._clock = clock

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """See :class:`~publisher.operate.planned_change.Changes`."""
        match request.WhichOneof("what"):
            case "backfill_start":
                return await self._start(flow, request.backfill_start, who)
            case "backfill_pause":
                return self._pause(flow, who)
            case "backfill_resume":
                return self._resume(flow)
            case _:
                return self._cancel(flow)

    async def _start(self, flow: PublisherFlow, wanted: admin_pb2.BackfillStart, who: str) -> PlannedChange:
        rate = wanted.rate if wanted.HasField("rate") else None
        verify = mode_of(wanted.verify)
        if verify is None:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"verify {wanted.verify} is a mode that this release does not know",
                hint="update the publisher, or use the wormholectl of its release",
                code="release-too-old",
            )
        stream = self._assigner.stream_of(flow)
        present = stream is not None and stream.connected
        if verify is not VerifyMode.NONE and stream is not None and present and not stream.verifies:
            lacks = does_not_verify(stream.info.id)
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION, lacks.text, flow=flow.name, hint=lacks.hint, code=lacks.code
            )
        found = await self._plan_repair(flow, stream, rate, who) if wanted.lost else None
        if isinstance(found, BackfillPlan):
            plan, verify = found, VerifyMode.NONE
        else:
            plan = await self._backfills.plan(flow, wanted.tables, wanted.where, rate, who, verify)
        after = self._status(flow)
        after.backfill.CopyFrom(self._reports.backfills.planned(plan.wanted, plan.tables, plan.keys))

        async def start() -> None:
            await self._backfills.start(flow, plan)

        change = PlannedChange(
            "backfill-start", after, start, self._state(flow), f"generation {plan.wanted.generation}"
        )
        if plan.resumes:
            change.notes.append(f"it was paused by {self._backfills.unfinished(flow).paused}, and goes on where it was")
        refused = [table.name for table in plan.tables if table.refused]
        if refused:
            change.notes.append(f"not sent, as these cannot be read: {', '.join(refused[:10])}")
        if verify is VerifyMode.REPAIR:
            change.notes.append("rows that differ or are missing are delivered, and keys that are gone are reported")
        if isinstance(found, str):
            change.notes.append(f"whole tables are read: {found}")
        change.notes += plan.notes
        if wanted.where:
            change.notes.append("with a filter of its own it deletes nothing: rows that it leaves out may exist")
        if stream is None or not present:
            change.notes.append("no subscriber has the flow: it begins when one comes")
        return change

    async def _plan_repair(
        self, flow: PublisherFlow, stream: SubscriberStream | None, rate: float | None, who: str
    ) -> BackfillPlan | str:
        """The plan of a backfill of only the lost rows, or the reason why such a backfill is not possible."""
        if stream is not None and stream.connected and not stream.takes_ranges:
            return f"{flow.application} has no on_range, by which it learns that a row is gone"
        return await self._backfills.plan_repair(flow, rate, who)

    def _pause(self, flow: PublisherFlow, who: str) -> PlannedChange:
        present = self._backfills.unfinished(flow)
        if present.paused:
            raise not_now(flow, f"its backfill is paused already, by {present.paused}")
        paused = paused_by(who, self._clock.wall())
        after = self._status(flow)
        message = after.backfill
        message.state, message.paused = "paused", paused
        message.ClearField("waits")

        async def pause() -> None:
            await self._backfills.pause(flow, paused)

        return PlannedChange(
            "backfill-pause", after, pause, self._state(flow), "paused", ["changes are delivered meanwhile"]
        )

    def _resume(self, flow: PublisherFlow) -> PlannedChange:
        present = self._backfills.unfinished(flow)
        if not present.paused:
            raise not_now(flow, "its backfill is not paused", "`wormholectl backfill show` shows why it waits")
        after = self._status(flow)
        message = after.backfill
        message.state, message.paused = "waiting", ""

        async def resume() -> None:
            await self._backfills.resume(flow)

        return PlannedChange("backfill-resume", after, resume, f"paused by {present.paused}", "goes on")

    def _cancel(self, flow: PublisherFlow) -> PlannedChange:
        present = self._backfills.unfinished(flow)
        after = self._status(flow)
        message = after.backfill
        message.state, message.paused = "cancelled", ""
        message.ClearField("waits")

        async def cancel() -> None:
            await self._backfills.cancel(flow)

        notes = ["rows that were sent stay at the application; the next backfill sends all again"]
        if present.verify is not VerifyMode.NONE:
            notes = ["what was repaired stays repaired; the next verification compares all again"]
        new = f"cancelled in generation {present.generation}"
        return PlannedChange("backfill-cancel", after, cancel, self._state(flow), new, notes)

    def _status(self, flow: PublisherFlow) -> admin_pb2.FlowStatus:
        return self._reports.status(flow)

    def _state(self, flow: PublisherFlow) -> str:
        status = self._status(flow).backfill
        return f"{status.state} in generation {status.generation}" if status.generation else "none"
