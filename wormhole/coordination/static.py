"""Coordination without a service: the configuration file lists the subscribers.

Every listed subscriber is treated as live. The publisher dials it and tries again until it answers.

Features that need a service are not imitated. Another *process* that serves the same log is not seen here: the local
marker store's lock refuses it. Another monitor of the host is refused by the lock of its state folder.
:meth:`StaticCoordinator.publishers`, :meth:`~StaticCoordinator.monitors` and :meth:`~StaticCoordinator.flows` return
this process only. The file is read once: a change needs a restart. The request for this host, and the history, are in
files: :mod:`wormhole.coordination.host_files`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar

from wormhole.config import Config
from wormhole.coordination.access_tokens import AccessToken
from wormhole.coordination.change_signal import Unknown, watch
from wormhole.coordination.host_files import HostFiles
from wormhole.coordination.memory import MemoryCoordinator, MemoryWorld
from wormhole.coordination.port import (
    CandidateEntry,
    CandidateInfo,
    ConfigChange,
    Contact,
    HistoryEntry,
    HostRequest,
    LogClaim,
    LogGroup,
    LogOwners,
    MoveRequest,
    PublisherInfo,
    Registration,
    SubscriberInfo,
)
from wormhole.coordination.rules import check_subscriber, no_election, nowhere_to_publish, shortened
from wormhole.model.errors import ConfigError

__all__ = ["StaticCoordinator"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

_LOOK_EVERY_S: Final = 0.5


class StaticCoordinator(MemoryCoordinator):
    """The static form of the port, from a configuration whose applications list their subscribers.

    It is the memory form of this process, with contact from its beginning to its end.
    """

    _exclusive = False

    def __init__(self, config: Config) -> None:
        super().__init__(MemoryWorld(config))
        self._contact = Contact.CONNECTED
        self._files = HostFiles(config.publisher.state_dir)
        self._listed = tuple(
            SubscriberInfo(name, subscriber, address)
            for name, application in sorted(config.applications.items())
            for subscriber, address in sorted(application.subscribers.items())
        )

    def listed(self, application: str) -> Mapping[str, str]:
        """The subscribers that the file lists for an application, id to address; empty if the file has no such
        application.
        """
        return {info.id: info.address for info in self._listed if info.application == application}

    async def register_subscriber(self, info: SubscriberInfo) -> Registration:
        """Check that the file lists this subscriber at this address; nothing is registered."""
        application = await self.application(info.application)
        check_subscriber(info, application, service_on_loopback=True)
        listed = application.subscribers.get(info.id)
        if listed != info.address:
            listing = "does not list it" if listed is None else f"lists it at {listed}"
            place = f"[applications.{info.application}.subscribers]"
            hint = f'set {place} {info.id} = "{info.address}" in the publisher\'s file'
            if listed is None and application.subscribers:
                known = ", ".join(sorted(application.subscribers))
                hint = f"give it a listed name as `id` (WORMHOLE_ID): {known}; or {hint}"
            elif listed is not None:
                hint = f'listen = "{listed}" (or advertise that address); or {hint}'
            raise ConfigError(
                f"subscriber {info.id!r} of application {info.application} is at {info.address}, but the static "
                f"configuration {listing}, so no publisher would dial it there",
                hint=hint,
            )
        return self._announce(("subscriber", info.application, info.id), info)

    async def recorded_epochs(self, application: str, shards: Collection[str]) -> Mapping[str, int] | None:
        return None

    async def publish(self, change: ConfigChange, entry: HistoryEntry) -> int:
        raise nowhere_to_publish()

    def watch_host(self, host: str) -> AsyncIterator[HostRequest]:
        return self._watch_file(partial(self._files.request, host), HostRequest())

    async def token_holders(self) -> tuple[str, ...]:
        return await asyncio.to_thread(self._files.token_holders)

    def watch_tokens(self, application: str) -> AsyncIterator[tuple[AccessToken, ...]]:
        return self._watch_file(partial(self._files.tokens, application), ())

    async def set_tokens(
        self, application: str, tokens: Collection[AccessToken], seen: Collection[AccessToken]
    ) -> None:
        await asyncio.to_thread(self._files.set_tokens, application, tokens, seen)
        self.world.signal.notify()

    async def _watch_file(self, read: Callable[[], _T], first: _T) -> AsyncGenerator[_T]:
        """The results of ``read``, now and after each change. ``first``: the result before a valid file was read."""
        last: _T | None = None
        logged = ""
        while not self._stopped:
            seen = self.world.signal.version
            try:
                found = await asyncio.to_thread(read)
                logged = ""
            except ConfigError as error:  # the last valid result stays in use
                found = first if last is None else last
                if str(error) != logged:
                    logged = str(error)
                    _log.error("left out: %s", error)
            if found != last:
                last = found
                yield found
            # Another process may write the file, and sends no signal.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self.world.signal.wait(seen)

    async def set_host(self, host: str, request: HostRequest) -> None:
        await asyncio.to_thread(self._files.set_request, host, request)
        self.world.signal.notify()

    async def record(self, entry: HistoryEntry) -> None:
        await asyncio.to_thread(self._files.record, shortened(entry))

    async def history(self, limit: int = 100) -> tuple[HistoryEntry, ...]:
        return await asyncio.to_thread(self._files.history, limit)

    async def register_candidate(self, group: LogGroup, info: CandidateInfo) -> CandidateEntry:
        raise no_election()

    def watch_log(self, group: LogGroup) -> AsyncIterator[LogOwners]:
        return watch(self.world.signal, Unknown[LogOwners], self._is_stopped)

    async def own_log(self, group: LogGroup, info: PublisherInfo, *, server: str, why: str) -> LogClaim:
        raise no_election()

    async def request_move(self, group: LogGroup, request: MoveRequest | None) -> None:
        raise no_election()

    def _subscribers(self) -> tuple[SubscriberInfo, ...]:
        return self._listed

    def _need_contact(self) -> None:
        """Does nothing: there is no service, so contact is never missing."""
