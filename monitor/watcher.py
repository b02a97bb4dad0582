"""Reads the status of every publisher of the host, every one to three seconds, into the host's state."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from monitor.publisher_client import Asker, NoAnswerError
from monitor.state import HostState, LogKey, Phase, PublisherState
from monitor.status_diff import news
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["Watcher", "pause"]

_log = logging.getLogger(__name__)

# A question costs the monitor most of a millisecond, which many publishers would make more than it may take when all is
# quiet.
_ASKED_PER_S: Final = 5
_SHORTEST_S: Final = 1.0
_LONGEST_S: Final = 3.0
_TIMEOUT_S: Final = 5.0
_STATUS: Final = "/status"
_LOUD: Final = frozenset({"data_loss", "halted", "needs_replay"})


def pause(publishers: int) -> float:
    """Seconds between two questions to each of so many."""
    return min(_LONGEST_S, max(_SHORTEST_S, publishers / _ASKED_PER_S))


class Watcher:
    """Of the publishers in ``state``.

    ``trust``: as for :class:`~monitor.publisher_client.Asker`. ``clock``: seconds since 1970.
    """

    def __init__(self, state: HostState, trust: Trust | None = None, clock: Callable[[], float] = time.time) -> None:
        self._state = state
        self._asker = Asker(trust)
        self._clock = clock
        self._asking: dict[LogKey, asyncio.Task[None]] = {}
        self._last: dict[LogKey, admin_pb2.PublisherStatus] = {}

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._asker.start()
        try:
            while True:
                for key, entry in list(self._state.publishers.items()):
                    # One that hangs is asked again when it answered or its time is over; nobody else waits for it.
                    if entry.http and entry.phase is Phase.RUNNING and key not in self._asking:
                        self._asking[key] = asyncio.create_task(self._ask(entry), name=f"ask {key}")
                for key in set(self._last) - set(self._state.publishers):
                    del self._last[key]
                await asyncio.sleep(pause(len(self._state.publishers)))
        finally:
            tasks = list(self._asking.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._asker.close()

    async def _ask(self, entry: PublisherState) -> None:
        try:
            await self._take(entry)
        except Exception:  # noqa: BLE001 - logged here, or asyncio would report it when the task is collected
            _log.exception("%s: its answer cannot be used. Next: please report this", entry.key)
        finally:
            del self._asking[entry.key]

    async def _take(self, entry: PublisherState) -> None:
        pid = entry.pid
        status, problem = await self._status(entry.key, entry.http)
        known = self._state.publishers.get(entry.key) is entry
        if not known or entry.pid != pid or entry.phase is not Phase.RUNNING:
            return  # the answer of one that is gone
        if problem != entry.problem:
            _log.log(logging.WARNING if problem else logging.INFO, "%s: %s", entry.key, problem or "answers again")
        entry.problem = problem
        if status is not None:
            now = self._clock()
            for event in news(entry.key, self._last.get(entry.key), status, now):
                if event.kind in _LOUD:
                    _log.error("%s: %s", event.subject, event.text)
                self._state.note(event)
            self._last[entry.key] = entry.status = status
            entry.answered = now
        self._state.changed()

    async def _status(self, key: LogKey, address: str) -> tuple[admin_pb2.PublisherStatus | None, str]:
        try:
            status = admin_pb2.PublisherStatus.FromString(bytes(await self._asker.ask(address, _STATUS, _TIMEOUT_S)))
        except NoAnswerError as error:
            return None, str(error)
        except DecodeError:
            return None, "what it answers is no publisher's status"
        if (status.dataset, status.copy, status.log) != (key.dataset, key.copy, key.log):
            return None, f"{status.dataset}/{status.copy}/{status.log} answers at its address"
        return status, ""
