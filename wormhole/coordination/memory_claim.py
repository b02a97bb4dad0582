"""The memory form of the ownership of a log, shared by the coordinators of one process. Tests use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from wormhole.coordination.port import TERMS_KEPT, MoveRequest, PublisherInfo, Term
from wormhole.coordination.rules import TAKEN_AGAIN, who

__all__ = ["MemoryClaim", "MemoryLog"]


@dataclass(slots=True, eq=False)
class MemoryLog:
    """The shared state of one log. ``taker``: the claim that took it last."""

    owner: MemoryClaim | None = None
    taker: MemoryClaim | None = None
    terms: tuple[Term, ...] = ()
    move: MoveRequest | None = None


class MemoryClaim:
    """The memory form of :class:`~wormhole.coordination.port.LogClaim`. ``changed`` is called after each change."""

    def __init__(
        self, log: MemoryLog, info: PublisherInfo, server: str, now: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self.info = info
        self._log, self._server, self._now, self._changed = log, server, now, changed
        self._number = 0
        self._closed = False
        self._reason = ""
        self._gone = asyncio.Event()

    @property
    def held(self) -> bool:
        return self._log.owner is self

    @property
    def term(self) -> int:
        return self._number

    def fence(self) -> str:
        return ""

    async def note_server(self, server: str) -> None:
        self._server = server
        if self.held:
            self._log.terms = (*self._log.terms[:-1], replace(self._log.terms[-1], server=server))
            self._changed()

    async def lost(self) -> str:
        await self._gone.wait()
        return self._reason

    async def close(self) -> None:
        self._closed = True
        self.leave()

    def take(self, why: str) -> None:
        """Take the log, which has no owner."""
        log, info = self._log, self.info
        self._number = log.terms[-1].number + 1 if log.terms else 1
        term = Term(self._number, info.copy, info.host, info.pid, self._server, self._now(), why)
        log.owner = log.taker = self
        log.terms = (*log.terms, term)[-TERMS_KEPT:]
        self._changed()

    def leave(self) -> None:
        """Release the log after the session ended or the owner closed its claim: other claims may take it."""
        if self.held:
            self._log.owner = None
            self._changed()

    def come_back(self) -> None:
        """Take the log again after the session is restored, unless another claim took it meanwhile."""
        if self.held or self._closed or self._reason:
            return
        if self._log.taker is self:
            self.take(TAKEN_AGAIN)
            return
        last = self._log.terms[-1]
        self._reason = f"{who(last)}, took the log in term {last.number}"
        self._gone.set()
