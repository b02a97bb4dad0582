"""Reports on one flow for operators. The report is collected from the parts that serve the flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from publisher.flows.assigner import Assigner
from publisher.flows.flow_states import FlowStates
from publisher.flows.replays import Replays
from publisher.flows.tailed_log import TailedLog
from publisher.operate.backfill_status import BackfillReports
from publisher.push.flow import PublisherFlow
from publisher.push.stages import PublisherFlowState
from wormhole.host.clock import Clock
from wormhole.metrics import Metric
from wormhole.metrics import catalogue as c
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.marker_store import FlowKey
from wormhole.wire.markers import marker_to_message, position_to_message
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2
from wormhole.wire.verification_status import remaining

__all__ = ["FlowReports"]


class FlowReports:
    """``backfills``: reports on the flows' backfills."""

    def __init__(
        self,
        log: TailedLog,
        assigner: Assigner,
        states: FlowStates,
        replays: Replays,
        backfills: BackfillReports,
        clock: Clock,
    ) -> None:
        self.backfills = backfills
        self._tailed = log
        self._assigner = assigner
        self._states = states
        self._replays = replays
        self._clock = clock

    @property
    def flows(self) -> Mapping[FlowKey, PublisherFlow]:
        """Every flow."""
        return self._assigner.flows

    def lead_flows(self) -> frozenset[str]:
        """Names of the flows that travel with the lead caravan."""
        return self._states.lead_flows()

    def state(self, flow: PublisherFlow, lead_flows: frozenset[str] | None = None) -> PublisherFlowState:
        """The state of the flow. ``lead_flows``: the result of :meth:`lead_flows`, for reports on many flows."""
        return self._states.state(flow, self.lead_flows() if lead_flows is None else lead_flows)

    def cause(self, flow: PublisherFlow) -> Problem:
        """Why the flow is in its :meth:`state`; empty if there is no particular cause."""
        caravan_flow = flow.delivery.caravan_flow
        return (
            self._states.why_silent(flow)
            or self._replays.cause(flow)
            or flow.problem
            or (NO_PROBLEM if caravan_flow is None else caravan_flow.problem)
            or self.backfills.problem(flow)
        )

    def status(self, flow: PublisherFlow, lead_flows: frozenset[str] | None = None) -> admin_pb2.FlowStatus:
        """The flow as a message."""
        holding, delivery, replay = flow.holding, flow.delivery, flow.control.replay
        stream, caravan_flow = self._assigner.stream_of(flow), delivery.caravan_flow
        credit, in_flight = self._credit(flow)
        caravan = None if caravan_flow is None else self._tailed.fleet.caravan_of(caravan_flow)
        lag, headroom, problem = self._tailed.lag(flow), self._tailed.headroom(flow), self.cause(flow)
        now = self._clock.monotonic()
        return admin_pb2.FlowStatus(
            flow=flow.name,
            state=self.state(flow, lead_flows).value,
            subscriber=holding.subscriber or ("" if replay is None else replay.subscriber),
            epoch=holding.epoch,
            place=position_to_message(delivery.place),
            marker=marker_to_message(delivery.marker),
            credit=max(credit - in_flight, 0),  # a body larger than the whole credit is sent alone
            in_flight=in_flight,
            updates=delivery.updates,
            bytes=delivery.sent_bytes,
            bad_values=delivery.bad_values,
            lag_s=lag.seconds,
            lag_bytes=lag.bytes,
            lag_transactions=lag.transactions,
            headroom_s=headroom.seconds,
            headroom_unknown=headroom.unknown,
            caravan=0 if caravan is None else caravan.number,
            filter=flow.filter.text,
            cause=str(problem),
            problem=problem_to_message(problem),
            paused=flow.control.paused,
            skip=flow.control.skip,
            dead_letters=flow.parking.count,
            halted_at=holding.halted_at,
            loss_pending=flow.loss.open is not None or bool(flow.lost_record),
            handler=holding.handler,
            credit_waited_s=holding.credit_waited_s(now),
            progress_s=holding.stalled_s(now, in_flight),
            replay=self._replays.described(flow),
            backfill=self.backfills.status(flow),
            verifies=stream is not None and stream.connected and stream.verifies,
            reads_relay=caravan is not None and self._tailed.watch.reads_relay(caravan.buffer.place),
            repair=flow.loss.repair,
        )

    def samples(self, flow: PublisherFlow, state: PublisherFlowState) -> Iterator[tuple[Metric, float | None]]:
        """The flow's metrics. ``state``: its state."""
        holding, delivery = flow.holding, flow.delivery
        lag, now = self._tailed.lag(flow), self._clock.monotonic()
        credit, in_flight = self._credit(flow)
        # 0 if no update follows. An unknown age means that the log there was not read, or was not measured yet.
        yield c.FLOW_LAG, lag.seconds if lag.seconds or lag.bytes == 0 else None
        yield c.FLOW_LAG_BYTES, lag.bytes
        yield c.FLOW_HEADROOM, self._tailed.headroom(flow).seconds
        yield c.FLOW_HELD, state is PublisherFlowState.HELD
        yield c.FLOW_PAUSED, bool(flow.control.paused)
        yield c.FLOW_NEEDS_REPLAY, state is PublisherFlowState.NEEDS_REPLAY
        yield c.FLOW_REPLAYED, delivery.replayed
        backfill = self.backfills.status(flow)
        if backfill is not None:
            yield c.FLOW_BACKFILL_ROWS, backfill.rows
            yield c.FLOW_BACKFILL_SHARE, backfill.share if backfill.HasField("share") else None
            yield c.FLOW_BACKFILL_REFUSED, sum(table.state == "refused" for table in backfill.progress)
            if backfill.verified:
                yield c.FLOW_VERIFY_COMPARED, sum(table.compared for table in backfill.verified)
                yield c.FLOW_VERIFY_DIFFERENCES, sum(map(remaining, backfill.verified))
        yield c.FLOW_UPDATES, delivery.updates
        yield c.FLOW_BYTES, delivery.sent_bytes
        yield c.FLOW_BAD_VALUES, delivery.bad_values
        yield c.FLOW_LOSSES, flow.loss.count
        yield c.FLOW_DEAD_LETTERS, flow.parking.count
        yield c.FLOW_CREDIT, credit
        yield c.FLOW_IN_FLIGHT, in_flight
        yield c.FLOW_CREDIT_WAIT, holding.credit_waited_s(now)
        yield c.FLOW_STALLED, holding.stalled_s(now, in_flight)
        report = holding.handler
        if report is not None:
            yield c.FLOW_HANDLED, report.updates
            yield c.FLOW_HANDLER_TIME, report.busy_s
            yield c.FLOW_HANDLER_FAILURES, report.failures
            yield c.FLOW_QUEUED, report.queued_bytes

    def _credit(self, flow: PublisherFlow) -> tuple[int, int]:
        stream = self._assigner.stream_of(flow)
        return (0, 0) if stream is None else stream.credit(flow)
