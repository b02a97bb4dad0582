"""Handles flows that a subscriber refuses because it holds their shard in another epoch.

:mod:`publisher.push.epoch_conflict` decides what happens, and this module does it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from publisher.flows.assigner import Assigner
from publisher.flows.background_tasks import BackgroundTasks
from publisher.flows.known_flows import missing_datamarker
from publisher.flows.ownership import Ownership
from publisher.flows.records import FlowRecords
from publisher.push.epoch_conflict import EpochConflict, after_refusal, explained, store_was_lost
from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import WormholeError
from wormhole.push.session import FlowFailed

__all__ = ["RefusedEpochs"]

_log = logging.getLogger(__name__)


class RefusedEpochs:
    """The epochs of one publisher that subscribers refused."""

    def __init__(
        self,
        records: FlowRecords,
        assigner: Assigner,
        ownership: Ownership,
        background: BackgroundTasks,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._records = records
        self._assigner = assigner
        self._ownership = ownership
        self._background = background
        self._clock = clock

    def answered(self, stream: SubscriberStream, flow: PublisherFlow, event: FlowFailed) -> bool:
        """Raise the flow's epoch above the epoch that the subscriber holds, or hold the flow.

        Returns whether the subscriber reported its epoch. A subscriber of an earlier release does not report it; then
        nothing is done."""
        conflict = after_refusal(event, flow.holding.conflict, sole=self._ownership.sole(), now=self._clock.monotonic())
        if conflict is None:
            return False
        if store_was_lost(flow.holding.conflict, conflict, acknowledged=flow.delivery.acknowledged):
            flow.release("")
            flow.delivery.begin_move()
            self._background.spawn(self._hold_unknown(flow, conflict, stream.info.id))
            return True
        cause = explained(conflict, event.flow.epoch, flow.delivery.marker, stream.info.id)
        known = flow.holding.conflict is not None and flow.holding.conflict.contested and conflict.contested
        if not known:
            log = _log.error if conflict.contested else _log.warning
            log("%s was refused: %s", flow.name, cause, extra=flow.about)
        flow.release("")
        flow.explain(cause)
        flow.holding.refused(conflict)
        return True

    async def _hold_unknown(self, flow: PublisherFlow, conflict: EpochConflict, subscriber: str) -> None:
        """Hold the flow, because the marker store was lost. The delivered updates are unknown, and the new record has
        only the place where the flow was registered."""
        missing = missing_datamarker(
            flow.name, f"{subscriber} has had {flow.name} in epoch {conflict.held_epoch}", flow.delivery.marker
        )
        try:
            await self._records.raise_epoch(flow, conflict.held_epoch)
            await self._records.control(flow, lambda control: replace(control, missing=missing))
            _log.error("%s is held: %s", flow.name, missing, extra=flow.about)
        except (WormholeError, KeyError) as error:  # the subscriber will refuse the flow again, and this is retried
            _log.error("%s cannot be held, although %s: %s", flow.name, missing, error, extra=flow.about)
        finally:
            flow.delivery.end_move()
        self._assigner.changed()
