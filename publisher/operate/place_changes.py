"""The operators' changes of a flow's place in the log: set its datamarker, or continue after lost log."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import grpc

from publisher.flows.assigner import Assigner
from publisher.flows.losses import Losses
from publisher.flows.marker_target import by_text, by_time, distance, located
from publisher.flows.records import FlowRecords
from publisher.flows.refused_error import RefusedError
from publisher.flows.tailed_log import TailedLog
from publisher.operate.flow_reports import FlowReports
from publisher.operate.operators import needs_replay, not_now
from publisher.operate.planned_change import PlannedChange
from publisher.push.flow import PublisherFlow
from publisher.push.stages import Stage
from wormhole.host.clock import Clock
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import Datamarker
from wormhole.model.problem import NO_PROBLEM
from wormhole.wire.markers import marker_to_message, position_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["PlaceChanges", "check_not_replayed"]


class PlaceChanges:
    """Implements :class:`~publisher.operate.planned_change.Changes`."""

    verbs: Final = ("set_marker", "accept_loss")

    def __init__(
        self,
        records: FlowRecords,
        assigner: Assigner,
        losses: Losses,
        log: TailedLog,
        reports: FlowReports,
        clock: Clock,
    ) -> None:
        self._records = records
        self._assigner = assigner
        self._losses = losses
        self._tailed = log
        self._reports = reports
        self._clock = clock

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """See :class:`~publisher.operate.planned_change.Changes`."""
        if request.WhichOneof("what") == "set_marker":
            return await self._set_marker(flow, request.set_marker)
        return self._accept_loss(flow)

    async def _set_marker(self, flow: PublisherFlow, wanted: admin_pb2.SetMarker) -> PlannedChange:
        check_not_replayed(flow)
        source = self._tailed.source
        match wanted.WhichOneof("to"):
            case "place":
                to = await located(source, by_text(source, wanted.place))
            case "at_s":
                to = await located(source, by_time(source, wanted.at_s, self._clock.wall()))
            case _:
                raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the request does not say where to set the marker")
        return self.move("set-marker", flow, to)

    def move(self, what: str, flow: PublisherFlow, to: Datamarker) -> PlannedChange:
        """The change ``what``, which sets the flow's datamarker to ``to``."""
        notes = distance(self._tailed.watch, flow.shard, flow.delivery.marker, to, self._clock.wall())
        notes.append(
            "an application that keeps its place with its own data begins there, unless it stores the move's number"
        )
        if flow.control.paused:
            notes.append("the flow stays paused")
        if flow.halted:
            notes.append("it is halted: it still has to be resumed")

        async def move() -> None:
            await self._records.move(flow, to)
            await self._no_replay(flow)  # after the marker is set: until then the flow shows its problem
            await self._placed(flow)

        return PlannedChange(what, self._moved(flow, to), move, str(flow.delivery.marker), str(to), notes)

    def _moved(self, flow: PublisherFlow, to: Datamarker) -> admin_pb2.FlowStatus:
        after = self._reports.status(flow)
        after.marker.CopyFrom(marker_to_message(to))
        after.place.CopyFrom(position_to_message(to.order))
        after.epoch += 1
        after.loss_pending = False
        lag = self._tailed.watch.lag(flow.shard, to, self._clock.wall())
        after.lag_s = lag.seconds
        after.ClearField("lag_bytes")
        after.ClearField("lag_transactions")
        if lag.bytes is not None:
            after.lag_bytes = lag.bytes
        if lag.transactions is not None:
            after.lag_transactions = lag.transactions
        return after

    def _accept_loss(self, flow: PublisherFlow) -> PlannedChange:
        if needs_replay(flow):
            after = self._reports.status(flow)
            after.state, after.cause = "unassigned", "goes on soon"
            after.ClearField("replay")
            notes = [f"{flow.application} gets the missing range, and decides as at any loss of log", _repairs(flow)]
            return PlannedChange("accept-loss", after, lambda: self._no_replay(flow), "needs_replay", "goes on", notes)
        if flow.lost_record:
            after = self._reports.status(flow)
            after.state, after.cause, after.loss_pending = "unassigned", "goes on soon", False
            begin = str(flow.delivery.marker)
            notes = [f"delivery begins at {begin}: what lies before and was not delivered never is", _repairs(flow)]
            return PlannedChange("accept-loss", after, lambda: self._placed(flow), str(flow.lost_record), begin, notes)
        if flow.loss.open is None:
            raise not_now(flow, "no loss of log is waiting for a decision")
        if flow.releasing:
            raise not_now(
                flow, f"{flow.holding.subscriber} gives it back just now, and would not go on", "try again in a moment"
            )
        if flow.stage is not Stage.DECLINED:
            raise not_now(
                flow, "its application is being asked about the loss just now", "wait for its answer, then look again"
            )
        gap, resume = flow.loss.open
        after = self._moved(flow, resume)
        after.epoch -= 1
        after.state, after.cause = "catching_up", ""
        what = "in no log any more" if gap.kind is LossKind.DIVERGED else "never delivered"

        async def accept() -> None:
            self._losses.decided(flow, True)

        notes = [f"{what}: {gap.message}{_missing(gap)}", _repairs(flow)]
        return PlannedChange("accept-loss", after, accept, gap.message, str(resume), notes)

    async def _no_replay(self, flow: PublisherFlow) -> None:
        """Store that the flow no longer needs a replay."""
        if flow.control.replay is not None:
            await self._records.control(flow, lambda control: replace(control, replay=None))
            self._assigner.go_on(self._assigner.present(flow))

    async def _placed(self, flow: PublisherFlow) -> None:
        """Let the flow continue, because its place is known now."""
        if flow.lost_record:
            await self._records.restore(flow, flow.delivery.marker)
        if flow.control.missing:
            await self._records.control(flow, lambda control: replace(control, missing=NO_PROBLEM))
            self._assigner.go_on(self._assigner.present(flow))


def _missing(gap: LogGap) -> str:
    """The missing range, in brackets after the message; empty if the message names it."""
    first, last = gap.first_missing, gap.last_missing
    text = first if first and first == last else f"{first or '?'} to {last or '?'}"
    return "" if text in gap.message else f" ({text})"


def _repairs(flow: PublisherFlow) -> str:
    return f"`wormholectl repair {flow.name}` sends the rows that it lacks then"


def check_not_replayed(flow: PublisherFlow) -> None:
    """Raises :class:`~publisher.flows.refused_error.RefusedError` while a replay has the flow."""
    replay = flow.control.replay
    if replay is not None and not needs_replay(flow):
        raise not_now(
            flow,
            f"replay {replay.id} by {replay.who} has it",
            f"wait until it is through, or `wormholectl replay --cancel {replay.id}`",
        )
