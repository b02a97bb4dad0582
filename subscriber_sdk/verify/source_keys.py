"""Tracks which keys exist in the source, as far as one epoch of a flow knows: the keys of READ updates and of changes,
without keys that changes removed. :class:`~subscriber_sdk.verify.known_keys.KnownKeys` stores them, in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from subscriber_sdk.backfill import Key
from subscriber_sdk.calls.gate import Gate, Verdict
from subscriber_sdk.calls.handlers import Handlers
from subscriber_sdk.verify.comparing import canonical
from subscriber_sdk.verify.known_keys import KnownKeys
from wormhole.model.errors import DecodeError, ProtocolError, UsageError
from wormhole.model.schema import Column
from wormhole.model.values import Op
from wormhole.wire.update import Update

__all__ = ["Noted", "SourceKeys"]

log = logging.getLogger("subscriber_sdk")

_UNSTORED: Final = "the keys of its tables cannot be kept in a temporary file"


@dataclass(slots=True)
class Noted:
    """The effect of some updates on the keys of one table.

    ``diverted``: ids of updates that the application does not get, because they are parked or skipped. ``unknown``: the
    reason if it is no longer known which keys exist. ``exempt``: keys that may exist or not. ``present``: by key,
    whether its row exists after the updates. ``emptied``: whether all earlier keys are removed.
    """

    diverted: list[str] = field(default_factory=list)
    unknown: str = ""
    exempt: list[Key] = field(default_factory=list)
    present: dict[bytes, bool] = field(default_factory=dict)
    emptied: bool = False

    def empty(self) -> None:
        """Remove all keys."""
        self.emptied = True
        self.present.clear()

    def add(self, update: Update) -> None:
        """Add the next update."""
        op = update.op
        if op is Op.TRUNCATE:
            self.empty()
        elif op is Op.DELETE_RANGE:
            self.unknown = "a range of them was deleted meanwhile"
        elif not (key := update.key):
            self.unknown = "a row without a key was changed meanwhile"
        else:
            if (old := update.old_key) is not None:
                self.present[canonical(old)] = False
            self.present[canonical(key)] = not (op is Op.DELETE or update.left)


class SourceKeys:
    """The known keys of one epoch. ``gate``: decides which updates are parked or skipped."""

    def __init__(self, shard: str, gate: Gate, handlers: Handlers) -> None:
        self._shard = shard
        self._gate = gate
        self._handlers = handlers
        self._known = KnownKeys()
        self._unstored = ""  # why keys cannot be stored; empty: they can
        self._columns: dict[str, tuple[Column, ...]] = {}

    def columns(self, table: str) -> tuple[Column, ...]:
        """The columns of the table's key."""
        return self._columns.get(table, ())

    def learn(self, table: str, columns: tuple[Column, ...]) -> bool:
        """Set the columns of the table's key. Returns whether the table had another key before."""
        before = self._columns.get(table)
        if before is columns or not columns:
            return False
        self._columns[table] = columns
        return before is not None and before != columns

    async def note(self, updates: Sequence[Update]) -> dict[str, Noted]:
        """Apply the next updates to the keys. Returns their effect by table."""
        noted: dict[str, Noted] = {}
        await self._stored(partial(self._note, updates, noted))
        return noted

    async def exempt(self, table: str, keys: Iterable[Key]) -> None:
        """Exempt keys from :meth:`missing`, because it is not known whether their rows exist."""
        await self._stored(partial(self._exempt, table, keys))

    async def missing(self, table: str, keys: Sequence[bytes]) -> tuple[set[bytes], set[bytes]]:
        """The ``keys`` (canonical) that do not exist, and the ``keys`` for which this is not known.

        Raises :class:`~wormhole.model.errors.UsageError` if keys could not be stored.
        """
        missing: set[bytes] = set()
        exempt: set[bytes] = set()
        await self._stored(partial(self._find, table, keys, missing, exempt))
        if self._unstored:
            hint = "make room in the folder for temporary files (TMPDIR)"
            raise UsageError(f"{_UNSTORED}: {self._unstored}", hint=hint, code="file-unwritable")
        return missing, exempt

    def close(self) -> None:
        """The epoch is over."""
        self._handlers.submit(self._known.close)

    async def _stored(self, work: Callable[[], object]) -> None:
        """Do ``work`` in a thread. Does nothing if keys cannot be stored."""
        if self._unstored:
            return
        try:
            await asyncio.wrap_future(self._handlers.submit(work))
        except sqlite3.Error as error:
            self._unstored = str(error)
            log.warning("flow %s: %s: %s", self._shard, _UNSTORED, error)

    def _note(self, updates: Sequence[Update], found: dict[str, Noted]) -> None:
        for update in updates:
            table = update.table
            noted = found.get(table)
            if noted is None:
                noted = found[table] = Noted()
            try:
                if self.learn(table, update.schema.key):
                    noted.empty()
                noted.add(update)
                diverted = not self._gate.idle and self._is_diverted(update)
            except (DecodeError, ProtocolError):
                continue  # the delivery of this update reports the error
            if diverted:
                noted.diverted.append(update.id)
                noted.exempt.extend(filter(None, (update.key, update.old_key)))
        for table, noted in found.items():
            self._known.apply(table, noted.present, emptied=noted.emptied)
            self._exempt(table, noted.exempt)

    def _is_diverted(self, update: Update) -> bool:
        return update.op is not Op.READ and self._gate.verdict(update) is not Verdict.CALL

    def _exempt(self, table: str, keys: Iterable[Key]) -> None:
        if present := {canonical(key): True for key in keys}:
            self._known.apply(_exempt_of(table), present)

    def _find(self, table: str, keys: Sequence[bytes], missing: set[bytes], exempt: set[bytes]) -> None:
        missing.update(self._known.missing(table, keys))
        if missing:
            exempt.update(missing - self._known.missing(_exempt_of(table), list(missing)))
        missing -= exempt


def _exempt_of(table: str) -> str:
    """The name under which the exempt keys of a table are stored."""
    return f"exempt {table}"
