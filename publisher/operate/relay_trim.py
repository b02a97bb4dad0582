"""Removing the oldest records of the relay because an operator asked for it."""

from __future__ import annotations

import asyncio
import logging

import grpc

from publisher.flows.refused_error import RefusedError
from publisher.operate.operators import check_serving, person, record
from publisher.operate.relay_status import relay_to_message
from publisher.publisher import Publisher
from wormhole.model.position import flow_name
from wormhole.ports.log_source import RelayStatus
from wormhole.wire.v1 import admin_pb2

__all__ = ["trim_relay"]

_log = logging.getLogger(__name__)


async def trim_relay(
    publisher: Publisher, request: admin_pb2.TrimRelayRequest, certificate: str
) -> admin_pb2.TrimRelayReply:
    """Remove records, or with ``request.preview`` report which flows that would concern.

    Raises :class:`~publisher.flows.refused_error.RefusedError`, and what the source raises.
    """
    check_serving(publisher)
    who = person(request.who, certificate)
    status = await asyncio.to_thread(publisher.source.status)
    if publisher.relay is None or status.relay is None:
        raise RefusedError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "this log has no relay",
            hint="`relay` in the log's source turns one on (docs/relay.md)",
        )
    before = after = relay_to_message(status.relay)
    losing = _losing(publisher, status.relay, request.keep_bytes)
    if not request.preview:
        await asyncio.to_thread(publisher.relay.trim, request.keep_bytes)
        left = (await asyncio.to_thread(publisher.source.status)).relay
        if left is not None:
            after = relay_to_message(left)
        _log.warning(
            "the relay was trimmed by %s: %d bytes of log in %d bytes -> %d in %d",
            who, before.log_bytes, before.bytes, after.log_bytes, after.bytes,
        )  # fmt: skip
        await record(publisher, who, "relay trim", publisher.served.log, str(before.bytes), str(after.bytes))
    return admin_pb2.TrimRelayReply(before=before, after=after, losing=losing)


def _losing(publisher: Publisher, relay: RelayStatus, keep_bytes: int) -> list[str]:
    """Flows that need what the datastore may no longer have, and that lies in what would go, as far as its bytes
    say."""
    if relay.held is None or relay.tip is None:
        return []
    written = relay.bytes / relay.log_bytes if relay.log_bytes else 1.0
    found = []
    for flow in publisher.assigner.flows.values():
        place = flow.delivery.marker.order
        after = publisher.log_watch.between(place, relay.tip.order)
        if place < relay.held and (after is None or after * written > keep_bytes):
            found.append(flow_name(flow.application, flow.shard))
    return sorted(found)
