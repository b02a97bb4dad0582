"""Forgets a flow at an operator's request. A served flow begins anew. An unserved flow loses its record."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc

from publisher.flows.applications import Applications
from publisher.flows.assigner import Assigner
from publisher.flows.backfill_rules import begun_anew
from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.flow_states import FlowStates
from publisher.flows.records import FlowRecords
from publisher.flows.refused_error import RefusedError
from publisher.operate.operators import Operators, not_now
from publisher.operate.place_changes import PlaceChanges, check_not_replayed
from publisher.operate.planned_change import PlannedChange
from publisher.push.flow import PublisherFlow
from wormhole.model.position import flow_name
from wormhole.ports.marker_store import FlowKey
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["ForgetChanges"]


class ForgetChanges:
    """Implements :class:`~publisher.operate.planned_change.Changes`."""

    verbs: Final = ("forget",)

    def __init__(
        self,
        places: PlaceChanges,
        records: FlowRecords,
        assigner: Assigner,
        dead_letters: DeadLetterOffice,
        applications: Applications,
        states: FlowStates,
        operators: Operators,
    ) -> None:
        self._places = places
        self._records = records
        self._assigner = assigner
        self._dead_letters = dead_letters
        self._applications = applications
        self._states = states
        self._operators = operators

    async def plan(self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str) -> PlannedChange:
        """See :class:`~publisher.operate.planned_change.Changes`."""
        return await self._begin_anew(flow)

    async def _begin_anew(self, flow: PublisherFlow) -> PlannedChange:
        """Plan to forget a served flow. It then begins at the application's ``start``, like a new flow."""
        check_not_replayed(flow)
        live = self._assigner.live_subscribers(flow.application)
        if live:
            raise not_now(flow, f"subscribers of {flow.application} are there: {', '.join(live)}", "stop them first")
        start, begin = await self._applications.beginning(flow.application)
        change = self._places.move("forget", flow, begin)
        change.after.paused, change.after.halted_at = "", ""
        del change.after.skip[:]
        move, now = change.do, self._operators.now()

        async def forget() -> None:
            # The record stays, so that epochs never become lower, and its content begins anew. The marker is set last.
            # After a failure before that, the operator sees the former marker and repeats the request.
            await self._dead_letters.forget(flow)
            await self._records.control(flow, lambda control: begun_anew(control, start, flow.filter.hash, now))
            self._assigner.go_on(flow)
            await move()

        change.do = forget
        return change

    async def unserved(
        self, request: admin_pb2.ChangeRequest, key: FlowKey
    ) -> tuple[PlannedChange, admin_pb2.FlowStatus]:
        """Plan to forget an unserved flow, whose application or shard no longer exists. No other change of such a flow
        is possible."""
        store = self._records.store
        records = await asyncio.to_thread(store.load)
        record = records.get(key)
        start = self._applications.start_key(key[0])
        if record is None or key == start:
            raise self._operators.no_flow(
                key, [flow_name(*name) for name in records if not name[1].endswith(".%start")]
            )
        if request.WhichOneof("what") != "forget":
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{request.flow} is not served: its application is not configured here, or the log does not "
                "have its shard",
                hint=f"configure the application, or `wormholectl markers forget {request.flow}`",
                code="flow-unknown",
            )
        if key[0] not in self._applications:
            there = await self._operators.subscribers(key[0])
            if there:  # a new record's epochs would be lower than the epochs that these subscribers hold
                raise RefusedError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"{request.flow}: subscribers of {key[0]} are there: {', '.join(there)}",
                    hint="stop them first",
                )
        before = admin_pb2.FlowStatus(flow=request.flow, state="unserved", epoch=record.epoch)
        before.marker.CopyFrom(marker_to_message(record.marker))
        last = not any(name[0] == key[0] and name not in (key, start) for name in records)

        async def forget() -> None:
            await asyncio.to_thread(store.dead_letters().forget, key)
            await asyncio.to_thread(store.forget, key)
            await self._states.forget(key)
            if last:
                await asyncio.to_thread(store.forget, start)
            self._applications.forgotten()

        gone = admin_pb2.FlowStatus(flow=request.flow, state="forgotten")
        return PlannedChange("forget", gone, forget, str(record.marker), "forgotten"), before
