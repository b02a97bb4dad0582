"""What changed between two status answers of a publisher. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from monitor.state import HostEvent, LogKey
from wormhole.wire.v1 import admin_pb2

__all__ = ["news"]

# Which flows join and leave a caravan is its own matter; the host's page lists that there is one more or one less.
_LISTED: Final = {admin_pb2.CaravanEvent.STARTED: "split", admin_pb2.CaravanEvent.ENDED: "merge"}


def news(
    key: LogKey, before: admin_pb2.PublisherStatus | None, after: admin_pb2.PublisherStatus, now: float
) -> list[HostEvent]:
    """The events between two answers, oldest first. Of a first answer only losses and halted flows are listed."""
    return [*_caravans(key, before, after), *_flows(before, after, now)]


def _caravans(
    key: LogKey, before: admin_pb2.PublisherStatus | None, after: admin_pb2.PublisherStatus
) -> Iterator[HostEvent]:
    if before is None:
        return
    known = {(one.at_s, one.caravan, one.what) for one in before.events}
    newest = max((one.at_s for one in before.events), default=0.0)
    for one in after.events:
        if one.at_s < newest or (one.at_s, one.caravan, one.what) in known:
            continue
        if one.kind in _LISTED:
            yield HostEvent(one.at_s, _LISTED[one.kind], str(key), f"caravan {one.caravan} {one.what}")


def _flows(
    before: admin_pb2.PublisherStatus | None, after: admin_pb2.PublisherStatus, now: float
) -> Iterator[HostEvent]:
    flows = () if before is None else before.flows
    lost = {flow.flow for flow in flows if flow.loss_pending}
    given_up = {flow.flow for flow in flows if flow.state == "needs_replay"}
    halted = {(flow.flow, flow.halted_at) for flow in flows if flow.halted_at}
    for flow in after.flows:
        if flow.loss_pending and flow.flow not in lost:
            yield HostEvent(now, "data_loss", flow.flow, flow.cause or "log that it needs is missing")
        if flow.state == "needs_replay" and flow.flow not in given_up:
            yield HostEvent(now, "needs_replay", flow.flow, flow.cause)
        if flow.halted_at and (flow.flow, flow.halted_at) not in halted:
            yield HostEvent(now, "halted", flow.flow, f"its handler gave up at {flow.halted_at}: {flow.cause}")
