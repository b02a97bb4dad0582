"""Removes the oldest records of the relay at an operator's request."""

from __future__ import annotations

import asyncio
import logging

import grpc

from publisher.flows.assigner import Assigner
from publisher.flows.log_description import relay_to_message
from publisher.flows.refused_error import RefusedError
from publisher.flows.tailed_log import TailedLog
from publisher.operate.operators import Operators, person
from wormhole.ports.log_source import LogRelay, RelayStatus
from wormhole.wire.v1 import admin_pb2

__all__ = ["RelayTrim"]

_log = logging.getLogger(__name__)


class RelayTrim:
    """See the module. ``name``: the name of the log; ``relay``: ``None`` if the log has no relay."""

    def __init__(
        self, name: str, log: TailedLog, relay: LogRelay | None, assigner: Assigner, operators: Operators
    ) -> None:
        self._name = name
        self._tailed = log
        self._relay = relay
        self._assigner = assigner
        self._operators = operators

    async def trim(self, request: admin_pb2.TrimRelayRequest, certificate: str) -> admin_pb2.TrimRelayReply:
        """Remove records, or with ``request.preview`` only report which flows need them.

        Raises :class:`~publisher.flows.refused_error.RefusedError` and the source's errors.
        """
        self._operators.check_serving()
        who = person(request.who, certificate)
        status = await asyncio.to_thread(self._tailed.source.status)
        if self._relay is None or status.relay is None:
            raise RefusedError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "this log has no relay",
                hint="`relay` in the log's source turns one on (docs/relay.md)",
            )
        before = after = relay_to_message(status.relay)
        losing = self._losing(status.relay, request.keep_bytes)
        if not request.preview:
            await asyncio.to_thread(self._relay.trim, request.keep_bytes)
            left = (await asyncio.to_thread(self._tailed.source.status)).relay
            if left is not None:
                after = relay_to_message(left)
            _log.warning(
                "the relay was trimmed by %s: %d bytes of log in %d bytes -> %d in %d",
                who, before.log_bytes, before.bytes, after.log_bytes, after.bytes,
            )  # fmt: skip
            await self._operators.record(who, "relay trim", self._name, str(before.bytes), str(after.bytes))
        return admin_pb2.TrimRelayReply(before=before, after=after, losing=losing)

    def _losing(self, relay: RelayStatus, keep_bytes: int) -> list[str]:
        """The flows that would lose log: they need records to be removed that the datastore may no longer have. The
        result is an estimate from sizes."""
        if relay.held is None or relay.tip is None:
            return []
        written = relay.bytes / relay.log_bytes if relay.log_bytes else 1.0
        found = []
        for flow in self._assigner.flows.values():
            place = flow.delivery.marker.order
            after = self._tailed.watch.between(place, relay.tip.order)
            if place < relay.held and (after is None or after * written > keep_bytes):
                found.append(flow.name)
        return sorted(found)
