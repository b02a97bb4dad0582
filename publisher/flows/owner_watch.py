"""How the owner of a log watches itself: whether another candidate has to take the log, and which server is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from publisher.flows.datastore_queries import Looks
from publisher.flows.takeover_delay import moved_to, successor
from wormhole.coordination.port import Coordinator, LogClaim, LogGroup, LogOwners
from wormhole.host.clock import Clock
from wormhole.model.errors import WormholeError
from wormhole.ports.datastore import Standing

__all__ = ["OwnerWatch"]

_EVERY_S: Final = 1.0
_RESTING_S: Final = 30.0
"""Seconds between two checks of a datastore whose log can be read."""
_FAILED_LOOKS: Final = 3
"""How many consecutive failed checks of its datastore make an owner give the log up."""


class OwnerWatch:
    """The watch of one owner. ``name``: its name among the candidates; ``look``: queries its datastore. ``owners``: the
    last report of the log's owner and candidates."""

    def __init__(
        self,
        coordinator: Coordinator,
        group: LogGroup,
        name: str,
        look: Callable[[], Awaitable[Standing]],
        claim: LogClaim,
        clock: Clock,
    ) -> None:
        self.owners = LogOwners(None, (), (), None)
        self._coordinator = coordinator
        self._group = group
        self._name = name
        self._look = look
        self._claim = claim
        self._clock = clock

    async def moved(self) -> str:
        """Wait until an operator moved the log to another candidate that is present. Returns the candidate's name."""
        async for owners in self._coordinator.watch_log(self._group):
            self.owners = owners
            to = moved_to(owners)
            if owners.move is not None and to not in ("", self._name):
                return f"{to} (by {owners.move.by})"
        await asyncio.Event().wait()  # the coordinator is stopped: no move can arrive
        raise AssertionError("unreachable")

    async def outdone(self, troubled: Callable[[], bool]) -> str:
        """Wait until this datastore cannot be read and another candidate could serve. Returns the reason.

        ``troubled``: whether the log cannot be read now. Meanwhile the claim is updated with the server that is read.
        """
        failed, looked_at = 0, self._clock.monotonic()
        async with Looks(self._look, self._clock) as looks:
            while True:
                await self._clock.sleep(_EVERY_S)
                trouble, now = troubled(), self._clock.monotonic()
                if not trouble:
                    failed = 0
                    if now - looked_at < _RESTING_S:
                        continue
                found, looked_at = await looks.ask(), now
                if not trouble:
                    await self._note(found)
                    continue
                failed = 0 if found.ready else failed + 1
                other = successor(self.owners)
                if failed >= _FAILED_LOOKS and other:
                    return f"its datastore cannot be read here ({found.problem.text}), and {other} can serve"

    async def _note(self, found: Standing) -> None:
        """Record the server in the claim, because the datastore's address may lead to another server now."""
        noted = self.owners.terms[-1].server if self.owners.terms else ""
        if found.ready and found.server not in ("", noted):
            with contextlib.suppress(WormholeError):  # the next check records it
                await self._claim.note_server(found.server)
