"""Makes the operators' changes of flows. Each change is planned and shown before it is made.

A change is durable when it is answered. A change is atomic, because the stored state of a flow is one record of the
marker store. After a crash, the assignments to subscribers follow from that record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import nullcontext

import grpc

from publisher.flows.applications import Applications
from publisher.flows.refused_error import RefusedError
from publisher.flows.replays import Replays
from publisher.operate.flow_reports import FlowReports
from publisher.operate.forget_changes import ForgetChanges
from publisher.operate.operators import Operators, flow_key, person
from publisher.operate.planned_change import Changes, PlannedChange
from publisher.push.flow import PublisherFlow
from wormhole.wire.v1 import admin_pb2

__all__ = ["Control"]

_log = logging.getLogger(__name__)


class Control:
    """Makes changes, one at a time. ``forgetting``: the changes that forget a flow; ``changes``: all other kinds."""

    def __init__(
        self,
        operators: Operators,
        reports: FlowReports,
        applications: Applications,
        replays: Replays,
        forgetting: ForgetChanges,
        changes: Sequence[Changes],
    ) -> None:
        self._operators = operators
        self._reports = reports
        self._applications = applications
        self._replays = replays
        self._forgetting = forgetting
        self._changes = {verb: one for one in (forgetting, *changes) for verb in one.verbs}
        self._changing = asyncio.Lock()

    async def change(self, request: admin_pb2.ChangeRequest, certificate: str = "") -> admin_pb2.ChangeReply:
        """Make the change, or with ``request.preview`` only report its effect. ``certificate``: the name of the
        certificate that permitted it.

        Raises :class:`~publisher.flows.refused_error.RefusedError` and the errors of the store and the source. After an
        error nothing is changed.
        """
        self._operators.check_serving()
        who = person(request.who, certificate)
        # The log at a place where a flow is about to begin must not be released meanwhile. A pause needs no lock, so it
        # does not wait for an unreachable source.
        key, what = flow_key(request.flow), request.WhichOneof("what")
        located = what in ("set_marker", "forget")
        ends_replay = located or what == "accept_loss"
        async with (
            self._changing,
            self._applications.registering if located else nullcontext(),
            self._replays.lock(key) if ends_replay else nullcontext(),
        ):
            flow = self._reports.flows.get(key)
            if flow is None:
                planned, before = await self._forgetting.unserved(request, key)
            else:
                planned, before = await self._planned(request, flow, who)
            reply = admin_pb2.ChangeReply(before=before, after=planned.after, notes=planned.notes)
            if request.preview:
                return reply
            try:
                await planned.do()
            except KeyError:
                raise self._operators.no_flow(key) from None
            if flow is not None:
                reply.after.CopyFrom(self._reports.status(flow))
        old, new = planned.old, planned.new
        _log.warning("%s: %s by %s: %s -> %s", request.flow, planned.what, who, old or "-", new or "-")
        reply.notes.extend(await self._operators.record(who, planned.what, request.flow, old, new))
        return reply

    async def _planned(
        self, request: admin_pb2.ChangeRequest, flow: PublisherFlow, who: str
    ) -> tuple[PlannedChange, admin_pb2.FlowStatus]:
        before = self._reports.status(flow)
        changes = self._changes.get(request.WhichOneof("what") or "")
        if changes is None:
            raise RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "the request names no change that this release knows",
                code="release-too-old",
            )
        return await changes.plan(request, flow, who), before
