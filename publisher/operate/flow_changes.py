"""The operators' changes of a flow's delivery: pause it, resume it, or skip an update."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from publisher.flows.assigner import Assigner
from publisher.flows.records import FlowRecords
from publisher.flows.replays import Replays
from publisher.flows.tailed_log import TailedLog
from publisher.flows.update_ids import check_update_id, is_behind
from publisher.operate.flow_reports import FlowReports
from publisher.operate.operators import needs_replay, not_now, paused_by
from publisher.operate.planned_change import PlannedChange
from publisher.push.flow import PublisherFlow
from wormhole.host.clock import Clock
from wormhole.ports.marker_store import MOST_SKIPPED
from wormhole.wire.v1 import admin_pb2

__all__ = ["FlowChanges"]


class FlowChanges:
    """Implements :class:`~publisher.operate.planned_change.Changes`. ``kind``: the kind of the source."""

    verbs: Final = ("pause", "resume", "skip")

    def __init__(
        self,
        kind: str,
        records: FlowRecords,
        assigner: Assigner,
        replays: Replays,
        log: TailedLog,
        reports: FlowReports,
        clock: Clock,
    ) -> None:
        self._kind = kind
        self._records = records
        self._assigner = assigner
        self._replays = replays
        self._tailed = log
        self._reports = reports
        self._clock = clock

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """See :class:`~publisher.operate.planned_change.Changes`."""
        match request.WhichOneof("what"):
            case "pause":
                return self._pause(flow, who)
            case "resume":
                return self._resume(flow)
            case _:
                return self._skip(flow, request.skip.update_id)

    def _pause(self, flow: PublisherFlow, who: str) -> PlannedChange:
        if flow.control.paused:
            raise not_now(flow, f"it is paused already, by {flow.control.paused}")
        paused = paused_by(who, self._clock.wall())
        after = self._reports.status(flow)
        after.paused, after.state, after.cause = paused, "paused", f"paused by {paused}"
        after.subscriber = ""

        async def pause() -> None:
            await self._records.control(flow, lambda control: replace(control, paused=paused))
            self._assigner.anew(flow, f"paused by {paused}")
            self._replays.fence(flow)

        change = PlannedChange("pause", after, pause, self._reports.state(flow).value, "paused")
        headroom = self._tailed.watch.headroom(flow.delivery.marker).seconds
        if headroom is not None:
            change.notes.append(f"the log holds its datamarker for about {headroom / 3600:.1f} h more as it grows now")
        if flow.control.replay is not None:
            change.notes.append(f"replay {flow.control.replay.id} waits until it is resumed")
        if flow in (stream.flows if (stream := self._assigner.stream_of(flow)) is not None else ()):
            change.notes.append(f"{flow.holding.subscriber} finishes what it has begun first")
        return change

    def _resume(self, flow: PublisherFlow) -> PlannedChange:
        paused = flow.control.paused
        if not paused and not flow.halted and not flow.held_at_start:
            lacks_log = flow.loss.open is not None or flow.lost_record or needs_replay(flow)
            hint = "`accept-loss` is for a flow that is held at missing log" if lacks_log else None
            raise not_now(flow, "it is neither paused nor halted", hint)
        after = self._reports.status(flow)
        after.paused, after.halted_at, after.state, after.cause = "", "", "unassigned", "goes on soon"

        async def resume() -> None:
            await self._records.control(flow, lambda control: replace(control, paused=""))
            self._assigner.go_on(self._assigner.present(flow))

        change = PlannedChange("resume", after, resume, "paused" if paused else flow.cause, "goes on")
        if flow.holding.halted_at:
            change.notes.append(
                f"update {flow.holding.halted_at} is delivered again; if its handler fails again, the flow halts again"
            )
        if not self._assigner.live_subscribers(flow.application):
            change.notes.append("no subscriber is there: it goes on when one comes")
        return change

    def _skip(self, flow: PublisherFlow, update_id: str) -> PlannedChange:
        check_update_id(update_id)
        skipped = flow.control.skip
        if update_id in skipped:
            raise not_now(flow, f"update {update_id} is skipped already")
        if len(skipped) >= MOST_SKIPPED:
            raise not_now(
                flow,
                f"it skips {MOST_SKIPPED} updates already, which is the most",
                "wait until it has passed them, or set its datamarker behind them",
            )
        if is_behind(self._kind, update_id, flow.delivery.marker):
            raise not_now(flow, f"its datamarker {flow.delivery.marker} is behind update {update_id} already")
        here = flow.halted and flow.holding.halted_at == update_id
        after = self._reports.status(flow)
        after.skip.append(update_id)

        async def skip() -> None:
            await self._records.control(flow, lambda control: replace(control, skip=(*control.skip, update_id)))
            if here:
                self._assigner.go_on(self._assigner.present(flow))
            self._assigner.anew(flow, f"skips {update_id} from now on")
            self._replays.fence(flow)

        change = PlannedChange("skip", after, skip, "", update_id, [f"{flow.application} never processes {update_id}"])
        if here:
            after.halted_at, after.state, after.cause = "", "unassigned", "goes on soon"
            change.notes.append("the flow is halted at this update and goes on behind it")
        elif flow.halted:
            at = f"at {flow.holding.halted_at or 'another update'}"
            change.notes.append(f"the flow is halted {at}, not at this update: it still has to be resumed")
        return change
