"""Compares the existing rows of a flow with the application's rows, in an epoch that an operator requested for this.

READ updates are not delivered. Instead the application returns its rows with the same keys, at the same place in the
order of the shard, so that writes may continue. In ``VerifyMode.REPAIR`` the rows that differ are delivered. At the end
of a table's scan the application's keys are compared with the existing keys (``source_keys``). ``findings`` reports the
results.

An application may be ahead of updates that are delivered again. So rows that were compared are not compared again after
a rollback. Rows that an earlier epoch delivered are compared only for a repair. A repair may set back such a row, but
the row's later changes are delivered after it.

A failure of the comparison does not affect the flow. The table is not compared any further, and a report says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any, Final, TypeVar

from subscriber_sdk.backfill import Key, KeyRange
from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Epoch
from subscriber_sdk.calls.failure_report import headline, logged_error
from subscriber_sdk.calls.gate import Gate, Verdict
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.calls.retry import Retry
from subscriber_sdk.stream.events import Assigned
from subscriber_sdk.stream.flow_port import FlowPort
from subscriber_sdk.verify.comparing import canonical, checked_answer, checked_key, compare, difference
from subscriber_sdk.verify.findings import Findings, frames_of
from subscriber_sdk.verify.source_keys import SourceKeys
from wormhole.model.errors import DecodeError, ProtocolError, UsageError
from wormhole.model.position import LogPosition
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.model.verification import MOST_EXTRA, Difference, DifferenceKind, VerifyMode
from wormhole.ports.dead_letters import UpdatePlace, place_of
from wormhole.wire.rows import values_of
from wormhole.wire.update import Update
from wormhole.wire.v1 import push_pb2

__all__ = ["FlowVerifying"]

log = logging.getLogger("subscriber_sdk")

_T = TypeVar("_T")
_Deliver = Callable[[list[Update]], Awaitable[bool]]
"""Delivers updates one after the other. Returns whether all were processed; false if the epoch ended meanwhile."""

_ROWS: Final = 500  # the most rows in one call of on_verify
_KEYS: Final = 1000  # keys of on_verify_keys to which one time limit of a callback applies
_NEXT: Final = "verify the table again"


class FlowVerifying:
    """The comparison in one epoch of a flow. ``retry``: the retries of ``on_verify`` and ``on_verify_keys``."""

    def __init__(
        self,
        epoch: Epoch,
        assigned: Assigned,
        handlers: Handlers,
        callbacks: Callbacks,
        gate: Gate,
        port: FlowPort,
        retry: Retry,
    ) -> None:
        self.passed = 0
        """The number of READ updates that were not delivered, repeats included."""
        self._epoch = epoch
        self._repairs = assigned.verify is VerifyMode.REPAIR
        self._generation = assigned.generation
        self._handlers = handlers
        self._callbacks = callbacks
        self._gate = gate
        self._port = port
        self._retry = retry
        self._keys = SourceKeys(epoch.shard, gate, handlers)
        self._tables: dict[str, Findings] = {}
        self._begins: LogPosition | None = None  # the position at which the epoch's delivery begins
        self._again = False  # whether an earlier epoch delivered the last updates
        self._furthest: UpdatePlace | None = None  # the furthest place that was compared
        # Since the last acknowledged datamarker:
        self._due: dict[str, bool] = {}  # ids of updates that differ, and whether they were delivered
        self._left_out: set[str] = set()  # ids of changes that the application did not get

    # --- what the flow does ---

    async def note(self, updates: Sequence[Update]) -> None:
        """Note the next updates."""
        if not updates:
            return
        self._begins = self._begins or self._epoch.marker.order
        self._again = self._is_repeated(updates[-1])
        for table, noted in (await self._keys.note(updates)).items():
            findings = self._of(table)
            new = set(noted.diverted) - self._left_out
            self._left_out |= new
            findings.leave_out(len(new))
            if noted.unknown:
                self._unlist(findings, noted.unknown)

    async def sequence(self, updates: list[Update], deliver: _Deliver) -> bool:
        """Handle one update after the other: READ updates are compared, all others are delivered. Returns whether all
        were processed; false if the epoch ended meanwhile.
        """
        for compared, part in groupby(updates, self._is_compared):
            if not compared:
                if not await deliver(list(part)):
                    return False
                continue
            for table, rows in groupby(part, lambda update: update.table):
                for portion in _portions(list(rows)):
                    if not await self._compare(self._of(table), portion, deliver):
                        return False
        return True

    def has_reads(self, updates: Iterable[Update]) -> bool:
        """Whether one of the ``updates`` has to be compared."""
        return any(map(self._is_compared, updates))

    async def range_end(self, frame: bytes, schema: Schema) -> None:
        """Handle the end of a range: every row of it arrived, and every earlier update is processed."""
        end = push_pb2.ChunkEnd.FromString(frame)
        table = schema.table
        findings = self._of(table)
        findings.begun = True
        self._keys.learn(table, schema.key)
        await self._keys.exempt(table, [values_of(row.values) for row in getattr(end, "except")])  # a keyword of Python
        if findings.extra_keys and end.alone:
            await self._remove(findings, [values_of(row.values) for row in end.alone])

    async def scan_end(self, table: str, rows: int) -> None:
        """Handle the end of a table: every row of it arrived, and every earlier update is processed."""
        findings = self._of(table)
        if findings.ended or findings.confirm or findings.over:
            return  # this end was handled before a rollback, and came again
        held = self._gate.held_keys(table)
        if held is None:
            self._unlist(findings, "an operation on the whole table is parked (`wormholectl dead-letters`)")
        elif self._again and not self._repairs:
            self._unlist(findings, "the shard was assigned anew, and the application may be ahead of it")
        if held is None or findings.given_up or findings.unlisted or findings.asked:
            findings.end()
            return
        extra = await self._tried(findings, "on_verify_keys", lambda: self._extra_keys(table, held))
        if extra is not None:
            self._end(findings, extra)
        elif self._epoch.ending is None:
            findings.end()

    def acknowledged(self) -> None:
        """Report the findings, because the datamarker after the compared rows is about to be acknowledged."""
        self._due.clear()
        self._left_out.clear()
        for findings in self._tables.values():
            confirm = findings.confirm
            if (found := findings.report()) is not None:
                for frame in frames_of(found, confirm=confirm):
                    self._port.verified(frame)

    def close(self) -> None:
        """The epoch is over."""
        self._keys.close()

    # --- rows ---

    def _is_compared(self, update: Update) -> bool:
        """Whether the update is compared. A parked update that an operator has delivered again is not compared: it is
        from before the place where delivery began.
        """
        try:
            return update.op is Op.READ and (not update.replayed or self._is_repeated(update))
        except (DecodeError, ProtocolError):
            return False  # the delivery of this update reports the error

    def _is_repeated(self, update: Update) -> bool:
        """Whether an earlier epoch delivered this update or later ones."""
        return update.replayed and self._begins is not None and update.position > self._begins

    def _is_left_out(self, update: Update) -> bool:
        """Whether the row cannot be compared."""
        if update.too_large or not update.key or (update.replayed and not self._repairs):
            return True
        return not self._gate.idle and self._gate.verdict(update) is not Verdict.CALL

    def _new(self, rows: list[Update]) -> list[Update]:
        """The rows that were not compared in this epoch."""
        furthest = self._furthest
        if furthest is None or furthest.before(place_of(rows[0])):
            return rows
        return [row for row in rows if furthest.before(place_of(row))]

    async def _compare(self, findings: Findings, rows: list[Update], deliver: _Deliver) -> bool:
        """Compare rows. Returns whether all were processed; false if the epoch ended meanwhile."""
        new = self._new(rows)
        compared = [] if findings.given_up else [row for row in new if not self._is_left_out(row)]
        found: list[tuple[Update, Difference]] | None = []
        if compared:
            keys = [row.key for row in compared]
            found = await self._tried(findings, "on_verify", lambda: self._differing(findings.table, keys, compared))
        if self._epoch.ending is not None:
            self._callbacks.stop_before(rows[0])
            return False
        if found is None:
            found, compared = [], []
        if new:
            self._furthest = place_of(new[-1])
            findings.add([one for _, one in found], compared=len(compared))
            findings.leave_out(len(new) - len(compared))
        if self._repairs:
            self._due.update((row.id, False) for row, _ in found)
        if not await self._repair(findings, rows, deliver):
            return False
        await self._callbacks.breathe()
        return True

    async def _repair(self, findings: Findings, rows: list[Update], deliver: _Deliver) -> bool:
        """Deliver the rows that differ. Returns whether all were processed; false if the epoch ended meanwhile."""
        due = [row for row in rows if row.id in self._due] if self._due else []
        if due:
            if not await deliver(due):
                return False
            findings.delivered(sum(not self._due[row.id] for row in due))
            self._due.update((row.id, True) for row in due)
        self.passed += len(rows) - len(due)
        return True

    async def _differing(self, table: str, keys: list[Key], rows: list[Update]) -> list[tuple[Update, Difference]]:
        answer = await self._callbacks.call("on_verify", table, self._epoch.shard, keys)
        return compare(rows, checked_answer(table, answer, keys))

    async def _tried(self, findings: Findings, name: str, work: Callable[[], Awaitable[_T]]) -> _T | None:
        """The result of ``work``, which calls the application; ``None``: the comparison of the table is given up, or
        the epoch ends."""
        retry = self._retry.fresh()
        while self._epoch.ending is None:
            try:
                return await work()
            except Exception as error:
                self._callbacks.meter.failures += 1
                if isinstance(error, UsageError):
                    self._give_up(findings, f"{error.message}. Next: {error.hint or f'mend {name}'}, then {_NEXT}")
                    return None
                again = retry.failed(None)
                log.warning(
                    "%s; flow %s, table %s: attempt %d of %d of %s failed",
                    headline(error),
                    self._epoch.shard,
                    findings.table,
                    retry.failures,
                    retry.attempts,
                    name,
                    exc_info=None if again else logged_error(error),
                )
                if not again:
                    self._give_up(findings, f"{headline(error)}. Next: mend {name}, then {_NEXT}")
                    return None
                await self._epoch.pause(retry.wait())
        return None

    def _give_up(self, findings: Findings, why: str) -> None:
        findings.given_up = True
        findings.say(f"table {findings.table} is not compared any more: {why}")
        log.warning("flow %s: %s", self._epoch.shard, findings.trouble)

    # --- keys of the application ---

    def _unlist(self, findings: Findings, why: str) -> None:
        findings.unlisted = True
        findings.say(f"the keys of {findings.table} were not compared, because {why}. Next: {_NEXT}")

    async def _extra_keys(self, table: str, held: Collection[Key]) -> _Extra | None:
        """The application's keys that do not exist; ``None`` if the epoch ends."""
        listed = await self._callbacks.call("on_verify_keys", table, self._epoch.shard)
        columns = self._keys.columns(table)
        parked = set(map(canonical, held))
        extra = _Extra()
        async for portion in self._listed(table, listed):
            if self._epoch.ending is not None:
                return None
            keys = {canonical(key): key for key in (checked_key(table, key, columns) for key in portion)}
            missing, exempt = await self._keys.missing(table, list(keys))
            extra.not_compared += len(exempt | missing & parked)
            extra.add({form: keys[form] for form in keys if form in missing and form not in parked})
            await self._callbacks.breathe()
        return extra

    async def _listed(self, table: str, listed: object) -> AsyncIterator[list[object]]:
        """The keys of ``on_verify_keys``, in portions that may each take as long as a callback."""
        if isinstance(listed, AsyncIterable):
            source = aiter(listed)
            while portion := await self._callbacks.wait_for("on_verify_keys", _taken(source)):
                yield portion
        elif isinstance(listed, Iterable) and not isinstance(listed, (str, bytes)):
            iterator = iter(listed)
            while portion := await self._callbacks.wait_for(
                "on_verify_keys", asyncio.wrap_future(self._handlers.submit(lambda: list(islice(iterator, _KEYS))))
            ):
                yield portion
        else:
            raise UsageError(
                f"on_verify_keys returned {listed!r:.100} for table {table}",
                hint="return the keys of the table that the application holds",
                code="callback-wrong",
            )

    def _end(self, findings: Findings, extra: _Extra) -> None:
        """Record the result after all keys of the application were compared."""
        findings.leave_out(extra.not_compared)
        named = [difference(DifferenceKind.EXTRA, key) for key in extra.keys.values()]
        if self._repairs and extra.count > MOST_EXTRA:
            findings.say(
                f"the application holds {extra.count} rows of {findings.table} that are not in the source; "
                f"only the first {MOST_EXTRA} are handled. Next: begin a backfill of the table, which reports all"
            )
        if not self._repairs or not extra.count:
            findings.end_with(extra.count, named)
        elif "on_range" not in self._handlers.overridden:
            findings.say(
                f"{extra.count} rows of {findings.table} that are not in the source were not removed, because the "
                f"application does not override on_range. Next: override it, or remove them, then {_NEXT}"
            )
            findings.end_with(extra.count, named)
        else:
            findings.ask(extra.count, extra.keys, named)

    async def _remove(self, findings: Findings, alone: Iterable[Key]) -> None:
        """Handle keys that the publisher read alone. Calls ``on_range`` with the keys whose rows do not exist, so that
        the application removes its rows."""
        table, extra = findings.table, findings.extra_keys
        held = self._gate.held_keys(table)
        asked = [form for form in map(canonical, alone) if form in extra]
        if not asked or held is None:
            return
        try:
            missing, _ = await self._keys.missing(table, asked)
        except UsageError as error:
            findings.say(f"{error.message}. Next: {error.hint}, then {_NEXT}")
            return
        missing -= set(map(canonical, held))
        if missing:
            columns = tuple(column.name for column in self._keys.columns(table))
            gone = frozenset(extra[form] for form in missing)
            keys = KeyRange(table, self._epoch.shard, self._epoch.number, self._generation, columns, keys=gone)
            await self._callbacks.call("on_range", keys)
            findings.gone({form: difference(DifferenceKind.EXTRA, extra[form]) for form in missing})

    def _of(self, table: str) -> Findings:
        findings = self._tables.get(table)
        if findings is None:
            findings = self._tables[table] = Findings(table)
        return findings


@dataclass(slots=True)
class _Extra:
    """Keys that only the application holds: their number, and the first of them by canonical form."""

    count: int = 0
    not_compared: int = 0
    keys: dict[bytes, Key] = field(default_factory=dict)

    def add(self, found: dict[bytes, Key]) -> None:
        self.count += len(found)
        self.keys.update(islice(found.items(), MOST_EXTRA - len(self.keys)))


def _portions(updates: list[Update]) -> Iterator[list[Update]]:
    for begin in range(0, len(updates), _ROWS):
        yield updates[begin : begin + _ROWS]


async def _taken(source: AsyncIterator[Any]) -> list[Any]:
    taken = []
    async for one in source:
        taken.append(one)
        if len(taken) == _KEYS:
            break
    return taken
