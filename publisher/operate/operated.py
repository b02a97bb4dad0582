"""The parts of a publisher through which operators query and change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from publisher.flows.delivery_counter import DeliveryCounter
from publisher.operate.control import Control
from publisher.operate.flow_reports import FlowReports
from publisher.operate.letter_changes import LetterChanges
from publisher.operate.metrics import Metrics
from publisher.operate.readiness import ReadinessCheck
from publisher.operate.relay_trim import RelayTrim
from publisher.operate.replay_forwarding import ReplayForwarding
from publisher.operate.replay_requests import ReplayRequests
from publisher.operate.status import StatusReports
from publisher.push.flow import PublisherFlow
from wormhole.ports.marker_store import FlowKey

__all__ = ["Operated"]


@dataclass(frozen=True, slots=True)
class Operated:
    """The parts that answer requests of the admin service and of the HTTP server."""

    reports: StatusReports
    flow_reports: FlowReports
    metrics: Metrics
    readiness: ReadinessCheck
    control: Control
    replays: ReplayRequests
    forwarding: ReplayForwarding
    letters: LetterChanges
    relay: RelayTrim
    counter: DeliveryCounter
    flows: Mapping[FlowKey, PublisherFlow]
