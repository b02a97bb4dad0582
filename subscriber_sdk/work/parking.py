"""Handles updates that get no callback: an update is skipped, or parked (stored by the publisher as a dead letter).

An update is parked once the publisher has answered that it is durable, and not before. Only then may the gate park
later updates of its row, and only then may a later datamarker be acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from subscriber_sdk.calls.callbacks import Callbacks
from subscriber_sdk.calls.epoch import Epoch
from subscriber_sdk.calls.gate import Gate, Verdict
from subscriber_sdk.stream.flow_port import FlowPort
from subscriber_sdk.subscriber import ParkRefused
from wormhole.model.reads import is_read_source
from wormhole.ports.dead_letters import place_of, wrap
from wormhole.wire.tally import WINDOW_S, update_hash
from wormhole.wire.update import Update

__all__ = ["EpochOver", "Parking"]

log = logging.getLogger("subscriber_sdk")

_LONGEST_ERROR: Final = 1000


class EpochOver(Exception):  # noqa: N818 - no failure
    """An update was not parked because the epoch ended."""


class Parking:
    """The parking of one epoch. ``gate``: decides what is skipped or parked; ``counted``: called with the window of
    commit time and the hash of each such update. ``lasting``: whether publishers recognise the subscriber after a
    restart.
    """

    def __init__(
        self,
        epoch: Epoch,
        callbacks: Callbacks,
        port: FlowPort,
        gate: Gate,
        counted: Callable[[int, int], None] = lambda window, hash_: None,
        *,
        lasting: bool = True,
    ) -> None:
        self._lasting = lasting
        self.gate = gate
        self.skipped = 0
        """The number of updates that were skipped, repeats included."""
        self.parked = 0
        """The number of updates that were parked in this epoch."""
        self.diverted = 0
        """The number of updates that got no callback, repeats included."""
        self._epoch = epoch
        self._callbacks = callbacks
        self._port = port
        self._counted = counted
        self._answers: dict[str, asyncio.Future[str | None]] = {}  # the publisher's answers, by the update's id

    @property
    def waiting(self) -> bool:
        """Whether no work continues before the publisher answers."""
        return any(not answer.done() for answer in self._answers.values())

    def answered(self, update_id: str, refused: str) -> None:
        """Handle the publisher's answer to an update to be parked. ``refused``: why it is not; empty: it is stored."""
        answer = self._answers.get(update_id)
        if answer is not None and not answer.done():
            self._epoch.resting = False
            answer.set_result(refused)

    def end(self) -> None:
        """Stop waiting for answers, because the epoch ends."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)

    async def sequence(self, updates: list[Update], *, singly: bool) -> bool:
        """Like :meth:`Callbacks.sequence`, but some updates are skipped or parked. The gate decides about an update
        after all earlier updates are finished, because they may change its decision.

        ``singly``: ``on_updates`` gets one update at a time.
        """
        together: list[Update] = []
        for update in updates:
            self._callbacks.look_at(update)
            verdict = self.gate.verdict(update)
            if verdict is Verdict.CALL:
                together.append(update)
                if not singly:
                    continue
            if together and not await self._callbacks.sequence(together):
                return False
            together = []
            if verdict is not Verdict.CALL and not await self._divert(update, verdict):
                return False
        return not together or await self._callbacks.sequence(together)

    async def one(self, update: Update) -> None:
        """Like :meth:`Callbacks.one`, but the update may be skipped or parked. Raises :class:`EpochOver` if the epoch
        ended before the update was skipped or parked.
        """
        verdict = self.gate.verdict(update)
        if verdict is Verdict.CALL:
            await self._callbacks.one(update)
        elif not await self._divert(update, verdict):
            raise EpochOver

    async def park(self, update: Update, error: Exception | None) -> bool:
        """Have the publisher store the update. Returns whether it is durable; false if the epoch ended meanwhile.

        Raises :class:`ParkRefused` if the publisher refuses, and :class:`~wormhole.model.errors.DecodeError` for a row
        that cannot be read, because later updates of that row could not be recognised.
        """
        update.rows()
        if self.gate.stored(update):
            return True
        if self._epoch.ending is not None:
            return False
        id_, reason = update.id, "" if error is None else _one_line(error)
        answer = self._answers[id_] = asyncio.get_running_loop().create_future()
        try:
            self._port.park(id_, wrap(update), place_of(update), reason)
            self._epoch.rest()  # nothing is left to do until the publisher answers
            refused = await answer
        finally:
            self._epoch.resting = False
            del self._answers[id_]
        if refused is None:
            return False
        if refused:
            raise ParkRefused(refused)
        self.gate.parked(update)
        self.parked += 1
        why = f"its handler gave up: {reason}" if reason else "an earlier update of its row is parked"
        level = logging.WARNING if reason else logging.DEBUG  # hundreds of later updates of the row may follow
        only = "" if self._lasting else "; only this process gets it again: give it an `id`, which a restart keeps"
        log.log(level, "flow %s: update %s is parked: %s%s", self._epoch.shard, id_, why, only)
        return True

    async def _divert(self, update: Update, verdict: Verdict) -> bool:
        """Skip or park the update in place of its callback. Returns false if the epoch ended before this was done."""
        if verdict is Verdict.SKIP:
            self.skipped += 1
            log.warning("flow %s: update %s is skipped, as an operator asked", self._epoch.shard, update.id)
        elif not await self.park(update, None):
            return False
        self.diverted += 1
        source, number, index = update.id.rsplit(":", 2)
        if not is_read_source(source):
            at = update.committed_at
            window = 0 if at is None else int(at.timestamp() // WINDOW_S)
            self._counted(window, update_hash(source, int(number), int(index)))
        return True


def _one_line(error: Exception) -> str:
    """The exception as one line for operators, shortened because the text of an exception has no limit."""
    text = " ".join(repr(error).split())
    return text if len(text) <= _LONGEST_ERROR else text[:_LONGEST_ERROR] + "..."
