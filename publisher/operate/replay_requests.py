"""Decodes, authorizes and answers the requests of mass replays. :mod:`publisher.flows.replays` executes them."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Final

import grpc

from publisher.flows.applications import Applications, Served
from publisher.flows.refused_error import RefusedError
from publisher.flows.replay_states import LEAST_LEASE_S, LONGEST_ID, MOST_LEASE_S, check_id, hashed
from publisher.flows.replays import Gap, ReplayOpening, Replays
from publisher.operate.flow_reports import FlowReports
from publisher.operate.operators import Operators, flow_key, person
from publisher.push.flow import PublisherFlow
from wormhole.audit.sent_counts import Settled
from wormhole.filters import Projection
from wormhole.host.clock import Clock
from wormhole.model.errors import PositionPurged, ProtocolError
from wormhole.model.position import Datamarker, flow_name
from wormhole.ports.dead_letters import rows_to_messages
from wormhole.ports.marker_store import FlowKey, ReplayControl
from wormhole.push.epochs import may_be_exceeded
from wormhole.wire.markers import ack_to_message, marker_from_message, marker_to_message, position_to_message
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["ReplayRequests"]

_LEASE_S: Final = 30.0
_MOST_PROGRESS: Final = 4096  # bytes: progress is stored with every advance
_MOST_WHERE: Final = 16 << 10
_MOST_WINDOWS: Final = 20_000  # windows of commit time: as many as fit into a request with their counts
_MODES: Final = {admin_pb2.LOG: "log", admin_pb2.LATEST: "latest"}


class ReplayRequests:
    """See the module. ``identity``: the identity of this publisher, which the answer to a task contains."""

    def __init__(
        self,
        served: Served,
        identity: str,
        replays: Replays,
        applications: Applications,
        reports: FlowReports,
        operators: Operators,
        clock: Clock,
    ) -> None:
        self._served = served
        self._identity = identity
        self._replays = replays
        self._applications = applications
        self._reports = reports
        self._operators = operators
        self._clock = clock

    async def replay(self, request: admin_pb2.ReplayRequest, permit: Callable[[], str]) -> admin_pb2.ReplayReply:
        """Carry out one request. ``permit`` returns the name of an administrator's certificate, or raises.

        Raises :class:`~publisher.flows.refused_error.RefusedError` and the errors of the store and the source.
        """
        what = request.WhichOneof("what")
        certificate = permit() if what == "begin" or (what == "cancel" and not request.ticket) else ""
        self._operators.check_serving()
        key = flow_key(request.flow)
        if key not in self._reports.flows:
            raise self._unserved(key) or self._operators.no_flow(key)
        reply = admin_pb2.ReplayReply()
        match what:
            case "begin":
                await self._begin(request, key, person(request.begin.who, certificate), reply)
            case "open":
                wanted = request.open
                if not may_be_exceeded(wanted.above):
                    raise _wrong(f"above is {wanted.above}, which no flow's epoch comes to")
                found = await self._replays.open(
                    key,
                    request.replay,
                    request.ticket,
                    parks=wanted.parks,
                    projects=wanted.projects,
                    opener=_short(wanted.opener, LONGEST_ID, "opener"),
                    above=wanted.above,
                )
                if isinstance(found, ReplayOpening):
                    reply.opened.CopyFrom(self._opened(found))
                else:
                    reply.cause = str(found)
                    reply.problem.MergeFrom(admin_pb2.Problem(text=found.text, hint=found.hint, code=found.code))
            case "advance":
                await self._advance(request, key)
            case "park":
                asked = request.park
                reply.refused = await self._replays.park(key, request.replay, request.ticket, asked.epoch, asked.park)
            case "renew":
                self._replays.renew(key, request.replay, request.ticket, _rate(request.renew))
            case "finish":
                await self._finish(request, key, reply)
            case "cancel":
                await self._cancel(request, key, person(request.cancel.who, certificate), reply)
            case _:
                raise _wrong("the request names nothing that this release knows")
        self._tell(key, reply)
        return reply

    def _unserved(self, key: FlowKey) -> RefusedError | None:
        """The retryable error for a flow that may soon be served; ``None`` for any other flow. After a restart, the log
        or the store may not be available yet."""
        if key[0] not in self._applications.unserved:
            return None
        return RefusedError(
            grpc.StatusCode.UNAVAILABLE,
            f"application {key[0]} is not served yet, a retry follows",
            flow=flow_name(*key),
            hint="the publisher's log shows why",
            code="application-unserved",
        )

    async def _begin(
        self, request: admin_pb2.ReplayRequest, key: FlowKey, who: str, reply: admin_pb2.ReplayReply
    ) -> None:
        asked = request.begin
        flow = self._reports.flows[key]
        if not asked.preview:
            ticket = secrets.token_urlsafe(32)
            wanted = ReplayControl(
                check_id(request.replay),
                who,
                _mode(asked.mode),
                self._clock.wall(),
                _lease(asked.lease_s),
                hashed(ticket),
                begin=_marker(asked, "begin"),
                until=_marker(asked, "until"),
                snapshot=_marker(asked, "snapshot"),
                where=_short(asked.where, _MOST_WHERE, "where"),
            )
            before = self._reports.state(flow).value
            await self._replays.begin(key, wanted, asked.resumes)
            reply.ticket = ticket
            await self._operators.record(who, "replay", request.flow, before, f"held for {wanted.id}")
        reply.reaches = await self._replays.reaches(flow)

    def _opened(self, found: ReplayOpening) -> admin_pb2.OpenedReplay:
        served = self._served
        return admin_pb2.OpenedReplay(
            epoch=found.epoch,
            subscriber=found.stream.info.id,
            address=found.stream.info.address,
            marker=marker_to_message(found.marker),
            progress=found.progress,
            skip=found.skip,
            filter=found.filter.text,
            publisher=self._identity,
            dataset=served.dataset.name,
            copy=served.copy,
            log=served.log,
            counted_to=None if found.counted_to is None else position_to_message(found.counted_to),
            park=found.park,
            parked=rows_to_messages(found.parked.items()),
            rewound=found.rewound,
            move=found.move,
            acknowledged=found.acknowledged,
            last_ack=ack_to_message(found.last_ack),
            projection=_projection(found.filter.projection),
        )

    async def _advance(self, request: admin_pb2.ReplayRequest, key: FlowKey) -> None:
        asked = request.advance
        if len(asked.progress) > _MOST_PROGRESS:
            raise _wrong(f"progress has {len(asked.progress)} bytes, at most {_MOST_PROGRESS} are kept")
        self._replays.check(key, request.replay, request.ticket)  # before a large part of the request is decoded
        for name, counts in (("windows", asked.settled.windows), ("processed", asked.settled.processed)):
            if len(counts) > _MOST_WINDOWS:
                raise _wrong(
                    f"settled.{name} has {len(counts)} entries, at most {_MOST_WINDOWS} are booked at one time"
                )
        marker = _marker(asked, "marker")
        await self._replays.advance(
            key,
            request.replay,
            request.ticket,
            asked.epoch,
            marker,
            asked.progress,
            asked.updates,
            asked.bytes,
            Settled.from_message(asked.settled) if asked.HasField("settled") else None,
        )

    async def _finish(self, request: admin_pb2.ReplayRequest, key: FlowKey, reply: admin_pb2.ReplayReply) -> None:
        asked = request.finish
        marker = _marker(asked, "marker")
        if marker is None:
            raise _wrong("the request does not say up to where the flow was replayed")
        gap = await self._replays.finish(
            key, request.replay, request.ticket, asked.epoch, marker, accept_gap=asked.accept_gap
        )
        reply.reaches = gap is None
        if gap is not None:
            reply.purged.CopyFrom(await self._purged(gap))
        if gap is None or asked.accept_gap:
            new = str(marker) if gap is None else f"{marker}, with a gap: {gap.message}"
            await self._operators.record(f"replay {request.replay}", "replay-finish", request.flow, "replaying", new)

    async def _cancel(
        self, request: admin_pb2.ReplayRequest, key: FlowKey, who: str, reply: admin_pb2.ReplayReply
    ) -> None:
        gap = await self._replays.cancel(key, request.replay, who, request.ticket)
        reply.reaches = gap is None
        new = "live" if gap is None else f"needs_replay: {gap.message}"
        await self._operators.record(who, "replay-cancel", request.flow, request.replay, new)

    async def _purged(self, gap: Gap) -> admin_pb2.PurgedLog:
        first, last = (gap.first_missing, gap.last_missing) if isinstance(gap, PositionPurged) else ("", "")
        purged = admin_pb2.PurgedLog(first_missing=first, last_missing=last, message=gap.message)
        earliest = await self._replays.earliest()
        if earliest is not None:
            purged.earliest.CopyFrom(marker_to_message(earliest))
        return purged

    def _tell(self, key: FlowKey, reply: admin_pb2.ReplayReply) -> None:
        flow: PublisherFlow | None = self._reports.flows.get(key)
        if flow is None:
            return  # its application was removed meanwhile
        reply.flow.CopyFrom(self._reports.status(flow))
        status = self._replays.described(flow)
        if status is not None:
            reply.replay.CopyFrom(status)


def _projection(projection: Projection) -> admin_pb2.Projection | None:
    if not projection:
        return None
    check = projection.key.check if projection.hashes and projection.key is not None else ""
    return admin_pb2.Projection(columns=projection.columns, mask=projection.mask, key_check=check)


def _marker(
    message: admin_pb2.BeginReplay | admin_pb2.AdvanceReplay | admin_pb2.FinishReplay, name: str
) -> Datamarker | None:
    if not message.HasField(name):
        return None
    given: push_pb2.Datamarker = getattr(message, name)
    try:
        return marker_from_message(given)
    except ProtocolError as error:
        raise _wrong(f"{name}: {error.message}") from None


def _rate(asked: admin_pb2.RenewReplay) -> float | None:
    if not asked.HasField("rate"):
        return None
    if not 0 <= asked.rate < math.inf:
        raise _wrong(f"rate is {asked.rate}, it has to be a number of bytes per second")
    return asked.rate


def _mode(mode: admin_pb2.ReplayMode) -> str:
    if mode not in _MODES:
        raise _wrong("the request does not say whether every change or the last one of each key is replayed")
    return _MODES[mode]


def _lease(seconds: float) -> float:
    if not seconds:
        return _LEASE_S
    if not (math.isfinite(seconds) and LEAST_LEASE_S <= seconds <= MOST_LEASE_S):
        raise _wrong(f"a lease of {seconds:g} s: {LEAST_LEASE_S:g} to {MOST_LEASE_S:g} are possible")
    return seconds


def _short(text: str, most: int, name: str) -> str:
    if len(text) > most:
        raise _wrong(f"{name} has {len(text)} characters, at most {most} are kept")
    return text


def _wrong(what: str) -> RefusedError:
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, what)
