"""Derives the events of a host from two consecutive statuses of a publisher. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from monitor.state import HostEvent, LogKey
from wormhole.wire.v1 import admin_pb2

__all__ = ["status_events"]

# The caravan events that the host's page lists: a caravan started or ended. Flows that join or leave are not listed.
_LISTED: Final = {admin_pb2.CaravanEvent.STARTED: "split", admin_pb2.CaravanEvent.ENDED: "merge"}


def status_events(
    key: LogKey, before: admin_pb2.PublisherStatus | None, after: admin_pb2.PublisherStatus, now: float
) -> list[HostEvent]:
    """The events between two statuses, oldest first. A first status only yields data losses and halted flows."""
    return [*_caravans(key, before, after), *_owner(key, before, after, now), *_flows(before, after, now)]


def _owner(
    key: LogKey, before: admin_pb2.PublisherStatus | None, after: admin_pb2.PublisherStatus, now: float
) -> Iterator[HostEvent]:
    if before is None or before.term == after.term:
        return
    text = f"owns its log, in term {after.term}" if after.term else after.standby.text or "owns its log no more"
    yield HostEvent(now, "owner", str(key), text)


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
            yield HostEvent(now, "data_loss", flow.flow, flow.cause or "the log no longer holds what it needs next")
        if flow.state == "needs_replay" and flow.flow not in given_up:
            yield HostEvent(now, "needs_replay", flow.flow, flow.cause)
        if flow.halted_at and (flow.flow, flow.halted_at) not in halted:
            yield HostEvent(now, "halted", flow.flow, f"halted at update {flow.halted_at}: {flow.cause}")
