"""Who keeps the flows' books: counts what is sent, and books it when it is acknowledged.

Nothing is done per update: a batch body brings the tally of its updates, shared by every flow that sends it. If the process dies, what
was acknowledged since the last stored datamarker is not in the books, is sent again and booked then; that its callbacks ran before is
known because subscribers tell all that they processed, not only what is new.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping

from publisher.push.feed import Feed
from wormhole.books import DELAY_LIMITS_S, Books
from wormhole.marker_store import FlowKey, MarkerStore
from wormhole.position import Datamarker, LogPosition
from wormhole.push.ledger import Ledger, Settled
from wormhole.wire.markers import position_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["Bookkeeper"]

_log = logging.getLogger(__name__)
_PARTLY, _AGAIN = {"partly": True}, {"again": True}


class Bookkeeper:
    """The books of all flows of one log. Called on the event loop; :meth:`load` reads the store in a thread."""

    def __init__(self, store: MarkerStore) -> None:
        self.mismatches: dict[str, int] = {}
        """By application: how often what was sent and what was processed differed."""
        self._store = store
        self._books: dict[FlowKey, tuple[int, Books]] = {}  # with the epoch that they are of

    async def load(self, feed: Feed) -> None:
        """The flow goes out in a new epoch. Nobody else can have written since the one before if that was ours as well."""
        known = self._books.get(feed.key)
        if known is None or known[0] + 1 != feed.epoch:
            books = Books(await asyncio.to_thread(self._store.books, feed.key))
            if books.unreadable:
                pages = ", ".join(sorted(books.unreadable))
                _log.error(
                    "%s: its books begin anew, for they cannot be read at %s: what was before is unaudited",
                    feed.name,
                    pages,
                )
        else:
            books = known[1]
        self._books[feed.key] = (feed.epoch, books)

    def open(self, feed: Feed) -> None:
        """The subscriber took the flow."""
        known = self._books.get(feed.key)
        counted_to = None if known is None else known[1].counted_to(feed.filter.hash)
        feed.ledger = Ledger(feed.marker.order, counted_to)

    def acknowledged(self, feed: Feed, marker: Datamarker) -> Mapping[str, bytes]:
        """The pages to store with ``marker``."""
        settled = None if feed.ledger is None else feed.ledger.acknowledged(marker)
        return {} if settled is None else self.book(feed, settled, marker.order)

    async def open_replay(self, feed: Feed) -> LogPosition | None:
        """A task of a replay pushes the flow in a new epoch: up to where that is counted already. A marker that was moved may have taken what was
        acknowledged out of the store, so that is read."""
        self.forget(feed)
        await self.load(feed)
        return self._books[feed.key][1].counted_to(feed.filter.hash)

    def forget(self, feed: Feed) -> None:
        """What is here may not be what is stored: it is read again before anything else is booked."""
        self._books.pop(feed.key, None)

    def replayed(self, feed: Feed, settled: Settled, end: LogPosition) -> Mapping[str, bytes]:
        """:meth:`book` what a replay sent from the archive."""
        known = self._books.get(feed.key)
        if known is not None and not settled.partly:
            known[1].delivered_again_between(feed.filter.hash, settled.begin, end)
        return self.book(feed, settled, end)

    def book(self, feed: Feed, settled: Settled, end: LogPosition) -> Mapping[str, bytes]:
        """What was sent and acknowledged up to ``end``. The pages to store, with the datamarker."""
        known = self._books.get(feed.key)
        if known is None:
            return {}
        books, wanted, now = known[1], feed.filter.hash, time.time()
        more = books.told(wanted, settled.life, settled.told, now, partly=settled.partly)
        if settled.partly:
            books.delivered_partly(wanted, settled.begin, end)
            return books.changed(now)
        books.acknowledged(wanted, settled.begin, end, settled.counted, now)
        for window, hash_ in settled.letters:
            books.delivered_again(wanted, window, hash_, now)
        if settled.life:
            for window, tally in settled.sent.items():
                if more.get(window, 0) < tally.updates:
                    self._differs(feed, books, window, (settled.begin, end), tally.updates, more.get(window, 0))
        return books.changed(now)

    def closed(self, feed: Feed, *, released: bool) -> Mapping[str, bytes]:
        """The epoch is over: what was processed and not acknowledged comes again, and counts again. The pages to store.

        ``released``: the subscriber told all itself; otherwise that is known of which progress was told.
        """
        ledger, feed.ledger = feed.ledger, None
        known = self._books.get(feed.key)
        # After a rewind what was acknowledged before may be gone from the store: the next epoch reads it again.
        if ledger is None or known is None or not ledger.life or known[0] != feed.epoch:
            return {}
        books, wanted, now = known[1], feed.filter.hash, time.time()
        books.told(wanted, ledger.life, ledger.take_told(), now)
        if not released:
            books.seen(wanted, ledger.life, ledger.unacknowledged(), now)
        return books.changed(now)

    def report(self, request: admin_pb2.AuditRequest, feeds: Iterable[Feed]) -> admin_pb2.AuditReply:
        """What the books say."""
        reply = admin_pb2.AuditReply(delay_limits_s=DELAY_LIMITS_S)
        last = request.last_window or None
        for feed in feeds:
            known = self._books.get(feed.key)
            if known is None or request.flow not in ("", feed.name):
                continue
            for kind, by_filter in (({}, known[1].ranges), (_PARTLY, known[1].partly), (_AGAIN, known[1].again)):
                for filter_hash, ranges in sorted(by_filter.items()):
                    for begin, end in ranges:
                        told = reply.ranges.add(flow=feed.name, filter_hash=filter_hash, **kind)
                        told.begin.CopyFrom(position_to_message(begin))
                        told.end.CopyFrom(position_to_message(end))
            for filter_hash, window, page in known[1].select(request.first_window, last):
                reply.windows.add(
                    flow=feed.name,
                    filter_hash=filter_hash,
                    window=window,
                    delivered=page.delivered.updates,
                    hash=page.delivered.hash,
                    processed=max(0, page.processed),
                    set_aside=max(0, page.set_aside),
                    set_aside_hash=page.aside_hash,
                    told=bool(page.lives),
                    processed_partly=page.partly,
                    delays=page.delays,
                    problems=page.problems,
                )
        return reply

    def _differs(
        self, feed: Feed, books: Books, window: int, between: tuple[LogPosition, LogPosition], sent: int, done: int
    ) -> None:
        text = f"between {between[0]} and {between[1]}: {sent} updates were sent, {done} were processed or set aside"
        books.problem(feed.filter.hash, window, text, time.time())
        self.mismatches[feed.application] = self.mismatches.get(feed.application, 0) + 1
        _log.error(
            "%s lost updates at %s: %s. Next: `wormholectl audit --app %s` says which; a replay from the first of these places "
            "delivers them again",
            feed.name,
            feed.subscriber,
            text,
            feed.application,
            extra=feed.about,
        )
