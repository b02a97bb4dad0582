"""Who keeps the flows' books: counts what is sent, and books it when it is acknowledged.

Nothing is done per update: a batch body brings the tally of its updates, shared by every flow that sends it. If the
process dies, what was acknowledged since the last stored datamarker is not in the books, is sent again and booked then;
that its callbacks ran before is known because subscribers tell all that they processed, not only what is new, and in
which epochs. Where nobody can tell, the books say so: what a subscriber that was cut off may have done beyond what it
told, and what somebody may have done who was cut off together with a publisher.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from publisher.push.flow import PublisherFlow
from wormhole.audit.book_page import DELAY_LIMITS_S, Problem
from wormhole.audit.books import Books, Range, is_ahead, moves_past
from wormhole.audit.ledger import Before, CutOff, Ledger, Settled
from wormhole.model.position import Datamarker, LogPosition
from wormhole.ports.marker_store import FlowKey, MarkerStore
from wormhole.wire.markers import position_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["Bookkeeper"]

_log = logging.getLogger(__name__)
_PARTLY, _AGAIN = {"partly": True}, {"again": True}
_EPOCHS = 20  # of which nobody told: as many as the books remember


@dataclass(frozen=True, slots=True)
class _Late:
    """What an epoch left as it ended."""

    filter_hash: str
    begin: LogPosition
    sent_until: LogPosition
    epoch: int
    cut: CutOff


class Bookkeeper:
    """The books of all flows of one log. Called on the event loop; :meth:`load` reads the store in a thread."""

    def __init__(self, store: MarkerStore) -> None:
        self.mismatches: dict[str, int] = {}
        """By application: how often what was sent and what was processed differed."""
        self._store = store
        self._books: dict[FlowKey, tuple[int, Books]] = {}  # with the epoch that they are of
        self._known: dict[FlowKey, set[int]] = {}  # epochs of which this process knows what came of them
        self._late: dict[
            FlowKey, _Late
        ] = {}  # of the last epoch: its pages may not be stored when the books are read again
        self._opened: dict[FlowKey, int] = {}  # the last epoch in which we sent something
        self._past: set[FlowKey] = set()  # that were moved forwards

    async def load(self, flow: PublisherFlow) -> None:
        """The flow goes out in a new epoch.

        Nobody else can have written since the one before if that was ours as well.
        """
        known, late = self._books.get(flow.key), self._late.pop(flow.key, None)
        if known is None or known[0] + 1 != flow.epoch:
            books = Books(await asyncio.to_thread(self._store.books, flow.key))
            if books.unreadable:
                pages = ", ".join(sorted(books.unreadable))
                _log.error(
                    "%s: its books begin anew, for they cannot be read at %s: what was before is unaudited",
                    flow.name,
                    pages,
                )
            if late is not None:
                self._note_cut_off(flow.key, late, books, again=True)
        else:
            books = known[1]
        if flow.key in self._past:
            self._past.discard(flow.key)
            books.moved_past(flow.epoch)
        self._books[flow.key] = (flow.epoch, books)

    def open(self, flow: PublisherFlow) -> None:
        """The subscriber took the flow."""
        known = self._books.get(flow.key)
        counted_to = None if known is None else known[1].counted_to(flow.filter.hash)
        flow.open_ledger(Ledger(flow.marker.order, counted_to))
        self._opened[flow.key] = flow.epoch

    def moved(self, flow: PublisherFlow, *, past: bool) -> Mapping[str, bytes]:
        """The flow was set to another place, in an epoch in which nothing is sent. ``past``: to one behind what is
        stored, so that the updates between are not delivered. The pages to store.
        """
        self._is_known(flow)
        if not past:
            return {}
        self._past.add(flow.key)  # that page may not be stored when the books are read
        return moves_past(flow.epoch + 1)

    def acknowledged(self, flow: PublisherFlow, marker: Datamarker) -> Mapping[str, bytes]:
        """The pages to store with ``marker``."""
        settled = None if flow.ledger is None else flow.ledger.acknowledged(marker)
        return {} if settled is None else self.book(flow, settled, marker.order)

    async def open_replay(self, flow: PublisherFlow) -> LogPosition | None:
        """A task of a replay pushes the flow in a new epoch: up to where that is counted already. A marker that was
        moved may have taken what was acknowledged out of the store, so that is read.
        """
        self.forget(flow)
        await self.load(flow)
        books, replay = self._books[flow.key][1], flow.control.replay
        if replay is not None and (replay.mode != "log" or replay.where):
            books.moved_past(flow.epoch + 1)  # what is told of this later on may be of what is not counted
        return books.counted_to(flow.filter.hash)

    def replay_ended(self, flow: PublisherFlow) -> None:
        """All that a replay sent in the flow's epoch is acknowledged, and told."""
        self._is_known(flow)

    def forget(self, flow: PublisherFlow) -> None:
        """What is here may not be what is stored: it is read again before anything else is booked."""
        self._books.pop(flow.key, None)

    def book(self, flow: PublisherFlow, settled: Settled, end: LogPosition) -> Mapping[str, bytes]:
        """What was sent and acknowledged up to ``end``, by us or by a replay.

        The pages to store, with the datamarker.
        """
        known = self._books.get(flow.key)
        if known is None:
            return {}
        books, wanted, now = known[1], flow.filter.hash, time.time()
        until = _sent_until(flow)
        if settled.before is not None:
            counted_to, place = books.counted_to(wanted), (settled.begin, until)
            if counted_to is not None and counted_to < settled.begin:
                books.moved_past(flow.epoch)
            self._begins(
                flow.key, books, wanted, settled.life, settled.before, place, flow.epoch, partly=settled.partly
            )
        more = books.told(wanted, settled.life, settled.told, now, partly=settled.partly)
        if settled.partly:
            books.delivered_partly(wanted, settled.begin, end)
            return books.changed(now)
        lacking = self._lacking(settled, end) if settled.life else {}
        if settled.life:
            books.delivered_again_between(wanted, settled.begin, end, lacking)
        books.acknowledged(wanted, settled.begin, end, settled.counted, now, until)
        for window, updates in more.items():
            counted = settled.counted.get(window)
            in_vain = updates - settled.passed.get(window, 0)  # passes that may have gone further than this one has
            if in_vain > 0 and flow.caravan_flow is not None:
                flow.reached(flow.caravan_flow.place)
            books.processed_ahead(wanted, window, in_vain - (0 if counted is None else counted.updates), now)
        for window, hash_ in settled.letters:
            books.delivered_again(wanted, window, hash_, now)
        for window, problem in lacking.items():
            self._differs(flow, books, window, problem, now)
        return books.changed(now)

    def closed(self, flow: PublisherFlow, *, released: bool) -> Mapping[str, bytes]:
        """The epoch is over: what was processed and not acknowledged comes again, and counts again. The pages to store.

        ``released``: the subscriber told all itself; otherwise it may have done more.
        """
        ledger = flow.close_ledger()
        self._is_known(flow)
        if ledger is None or not ledger.life:
            return {}
        known = self._books.get(flow.key)
        epoch, cut = self._opened[flow.key], ledger.cut_off(released=released)
        self._known[flow.key].add(epoch)
        late = self._late[flow.key] = _Late(flow.filter.hash, ledger.place, _sent_until(flow), epoch, cut)
        if known is None or known[0] != flow.epoch:
            # After a rewind what was acknowledged before may be gone from the store: the next epoch reads it again.
            return {}
        self._note_cut_off(flow.key, late, known[1])
        known[1].all_heard_to(flow.epoch)
        return known[1].changed(time.time())

    def report(self, request: admin_pb2.AuditRequest, flows: Iterable[PublisherFlow]) -> admin_pb2.AuditReply:
        """What the books say."""
        reply = admin_pb2.AuditReply(delay_limits_s=DELAY_LIMITS_S)
        last = request.last_window or None
        for flow in flows:
            known = self._books.get(flow.key)
            if known is None or request.flow not in ("", flow.name):
                continue
            for kind, by_filter in (({}, known[1].ranges), (_PARTLY, known[1].partly), (_AGAIN, known[1].again)):
                for filter_hash, ranges in sorted(by_filter.items()):
                    for range_ in ranges:
                        _add_range(reply, range_, flow=flow.name, filter_hash=filter_hash, **kind)
            for filter_hash, range_ in known[1].silent.values():
                _add_range(reply, range_, flow=flow.name, filter_hash=filter_hash, unheard=True)
            for filter_hash, window, page in known[1].select(request.first_window, last):
                problems = [one for one in page.problems if not one.is_repaired]
                repaired = [one for one in page.problems if one.is_repaired]
                reply.windows.add(
                    flow=flow.name,
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
                    problems=map(str, problems),
                    missing=sum(one.missing for one in problems),
                    missing_first=sum(one.first for one in problems),
                    repaired=sum(one.missing for one in repaired),
                    repairs=map(str, repaired),
                    ahead=page.ahead + page.stray,
                    unheard=sum(page.unheard.values()),
                )
        return reply

    # -- inside

    def _is_known(self, flow: PublisherFlow) -> None:
        known = self._known.setdefault(flow.key, set())
        known.add(flow.epoch)
        known -= {one for one in known if one < flow.epoch - _EPOCHS}

    def _begins(
        self,
        flow: FlowKey,
        books: Books,
        wanted: str,
        life: int,
        before: Before,
        place: tuple[LogPosition, LogPosition],
        epoch: int,
        *,
        partly: bool = False,
    ) -> None:
        """A subscriber tells what it counted before this epoch. Of epochs that are not its own, nor were known to us,
        nobody tells: what lies between the two of ``place`` may have been processed there.
        """
        now = time.time()
        books.heard(life, before.epochs)
        unknown = range(max(books.heard_to + 1, epoch - _EPOCHS), epoch)
        for one in () if partly else unknown:
            if one not in before.epochs and one not in self._known.get(flow, ()):
                books.silent_in(one, wanted, *place)
        books.all_heard_to(epoch - 1)
        note = books.processed_further
        if any(one < books.moved_in for one in before.epochs):
            note = books.processed_astray  # it may be of what the flow was moved past
        counted = {
            window: one
            for window, one in before.counted.items()
            if books.is_news(life, window, one) and not is_ahead(window, now)
        }
        for window, updates in books.told(wanted, life, counted, now).items():
            note(wanted, window, updates, now)

    def _note_cut_off(self, flow: FlowKey, late: _Late, books: Books, *, again: bool = False) -> None:
        """``again``: what was acknowledged may not be in the books."""
        cut, now = late.cut, time.time()
        if cut.before is not None:
            self._begins(flow, books, late.filter_hash, cut.life, cut.before, (late.begin, late.sent_until), late.epoch)
        most = {} if again else {window: cut.sent.get(window, 0) for window in cut.told}
        told = {window: one for window, one in cut.told.items() if books.is_news(cut.life, window, one)}
        for window, updates in books.told(late.filter_hash, cut.life, told, now).items():
            books.processed_ahead(late.filter_hash, window, min(updates, most.get(window, updates)), now)
        books.cut_off(late.filter_hash, cut.life, cut.unheard, now)

    def _lacking(self, settled: Settled, end: LogPosition) -> dict[int, Problem]:
        """By window, where fewer updates were processed or set aside than were sent."""
        sent = {window: tally.updates for window, tally in settled.sent.items()}
        counted = {window: tally.updates for window, tally in settled.counted.items()}
        for window, _ in settled.letters:
            sent[window] = sent.get(window, 0) + 1
        found: dict[int, Problem] = {}
        for window, updates in sent.items():
            lacks = updates - settled.passed.get(window, 0)
            if lacks > 0:
                first = max(0, lacks - (updates - counted.get(window, 0)))
                found[window] = Problem(settled.begin, end, updates, updates - lacks, first, settled.begin)
        return found

    def _differs(self, flow: PublisherFlow, books: Books, window: int, problem: Problem, now_s: float) -> None:
        books.problem(flow.filter.hash, window, problem, now_s)
        self.mismatches[flow.application] = self.mismatches.get(flow.application, 0) + 1
        _log.error(
            "%s lost updates at %s: %s. Next: `wormholectl audit --app %s` says which; a replay from the first of "
            "these places "
            "delivers them again",
            flow.name,
            flow.subscriber,
            problem,
            flow.application,
            extra=flow.about,
        )


def _sent_until(flow: PublisherFlow) -> LogPosition:
    """Behind it nothing was sent in an earlier epoch."""
    replay = flow.control.replay
    if replay is None or replay.until is None:
        return flow.sent_until
    return max(flow.sent_until, replay.until.order)


def _add_range(reply: admin_pb2.AuditReply, range_: Range, **what: Any) -> None:
    told = reply.ranges.add(**what)
    told.begin.CopyFrom(position_to_message(range_[0]))
    told.end.CopyFrom(position_to_message(range_[1]))
