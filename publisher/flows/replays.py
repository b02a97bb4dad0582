"""Mass replays of this log's flows: the publisher alone raises epochs and writes datamarkers, a replay asks it for
both.

What has a flow is stored with its record (:class:`~wormhole.ports.marker_store.ReplayControl`), so that a restarted
publisher, or the next one, knows it. The lease is in memory: who restarts gives the driver a whole one again. What
happens when somebody dies:

- this process, before something was stored: the request is made again. After: the next one goes on from the record. A
  task hears that its epoch is over (``ABORTED``), for only what was opened here is known to be the newest.
- the driver: the lease runs out, and the flow goes live if the log holds its datamarker, else it needs a replay, which
  everybody sees.
- a task: the next one opens the flow in a higher epoch; what the former one still says is refused.
- a subscriber: the next task is told another one, as soon as no handler of the former can run any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import grpc

from publisher.flows.assigner import Assigner
from publisher.flows.background import Chores
from publisher.flows.books import Bookkeeper
from publisher.flows.dead_letters import DeadLetterOffice
from publisher.flows.refused import RefusedError
from publisher.flows.replay_states import Run, cause, hashed, mine, opened, parked, permitted, stale, taken
from publisher.push.feed import Feed
from publisher.push.stream import SubscriberStream
from wormhole.audit.ledger import Settled
from wormhole.model.errors import Diverged, PositionPurged, ProtocolError, WormholeError
from wormhole.model.position import Datamarker, LogPosition, flow_name
from wormhole.ports.dead_letters import ParkedRows
from wormhole.ports.log_source import LogSource
from wormhole.ports.marker_store import FlowControl, FlowKey, MarkerStore, MarkerWrite, ReplayControl, ReplayState
from wormhole.push.parking import Arriving, open_letter
from wormhole.push.room import Room
from wormhole.wire.v1 import push_pb2

__all__ = ["Gap", "Opening", "Replays"]

_log = logging.getLogger(__name__)

Gap = PositionPurged | Diverged
"""Why the log cannot be read from a flow's datamarker on."""

_ACTIVE: Final = (ReplayState.HELD, ReplayState.REPLAYING)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a task was told: to push to ``stream``'s subscriber in ``epoch``, from ``marker`` on. ``park``: what a
    handler gives up on is parked; ``parked``: what is. ``counted_to``: up to where the flow's books have what was
    delivered. ``rewound``: the datamarker was set back and nothing was acknowledged since.
    """

    stream: SubscriberStream
    epoch: int
    marker: Datamarker
    progress: bytes
    skip: tuple[str, ...]
    filter: str
    park: bool
    parked: ParkedRows
    counted_to: LogPosition | None
    rewound: bool


@dataclass(frozen=True, slots=True)
class _Over:
    """How a replay ended: for who asks again because the answer was lost."""

    id: str
    ticket: str
    gap: Gap | None


class Replays:
    """See the module. Requests raise :class:`~publisher.flows.refused.RefusedError` and what the store and the source
    raise; nothing is changed then, and the same request may be made again.

    ``settle`` stores what was acknowledged; ``stored`` is told of a marker that is durable; ``control``, ``move`` and
    ``record`` are the publisher's. ``room``: the memory for what subscribers want to be parked.
    """

    def __init__(
        self,
        source: LogSource,
        store: MarkerStore,
        assigner: Assigner,
        dead_letters: DeadLetterOffice,
        chores: Chores,
        books: Bookkeeper,
        settle: Callable[[], Awaitable[None]],
        stored: Callable[[MarkerWrite], None],
        control: Callable[[Feed, Callable[[FlowControl], FlowControl]], Awaitable[None]],
        move: Callable[[Feed, Datamarker], Awaitable[None]],
        record: Callable[[Collection[Feed]], Awaitable[None]],
        room: Room,
    ) -> None:
        self._room = room
        self._source = source
        self._store = store
        self._assigner = assigner
        self._dead_letters = dead_letters
        self._chores = chores
        self._books = books
        self._settle = settle
        self._stored = stored
        self._control = control
        self._move = move
        self._record = record
        self._runs: dict[FlowKey, Run] = {}
        self._over: dict[FlowKey, _Over] = {}
        self._locks: dict[FlowKey, asyncio.Lock] = {}
        self._ending: set[FlowKey] = set()
        self._looking = asyncio.Lock()  # each look opens a reader, and a server has a number of those

    # -- what is told

    def lock(self, flow: FlowKey) -> asyncio.Lock:
        """Held while something about the flow's replay, or about its datamarker, is decided."""
        return self._locks.setdefault(flow, asyncio.Lock())

    def run_of(self, feed: Feed) -> Run | None:
        """What this process knows of the replay that has the feed."""
        run, replay = self._runs.get(feed.key), feed.control.replay
        return run if run is not None and replay is not None and run.id == replay.id else None

    def cause(self, feed: Feed) -> str:
        """Why the log's updates do not go to the flow's subscriber, in words; empty when no replay is why."""
        replay = feed.control.replay
        return "" if replay is None else cause(feed.name, replay, self.run_of(feed))

    # -- the requests

    async def begin(self, flow: FlowKey, wanted: ReplayControl) -> None:
        """Take the flow from the live log for the replay, or take a replay of the same id up again."""
        async with self._one(flow) as feed:
            now = feed.control.replay
            anew = now is None or now.id != wanted.id
            if anew and wanted.begin is not None and wanted.begin.order > feed.marker.order:
                raise RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    (
                        f"{wanted.begin} is ahead of the flow's datamarker {feed.marker}: what lies between would "
                        "never "
                        "be delivered"
                    ),
                    flow=feed.name,
                    hint="begin at the datamarker or before it",
                )
            known = self.run_of(feed)
            leased = known is None or time.monotonic() < known.until
            with _recorded(feed):
                await self._control(feed, lambda c: replace(c, replay=taken(feed.name, c.replay, wanted, leased)))
            run = Run(wanted.id, time.monotonic() + wanted.lease_s)
            if known is not None and known.id == run.id:
                run.updates, run.bytes = known.updates, known.bytes
            if known is not None:
                _fenced(known)
            self._runs[flow] = run
            self._over.pop(flow, None)
            feed.resume()  # somebody wants it to be tried again
            stream = self._assigner.stream_of(feed)
            if stream is not None:
                self._assigner.revoke(stream, feed, f"is replayed by {wanted.who}")
        _log.warning("%s is held for replay %s by %s", feed.name, wanted.id, wanted.who, extra=feed.about)

    async def open(
        self, flow: FlowKey, replay: str, ticket: str, *, parks: bool, opener: str, above: int = 0
    ) -> Opening | str:
        """Raise the epoch for a task that pushes; or say what it has to wait for. ``parks``: it knows of parked
        updates; ``opener``: who it is; ``above``: the epoch that its subscriber holds.
        """
        async with self._one(flow) as feed:
            now = permitted(feed.name, feed.control.replay, replay, ticket)
            run = self._known(feed, now)
            if now.subscriber:
                self._assigner.lend(feed, now.subscriber)  # the former task's: a handler may still run there
            stream = self._assigner.receiver(feed)
            if stream is None:
                run.waits = feed.cause
                return run.waits
            if why := self._overtakes(stream, feed, parks):
                run.waits = why
                return run.waits
            await self._settle()  # in the new epoch the store would refuse what was acknowledged in the old one
            with _recorded(feed):
                if not now.attempts and now.begin is not None and now.begin.order < feed.marker.order:
                    await self._move(feed, now.begin)
                else:
                    feed.raised(await asyncio.to_thread(self._store.raise_epoch, flow, above))
            run.epoch, epoch = 0, feed.epoch
            counted_to = await self._books.open_replay(feed)
            await self._dead_letters.load(feed)  # after the epoch was raised: a former one parks nothing any more
            if why := self._overtakes(stream, feed, parks):
                run.waits = why
                return run.waits

            def begun(control: FlowControl) -> FlowControl:
                present = permitted(feed.name, control.replay, replay, ticket)
                return replace(control, replay=opened(present, stream.info.id, opener))

            with _recorded(feed):
                await self._control(feed, begun)
            await self._record((feed,))  # the subscriber refuses an epoch that is not recorded
            if feed.epoch != epoch or feed.control.paused:
                run.waits = f"paused by {feed.control.paused}" if feed.control.paused else "its datamarker was set"
                return run.waits
            run.epoch, run.filter_hash, run.waits = epoch, feed.filter.hash, ""
            run.parking.drop()
            run.parking = Arriving(self._room.share(lambda error: _fenced(run)))
            run.max_frame = stream.max_frame_bytes
            return Opening(
                stream,
                epoch,
                feed.marker,
                now.progress,
                feed.control.skip,
                feed.filter.text,
                feed.parks,
                feed.parked_rows,
                counted_to,
                feed.rewound,
            )

    def check(self, flow: FlowKey, replay: str, ticket: str) -> None:
        """Raises unless the ticket is the one of the replay that has the flow: before anything large is made of a
        request.
        """
        feed = self._feed(flow)
        permitted(feed.name, feed.control.replay, replay, ticket)

    async def advance(
        self,
        flow: FlowKey,
        replay: str,
        ticket: str,
        epoch: int,
        marker: Datamarker | None,
        progress: bytes,
        updates: int,
        size: int,
        settled: Settled | None = None,
    ) -> None:
        """Store what was acknowledged in ``epoch``.

        ``updates`` and ``size`` (bytes) are counted, ``settled`` is booked with the marker.
        """
        async with self._one(flow) as feed:
            now = permitted(feed.name, feed.control.replay, replay, ticket)
            run = self._at_work(feed, now, epoch)
            if marker is not None or settled is not None:
                await self._store_marker(feed, run, marker or feed.marker, settled)
            if progress and progress != now.progress:
                await self._change(feed, now, lambda present: replace(present, progress=progress))
            run.updates += updates
            feed.count_replayed(updates)
            run.bytes += size

    async def park(self, flow: FlowKey, replay: str, ticket: str, epoch: int, frame: push_pb2.Park) -> str:
        """The next piece of an update that the subscriber wants to be parked in ``epoch``; once it is whole it is
        stored. Returns why it is refused; empty: it is durable, or more is to come. While the store fails it is tried
        again.
        """
        feed = self._feed(flow)
        run = self._at_work(feed, permitted(feed.name, feed.control.replay, replay, ticket), epoch)
        try:
            whole = run.parking.take(frame, feed.name)
        except ProtocolError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.message, flow=feed.name) from error
        if whole is None:
            return ""
        # Not one request about the flow at a time: it must be possible to cancel a replay whose letters cannot be
        # stored.
        try:
            letter = await asyncio.to_thread(open_letter, whole, feed.name)
            refused = await self._dead_letters.park(feed, epoch, letter, whole.parcel, run.max_frame)
        except ProtocolError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, error.message, flow=feed.name) from error
        finally:
            whole.done()
        if refused is None:
            raise stale(feed.name, "a newer task, an operator or another publisher ended it")
        return refused

    def renew(self, flow: FlowKey, replay: str, ticket: str) -> None:
        """The driver lives."""
        feed = self._feed(flow)
        now = permitted(feed.name, feed.control.replay, replay, ticket)
        run = self._known(feed, now)
        run.until, run.trouble = time.monotonic() + now.lease_s, ""

    async def finish(
        self, flow: FlowKey, replay: str, ticket: str, epoch: int, marker: Datamarker, *, accept_gap: bool
    ) -> Gap | None:
        """Everything up to ``marker`` is processed: the flow goes live, if the log can be read from there on, or
        ``accept_gap``.

        Returns why it cannot."""
        async with self._one(flow) as feed:
            if (over := self._ended(feed, replay)) is not None and over.ticket == hashed(ticket):
                return over.gap
            now = permitted(feed.name, feed.control.replay, replay, ticket)
            run = self._at_work(feed, now, epoch)
            if marker.order < feed.marker.order:
                raise RefusedError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{marker} is before the flow's datamarker {feed.marker}",
                    flow=feed.name,
                    hint="finish where the subscriber has everything",
                )
            await self._store_marker(feed, run, marker)
            self._books.replay_ended(feed)
            gap = await self._gap(feed.marker)
            if gap is not None and not accept_gap:
                return gap
            await self._change(feed, now, lambda present: None)
            feed.was_at(None, None)  # it has let go
            self._goes_live(feed, now, gap)
        if gap is None:
            _log.warning("%s: replay %s is finished, it goes live at %s", feed.name, replay, marker, extra=feed.about)
        else:
            _log.error("%s: replay %s is finished with a gap: %s", feed.name, replay, gap.message, extra=feed.about)
        return gap

    async def cancel(self, flow: FlowKey, replay: str, who: str, ticket: str = "") -> Gap | None:
        """Give the replay up: the flow goes live; if the log does not hold its datamarker any more (returned) it needs
        a replay. With a ``ticket`` it has to be the right one.
        """
        async with self._one(flow) as feed:
            if (over := self._ended(feed, replay)) is not None:
                return over.gap
            now = mine(feed.name, feed.control.replay, replay)
            if ticket:
                now = permitted(feed.name, now, replay, ticket, at_work=False)
            gap = await self._gap(feed.marker)
            await self._give_back(feed, now, gap, f"was cancelled by {who}")
            return gap

    # -- by time, and by operators

    def look(self, now: float) -> None:
        """End what has no lease any more. ``now``: seconds of the monotonic clock."""
        feeds = self._assigner.feeds
        for key in [key for key in self._runs if (feed := feeds.get(key)) is None or self.run_of(feed) is None]:
            self._runs.pop(key).parking.drop()
        for feed in feeds.values():
            replay = feed.control.replay
            if replay is None or replay.state not in _ACTIVE:
                continue
            if now >= self._known(feed, replay).until and feed.key not in self._ending:
                self._ending.add(feed.key)
                self._chores.spawn(self._run_out(feed.key))

    def fence(self, feed: Feed) -> None:
        """Something that a task was told when it opened the flow holds no more: it has to open it again."""
        run = self.run_of(feed)
        if run is not None:
            _fenced(run)

    # -- inside

    async def _run_out(self, flow: FlowKey) -> None:
        try:
            async with self._one(flow) as feed:
                now, run = feed.control.replay, self.run_of(feed)
                if now is None or run is None or now.state not in _ACTIVE:
                    return
                gap = await self._gap(feed.marker)
                if time.monotonic() >= run.until:  # it may have been renewed meanwhile
                    await self._give_back(feed, now, gap, f"has a driver that was silent for {now.lease_s:g} s")
        except WormholeError as error:  # looked at again: it must not stay held without anybody knowing
            run = self._runs.get(flow)
            if run is not None and run.trouble != error.message:
                run.trouble = error.message
                _log.error("%s: a replay whose lease ran out cannot be ended: %s", flow_name(*flow), error)
        finally:
            self._ending.discard(flow)

    async def _give_back(self, feed: Feed, now: ReplayControl, gap: Gap | None, why: str) -> None:
        self.fence(feed)
        if gap is None:
            await self._change(feed, now, lambda present: None)
            if now.subscriber:
                self._assigner.lend(feed, now.subscriber)
            if now.until is not None and now.attempts:
                feed.reached(now.until.order)
            self._goes_live(feed, now, None)
            _log.warning("%s: replay %s %s; it goes live at %s", feed.name, now.id, why, feed.marker, extra=feed.about)
            return
        await self._change(feed, now, lambda present: replace(present, state=ReplayState.NEEDS_REPLAY))
        run = self._known(feed, now)
        run.waits, run.trouble = gap.message, ""
        _log.error("%s needs a replay: %s %s, %s", feed.name, now.id, why, gap, extra=feed.about)

    def _goes_live(self, feed: Feed, now: ReplayControl, gap: Gap | None) -> None:
        if (run := self._runs.pop(feed.key, None)) is not None:
            run.parking.drop()
        self._over[feed.key] = _Over(now.id, now.ticket, gap)
        self._assigner.go_on(feed)

    async def _change(
        self, feed: Feed, now: ReplayControl, change: Callable[[ReplayControl], ReplayControl | None]
    ) -> None:
        """Change what is stored, unless somebody else had the flow meanwhile."""

        def changed(control: FlowControl) -> FlowControl:
            present = mine(feed.name, control.replay, now.id)
            if (present.ticket, present.attempts) != (now.ticket, now.attempts):
                self.fence(feed)
                raise stale(feed.name, "another publisher gave it to a newer task")
            return replace(control, replay=change(present))

        with _recorded(feed):
            await self._control(feed, changed)

    async def _store_marker(self, feed: Feed, run: Run, marker: Datamarker, settled: Settled | None = None) -> None:
        pages = {} if settled is None else self._books.book(feed, settled, marker.order)
        if marker.order < feed.marker.order:  # the application asked for what is before its datamarker
            if not pages:
                return
            marker = feed.marker
        write, done = MarkerWrite(feed.key, run.epoch, marker, run.filter_hash, pages), False
        try:
            if await asyncio.to_thread(self._store.store, [write]):
                raise stale(feed.name, "a newer epoch is stored")
            done = True
        finally:
            if not done:
                self._books.forget(feed)
        if feed.epoch == write.epoch:
            feed.acked(marker)
            self._stored(write)

    def _overtakes(self, stream: SubscriberStream, feed: Feed, parks: bool) -> str:
        """Why a task cannot push to the subscriber without overtaking what is parked; empty: it can."""
        if feed.parked and not parks:
            return parked(feed.dead_letters)
        return "" if self._assigner.keeps_order(stream, feed) else feed.cause

    async def _gap(self, marker: Datamarker) -> Gap | None:
        """Whether the log can be read from there on: it is opened to see."""
        async with self._looking:
            try:
                reader = await asyncio.to_thread(self._source.open, marker)
            except (PositionPurged, Diverged) as error:
                return error
            await asyncio.to_thread(reader.close)
            return None

    async def reaches(self, feed: Feed) -> bool:
        """Whether the log holds the feed's datamarker; no when it cannot be told."""
        try:
            return await self._gap(feed.marker) is None
        except WormholeError:
            return False

    async def earliest(self) -> Datamarker | None:
        """Where the log begins; ``None`` when it cannot be told."""
        try:
            return await asyncio.to_thread(self._source.earliest)
        except WormholeError:
            return None

    def _known(self, feed: Feed, replay: ReplayControl) -> Run:
        run = self.run_of(feed)
        if run is None:  # of a publisher before this one: its driver has a whole lease to find this one
            run = self._runs[feed.key] = Run(replay.id, time.monotonic() + replay.lease_s)
        return run

    def _at_work(self, feed: Feed, now: ReplayControl, epoch: int) -> Run:
        """What is known of the replay, for a task that works in its newest epoch."""
        run = self._known(feed, now)
        if not epoch:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the request names no epoch", flow=feed.name)
        if not now.attempts:
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "it was not opened yet", flow=feed.name)
        if not run.epoch or epoch != run.epoch or epoch != feed.epoch:
            raise stale(feed.name, "a newer task, an operator or a restart of the publisher ended it")
        if feed.filter.hash != run.filter_hash:
            raise stale(feed.name, "the application's filter changed")
        return run

    def _ended(self, feed: Feed, replay: str) -> _Over | None:
        over = self._over.get(feed.key) if feed.control.replay is None else None
        return over if over is not None and over.id == replay else None

    def _feed(self, flow: FlowKey) -> Feed:
        feed = self._assigner.feeds.get(flow)
        if feed is None:
            raise RefusedError(
                grpc.StatusCode.NOT_FOUND,
                (
                    f"{flow_name(*flow)} is not served: its application is not configured here, or the log does not "
                    "have "
                    "its shard"
                ),
                hint="`wormholectl flows` lists those that there are",
            )
        return feed

    @asynccontextmanager
    async def _one(self, flow: FlowKey) -> AsyncIterator[Feed]:
        """One request about a flow at a time."""
        async with self.lock(flow):
            yield self._feed(flow)


def _fenced(run: Run) -> None:
    run.epoch = 0
    run.parking.drop()


@contextmanager
def _recorded(feed: Feed) -> Iterator[None]:
    """Something about the flow's record in the marker store: it has none when the store raises ``KeyError``."""
    try:
        yield
    except KeyError:
        raise RefusedError(
            grpc.StatusCode.NOT_FOUND,
            f"the datamarker of {feed.name} is missing in the marker store",
            hint="restore the store, or restart the publisher to begin anew",
        ) from None
