"""Polls every publisher and sink of the host every one to three seconds. The answers go to the host's state."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from monitor.publisher_client import NoAnswerError, PublisherClient
from monitor.state import HostState, LogKey, Phase, ProcessKey, PublisherState, SinkState
from monitor.status_diff import status_events
from wormhole.host.waiting import cancel_all
from wormhole.metrics import catalogue as c
from wormhole.wire.v1 import admin_pb2

if TYPE_CHECKING:
    from wormhole.host.trust import Trust

__all__ = ["StatusPoller", "poll_interval"]

_log = logging.getLogger(__name__)

# The most requests per second. A request costs the monitor almost a millisecond, so this limits its idle load.
_REQUESTS_PER_S: Final = 5
_SHORTEST_S: Final = 1.0
_LONGEST_S: Final = 3.0
_TIMEOUT_S: Final = 5.0
_STATUS: Final = "/status"
_STORE: Final = re.compile(rf'^{c.SINK_PROBLEM.name}{{sink="([^"]*)",.*code="([a-z0-9-]+)"}} 1', re.MULTILINE)
_UNVERIFIED: Final = re.compile(rf'^{c.SINK_UNVERIFIED.name}{{sink="([^"]*)",.*}} (\d+)', re.MULTILINE)
_ERRORS: Final = frozenset({"data_loss", "halted", "needs_replay"})


def poll_interval(publishers: int) -> float:
    """Seconds between two requests to the same publisher. ``publishers``: the number of publishers."""
    return min(_LONGEST_S, max(_SHORTEST_S, publishers / _REQUESTS_PER_S))


async def _stays(key: LogKey) -> None:
    """Do nothing: the publisher's addresses stay as they are."""


class StatusPoller:
    """Polls the publishers in ``state``. ``trust``: see :class:`~monitor.publisher_client.PublisherClient`.

    ``read_addresses``: called for a publisher that did not answer, to update its addresses in ``state``.
    """

    def __init__(
        self,
        state: HostState,
        trust: Trust | None = None,
        read_addresses: Callable[[LogKey], Awaitable[None]] = _stays,
    ) -> None:
        self._state = state
        self._read_addresses = read_addresses
        self._client = PublisherClient(trust)
        self._requests: dict[ProcessKey, asyncio.Task[None]] = {}
        self._last: dict[LogKey, admin_pb2.PublisherStatus] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        await self._client.start()
        try:
            while True:
                polled: list[PublisherState | SinkState] = [*self._state.publishers.values()]
                polled += self._state.sinks.values()
                for entry in polled:
                    # A publisher that hangs is polled again after its answer or timeout. Other publishers do not wait.
                    if entry.http and entry.phase is Phase.RUNNING and entry.key not in self._requests:
                        self._requests[entry.key] = asyncio.create_task(self._poll(entry), name=f"poll {entry.key}")
                for key in set(self._last) - set(self._state.publishers):
                    del self._last[key]
                await asyncio.sleep(poll_interval(len(polled)))
        finally:
            tasks = list(self._requests.values())
            await cancel_all(*tasks)
            await self._client.close()

    async def _poll(self, entry: PublisherState | SinkState) -> None:
        try:
            if isinstance(entry, SinkState):
                await self._update_sink(entry)
            else:
                await self._update(entry)
        except Exception:  # noqa: BLE001 - logged here, or asyncio would report it when the task is collected
            _log.exception("%s: its answer cannot be used. Next: please report this", entry.key)
        finally:
            del self._requests[entry.key]

    async def _update(self, entry: PublisherState) -> None:
        pid = entry.pid
        status, problem = await self._status(entry.key, entry.http)
        if status is None:
            await self._read_addresses(entry.key)
        known = self._state.publishers.get(entry.key) is entry
        if not known or entry.pid != pid or entry.phase is not Phase.RUNNING:
            return  # the answer of a process that has ended
        if problem != entry.problem:
            _log.log(logging.WARNING if problem else logging.INFO, "%s: %s", entry.key, problem or "answers again")
        entry.problem = problem
        if status is not None:
            entry.answered = self._state.clock.wall()
            for event in status_events(entry.key, self._last.get(entry.key), status, entry.answered):
                if event.kind in _ERRORS:
                    _log.error("%s: %s", event.subject, event.text)
                self._state.add(event)
            self._last[entry.key] = entry.status = status
        self._state.changed()

    async def _update_sink(self, entry: SinkState) -> None:
        pid = entry.pid
        try:
            text = bytes(await self._client.get(entry.http, "/metrics", _TIMEOUT_S)).decode()
        except (NoAnswerError, UnicodeDecodeError):
            return  # the sink's process has ended
        codes = ", ".join(name for sink, name in _STORE.findall(text) if sink == entry.key.name)
        found = codes, sum(int(tables) for sink, tables in _UNVERIFIED.findall(text) if sink == entry.key.name)
        known = self._state.sinks.get(entry.key) is entry and entry.pid == pid and entry.phase is Phase.RUNNING
        if known and found != (entry.store, entry.unverified):
            entry.store, entry.unverified = found
            self._state.changed()

    async def _status(self, key: LogKey, address: str) -> tuple[admin_pb2.PublisherStatus | None, str]:
        try:
            status = admin_pb2.PublisherStatus.FromString(bytes(await self._client.get(address, _STATUS, _TIMEOUT_S)))
        except NoAnswerError as error:
            return None, str(error)
        except DecodeError:
            return None, "its answer is not a publisher's status"
        if (status.dataset, status.copy, status.log) != (key.dataset, key.copy, key.log):
            return None, f"{status.dataset}/{status.copy}/{status.log} answers at its address"
        return status, ""
