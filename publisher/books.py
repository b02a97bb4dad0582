"""Who keeps the flows' books: counts what is sent, and books it when it is acknowledged.

Nothing is done per update: a batch body brings the tally of its updates, shared by every flow that sends it. If the process dies, what
was acknowledged since the last stored datamarker is not in the books, is sent again and booked then; that its callbacks ran before is
known because subscribers tell all that they processed, not only what is new.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from publisher.push.feed import Feed
from wormhole.books import DELAY_LIMITS_S, Books
from wormhole.marker_store import FlowKey, MarkerStore
from wormhole.position import Datamarker, LogPosition
from wormhole.wire.body import Body, parse_body
from wormhole.wire.tally import Tally, added, update_hash, window_of
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["Bookkeeper", "Ledger"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Interval:
    """What was sent between two datamarkers. ``counted``: of it, what the books do not have already; ``returned``: of it, updates whose
    callbacks returned; ``letters``: hashes of parked updates that were sent again, with their windows."""

    sent: dict[int, Tally] = field(default_factory=dict)
    counted: dict[int, Tally] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)
    letters: list[tuple[int, int]] = field(default_factory=list)
    marker: Datamarker | None = None


class Ledger:
    """One epoch of one flow, from ``place`` on: what was sent and not acknowledged. Bounded by the credit and the datamarkers that may be open.

    ``counted_to``: up to where the books have it already. ``life``: of whom it is sent to, 0 when that does not count.
    """

    def __init__(self, place: LogPosition, counted_to: LogPosition | None) -> None:
        self.place = place
        self.life = 0
        self.told: dict[int, tuple[int, int, int]] = {}
        """What was told with the last answer, until it is booked."""
        self._counted_to = counted_to if counted_to is not None and counted_to > place else None
        self._open = _Interval()
        self._offered: deque[_Interval] = deque()
        self._flying: deque[tuple[int, _Interval, Mapping[int, Tally]]] = deque()

    def sent(self, number: int, body: Body) -> None:
        """Batch ``number`` went out."""
        tallies, interval = body.tallies, self._open
        self._flying.append((number, interval, tallies))
        added(interval.sent, tallies)
        if self._counted_to is None:
            added(interval.counted, tallies)
        else:
            added(interval.counted, _beyond(body, self._counted_to))

    def letter(self, number: int, body: bytes) -> None:
        """A parked update was sent again, by itself."""
        parsed = parse_body(body)
        source, _, transaction = parsed.transaction_id(0).rpartition(":")
        hash_ = update_hash(source, int(transaction), parsed.index_of(0))
        window = window_of(parsed.committed_at_us(0))
        self._flying.append((number, self._open, {window: Tally(1, hash_)}))
        self._open.letters.append((window, hash_))

    def offered(self, marker: Datamarker) -> None:
        """A datamarker went out behind all that."""
        self._open.marker = marker
        self._offered.append(self._open)
        self._open = _Interval()

    def returned(self, number: int) -> None:
        """Callbacks of all batches up to ``number`` have returned."""
        flying = self._flying
        while flying and flying[0][0] <= number:
            _, interval, tallies = flying.popleft()
            for window, tally in tallies.items():
                interval.returned[window] = interval.returned.get(window, 0) + tally.updates

    def heard(self, life: int, processed: Iterable[push_pb2.Processed]) -> None:
        """What the subscriber tells with an acknowledgement, or as it gives the flow back."""
        if life:
            self.life = life
            for one in processed:
                self.told[one.window] = (one.updates, one.set_aside, one.set_aside_hash)

    def take_told(self) -> dict[int, tuple[int, int, int]]:
        """What was told since it was asked for last."""
        told, self.told = self.told, {}
        return told

    def acknowledged(self, marker: Datamarker) -> _Interval | None:
        """All that was sent before ``marker``; ``None`` when that was not offered here."""
        if all(interval.marker != marker for interval in self._offered):
            return None
        whole = _Interval()
        while True:
            interval = self._offered.popleft()
            added(whole.sent, interval.sent)
            added(whole.counted, interval.counted)
            whole.letters += interval.letters
            if interval.marker == marker:
                break
        if self._counted_to is not None and marker.order >= self._counted_to:
            self._counted_to = None
        self.returned(0)
        return whole

    def unacknowledged(self) -> dict[int, int]:
        """Callbacks that returned, of updates that nobody acknowledged."""
        found: dict[int, int] = {}
        for interval in (*self._offered, self._open):
            for window, updates in interval.returned.items():
                found[window] = found.get(window, 0) + updates
        return found


def _beyond(body: Body, place: LogPosition) -> dict[int, Tally]:
    """Of a body, what lies behind ``place``: after a flow went back in the log what is sent is in the books already."""
    parsed = parse_body(body.data)
    found: dict[int, Tally] = {}
    for i in range(len(parsed.updates)):
        tx = parsed.transaction_of(i)
        at = parsed.position_of(tx)  # of an unfinished transaction where it begins
        if at > place or (at == place and tx >= len(parsed.tx_end)):
            source, _, number = parsed.transaction_id(tx).rpartition(":")
            one = Tally(1, update_hash(source, int(number), parsed.index_of(i)))
            added(found, {window_of(parsed.committed_at_us(tx)): one})
    return found


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
        ledger, known = feed.ledger, self._books.get(feed.key)
        if ledger is None or known is None:
            return {}
        interval = ledger.acknowledged(marker)
        if interval is None:  # the application has its own, and it is ahead
            ledger.place = marker.order
            return {}
        books, wanted, now = known[1], feed.filter.hash, time.time()
        begin, ledger.place = ledger.place, marker.order
        books.acknowledged(wanted, begin, marker.order, interval.counted, now)
        more = books.told(wanted, ledger.life, ledger.take_told(), now)
        for window, hash_ in interval.letters:
            books.delivered_again(wanted, window, hash_, now)
        if ledger.life:
            for window, tally in interval.sent.items():
                if more.get(window, 0) < tally.updates:
                    self._differs(feed, books, window, (begin, marker.order), tally.updates, more.get(window, 0))
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
            for filter_hash, ranges in sorted(known[1].ranges.items()):
                for begin, end in ranges:
                    told = reply.ranges.add(flow=feed.name, filter_hash=filter_hash)
                    for place, into in ((begin, told.begin), (end, told.end)):
                        into.incarnation, into.file, into.offset = place.incarnation, place.file, place.offset
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
