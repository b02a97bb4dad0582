"""Asks every publisher of the host how it is, every one to three seconds, and tells the host's state what it answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio

from monitor.happened import news
from monitor.state import HostState, LogKey, Phase, PublisherState
from wormhole.config import TlsFiles
from wormhole.refusal import why_unreachable
from wormhole.tls import channel_credentials, target_options
from wormhole.wire.v1 import admin_pb2

__all__ = ["Watcher", "pause"]

_log = logging.getLogger(__name__)

# A question costs the monitor most of a millisecond, which many publishers would make more than it may take when all is quiet.
_ASKED_PER_S: Final = 5
_SHORTEST_S: Final = 1.0
_LONGEST_S: Final = 3.0
_TIMEOUT_S: Final = 5.0
_DESCRIBE: Final = "/wormhole.wire.v1.Admin/Describe"
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
_LOUD: Final = frozenset({"data_loss", "halted"})


def pause(publishers: int) -> float:
    """Seconds between two questions to each of so many."""
    return min(_LONGEST_S, max(_SHORTEST_S, publishers / _ASKED_PER_S))


class Watcher:
    """One channel for each publisher. ``name``: expected in their certificates instead of their address, if not empty."""

    def __init__(
        self, state: HostState, tls: TlsFiles | None = None, name: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self._state = state
        self._tls = tls
        self._options = target_options(name) if name else []
        self._clock = clock
        self._credentials: grpc.ChannelCredentials | None = None
        self._channels: dict[LogKey, tuple[str, grpc.aio.Channel]] = {}
        self._asking: dict[LogKey, asyncio.Task[None]] = {}
        self._last: dict[LogKey, admin_pb2.PublisherStatus] = {}

    async def run(self) -> None:
        """Ask until cancelled. Raises :class:`~wormhole.errors.ConfigError` for certificates that cannot be read."""
        if self._tls is not None:
            self._credentials = await asyncio.to_thread(channel_credentials, self._tls)
        try:
            while True:
                for key, entry in list(self._state.publishers.items()):
                    # One that hangs is asked again when it answered or its time is over; nobody else waits for it.
                    if entry.admin and entry.phase is Phase.RUNNING and key not in self._asking:
                        self._asking[key] = asyncio.create_task(self._ask(entry), name=f"ask {key}")
                for key in set(self._channels) - set(self._state.publishers):
                    self._last.pop(key, None)
                    await self._close(key)
                await asyncio.sleep(pause(len(self._state.publishers)))
        finally:
            tasks = list(self._asking.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for key in list(self._channels):
                await self._close(key)

    async def _ask(self, entry: PublisherState) -> None:
        pid = entry.pid
        try:
            status, problem = await self._describe(entry.key, entry.admin)
        finally:
            del self._asking[entry.key]
        if entry.pid != pid or entry.phase is not Phase.RUNNING:
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

    async def _describe(self, key: LogKey, address: str) -> tuple[admin_pb2.PublisherStatus | None, str]:
        known = self._channels.get(key)
        if known is None or known[0] != address:
            await self._close(key)
            known = self._channels[key] = (address, self._dial(address))
        call: Any = known[1].unary_unary(
            _DESCRIBE,
            request_serializer=admin_pb2.DescribeRequest.SerializeToString,
            response_deserializer=admin_pb2.PublisherStatus.FromString,
        )
        try:
            return await call(admin_pb2.DescribeRequest(), timeout=_TIMEOUT_S), ""
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return None, f"it does not answer within {_TIMEOUT_S:g} s"
            return None, f"it does not answer: {why_unreachable(error.details() or error.code().name)}"

    def _dial(self, address: str) -> grpc.aio.Channel:
        host, _, port = address.rpartition(":")
        target = f"{_ANYWHERE.get(host, host)}:{port}"
        if self._credentials is None:
            return grpc.aio.insecure_channel(target)
        return grpc.aio.secure_channel(target, self._credentials, options=self._options)

    async def _close(self, key: LogKey) -> None:
        known = self._channels.pop(key, None)
        if known is not None:
            await known[1].close()
