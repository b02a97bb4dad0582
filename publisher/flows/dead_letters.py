"""Parks updates, delivers them again, and discards them, with a :class:`~wormhole.ports.dead_letters.DeadLetterStore`.
A parked update, or letter, is an update whose handler failed, or a later update of its rows.

``PublisherFlow.parking`` has the letters of a flow: the letters at the beginning of its epoch, and all later ones. The
order of steps matters:

- parking: the letter is stored durably, then answered. Only then does the subscriber count it as processed.
- assigning: the epoch is raised, then the letters are read, then their rows are sent with ``Assign``. A former epoch
  cannot add letters.
- delivering again: the letters are marked durably, and the flow is assigned anew. The marked letters are sent one by
  one before any update of the log, and each is deleted when the datamarker after it was acknowledged. If a process
  dies in between, the remaining letters are still marked and are still sent first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

from publisher.push.flow import PublisherFlow
from publisher.push.stream import SubscriberStream
from wormhole.filters import Projection
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import DecodeError, EpochRefused, MarkerStoreError, ProtocolError, UsageError, WormholeError
from wormhole.model.problem import NO_PROBLEM
from wormhole.ports.dead_letters import (
    DeadLetter,
    DeadLetterStore,
    Parcel,
    bound_together,
    for_receiver,
    marked,
    open_parcel,
    row_text,
)
from wormhole.ports.marker_store import FlowKey
from wormhole.push.events import LetterArrived
from wormhole.push.peer_threads import Charge, PeerThreads
from wormhole.wire.bounds import shortened
from wormhole.wire.update import Update
from wormhole.wire.v1 import admin_pb2, update_pb2

__all__ = ["DeadLetterOffice", "Holders"]

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_RETRY_S: Final = 2.0
_NAMED: Final = 5
_PLACE_BYTES: Final = 64  # the most bytes of a row's position in an assignment, without the transaction's id
_LIST_BYTES: Final = 2 << 20  # the largest list of parked updates in a message
_LONGEST_KEY: Final = 8192
_FOLLOWS: Final = "an earlier update of its row is parked"


class Holders(Protocol):
    """Who has the flows; see :class:`publisher.flows.assigner.Assigner`."""

    @property
    def flows(self) -> Mapping[FlowKey, PublisherFlow]: ...

    def holds(self, flow: PublisherFlow) -> bool: ...

    def again(self, flow: PublisherFlow, cause: str) -> None: ...

    def recall(self, flow: PublisherFlow, cause: str) -> None: ...


class DeadLetterOffice:
    """See the module. ``limit``: the most parked updates of one flow. ``threads``: the threads that call the store, one
    call per application at a time.
    """

    def __init__(
        self,
        store: DeadLetterStore,
        limit: int,
        holders: Holders,
        threads: PeerThreads,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._threads = threads
        self.limit = limit
        self._store = store
        self._holders = holders
        self._flows = holders.flows
        self._locks: dict[FlowKey, asyncio.Lock] = {}
        self._without: dict[FlowKey, int] = {}  # flows without parked updates, and the epoch for which that holds
        self._full: dict[FlowKey, int] = {}  # the epoch in which an update was refused last

    # -- for the assigner

    async def ask(self, flows: Collection[PublisherFlow]) -> None:
        """Find out which of the flows have letters that :meth:`load` has to read. The epoch of each flow was just
        raised, so no letter is added meanwhile. Raises the store's errors.
        """
        epochs = {flow.key: flow.holding.epoch for flow in flows}
        parked = await self._ask("", partial(self._store.parked, epochs.keys()))
        self._without |= {key: epoch for key, epoch in epochs.items() if key not in parked}

    async def load(self, flow: PublisherFlow) -> None:
        """Read the flow's letters for its new epoch. Raises the store's errors."""
        if self._without.pop(flow.key, None) == flow.holding.epoch:
            flow.parking.found(())
            return
        async with self._lock(flow):
            flow.parking.found(await self._ask(flow.application, partial(self._load, flow.key)))

    async def look(self) -> None:
        """Read the letters of flows that had no epoch yet, so that operators see them.

        Raises the store's errors.
        """
        unseen = [flow for flow in self._flows.values() if flow.parking.letters is None]
        parked = await self._ask("", partial(self._store.parked, [flow.key for flow in unseen])) if unseen else ()
        for flow in unseen:
            async with self._lock(flow):
                letters = await self._ask(flow.application, partial(self._load, flow.key)) if flow.key in parked else ()
                flow.parking.found(letters if flow.parking.letters is None else flow.parking.letters)

    def _load(self, flow: FlowKey) -> tuple[DeadLetter, ...]:
        letters = self._store.load(flow)
        marked = [letter.id for letter in letters if letter.retrying]
        together = bound_together(letters, marked)
        if len(together) > len(marked):  # letters that were parked since the mark have to follow in order
            self._store.retry(flow, together)
            letters = self._store.load(flow)
        return letters

    # -- for a subscriber

    async def answer(self, stream: SubscriberStream, flow: PublisherFlow, epoch: int, wanted: LetterArrived) -> None:
        """Park the update that the stream's subscriber sent for parking in ``epoch``, and answer."""
        letter = replace(wanted.letter, parked_by=stream.identity)

        def waits() -> bool:
            return flow.holding.epoch == epoch and flow in stream.flows

        try:
            refused = await self.park(flow, epoch, letter, wanted.parcel, stream.max_frame_bytes, waits, stream.charge)
            if refused is not None:
                stream.parked(flow, epoch, letter.id, refused)
        finally:
            wanted.done()

    async def park(
        self,
        flow: PublisherFlow,
        epoch: int,
        letter: DeadLetter,
        parcel: Parcel,
        max_frame: int,
        waits: Callable[[], bool] = lambda: True,
        charge: Charge = lambda seconds: None,
    ) -> str | None:
        """Store an update whose handler failed. While the store fails, the write is retried and the flow waits.

        ``max_frame``: bytes of the largest message to the subscriber. The rows of parked updates may take half of an
        assignment message. ``waits``: whether the subscriber still waits for the answer. ``charge``: see
        :mod:`wormhole.push.peer_threads`. Returns ``""`` if the update is durable, or why it is refused; ``None`` if
        the epoch is over or the subscriber does not wait.
        """

        async def store() -> str | None:
            async with self._lock(flow):
                return await self._park(flow, epoch, letter, parcel, max_frame // 2, charge)

        return await self._patiently(flow, epoch, store, f"waits, for update {letter.id} cannot be parked", waits)

    async def _park(
        self, flow: PublisherFlow, epoch: int, letter: DeadLetter, parcel: Parcel, most_rows: int, charge: Charge
    ) -> str | None:
        if epoch != flow.holding.epoch:
            return None
        began = self._clock.processor()
        answer, known = self._answer(flow, epoch, letter, most_rows)
        charge(self._clock.processor() - began)
        if answer is not None:
            return answer
        if known is not None:  # it failed again: its content and first sender stay as stored
            parcel = await self._ask(flow.application, partial(self._store.read, flow.key, known.id))
            letter = replace(known, error=letter.error)
        letter = replace(letter, parked_at=self._clock.wall(), retrying=False)
        await self._threads.run(flow.application, partial(self._store.park, flow.key, epoch, letter, parcel), charge)
        began = self._clock.processor()
        flow.parking.park(letter, known)
        # A parked row may have hundreds of later updates. The list shows them.
        level = logging.WARNING if letter.error else logging.DEBUG
        _log.log(level, "%s: update %s is parked: %s", flow.name, letter.id, letter.error or _FOLLOWS, extra=flow.about)
        charge(self._clock.processor() - began)
        return ""

    def _answer(
        self, flow: PublisherFlow, epoch: int, letter: DeadLetter, most_rows: int
    ) -> tuple[str | None, DeadLetter | None]:
        """Returns the answer and the letter that is replaced. The answer is ``None`` if the letter has to be stored."""
        parked = flow.parking.known
        known = next((one for one in parked if one.id == letter.id), None)
        # In a mass replay, a letter that is marked for delivery still blocks its row. It was not tried, so it stays
        # marked.
        if known is not None and not (known.retrying and flow.control.replay is None):
            return "", known
        if known is None and (refused := self._refusal(flow, parked, letter, most_rows)):
            if self._full.get(flow.key) != epoch:  # logged once: a subscriber may ask any number of times
                self._full[flow.key] = epoch
                _log.error("%s is full: %s", flow.name, refused, extra=flow.about)
            return refused, known
        return None, known

    def _refusal(self, flow: PublisherFlow, parked: tuple[DeadLetter, ...], letter: DeadLetter, most_rows: int) -> str:
        size = letter.size + sum(one.size for one in parked)
        skip = f"Next: `wormholectl flows skip {flow.name} --update {letter.id}` passes over it"
        if letter.size > self._store.largest:
            return (
                f"update {letter.id} has {letter.size} bytes, and the store takes {self._store.largest} of one. {skip}"
            )
        if (row := _rows_bytes((letter,))) > most_rows:
            why = (
                f"the key of update {letter.id} would take {row} bytes of an assignment, and half of max_frame is "
                f"{most_rows}"
            )
            return f"{why}. {skip}"
        if len(parked) >= self.limit:
            why = f"{len(parked)} updates are parked, which is publisher.dead_letters"
        elif parked and size > self._store.most_bytes:
            why = f"the parked updates would have {size} bytes, and {self._store.most_bytes} are kept"
        elif parked and (rows := _rows_bytes((*parked, letter))) > most_rows:
            why = (
                f"the rows of parked updates would take {rows} bytes of an assignment, and half of max_frame is "
                f"{most_rows} (the smaller "
                "one, of the publisher and of its subscriber)"
            )
        else:
            return ""
        return (
            f"{why}. Next: mend the handler, then `wormholectl flows dead-letters retry {flow.name}`, or `discard` "
            "instead of `retry`"
        )

    async def redeliver(self, stream: SubscriberStream, flow: PublisherFlow) -> bool:
        """Send the marked letters again, one after the other.

        Returns whether all were sent; false if the epoch ended before.
        """
        epoch = flow.holding.epoch
        while (letter := flow.parking.next_again) is not None:
            try:
                parcel = await self._patiently(
                    flow, epoch, partial(self._ask, flow.application, partial(self._readable, flow, letter.id))
                )
            except KeyError:
                # An operator removed the letter from the store by hand, or is discarding it, which ends this epoch.
                flow.parking.remove(letter)
                _log.warning("%s: update %s is not parked any more", flow.name, letter.id, extra=flow.about)
                continue
            if parcel is None:
                return False
            if not stream.may_send:  # the permission ended while the store was read: the letter is read again later
                await self._clock.sleep(_RETRY_S)
                continue
            acked = stream.send_letter(flow, parcel)
            if acked is None or not await acked:
                return False
            async with self._lock(flow):
                # A letter whose handler failed again was parked again before the ack. It is not deleted.
                if letter in flow.parking.known:
                    deleted = partial(self._deleted, flow.key, letter.id, epoch)
                    if not await self._patiently(flow, epoch, partial(self._ask, flow.application, deleted)):
                        return False
                    flow.parking.remove(letter)
                    _log.info(
                        "%s: update %s was delivered again and is not parked any more",
                        flow.name,
                        letter.id,
                        extra=flow.about,
                    )
        return flow.holding.epoch == epoch

    # -- for operators

    async def letters(self, only: FlowKey | None, limit: int) -> tuple[list[admin_pb2.DeadLetter], int]:
        """The letters of the flow ``only``, or of all flows, and their total number. The list has at most ``limit``
        letters and fits one message. Raises the store's errors.
        """
        await self.look()
        flows = [flow for key, flow in sorted(self._flows.items()) if only in (None, key)]
        all_ = [(flow, letter) for flow in flows for letter in flow.parking.known]
        described: list[admin_pb2.DeadLetter] = []
        left = _LIST_BYTES
        for flow, letter in all_[:limit]:
            one = _told(flow, letter)
            left -= one.ByteSize()
            if left < 0:
                break
            described.append(one)
        return described, len(all_)

    async def retry(self, flow: PublisherFlow, key: str, preview: bool = False, *, anyone: bool = False) -> str:
        """Deliver the parked updates of the row ``key`` (empty: all rows) again, each to the subscriber that parked it.

        ``anyone``: deliver them to any subscriber that has the flow. ``preview``: change nothing. Returns a sentence
        about what happens. Raises :class:`~wormhole.model.errors.UsageError` if no update is parked, and the store's
        errors.
        """
        async with self._lock(flow):
            letters = await self._ask(flow.application, partial(self._store.load, flow.key))
            chosen = _chosen(flow, letters, key)
            together = bound_together(letters, chosen)
            if not preview:
                await self._ask(flow.application, partial(self._store.retry, flow.key, together, anyone=anyone))
                # An open epoch keeps the letters that it began with. For a flow without one they are read now.
                if not self._holders.holds(flow):
                    flow.parking.found(await self._ask(flow.application, partial(self._store.load, flow.key)))
        note = self._what_follows(flow, letters, chosen, together, anyone)
        if not preview:
            self._holders.again(flow, f"{_count(len(together))} to be delivered again")
        return note

    def _what_follows(
        self,
        flow: PublisherFlow,
        letters: tuple[DeadLetter, ...],
        chosen: Sequence[str],
        together: Sequence[str],
        anyone: bool,
    ) -> str:
        """The sentence about which letters are delivered again now, and what the other letters wait for."""
        held = self._holders.holds(flow)
        known = [marked(letter, anyone=anyone) for letter in letters if letter.id in together]
        now = {one.id for one in for_receiver(tuple(known), flow.parking.receiver if held else "") if one.retrying}
        waiting = [letter for letter in known if letter.id not in now]
        goes, stays = (sum(1 for one in chosen if (one in now) is there) for there in (True, False))
        notes = []
        if goes:
            when = "" if held else ", once a subscriber has the flow"
            notes.append(f"{_count(goes)} delivered again, in order, before anything new{when}")
        if stays:
            names = list(dict.fromkeys(one.parked_by for one in waiting if one.parked_by))
            notes.append(
                f"{_count(stays)} delivered again only once the subscriber that parked them "
                f"({', '.join(names[:_NAMED])}) has the flow, for nothing proves that the log held them"
            )
        if more := len(together) - len(chosen):
            notes.append(f"{more} more of rows that they share an update with")
        step = (
            ". Next: start that subscriber with the same `id`; or `--any-subscriber` delivers them to any, if you "
            "trust the one that parked them; or `discard` them"
        )
        return "; ".join(notes) + (step if stays else "")

    async def discard(self, flow: PublisherFlow, key: str, preview: bool = False) -> str:
        """Discard the parked updates of the row ``key`` (empty: all rows). The application never gets them.

        Raises the errors of :meth:`retry`.
        """
        async with self._lock(flow):
            letters = await self._ask(flow.application, partial(self._store.load, flow.key))
            chosen = _chosen(flow, letters, key)
            if not preview:
                await self._ask(flow.application, partial(self._store.remove, flow.key, chosen))
                flow.parking.found(tuple(letter for letter in flow.parking.known if letter.id not in chosen))
        if not preview:
            _log.warning(
                "%s: %s discarded: %s", flow.name, _count(len(chosen)), ", ".join(chosen[:_NAMED]), extra=flow.about
            )
            self._holders.again(flow, f"{_count(len(chosen))} discarded")
        return f"{_count(len(chosen))} discarded, the application never gets them"

    async def forget(self, flow: PublisherFlow) -> None:
        """Delete the letters of a flow whose record is deleted. Raises the store's errors."""
        async with self._lock(flow):
            await self._ask(flow.application, partial(self._store.forget, flow.key))
            flow.parking.found(())

    # -- inside

    async def _ask(self, application: str, ask: Callable[[], _T]) -> _T:
        return await self._threads.run(application, ask, lambda seconds: None)

    def _lock(self, flow: PublisherFlow) -> asyncio.Lock:
        return self._locks.setdefault(flow.key, asyncio.Lock())

    def _readable(self, flow: PublisherFlow, id_: str) -> Parcel:
        """The parked update, without columns that the application does not receive now."""
        parcel = self._store.read(flow.key, id_)
        try:
            update = open_parcel(parcel)
        except (ProtocolError, DecodeError) as error:
            raise MarkerStoreError(
                f"parked update {id_} cannot be read: {error.message}",
                flow=flow.name,
                hint=f"restore it from a backup, or `wormholectl flows dead-letters discard {flow.name}`: it is lost "
                "to the application then",
                code="marker-damaged",
            ) from error
        return projected(update, flow.filter.projection) if flow.filter.projection else parcel

    def _deleted(self, flow: FlowKey, id_: str, epoch: int) -> bool:
        self._store.remove(flow, [id_], epoch)
        return True

    async def _patiently(
        self,
        flow: PublisherFlow,
        epoch: int,
        ask: Callable[[], Awaitable[_T]],
        waits: str = "waits for its parked updates",
        wanted: Callable[[], bool] = lambda: True,
    ) -> _T | None:
        """Call the store until it answers. Returns ``None`` if the epoch ended, or if the answer is not ``wanted`` any
        more. Meanwhile the text ``waits`` is the flow's reason for waiting. Raises ``KeyError``.
        """
        trouble = ""
        while flow.holding.epoch == epoch and wanted():
            try:
                answer = await ask()
                if trouble and str(flow.problem) == trouble:
                    flow.explain(NO_PROBLEM)
                return answer
            except EpochRefused as error:
                _log.error("%s", error)
                if epoch == flow.holding.epoch:
                    self._holders.recall(flow, "another publisher owns the flow")
                return None
            except WormholeError as error:
                if trouble != str(error):
                    trouble = str(error)
                    flow.explain(error.problem)
                    _log.error("%s %s: %s", flow.name, waits, error, extra=flow.about)
            await self._clock.sleep(_RETRY_S)
        return None


def projected(update: Update, projection: Projection) -> Parcel:
    """``update`` with only the columns that ``projection`` permits, for its next delivery.

    Raises :class:`~wormhole.model.errors.DecodeError` if it cannot be projected."""
    body = update.batch.body
    schema, row = projection.project_row(update.batch.schema_of(body.schema_ids[0]), body.updates[0])
    return Parcel(schema.canonical, replace(body, updates=(row,), schema_ids=(schema.id,)).to_bytes())


def _rows_bytes(letters: tuple[DeadLetter, ...]) -> int:
    rows = {row: len(row) + len(letter.place.transaction) + _PLACE_BYTES for letter in letters for row in letter.rows}
    return sum(rows.values())


def _count(number: int) -> str:
    return "1 parked update is" if number == 1 else f"{number} parked updates are"


def _chosen(flow: PublisherFlow, letters: tuple[DeadLetter, ...], key: str) -> list[str]:
    chosen = [letter.id for letter in letters if not key or key in map(row_text, letter.rows)]
    if not chosen:
        rows = list(dict.fromkeys(row_text(row) for letter in letters for row in letter.rows))
        known = ", ".join(rows[:_NAMED]) + (f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else "")
        raise UsageError(
            f"no update of {key} is parked" if key else "no update is parked",
            flow=flow.name,
            hint=f"parked are {known}" if rows else None,
            code="change-refused",
        )
    return chosen


def _told(flow: PublisherFlow, letter: DeadLetter) -> admin_pb2.DeadLetter:
    return admin_pb2.DeadLetter(
        flow=flow.name,
        update_id=letter.id,
        table=update_pb2.RowKey.FromString(letter.rows[0]).table,
        key=shortened(row_text(letter.rows[0]), _LONGEST_KEY),
        op=letter.op,
        parked_at_s=letter.parked_at,
        error=letter.error or _FOLLOWS,
        bytes=letter.size,
        retrying=letter.retrying,
        parked_by=letter.parked_by,
    )
