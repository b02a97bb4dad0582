"""Counts the deliveries of the flows of one log. An update counts as delivered when it is acknowledged.

The work is per batch, not per update: a batch body has the counts of its updates, and every flow that sends the body
shares them. After a crash, updates that were acknowledged after the last stored datamarker are sent and counted again.
Subscribers report every update that they processed, with its epoch. So the counts show which of these updates ran
before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from publisher.push.flow import PublisherFlow
from wormhole.audit.delivery_counts import DeliveryCounts, RangeKind, is_ahead, moved_page
from wormhole.audit.sent_counts import EarlierCounts, EndedEpoch, SentCounts, Settled
from wormhole.audit.window_counts import DELAY_LIMITS_S, Mismatch
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.marker_store import FlowKey, MarkerStore
from wormhole.wire.markers import position_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["DeliveryCounter"]

_log = logging.getLogger(__name__)
_NOT_LOADED = (0, DeliveryCounts())


class DeliveryCounter:
    """Counts the deliveries of all flows of one log. Methods are called on the event loop; :meth:`load` reads the
    store in a thread.
    """

    def __init__(self, store: MarkerStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.mismatches: dict[str, int] = {}
        """By application: how often the numbers of sent and processed updates differed."""
        self._store = store
        self._loaded: dict[FlowKey, tuple[int, DeliveryCounts]] = {}  # the epoch and its counts
        # The last epoch and its filter. When counts are read again, the store may still lack the pages of that epoch.
        self._ended: dict[FlowKey, tuple[str, EndedEpoch]] = {}
        self._moved_past: set[FlowKey] = set()

    async def load(self, flows: Collection[PublisherFlow]) -> None:
        """Read the counts of flows that are about to be assigned in new epochs.

        If this publisher assigned the epoch before, no other publisher has written since. Then the counts in memory are
        used.
        """
        unknown = [flow.key for flow in flows if not self._is_next(flow)]
        pages = await asyncio.to_thread(self._store.delivery_counts, unknown) if unknown else {}
        for flow in flows:
            self._load(flow, pages.get(flow.key))

    def _is_next(self, flow: PublisherFlow) -> bool:
        """Whether the counts in memory are of the epoch before."""
        return flow.key in self._loaded and self._loaded[flow.key][0] + 1 == flow.holding.epoch

    def _load(self, flow: PublisherFlow, pages: Mapping[str, bytes] | None) -> None:
        """Load the flow's counts. ``pages``: the stored counts; ``None``: the counts in memory are complete."""
        counts = self._loaded.get(flow.key, _NOT_LOADED)[1]
        ended = self._ended.pop(flow.key, None)
        if pages is not None:
            counts = DeliveryCounts(pages)
            if counts.unreadable:
                _log.error(
                    "%s: its delivery counts begin anew: the pages %s cannot be read; what was before is unaudited",
                    flow.name,
                    ", ".join(sorted(counts.unreadable)),
                )
            if ended is not None:
                self._count_ended(counts, *ended, stored=False)
        if flow.key in self._moved_past:
            self._moved_past.discard(flow.key)
            counts.moved_past(flow.holding.epoch)
        self._loaded[flow.key] = (flow.holding.epoch, counts)

    def open(self, flow: PublisherFlow) -> None:
        """Note that the subscriber opened the flow."""
        counts = self._loaded.get(flow.key, _NOT_LOADED)[1]
        flow.delivery.count_sent(SentCounts(flow.delivery.marker.order, counts.counted_to(flow.filter.hash)))

    def moved_past(self, flow: PublisherFlow) -> Mapping[str, bytes]:
        """Note that the flow was moved forwards, in an epoch in which nothing is sent. The updates that it passes are
        not delivered. Returns the pages to store.
        """
        self._moved_past.add(flow.key)  # when the counts are read again, the store may still lack that page
        return moved_page(flow.holding.epoch + 1)

    def acknowledged(self, flow: PublisherFlow, marker: Datamarker) -> Mapping[str, bytes]:
        """The pages to store with ``marker``."""
        settled = flow.delivery.sent_counts.acknowledged(marker)
        return {} if settled is None else self.count(flow, settled, marker.order)

    async def open_replay(self, flow: PublisherFlow) -> LogPosition | None:
        """Begin to count for a task of a replay that pushes the flow in a new epoch. Returns the place up to which
        deliveries are counted already. The counts are read from the store, because moving a marker may have removed
        counts of acknowledged updates.
        """
        self.forget(flow)
        await self.load((flow,))
        counts, replay = self._loaded[flow.key][1], flow.control.replay
        if replay is not None and (replay.mode != "log" or replay.where):
            counts.moved_past(flow.holding.epoch + 1)  # later reports may contain updates that no count includes
        return counts.counted_to(flow.filter.hash)

    def forget(self, flow: PublisherFlow) -> None:
        """Discard the counts in memory, which may differ from the stored counts. The next count reads these again."""
        self._loaded.pop(flow.key, None)

    def count(self, flow: PublisherFlow, settled: Settled, end: LogPosition) -> Mapping[str, bytes]:
        """Count the updates that were sent and acknowledged up to ``end``, by this publisher or by a replay. Returns
        the pages to store with the datamarker.
        """
        if flow.key not in self._loaded:
            return {}
        counts, filter_hash, now = self._loaded[flow.key][1], flow.filter.hash, self._clock.wall()
        if settled.before is not None:
            counted_to = counts.counted_to(filter_hash)
            if counted_to is not None and counted_to < settled.begin:
                counts.moved_past(flow.holding.epoch)
            self._count_earlier(counts, filter_hash, settled.life, settled.before)
        new = counts.reported(filter_hash, settled.life, settled.reported, now, partial=settled.partial)
        if settled.partial:
            counts.partially_delivered(filter_hash, settled.begin, end)
            return counts.changed(now)
        mismatches = self._mismatches(settled, end) if settled.life else {}
        if settled.life:
            counts.redelivered(filter_hash, settled.begin, end, mismatches)
        counts.acknowledged(filter_hash, settled.begin, end, settled.counted, now, _sent_until(flow))
        for window, updates in new.items():
            rolled_back = updates - settled.passed.get(window, 0)  # the earlier passes may have ended after this one
            if rolled_back > 0 and flow.delivery.caravan_flow is not None:
                flow.delivery.reached(flow.delivery.caravan_flow.place)
            delivered = settled.counted[window].updates if window in settled.counted else 0
            counts.processed_unacknowledged(filter_hash, window, rolled_back - delivered, now)
        for window, hash_ in settled.letters:
            counts.parked_delivered(filter_hash, window, hash_, now)
        for window, mismatch in mismatches.items():
            counts.mismatch(filter_hash, window, mismatch, now)
            self._report_mismatch(flow, mismatch)
        return counts.changed(now)

    def closed(self, flow: PublisherFlow) -> Mapping[str, bytes]:
        """Note the end of the epoch. Updates that were processed but not acknowledged will be delivered and counted
        again. Returns the pages to store.
        """
        sent = flow.delivery.close_sent_counts()
        if not sent.life:
            return {}
        ended = self._ended[flow.key] = (flow.filter.hash, sent.ended())
        epoch, counts = self._loaded.get(flow.key, _NOT_LOADED)
        if epoch != flow.holding.epoch:
            # After a rewind, the store may have lost the counts of earlier acks. The next epoch reads the store again.
            return {}
        self._count_ended(counts, *ended)
        return counts.changed(self._clock.wall())

    def report(self, request: admin_pb2.AuditRequest, flows: Iterable[PublisherFlow]) -> admin_pb2.AuditReply:
        """The counts that the request selects."""
        reply = admin_pb2.AuditReply(delay_limits_s=DELAY_LIMITS_S)
        for flow in flows:
            if request.flow in ("", flow.name):
                counts = self._loaded.get(flow.key, _NOT_LOADED)[1]
                _add_ranges(reply, flow.name, counts)
                _add_windows(reply, flow.name, counts, request)
        return reply

    # -- inside

    def _count_earlier(self, counts: DeliveryCounts, filter_hash: str, life: int, earlier: EarlierCounts) -> None:
        """Count the updates of earlier epochs, which a subscriber reports when it opens the flow."""
        now = self._clock.wall()
        note = counts.processed_further
        if any(epoch < counts.moved_in for epoch in earlier.epochs):
            note = counts.processed_moved_past
        news = {
            window: one
            for window, one in earlier.counted.items()
            if counts.is_news(life, window, one) and not is_ahead(window, now)
        }
        for window, updates in counts.reported(filter_hash, life, news, now).items():
            note(filter_hash, window, updates, now)

    def _count_ended(self, counts: DeliveryCounts, filter_hash: str, ended: EndedEpoch, *, stored: bool = True) -> None:
        """``stored``: whether the counts include every acknowledged update."""
        now = self._clock.wall()
        if ended.before is not None:
            self._count_earlier(counts, filter_hash, ended.life, ended.before)
        news = {window: one for window, one in ended.reported.items() if counts.is_news(ended.life, window, one)}
        for window, updates in counts.reported(filter_hash, ended.life, news, now).items():
            sent = ended.sent[window].updates if window in ended.sent else 0
            counts.processed_unacknowledged(filter_hash, window, min(updates, sent) if stored else updates, now)

    def _mismatches(self, settled: Settled, end: LogPosition) -> dict[int, Mismatch]:
        """The windows in which fewer updates were processed or set aside than were sent."""
        sent = {window: tally.updates for window, tally in settled.sent.items()}
        for window, _ in settled.letters:
            sent[window] = sent.get(window, 0) + 1
        found: dict[int, Mismatch] = {}
        for window, updates in sent.items():
            missing = updates - settled.passed.get(window, 0)
            if missing > 0:
                counted = settled.counted[window].updates if window in settled.counted else 0
                first = max(0, missing - (updates - counted))
                found[window] = Mismatch(settled.begin, end, updates, updates - missing, first, settled.begin)
        return found

    def _report_mismatch(self, flow: PublisherFlow, mismatch: Mismatch) -> None:
        self.mismatches[flow.application] = self.mismatches.get(flow.application, 0) + 1
        _log.error(
            "%s lost updates at %s: %s. Next: `wormholectl audit --app %s` shows which; a replay from the first of "
            "these places delivers them again",
            flow.name,
            flow.holding.subscriber,
            mismatch,
            flow.application,
            extra=flow.about,
        )


def _sent_until(flow: PublisherFlow) -> LogPosition:
    """The place after which no earlier epoch sent anything."""
    replay = flow.control.replay
    if replay is None or replay.until is None:
        return flow.delivery.sent_until
    return max(flow.delivery.sent_until, replay.until.order)


def _add_ranges(reply: admin_pb2.AuditReply, flow: str, counts: DeliveryCounts) -> None:
    for kind, by_filter in counts.ranges.items():
        for filter_hash, ranges in sorted(by_filter.items()):
            for begin, end in ranges:
                reply.ranges.add(
                    flow=flow,
                    filter_hash=filter_hash,
                    begin=position_to_message(begin),
                    end=position_to_message(end),
                    partly=kind is RangeKind.PARTIAL,
                    again=kind is RangeKind.REDELIVERED,
                )


def _add_windows(
    reply: admin_pb2.AuditReply, flow: str, counts: DeliveryCounts, request: admin_pb2.AuditRequest
) -> None:
    for filter_hash, window, one in counts.select(request.first_window, request.last_window or None):
        missing = [mismatch for mismatch in one.mismatches if not mismatch.is_repaired]
        repaired = [mismatch for mismatch in one.mismatches if mismatch.is_repaired]
        reply.windows.add(
            flow=flow,
            filter_hash=filter_hash,
            window=window,
            delivered=one.delivered.updates,
            hash=one.delivered.hash,
            processed=max(0, one.processed),
            set_aside=max(0, one.set_aside),
            set_aside_hash=one.aside_hash,
            told=bool(one.lives),
            processed_partly=one.partial,
            delays=one.delays,
            problems=map(str, missing),
            missing=sum(mismatch.missing for mismatch in missing),
            missing_first=sum(mismatch.first for mismatch in missing),
            repaired=sum(mismatch.missing for mismatch in repaired),
            repairs=map(str, repaired),
            ahead=one.unacknowledged + one.moved_past,
        )
